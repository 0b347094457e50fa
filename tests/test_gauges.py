"""Numbers that are read off a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny import tiny
from torch import nn

import gan
from gan.chance import Chance
from gan.checkpoint import newest_checkpoint
from gan.config import Config
from gan.data import ImageData
from gan.gauges import gauges, gradient_share, judged, penalty_share, some_real, weight_norm
from gan.loop import train_step
from gan.run import build


def test_the_norm_of_all_weights_and_the_accuracy(tmp_path: Path) -> None:
    run = build(tiny(tmp_path))
    squares = sum(float(p.detach().square().sum()) for p in run.generator.raw.parameters())
    assert weight_norm(run.generator) == pytest.approx(squares**0.5)
    # 3 of 4 real images have positive logits, 1 of 4 fakes.
    found = gauges(run, {"sign/real": 0.5, "sign/fake": -0.5, "loss/discriminator": 1.0})
    assert (found["accuracy/real"], found["accuracy/fake"]) == (0.75, 0.75)
    assert found["weight_norm/generator"] == pytest.approx(squares**0.5)
    assert 10 < found["memory/process"] < 100_000


def test_the_penalty_share_is_that_of_the_objective(tmp_path: Path) -> None:
    run = build(tiny(tmp_path, penalties=["r1/4", "r2=3"], gamma=2.0))
    scalars = {"loss/discriminator": -1.5, "penalty/r1": 0.5, "penalty/r2": 1.0}
    # gamma / 2 * 0.5 + 3 / 2 * 1, beside 1.5
    assert penalty_share(run, scalars) == pytest.approx(2.0 / 3.5)
    assert penalty_share(run, {"loss/discriminator": 0.5}) == 0  # none was due yet
    del scalars["penalty/r1"]
    assert penalty_share(run, scalars) == pytest.approx(0.5)


def test_the_penalties_share_of_the_gradient_by_hand(tmp_path: Path) -> None:
    options: dict[str, Any] = {"penalties": ["r1=8/4", "r2=2"], "loss": "non-saturating"}
    run = build(tiny(tmp_path, "ring", batch_size=32, **options))
    network = nn.Linear(2, 1, bias=False)
    network.weight.data = torch.tensor([[3.0, 4.0]])
    run.discriminator.raw = nn.Sequential(network, nn.Flatten(0))
    real = torch.randn(32, 2)
    share = gradient_share(run, real, torch.zeros(32, dtype=torch.int64))
    # Of 4 |w|^2 + 1 |w|^2 the gradient is 10 w, whose norm is 50.
    chance = Chance((run.config.seed, "penalty share"), 0, 32)
    with torch.no_grad():
        fake = run.generator.raw(chance.normal("z", run.config.generator.z_dim))
    slopes = [torch.sigmoid(-(real @ network.weight[0])), torch.sigmoid(fake @ network.weight[0])]
    adversarial = (slopes[1][:, None] * fake).mean(0) - (slopes[0][:, None] * real).mean(0)
    assert share == pytest.approx(50 / (50 + float(adversarial.detach().norm())), rel=1e-5)


@pytest.mark.parametrize("penalties", [["lecam", "consistency"], ["wgan-gp", "dragan/2"], ["r2"]])
def test_measuring_the_share_of_the_gradient_changes_nothing(
    tmp_path: Path, penalties: list[str]
) -> None:
    def options(folder: str, every: int | None) -> Config:
        small: dict[str, Any] = {"hidden": None, "width": 4, "max_width": 8}
        more: dict[str, Any] = {"data": "fake:64", "resolution": "16", "sample_every": every}
        return tiny(
            tmp_path / folder,
            "cifar10",
            **{"penalties": penalties, "steps": 3, "generator": small, "discriminator": small},
            **more,
        )

    def weights(folder: Path) -> dict[str, torch.Tensor]:
        checkpoint = newest_checkpoint(folder / "checkpoints")
        assert checkpoint is not None
        return checkpoint.weights("generator") | checkpoint.weights("discriminator")

    often, once = (weights(gan.train(options(*each))) for each in (("a", 1), ("b", None)))
    assert all(torch.equal(often[name], once[name]) for name in once)


def test_judging_held_out_images_changes_nothing(tmp_path: Path) -> None:
    run = build(
        tiny(
            tmp_path,
            "cifar10",
            data="fake:64",
            resolution="16",
            discriminator={"hidden": None},
            generator={"hidden": None},
        )
    )
    train_step(run)
    before = {name: value.clone() for name, value in run.discriminator.raw.state_dict().items()}
    images, labels = some_real(run.data, 5)
    found = judged(run, images, labels)
    assert run.discriminator.raw.training
    after = run.discriminator.raw.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    run.discriminator.raw.eval()
    with torch.no_grad():
        logits = run.discriminator.raw(images)
    assert found["logits/held_out"] == pytest.approx(logits.mean().item())
    assert found["accuracy/held_out"] == pytest.approx((logits > 0).float().mean().item())


def test_real_examples_stand_in_the_columns_of_their_classes() -> None:
    labels = torch.arange(3).repeat_interleave(40)  # sorted, as class folders are
    images = (labels * 100).to(torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 2, 2)
    data = ImageData("sorted", images, "f", labels=labels, class_names=("a", "b", "c"))
    found, classes = some_real(data, 12, 3)
    assert classes.tolist() == [0, 1, 2] * 4
    assert torch.equal(found[:, 0, 0, 0], classes * 100 / 127.5 - 1)
    mixed = some_real(data, 60)[1]
    assert set(mixed.tolist()) == {0, 1, 2}
    assert torch.equal(mixed, some_real(data, 60)[1])
    assert len(some_real(data, 1000, 3)[0]) == 120  # also where classes are used up


def test_a_run_with_a_test_split_shows_what_the_discriminator_says_of_it(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (60, 8, 8, 1), np.uint8)
    np.savez(tmp_path / "both.npz", images=images[:40], images_test=images[40:])
    options = {"data": str(tmp_path / "both.npz"), "conditional": False}
    folder = gan.train(tiny(tmp_path, **options))
    events = EventAccumulator(str(folder))
    events.Reload()
    for tag in ("logits/held_out", "accuracy/held_out"):
        assert [point.step for point in events.Scalars(tag)] == [3, 6]
