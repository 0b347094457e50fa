"""Whole runs: what they leave on disk, what TensorBoard reads back, what they refuse."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny import tiny

import gan
from gan import sampling
from gan.checkpoint import newest_checkpoint
from gan.errors import ConfigError, GanError
from gan.loop import train_step
from gan.run import build

SCALARS = {
    "loss/generator",
    "loss/discriminator",
    "logits/real",
    "logits/fake",
    "sign/real",
    "sign/fake",
    "grad_norm/generator",
    "grad_norm/discriminator",
    "lr/generator",
    "lr/discriminator",
    "beta2/generator",
    "beta2/discriminator",
    "ema/half_life",
    "weight_norm/generator",
    "weight_norm/discriminator",
    "accuracy/real",
    "accuracy/fake",
    "memory/process",
    "time/images_per_second",
    *("time/data", "time/discriminator", "time/generator", "time/average"),
}
IMAGES = {"samples/real", "samples/ema", "samples/interpolation", "samples/nearest"}
SAMPLED = {"samples/variety", "time/sampling"}
METRICS = {"metrics/fid", "metrics/precision", "metrics/recall", "time/evaluation"}
PENALISED = {"penalty_share/discriminator"}
HELD_OUT = {"logits/held_out", "accuracy/held_out"}


def events(folder: Path) -> EventAccumulator:
    accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 0})
    accumulator.Reload()
    return accumulator


def weights(folder: Path) -> dict[str, torch.Tensor]:
    checkpoint = newest_checkpoint(folder / "checkpoints")
    assert checkpoint is not None
    return {
        f"{role}/{name}": value
        for role in ("generator", "discriminator", "ema")
        for name, value in checkpoint.weights(role).items()
    }


def assert_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    differ = [name for name in one if not torch.equal(one[name], other[name])]
    assert not differ


def test_a_run_leaves_all_its_files(tmp_path: Path) -> None:
    folder = gan.train(tiny(tmp_path))
    assert folder == tmp_path / "digits-001"
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    events_file = {name for name in files if name.startswith("events.out.tfevents.")}
    assert len(events_file) == 1
    checkpoint = ("manifest.json", "state.pt", "random-0.pt", "generator.safetensors")
    checkpoint += ("discriminator.safetensors", "ema.safetensors")
    assert files - events_file == {
        "config.yaml",
        "samples/real.png",
        "samples/step-000003.png",
        "samples/step-000006.png",
        "generator/README.md",
        "generator/config.json",
        "generator/model.safetensors",
        "generator/samples.png",
        *(f"checkpoints/step-{step:08d}/{name}" for step in (4, 6) for name in checkpoint),
    }
    generator = gan.load_generator(folder / "generator")
    assert_same(
        dict(generator.state_dict()),
        load_file(folder / "checkpoints/step-00000006/ema.safetensors"),
    )


def test_two_runs_get_two_folders(tmp_path: Path) -> None:
    config = tiny(tmp_path, steps=1, sample_every=None, save_every=None)
    assert [gan.train(config).name for _ in range(2)] == ["digits-001", "digits-002"]


@pytest.mark.parametrize(
    ("options", "more"),
    [
        ({"penalties": []}, set()),
        (
            {"penalties": ["r1/4", "r2"]},
            {"penalty/r1", "penalty/r2", "weight/r1", "weight/r2", *PENALISED},
        ),
        (
            {"n_critic": 2, "loss": "hinge", "penalties": ["wgan-gp"]},
            {"penalty/wgan-gp", "weight/wgan-gp", *PENALISED},
        ),
    ],
)
def test_tensorboard_holds_exactly_the_documented_tags(
    tmp_path: Path, options: dict[str, Any], more: set[str]
) -> None:
    folder = gan.train(tiny(tmp_path, **options))
    read = events(folder)
    tags = read.Tags()
    sampled = SAMPLED | ({"penalty_share/gradient"} if options["penalties"] else set())
    assert set(tags["scalars"]) == SCALARS | more | sampled
    assert set(tags["images"]) == IMAGES
    assert tags["tensors"] == ["config/text_summary"]
    assert read.SummaryMetadata("_hparams_/session_start_info").plugin_data.plugin_name == "hparams"
    assert [event.step for event in read.Scalars("samples/variety")] == [3, 6]
    for tag in SCALARS | more:
        assert [event.step for event in read.Scalars(tag)] == [2, 4, 6]
    assert [event.step for event in read.Images("samples/ema")] == [3, 6]
    text = read.Tensors("config/text_summary")[0].tensor_proto.string_val[0].decode()
    assert "data: digits" in text
    assert [path for path in folder.rglob("events.out.*") if path.parent != folder] == []


def test_the_strength_of_augmentation_and_the_generators_terms_are_logged(tmp_path: Path) -> None:
    options = {
        "data": "fake:64",
        "conditional": False,
        "resolution": "16",
        "augment": "diffaugment",
        "augment_strength": "0..1",
        "penalties": ["lecam"],
        "generator_penalties": ["path-length=3/2", "feature-matching=0.5"],
        "log_every": 1,
    }
    read = events(gan.train(tiny(tmp_path, **options)))
    strength = [event.value for event in read.Scalars("augment/strength")]
    torch.testing.assert_close(strength, [i / 6 for i in range(6)])
    for tag, value in (("path-length", 3.0), ("feature-matching", 0.5), ("lecam", 0.3)):
        assert [event.value for event in read.Scalars(f"weight/{tag}")] == pytest.approx(
            [value] * 6
        )
        assert len(read.Scalars(f"penalty/{tag}")) == 6


def test_weights_are_clipped_after_every_update(tmp_path: Path) -> None:
    run = build(tiny(tmp_path, loss="wasserstein", discriminator={"clip_weights": 0.01}))
    train_step(run)
    assert all(p.abs().max() <= 0.01 for p in run.discriminator.raw.parameters())
    assert any(p.abs().max() > 0.01 for p in run.generator.raw.parameters())


def test_augmentation_of_points_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="augment: ring is no set of images"):
        build(tiny(tmp_path, "ring", augment="ada"))


def test_the_readme_lists_exactly_the_documented_tags() -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    documented = SCALARS | IMAGES | SAMPLED | METRICS | PENALISED | HELD_OUT
    tags = {tag for tag in documented if f"`{tag}`" not in readme}
    assert not tags


def test_the_same_options_give_the_same_weights_also_from_the_runs_own_file(tmp_path: Path) -> None:
    config = tiny(tmp_path, loss="hinge", generator={"lr": 1e-4})
    first = gan.train(config)
    again = gan.train(gan.Config.load(first / "config.yaml"))
    assert again != first
    assert_same(weights(first), weights(again))
    other = gan.train(tiny(tmp_path, loss="hinge", generator={"lr": 1e-4}, seed=1))
    assert not all(
        torch.equal(weights(first)[name], value) for name, value in weights(other).items()
    )


def test_the_pictures_show_one_generator_growing(tmp_path: Path) -> None:
    # The last grid is what the exported generator makes of the same seeds.
    folder = gan.train(tiny(tmp_path))
    samples = gan.sample(gan.load_generator(folder / "generator"), range(4))
    expected = sampling.picture(samples, sampling.grid_columns(4, 10))
    with Image.open(folder / "samples/step-000006.png") as image:
        shown = np.asarray(image)
    assert np.array_equal(shown, expected[0].numpy())


def test_learning_rates_reach_their_end_with_the_run(tmp_path: Path) -> None:
    config = tiny(
        tmp_path,
        log_every=1,
        n_critic=2,
        generator={"lr": "1e-3..0"},
        discriminator={"lr": "1e-3..1e-4,from=50%"},
    )
    read = events(gan.train(config))
    generator = [event.value for event in read.Scalars("lr/generator")]
    torch.testing.assert_close(generator, [1e-3 * (1 - i / 6) for i in range(1, 7)])
    discriminator = [event.value for event in read.Scalars("lr/discriminator")]
    torch.testing.assert_close(discriminator, [1e-3, 1e-3, 1e-3, 7e-4, 4e-4, 1e-4])


def test_lazy_penalties_are_due_and_weighted_by_the_discriminators_updates(tmp_path: Path) -> None:
    run = build(tiny(tmp_path, n_critic=3, penalties=["r1/4", "r2"], gamma="2..0"))
    due = []
    for _ in range(2):
        for _ in range(3):
            due.append({name: weight for name, (weight, _) in run.due_penalties().items()})
            run.discriminator.updates += 1
            run.images_seen += run.images_per_update
    gamma = [2 * (1 - update / 18) for update in range(6)]
    assert [set(names) for names in due] == [
        {"r1", "r2"},
        {"r2"},
        {"r2"},
        {"r2"},
        {"r1", "r2"},
        {"r2"},
    ]
    torch.testing.assert_close([names["r2"] for names in due], [g / 2 for g in gamma])
    torch.testing.assert_close([due[0]["r1"], due[4]["r1"]], [4 * gamma[0] / 2, 4 * gamma[4] / 2])


def test_counters_of_a_step(tmp_path: Path) -> None:
    run = build(tiny(tmp_path, n_critic=2, gradient_accumulation_steps=3, batch_size=8))
    for _ in range(6):
        train_step(run)
    assert (run.step, run.generator.updates, run.discriminator.updates) == (6, 6, 12)
    assert run.images_seen == 6 * 2 * 3 * 8
    assert run.stream.position == 6 * 2 * 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 5000}, "batch_size: 5000 x 1 micro-batches x 1 processes = 5000 images"),
        ({"data": "fake:64", "conditional": True}, "conditional: the networks need class labels"),
        ({"batch_size": 1}, "batch_size: 1, but the generator has batch norm, which compares"),
        (
            {"generator": {"family": "dcgan", "hidden": None}, "resolution": "7"},
            "resolution: dcgan",
        ),
        ({"generator": {"optimizer": "Adamm"}}, "generator.optimizer: 'Adamm' is unknown; did you"),
        ({"generator": {"depth": 3}}, "generator.depth: the family mlp takes no such option"),
        (
            {"data": "fake:64", "conditional": False, "class_balanced": True},
            "class_balanced: fake:",
        ),
        ({"mixed_precision": "fp16"}, "mixed_precision: fp16 on cpu would silently run in fp32"),
        ({"data": "ring", "conditional": False, "horizontal_flip": True}, "is no set of images"),
    ],
)
def test_what_cannot_be_is_refused_and_leaves_nothing(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(GanError) as error:
        gan.train(tiny(tmp_path / "runs", **options))
    assert message in str(error.value)
    assert not (tmp_path / "runs").exists()


def test_a_set_smaller_than_the_presets_own_batch_repeats_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"data": "fake:10", "resolution": "8", "conditional": False, "batch_size": 64}
    run = build(tiny(tmp_path, **options))
    assert "= 64 images are more than the 10 of fake:10, so images repeat" in caplog.text
    train_step(run)
    assert run.images_seen == 64


def test_classes_can_be_balanced(tmp_path: Path) -> None:
    run = build(tiny(tmp_path, class_balanced=True, batch_size=1790))
    _, labels = next(run.stream)
    counts = torch.bincount(labels)
    assert counts.max() - counts.min() <= 7
    _, labels = next(build(tiny(tmp_path, batch_size=1790)).stream)
    counts = torch.bincount(labels)
    assert counts.max() - counts.min() > 7  # the digits themselves are not balanced


def test_problems_with_the_data_are_reported_together(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        build(tiny(tmp_path, data="fake:10", conditional=True, batch_size=20))
    assert len(error.value.problems) == 2


def test_the_exported_generator_says_what_it_is(tmp_path: Path) -> None:
    folder = gan.train(tiny(tmp_path))
    about = json.loads((folder / "generator/config.json").read_text(encoding="utf-8"))
    assert about["family"] == "mlp"
    assert about["shape"] == [1, 8, 8]
    assert about["options"]["num_classes"] == 10
    assert about["step"] == 6


def test_the_ring_is_covered_in_seconds(tmp_path: Path) -> None:
    folder = gan.train(
        gan.preset_config("ring").__class__.from_dict(
            {"runs_dir": tmp_path, "sample_every": None, "save_every": None},
            gan.preset_config("ring"),
        )
    )
    points = gan.sample(gan.load_generator(folder), range(2000))
    angles = torch.arange(8) * math.pi / 4
    centres = 0.8 * torch.stack([angles.cos(), angles.sin()], dim=1)  # radius 2, scaled by 1/2.5
    distance, nearest = torch.cdist(points, centres).min(dim=1)
    counts = torch.bincount(nearest[distance < 0.1], minlength=8)
    assert (counts > 2000 / 8 / 5).sum() >= 7, counts.tolist()
    assert counts.sum() > 1000, counts.tolist()


@pytest.mark.parametrize("function", [gan.build, gan.train])
def test_a_run_is_built_from_a_config_only(function):
    with pytest.raises(TypeError) as error:
        function("digits")
    assert str(error.value) == (
        "a run is built from a gan.Config, not from 'digits'; gan.preset_config(NAME) or "
        "gan.Config.load(PATH) gives one"
    )
