"""Choosing from data and machine: sensible, said, whole, and possible to train."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from gan.choice import Machine, choose, suggest_gamma
from gan.cli import main
from gan.config import Config
from gan.data import open_data
from gan.errors import GanError
from gan.networks import check_shape
from gan.presets import preset_config

LAPTOP, GPU = Machine(accelerator=False, cores=2), Machine(accelerator=True, cores=8)


@dataclass
class Some:
    shape: tuple[int, ...]
    count: int
    num_classes: int = 0

    def __len__(self) -> int:
        return self.count


@pytest.mark.parametrize(
    ("data", "machine", "preset", "resolution", "conditional", "augment"),
    [
        (Some((2,), 50_000), LAPTOP, "ring", None, False, "none"),
        (Some((1, 8, 8), 1797, 10), LAPTOP, "digits", None, True, "none"),
        (Some((1, 28, 28), 60_000, 10), LAPTOP, "fashion-mnist", None, True, "none"),
        (Some((3, 32, 32), 50_000), LAPTOP, "fashion-mnist-unconditional", None, False, "none"),
        (Some((3, 32, 32), 50_000, 10), GPU, "stylegan2-64", None, True, "ada"),
        (Some((4, 48, 48), 300, 3), LAPTOP, "few-shot", None, True, "diffaugment"),
        (Some((4, 48, 48), 300, 100), GPU, "few-shot", None, False, "diffaugment"),
        (Some((3, 218, 178), 200_000), LAPTOP, "few-shot", "64", False, "none"),
        (Some((3, 218, 178), 5_000), LAPTOP, "few-shot", "64", False, "diffaugment"),
        (Some((3, 1024, 1024), 70_000), GPU, "stylegan2-256", "256", False, "ada"),
        (Some((3, 50, 51), 900), LAPTOP, "few-shot", "50", False, "diffaugment"),
    ],
)
def test_what_is_chosen(data, machine, preset, resolution, conditional, augment) -> None:
    asked = Config(data="somewhere", labels="folders")
    config, reasons = choose(data, asked, machine)
    assert (config.preset, config.resolution) == (preset, resolution)
    assert (config.conditional, config.augment) == (conditional, augment)
    assert (config.data, config.labels) == ("somewhere", "folders")
    assert config.batch_size <= len(data)
    config.check()
    size = config.size or data.shape[1:]
    for network in (config.generator, config.discriminator):
        check_shape(network.family, (data.shape[0], *size) if size else data.shape)
    assert reasons[0].startswith(f"preset {preset}: ")
    assert any(line.startswith("resolution ") for line in reasons) == (resolution is not None)
    assert any(line.startswith("labels: ") for line in reasons) == (data.num_classes > 0)
    if augment != "none":
        assert any(line.startswith(f"augment {augment}: ") for line in reasons)


def test_a_resolution_that_was_asked_for_stays() -> None:
    config, reasons = choose(Some((3, 96, 96), 900), Config(resolution="96"), LAPTOP)
    assert config.resolution == "96"
    assert not any(line.startswith("resolution") for line in reasons)


def test_images_that_nothing_can_make() -> None:
    with pytest.raises(GanError, match="images of 17x5 are too small; ask for --resolution 16"):
        choose(Some((3, 17, 5), 900), Config(), LAPTOP)


def test_real_data_is_looked_at() -> None:
    assert (
        choose(open_data("digits"), Config()).config
        == choose(open_data("digits"), Config(), Machine.here()).config
    )
    config, _ = choose(open_data("digits"), Config(), LAPTOP)
    assert config.generator.family == "mlp"


@pytest.mark.parametrize(
    ("size", "batch", "published"),
    [(32, 512, 0.05), (64, 256, 2), (256, 256, 150), (32, 4096, 0.5), (64, 4096, 1)],
)
def test_the_rule_meets_the_published_gammas_within_its_factor(size, batch, published) -> None:
    assert 1 / 2.7 < suggest_gamma((size, size), batch) / published < 2.7


def test_the_rule_has_two_digits_and_grows_with_size_and_batch() -> None:
    assert suggest_gamma((64, 64), 64) == 0.81
    assert suggest_gamma((128, 128), 64) > suggest_gamma((64, 64), 64)
    assert suggest_gamma((64, 64), 128) > suggest_gamma((64, 64), 64)


def test_gamma_is_that_of_the_batch_that_was_asked_for() -> None:
    asked = Config(data="somewhere", batch_size=8, gradient_accumulation_steps=3)
    config, reasons = choose(Some((3, 64, 64), 500), asked, LAPTOP)
    assert config.batch_size == 8
    gamma = suggest_gamma((64, 64), 24)
    assert config.gamma.start == gamma
    assert any(f"gamma {gamma:g}" in line and "24 images a step" in line for line in reasons)


def test_a_single_image_repeats_in_a_batch() -> None:
    config, _ = choose(Some((3, 64, 64), 1), Config(data="somewhere"), LAPTOP)
    assert config.batch_size == preset_config("few-shot").batch_size


def test_the_command_line_says_what_it_chose_and_writes_it_down(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--data", "fake:40", "--resolution", "16", "--steps", "1", "--runs_dir", str(tmp_path)]
    small = ["--generator.hidden", "8", "--discriminator.hidden", "8", "--sample_num", "4"]
    assert main(["train", *words, *small]) == 0
    out = capsys.readouterr().out
    assert out.startswith("preset digits: 16 pixels are few enough for fully connected networks")
    config = Config.load(tmp_path / "digits-001" / "config.yaml")
    assert (config.preset, config.data, config.steps) == ("digits", "fake:40", 1)
    assert (config.batch_size, config.conditional, config.generator.hidden) == (40, False, (8,))


def test_a_single_image_is_learned_without_an_error(tmp_path: Path) -> None:
    words = ["--data", "fake:1", "--resolution", "32", "--steps", "1", "--runs_dir", str(tmp_path)]
    small = [
        f"--{role}.{name}={value}"
        for role in ("generator", "discriminator")
        for name, value in (("width", 4), ("hidden", 8))
    ]
    assert main(["train", *words, *small]) == 0
    assert (tmp_path / "few-shot-001" / "generator" / "samples.png").is_file()


def test_gamma_counts_the_images_of_all_processes_and_a_batch_that_is_the_default_too() -> None:
    data, asked = Some((3, 64, 64), 300), Config(data="somewhere")
    one = choose(data, asked, LAPTOP).config
    two = choose(data, asked, Machine(accelerator=False, cores=2, processes=2)).config
    assert two.batch_size == one.batch_size == 32
    assert two.gamma.start == suggest_gamma((64, 64), 64)
    large = choose(data, asked, LAPTOP, batch_size=64).config
    assert (large.batch_size, large.gamma) == (64, two.gamma)
