"""Numbers about pictures: equal to the reference's, and different where pictures are."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from gan.cli import main
from gan.errors import GanError
from gan.gallery import save_samples
from gan.metrics import FeatureNetwork, evaluate, open_features, record
from gan.metrics import judge as judge_module
from gan.metrics.images import as_rgb, as_square
from gan.metrics.scores import Features, check, nearest_gap, scores
from gan.networks import build_generator
from gan.sampling import sample, to_bytes


class Pictures:
    """Images in memory."""

    def __init__(
        self, images: Tensor, labels: Tensor | None = None, name: str = "pictures"
    ) -> None:
        self.images, self.name = images, name
        self.labels = torch.zeros(len(images), dtype=torch.int64) if labels is None else labels
        self.num_classes = 0 if labels is None else int(labels.max()) + 1
        self.fingerprint = f"{name} {images.float().sum().item()} {len(images)}"
        self.shape = tuple(images.shape[1:])

    def __len__(self) -> int:
        return len(self.images)

    def __getitems__(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        chosen = torch.as_tensor(indices, dtype=torch.int64)
        return self.images[chosen], self.labels[chosen]


@pytest.fixture
def fidelity() -> None:
    if importlib.util.find_spec("torch_fidelity") is None:
        pytest.skip("needs: torch-fidelity (pip install 'gan-toolkit[metrics]')")


def blobs(count: int, seed: int, size: int = 8, num_classes: int = 4) -> Pictures:
    """One bright square a picture, in one quarter a class, at a place of its own."""
    chance = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % num_classes
    images = torch.randint(0, 40, (count, 1, size, size), generator=chance)
    half = size // 2
    places = torch.randint(0, half - 1, (count, 2), generator=chance)
    for i, (label, (y, x)) in enumerate(zip(labels.tolist(), places.tolist(), strict=True)):
        top, left = half * (label // 2) + y, half * (label % 2) + x
        images[i, 0, top : top + 2, left : left + 2] = 200 + i % 50
    return Pictures(images.to(torch.uint8), labels, f"blobs {seed}")


def pixels(classes: int | None = 6) -> FeatureNetwork:
    """The pixels as features, and some of them as logits."""

    def extract(images: Tensor) -> tuple[Tensor, Tensor | None]:
        flat = images.float().flatten(1) / 255
        return flat, None if classes is None else flat[:, :classes]

    return FeatureNetwork("pixels", "0", "none", extract)


# --- the numbers ---------------------------------------------------------------------------------


def test_fid_of_two_normal_distributions_by_hand(fidelity: None) -> None:
    rng = np.random.default_rng(0)
    a = torch.from_numpy(rng.normal(0, 1, (50_000, 3))).float()
    b = torch.from_numpy(rng.normal([1, 0, 0], [1, 2, 1], (50_000, 3))).float()
    # |difference of means|^2 + (1 - 2)^2 for axis-parallel normal distributions.
    assert scores(Features(a), Features(b), ["fid"])["fid"] == pytest.approx(2.0, rel=0.02)


def test_sums_are_in_double_precision(fidelity: None) -> None:
    rng = np.random.default_rng(0)
    a = torch.from_numpy(rng.normal(1e4, 1e-2, (5000, 2))).float()
    b = torch.from_numpy(rng.normal(1e4, 2e-2, (5000, 2))).float()
    exact = [np.asarray(each, np.float64) for each in (a, b)]
    means = [each.mean(0) for each in exact]
    spreads = [np.cov(each, rowvar=False) for each in exact]
    roots = np.sqrt(np.linalg.eigvals(spreads[0] @ spreads[1])).sum()
    expected = ((means[0] - means[1]) ** 2).sum() + np.trace(spreads[0] + spreads[1]) - 2 * roots
    assert scores(Features(a), Features(b), ["fid"])["fid"] == pytest.approx(expected, rel=1e-6)


def test_equal_sets_are_at_zero_and_never_below(fidelity: None) -> None:
    same = Features(torch.randn(300, 20))
    values = scores(same, same, ["fid", "precision", "recall"])
    assert values["fid"] == pytest.approx(0, abs=1e-9)
    assert values["fid"] >= 0
    assert values["precision"] == values["recall"] == 1


def test_the_inception_score_by_hand(fidelity: None) -> None:
    sure = Features(torch.zeros(1000, 2), 100 * torch.eye(5).repeat(200, 1))
    unsure = Features(torch.zeros(1000, 2), torch.zeros(1000, 5))
    assert scores(sure, sure, ["inception_score"])["inception_score"] == pytest.approx(5, rel=0.03)
    assert scores(unsure, unsure, ["inception_score"])["inception_score"] == pytest.approx(1)


@pytest.mark.parametrize(
    ("metrics", "fakes", "reals", "message"),
    [
        (
            *(["fid"], 96, 999),
            "fid needs at least 97 fakes (10,000 are usual); there are 96; leave fid out of the "
            "metrics, or give more",
        ),
        (
            *(["kid"], 999, 99),
            "kid needs at least 1000 fakes (10,000 are usual); there are 999; leave kid out of the "
            "metrics, or give more",
        ),
        (
            *(["recall"], 60, 49),
            "recall needs at least 50 real images; there are 49; leave recall out of the metrics, "
            "or give more",
        ),
        (["is"], 9, 9, "metrics: 'is' is not one of fid, kid, inception_score, precision, recall"),
    ],
)
def test_too_few_images(metrics: list[str], fakes: int, reals: int, message: str) -> None:
    with pytest.raises(GanError) as caught:
        check(metrics, fakes, reals, 96, 1000)
    assert str(caught.value) == message


def test_a_subset_of_one_has_no_kid() -> None:
    with pytest.raises(GanError, match=r"^kid_subset: 1 is below 2$"):
        check(["kid"], 999, 999, 96, 1)


def test_flattened_features_are_refused() -> None:
    with pytest.raises(ValueError, match=r"features have shape \(9,\), not \(count, length\)"):
        Features(torch.zeros(9))


def test_the_gap_to_the_nearest_by_hand() -> None:
    real = torch.tensor([[0.0], [10.0]])
    assert nearest_gap(torch.tensor([[0.0], [1.0], [13.0]]), real) == 1


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_everything_becomes_rgb(channels: int) -> None:
    images = torch.full((2, channels, 3, 3), 100, dtype=torch.uint8)
    if channels == 4:
        images[:, 3] = 51  # a fifth of 100, four fifths of white
    assert (as_rgb(images) == (224 if channels == 4 else 100)).all()
    assert as_rgb(images).shape == (2, 3, 3, 3)


def test_large_images_are_averaged_down() -> None:
    board = (torch.arange(64).view(-1, 1) + torch.arange(64)) % 2 * 255
    squares = as_square(board.to(torch.uint8).view(1, 1, 64, 64), 32)
    torch.testing.assert_close(squares, torch.zeros(1, 1, 32, 32))


# --- equal to torch-fidelity ---------------------------------------------------------------------


def test_numbers_equal_torch_fidelitys_own(fidelity: None, tmp_path: Path) -> None:
    """Its whole way from files to numbers, with a feature network that needs no download."""
    import torch_fidelity
    from PIL import Image
    from torch_fidelity.feature_extractor_base import FeatureExtractorBase

    torch.manual_seed(3)
    weight = torch.randn(3 * 64, 24) / 100

    class Projection(FeatureExtractorBase):
        def __init__(self, name: str, features_list: list[str], **options: Any) -> None:
            super().__init__(name, features_list)

        @staticmethod
        def get_provided_features_list() -> tuple[str, ...]:
            return "vectors", "logits"

        @staticmethod
        def get_default_feature_layer_for_metric(metric: str) -> str:
            return "logits" if metric == "isc" else "vectors"

        def forward(self, images: Tensor) -> tuple[Tensor, ...]:
            vectors = torch.relu(images.float().flatten(1) @ weight)
            every = {"vectors": vectors, "logits": vectors[:, :7] / 10}
            return tuple(every[name] for name in self.features_list)

    name = "gan-toolkit-projection"
    torch_fidelity.register_feature_extractor(name, Projection)
    sets = blobs(150, 1), blobs(170, 2)
    for pictures in sets:
        (tmp_path / pictures.name).mkdir()
        for i, image in enumerate(as_rgb(pictures.images)):
            file = tmp_path / pictures.name / f"{i:04d}.png"
            Image.fromarray(image.permute(1, 2, 0).numpy()).save(file)
    theirs = torch_fidelity.calculate_metrics(
        input1=str(tmp_path / sets[0].name),
        input2=str(tmp_path / sets[1].name),
        feature_extractor=name,
        **{metric: True for metric in ("isc", "fid", "kid", "prc")},
        **{"kid_subset_size": 100, "save_cpu_ram": True},
        **{"cuda": False, "cache": False, "verbose": False},
    )
    projection = Projection(name, ["vectors", "logits"])
    ours = [Features(*projection(as_rgb(pictures.images))) for pictures in sets]
    everything = ["fid", "kid", "inception_score", "precision", "recall"]
    values = scores(*ours, everything, subset=100)
    assert values == {
        "fid": pytest.approx(theirs["frechet_inception_distance"], rel=1e-6),
        "kid": pytest.approx(theirs["kernel_inception_distance_mean"], rel=1e-6),
        "kid_std": pytest.approx(theirs["kernel_inception_distance_std"], rel=1e-6),
        "inception_score": pytest.approx(theirs["inception_score_mean"], rel=1e-6),
        "inception_score_std": pytest.approx(theirs["inception_score_std"], rel=1e-6),
        "precision": theirs["precision"],
        "recall": theirs["recall"],
    }


# --- an evaluation -------------------------------------------------------------------------------


def test_an_evaluation_says_how_it_was_made(fidelity: None) -> None:
    reals, fakes = blobs(300, 1), blobs(200, 2)
    found = evaluate(
        fakes, reals, features=pixels(), subset=100, about={"weights": "ema", "step": 7}
    )
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]{8}[+-]\d{4}", found.pop("time"))
    assert found.pop("torch_fidelity")[0].isdigit()
    values = found.pop("values")
    assert sorted(values) == [
        "fid", "inception_score", "inception_score_std", "kid", "kid_std", "precision", "recall"
    ]  # fmt: skip
    assert all(math.isfinite(value) for value in values.values())
    floor, nearest = found.pop("floor"), found.pop("nearest")
    assert floor.keys() == values.keys()
    assert 0.7 < nearest < 1.4
    assert found == {
        "floor_of": "one half of the real images (150) against the other, as there are no unseen "
        "ones; half as many give a higher fid",
        "notes": [],
        "features": "pixels",
        "features_hash": "0",
        "features_accuracy": None,
        "resize": "none",
        "fakes": 200,
        "reals": 300,
        "data": "blobs 1",
        "data_fingerprint": reals.fingerprint,
        "seed": None,
        "truncation": None,
        "kid_subset": 100,
        "weights": "ema",
        "step": 7,
    }
    without = evaluate(fakes, reals, features=pixels(), subset=100, floor=False)
    assert (without["values"], without["floor"], without["nearest"]) == (values, None, None)


def test_a_generator_is_evaluated_by_its_seeds_and_the_datas_classes(fidelity: None) -> None:
    reals = blobs(300, 1)
    generator = build_generator("mlp", (1, 8, 8), z_dim=8, hidden=(16,), num_classes=4)
    seen: list[Tensor] = []

    def extract(images: Tensor) -> tuple[Tensor, None]:
        seen.append(images)
        return images.float().flatten(1), None

    network = FeatureNetwork("seen", "0", "none", extract)
    found = evaluate(generator, reals, features=network, num=150, seed=40, metrics=["fid"])
    made = torch.cat(seen[-3:])
    assert (found["seed"], found["fakes"], len(made)) == (40, 150, 150)
    classes = [sample(generator, range(40, 190), label) for label in range(4)]
    chosen = [
        [torch.equal(to_bytes(images[i]), made[i]) for images in classes].index(True)
        for i in range(150)
    ]
    assert np.bincount(chosen, minlength=4).min() > 25


def test_twice_the_same_numbers_and_the_second_time_from_the_cache(
    fidelity: None, tmp_path: Path
) -> None:
    reals, fakes, calls = blobs(300, 1), blobs(200, 2), []
    plain = pixels()

    def extract(images: Tensor) -> tuple[Tensor, Tensor | None]:
        calls.append(len(images))
        return plain.extract(images)

    network = replace(plain, extract=extract)
    options: dict[str, Any] = {"features": network, "subset": 100, "cache": tmp_path / "new"}
    first = evaluate(fakes, reals, held_out=blobs(200, 3), **options)
    assert sum(calls) == 300 + 200 + 200
    calls.clear()
    second = evaluate(fakes, reals, held_out=blobs(200, 3), **options)
    assert sum(calls) == 200
    assert {**first, "time": ""} == {**second, "time": ""}
    other = replace(network, hash="1")
    calls.clear()
    evaluate(fakes, reals, **{**options, "features": other})
    assert sum(calls) == 300 + 200
    for file in (tmp_path / "new").iterdir():
        file.write_bytes(b"damaged")
    assert {**evaluate(fakes, reals, held_out=blobs(200, 3), **options), "time": ""} == {
        **first,
        "time": "",
    }


def test_two_processes_give_the_number_of_one(
    fidelity: None, tmp_path: Path, two_processes: Callable[..., list[Any]]
) -> None:
    reals, held_out = blobs(300, 1), blobs(130, 3)
    generator = build_generator("mlp", (1, 8, 8), z_dim=8, hidden=(16,), num_classes=4)

    def run(cache: Path | None) -> dict[str, Any]:
        accelerator = Accelerator(cpu=True)
        options: dict[str, Any] = {"held_out": held_out, "subset": 100, "accelerator": accelerator}
        found = evaluate(generator, reals, features=pixels(), num=200, cache=cache, **options)
        again = evaluate(generator, reals, features=pixels(), num=200, cache=cache, **options)
        assert {**found, "time": ""} == {**again, "time": ""}
        return {**found, "time": ""}

    alone = run(None)
    assert two_processes(run, tmp_path) == [alone, alone]


def test_a_copier_a_repeater_and_noise_are_told_apart(
    fidelity: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge_module, "_UPDATES", 150)
    reals, held_out = blobs(1200, 1), blobs(1200, 2)
    network = open_features("self", reals)
    assert network.accuracy is not None
    assert network.accuracy > 0.95
    noise = torch.randint(0, 256, (1100, 1, 8, 8), dtype=torch.uint8)
    kinds = {
        "good": blobs(1100, 3),
        "copies": Pictures(reals.images[:1100], reals.labels[:1100]),
        "repeats": Pictures(reals.images[:1].expand(1100, 1, 8, 8)),
        "noise": Pictures(noise),
    }
    found = {
        kind: evaluate(fakes, reals, features=network, held_out=held_out, subset=200)
        for kind, fakes in kinds.items()
    }
    values = {kind: each["values"] for kind, each in found.items()}
    nearest = {kind: each["nearest"] for kind, each in found.items()}
    floor = found["good"]["floor"]

    assert values["good"]["fid"] < 2 * floor["fid"]
    assert values["good"]["precision"] > 0.7
    assert values["good"]["recall"] > 0.7
    assert 0.7 < nearest["good"] < 1.4
    assert found["good"]["notes"] == []

    assert nearest["copies"] == 0
    assert values["copies"]["fid"] < 0.5 * floor["fid"]
    assert len(found["copies"]["notes"]) == 2
    assert all(note.endswith("copies?") for note in found["copies"]["notes"])

    assert values["repeats"]["recall"] < 0.05
    assert values["repeats"]["inception_score"] == pytest.approx(1)
    assert values["repeats"]["fid"] > 20 * floor["fid"]

    assert values["noise"]["precision"] < 0.2
    assert values["noise"]["fid"] > 20 * floor["fid"]
    assert nearest["noise"] > 2


def test_what_cannot_be_evaluated(fidelity: None) -> None:
    reals = blobs(300, 1)
    generator = build_generator("mlp", (1, 8, 8), z_dim=8, hidden=(16,), num_classes=3)
    other = Pictures(torch.zeros(200, 3, 8, 8, dtype=torch.uint8))
    for fakes, options, message in [
        (other, {}, r"the fakes have shape \(3, 8, 8\) and the real images \(1, 8, 8\)"),
        (generator, {"metrics": ["fid"]}, "the generator has 3 classes and blobs 1 has 4"),
        (
            reals,
            {"metrics": ["fid"], "num": 9},
            r"fid needs at least 65 fakes \(10,000 are usual\); there are 9; ",
        ),
        (
            reals,
            {"features": pixels(None), "metrics": ["inception_score"]},
            "metrics: inception_sc",
        ),
    ]:
        with pytest.raises(GanError, match=f"^{message}"):
            evaluate(fakes, reals, **{"features": pixels(), "subset": 100, **options})


def test_what_cannot_be_evaluated_is_known_before_a_network_is_had(
    fidelity: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(*_: object, **__: object) -> None:
        raise AssertionError("a judge would train for minutes")

    monkeypatch.setattr(sys.modules[evaluate.__module__], "open_features", opened)
    reals, few = blobs(300, 1), blobs(96, 2)
    generator = build_generator("mlp", (1, 8, 8), z_dim=8, hidden=(16,), num_classes=3)
    for fakes, options, message in [
        (
            few,
            {"metrics": ["fid"]},
            r"fid needs at least 97 fakes \(10,000 are usual\); there are 96; ",
        ),
        (few, {"metrics": ["fid"], "features": "inception:FILE"}, "fid needs at least 2049 "),
        (reals, {}, r"kid needs at least 1000 fakes \(10,000 are usual\); there are 300; "),
        (reals, {"metrics": ["fad"]}, "metrics: 'fad' is not one of "),
        (generator, {}, "the generator has 3 classes and blobs 1 has 4"),
    ]:
        with pytest.raises(GanError, match=f"^{message}"):
            evaluate(fakes, reals, **options)  # type: ignore[arg-type]


def test_a_missing_torch_fidelity_is_known_before_a_network_is_had(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "torch_fidelity", None)
    monkeypatch.setattr(sys.modules[evaluate.__module__], "open_features", None)
    with pytest.raises(GanError, match=r"^metrics need torch-fidelity: pip install "):
        evaluate(blobs(300, 1), blobs(300, 2), metrics=["fid"])


def test_what_is_neither_a_generator_nor_images_is_named() -> None:
    reals = blobs(60, 1)
    words = "is no set of images; gan.open_data(PATH) gives one"
    for arguments, message in [
        (("made", reals), f"fakes: a str {words}"),
        ((reals, reals.images), f"reals: a Tensor {words}"),
        ((nn.Linear(2, 2), reals), "fakes: a Linear is no generator: it has no z_dim"),
    ]:
        with pytest.raises(TypeError) as caught:
            evaluate(*arguments)  # type: ignore[arg-type]
        assert str(caught.value) == message


def test_points_are_their_own_features(fidelity: None) -> None:
    reals = Pictures(torch.randn(400, 2))
    found = evaluate(Pictures(torch.randn(300, 2)), reals, metrics=["fid", "precision"])
    assert found["features"] == "points"
    assert found["values"]["fid"] < 0.1


def test_a_floor_that_cannot_be_is_a_note(fidelity: None) -> None:
    found = evaluate(
        blobs(200, 2), blobs(300, 1), features=pixels(), subset=100, held_out=blobs(60, 3)
    )
    assert set(found["floor"]) == {"precision", "recall"}
    assert found["floor_of"] == "60 unseen real images"
    assert found["notes"] == [
        f"no floor of {name}: it needs at least {least} images on either side; there are 60"
        for name, least in (("fid", 65), ("kid", 100), ("inception_score", 100))
    ]


def test_where_nothing_is_held_out_a_half_against_the_other_is_the_floor(fidelity: None) -> None:
    reals = blobs(600, 1)
    options: dict[str, Any] = {"features": pixels(), "subset": 100, "metrics": ["fid", "recall"]}
    found = evaluate(blobs(600, 2), reals, **options)
    # As good as real ones: below the floor of half as many images, and no copies.
    assert found["values"]["fid"] < found["floor"]["fid"]
    assert found["notes"] == []
    copies = evaluate(reals, reals, **options)
    assert copies["floor"] == found["floor"]
    assert copies["nearest"] == 0
    assert copies["notes"] == [
        "the fakes are much closer to the real images than unseen ones are: copies?"
    ]


def test_the_gap_to_another_image_by_hand() -> None:
    real = torch.tensor([[0.0], [1.0], [3.0], [7.0], [7.5]])
    assert nearest_gap(real, real) == 0
    assert nearest_gap(real, real, others=True) == 1


class Broken(nn.Module):
    """A generator that makes the same of everything."""

    z_dim, num_classes, shape = 4, 0, (1, 8, 8)

    def __init__(self, value: float, one: bool = False) -> None:
        super().__init__()
        self.value, self.one = nn.Parameter(torch.tensor(value)), one

    def forward(self, z: Tensor) -> Tensor:
        images = torch.zeros(len(z), *self.shape) + self.value
        return torch.where(z[:, :1, None, None] > 0, images, 0.5) if self.one else images


@pytest.mark.parametrize("value", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("network", ["pixels", "self"])
def test_a_generator_that_always_makes_the_same_gets_numbers(
    value: float, network: str, fidelity: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge_module, "_UPDATES", 20)
    reals = blobs(300, 1)
    features = pixels() if network == "pixels" else open_features("self", reals)
    found = evaluate(Broken(value), reals, features=features, num=200, subset=100)
    assert all(math.isfinite(each) for each in found["values"].values())
    assert found["values"]["recall"] == 0
    assert found["values"]["fid"] > 5 * found["floor"]["fid"]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_generator_of_what_is_not_finite_is_refused(
    value: float, fidelity: None, tmp_path: Path, two_processes: Callable[..., list[Any]]
) -> None:
    reals = blobs(300, 1)

    def run(generator: nn.Module) -> str:
        options: dict[str, Any] = {"num": 200, "subset": 100, "accelerator": Accelerator(cpu=True)}
        with pytest.raises(GanError) as caught:
            evaluate(generator, reals, features=pixels(), **options)
        return str(caught.value)

    words = " of 200 fakes are not finite: there is nothing to measure"
    assert run(Broken(value)) == f"200{words}"
    some = run(Broken(value, one=True))
    assert 50 < int(some.removesuffix(words)) < 150
    assert two_processes(run, Broken(value, one=True)) == [some, some]


def test_what_has_no_value_is_one_clear_error_on_every_process(
    fidelity: None, two_processes: Callable[..., list[Any]]
) -> None:
    reals, fakes = blobs(300, 1), blobs(200, 2)
    huge = replace(pixels(), extract=lambda images: (images.float().flatten(1) * 3e38, None))
    sure = replace(
        pixels(), extract=lambda x: (x.float().flatten(1), x.float().flatten(1)[:, :6] * 1e4)
    )

    def run(network: FeatureNetwork, metric: str) -> str:
        options: dict[str, Any] = {"accelerator": Accelerator(cpu=True), "subset": 100}
        with pytest.raises(GanError) as caught:
            evaluate(fakes, reals, features=network, metrics=[metric], **options)
        return str(caught.value)

    # Probabilities of exactly 0 have no logarithm.
    words = "inception_score is nan: the features leave no other value"
    assert run(sure, "inception_score") == words
    assert two_processes(run, sure, "inception_score") == [words, words]
    assert run(huge, "fid") == "200 of 200 fakes are not finite: there is nothing to measure"
    vectors = Features(torch.full((99, 3), float("nan")))
    with pytest.raises(GanError, match=r"^fid cannot be computed of these features: .*NaN"):
        scores(vectors, vectors, ["fid"])


def test_evaluations_are_recorded_one_after_the_other(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    first = {"values": {"fid": 1.5}, "step": 1, "features": "self", "seed": None, "time": "then"}
    others = [first | {"step": 2}, first | {"values": {"kid": 1.0}}, first | {"seed": 1}]
    for entry in (first, *others):
        assert record(path, entry) is False
    assert json.loads(path.read_text()) == [first, *others]
    assert list(tmp_path.iterdir()) == [path]
    again = first | {"values": {"fid": 1.0}, "floor": {"fid": 0.5}, "time": "now"}
    assert record(path, again) is True
    assert json.loads(path.read_text()) == [*others, again]
    path.write_text("{")
    with pytest.raises(GanError, match=r"metrics\.json is no list of evaluations; move it away$"):
        record(path, {})
    assert path.read_text() == "{"


def test_a_failed_write_of_the_evaluations_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "metrics.json"
    record(path, {"values": {"fid": 1.5}})
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(GanError, match=r"^cannot write .*metrics\.json: No space left on device$"):
        record(path, {"values": {"fid": 1.0}})
    assert json.loads(path.read_text()) == [{"values": {"fid": 1.5}}]
    assert list(tmp_path.iterdir()) == [path]


# --- feature networks ----------------------------------------------------------------------------


def test_a_judge_is_trained_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge_module, "_UPDATES", 20)
    data = blobs(200, 1)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first = open_features("self", data, cache=tmp_path)
    assert torch.equal(torch.rand(3), expected)
    monkeypatch.setattr(judge_module, "train_judge", None)
    second = open_features("self", data, cache=tmp_path)
    assert (first.hash, first.accuracy) == (second.hash, second.accuracy)
    assert torch.equal(first.extract(data.images)[0], second.extract(data.images)[0])
    monkeypatch.undo()
    monkeypatch.setattr(judge_module, "_UPDATES", 20)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-100])
    assert open_features("self", data, cache=tmp_path).hash == first.hash


def test_without_labels_a_judge_learns_rotations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge_module, "_UPDATES", 300)
    corner = blobs(400, 1).images[::4]  # always in the same quarter
    judge = open_features("self", Pictures(corner))
    assert judge.accuracy is not None
    assert judge.accuracy > 0.9
    vectors, logits = judge.extract(corner)
    assert vectors.shape == (100, judge_module.LENGTH)
    assert logits is None


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 4, 6), (4, 40, 40), (1, 2, 2)])
def test_a_judge_takes_any_shape(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge_module, "_UPDATES", 2)
    images = torch.randint(0, 256, (60, *shape), dtype=torch.uint8)
    for data in (Pictures(images), Pictures(images, torch.arange(60) % 3)):
        network = open_features("self", data)
        assert network.extract(images)[0].shape == (60, judge_module.LENGTH)
    assert network.resize == ("none" if shape[1:] in ((8, 8), (2, 2)) else network.resize)
    assert (network.resize == "none") == (shape[1:] in ((8, 8), (2, 2)))


class Mean(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images.float().mean((2, 3))


def test_a_torchscript_file(tmp_path: Path) -> None:
    path = tmp_path / "mean.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(Mean()).save(str(path))
    network = open_features(str(path), blobs(9, 1))
    assert (network.name, network.resize, len(network.hash)) == ("mean.pt", "its own", 16)
    assert (
        network.extract(torch.full((2, 1, 4, 4), 7, dtype=torch.uint8))[0].tolist()
        == [[7.0] * 3] * 2
    )
    path.write_bytes(b"nothing")
    with pytest.raises(GanError, match=r"^features: .*mean\.pt is no TorchScript file: "):
        open_features(str(path), blobs(9, 1))


@pytest.mark.slow
def test_a_vision_model_of_transformers(tmp_path: Path) -> None:
    from transformers import ViTConfig, ViTImageProcessor, ViTModel

    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = ViTConfig(**sizes, intermediate_size=8, image_size=16, patch_size=8)
    ViTModel(config).save_pretrained(tmp_path)
    ViTImageProcessor(size={"height": 16, "width": 16}).save_pretrained(tmp_path)
    network = open_features(str(tmp_path), blobs(9, 1))
    vectors, logits = network.extract(blobs(5, 1).images)
    assert vectors.shape == (5, 8)
    assert logits is None
    assert len(vectors.unique(dim=0)) == 5
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(GanError, match="is no vision model of transformers: "):
        open_features(str(tmp_path), blobs(9, 1))


def test_an_unknown_feature_network() -> None:
    with pytest.raises(GanError) as caught:
        open_features("resnet", blobs(9, 1))
    assert str(caught.value) == (
        "features: 'resnet' is unknown; give self, inception, vgg16, dinov2, clip, a TorchScript "
        "file, or the folder of a transformers model"
    )


def test_weights_that_cannot_be_had(fidelity: None, tmp_path: Path) -> None:
    (tmp_path / "weights.pth").write_bytes(b"nothing")
    with pytest.raises(GanError) as caught:
        open_features(f"inception:{tmp_path}/weights.pth", blobs(9, 1))
    assert str(caught.value).startswith("features: the weights of inception cannot be had: ")
    assert str(caught.value).endswith(
        "; give their file as inception:FILE, or use features self, which needs none"
    )


def weights_by_chance(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of Inception's weights, in the place of those that would be downloaded."""
    from torch_fidelity import feature_extractor_inceptionv3 as inception

    kind = inception.FeatureExtractorInceptionV3
    with monkeypatch.context() as patch:
        patch.setattr(inception, "load_state_dict_from_url", lambda *_, **__: {})
        patch.setattr(kind, "load_state_dict", lambda *_: None)
        chance = kind("inception-v3-compat", ["2048"], None)
    for module in chance.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight)
    torch.save(chance.state_dict(), path)


@pytest.mark.slow
def test_our_command_line_gives_the_numbers_of_torch_fidelitys(
    fidelity: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two folders of pictures, once through each, with the same weights of Inception.

    So few pictures that it takes seconds: our least counts are set aside.
    """
    weights_by_chance(tmp_path / "weights.pth", monkeypatch)
    generator = build_generator("mlp", (3, 8, 8), z_dim=8, hidden=(16,))
    save_samples(tmp_path / "fakes", generator, range(20))
    save_samples(tmp_path / "reals", generator, range(100, 122), truncation=0.5)
    words = f"--fid --kid --isc --prc --cpu --json --silent --no-cache --input1 {tmp_path}/fakes "
    words += f"--input2 {tmp_path}/reals --kid-subset-size 10 --feature-extractor "
    words += f"inception-v3-compat --feature-extractor-weights-path {tmp_path}/weights.pth"
    command = [sys.executable, "-m", "torch_fidelity.fidelity", *words.split()]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    theirs = json.loads(done.stdout)

    monkeypatch.setattr("gan.metrics.scores._least", lambda *_: 1)
    monkeypatch.setenv("GAN_CACHE", str(tmp_path / "cache"))
    words = f"evaluate {tmp_path}/fakes --data {tmp_path}/reals --kid_subset 10"
    assert main([*words.split(), "--features", f"inception:{tmp_path}/weights.pth"]) == 0
    (ours,) = json.loads((tmp_path / "fakes.metrics.json").read_text(encoding="utf-8"))
    assert (ours["features"], ours["fakes"], ours["reals"]) == ("inception", 20, 22)
    assert ours["resize"] == "bilinear 299 as in TensorFlow 1"
    assert ours["values"] == {
        "fid": pytest.approx(theirs["frechet_inception_distance"], rel=1e-6),
        "kid": pytest.approx(theirs["kernel_inception_distance_mean"], rel=1e-6),
        "kid_std": pytest.approx(theirs["kernel_inception_distance_std"], rel=1e-6),
        "inception_score": pytest.approx(theirs["inception_score_mean"], rel=1e-6),
        "inception_score_std": pytest.approx(theirs["inception_score_std"], rel=1e-6),
        "precision": pytest.approx(theirs["precision"], rel=1e-6),
        "recall": pytest.approx(theirs["recall"], rel=1e-6),
    }


def test_a_file_of_weights_never_runs_code(fidelity: None, tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "executed",)

    torch.save({"weight": Bomb()}, tmp_path / "weights.pth")
    with pytest.raises(GanError, match="the weights of inception cannot be had: "):
        open_features(f"inception:{tmp_path}/weights.pth", blobs(9, 1))
    assert not (tmp_path / "executed").exists()
