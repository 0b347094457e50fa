from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from tiny import tiny

import gan
from gan.health import Health, variety
from gan.loop import start

WON = {"sign/real": 1.0, "sign/fake": -1.0, "grad_norm/generator": 1e-4}
FINE = {"sign/real": 0.4, "sign/fake": -0.3, "grad_norm/generator": 1.0}


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [message.partition(":")[0] for message in caplog.messages]


def test_a_discriminator_that_has_won_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    health = Health(torch.randn(50, 3))
    health.after_scalars(FINE)
    for _ in range(Health.PATIENCE - 1):
        health.after_scalars(WON)
    assert said(caplog) == []
    for _ in range(5):
        health.after_scalars(WON)
    assert said(caplog) == ["the discriminator has won"]
    assert "try a larger gamma" in caplog.messages[0]


@pytest.mark.parametrize("healthy", [{"grad_norm/generator": 0.5}, {"sign/fake": -0.9}])
def test_a_strong_discriminator_that_still_teaches_is_no_reason(
    healthy: dict[str, float], caplog: pytest.LogCaptureFixture
) -> None:
    health = Health(torch.randn(50, 3))
    health.after_scalars(FINE)
    for _ in range(3 * Health.PATIENCE):
        health.after_scalars(WON | healthy)
    assert said(caplog) == []


def test_losses_that_stand_still_are_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    health = Health(torch.randn(50, 3))
    for _ in range(Health.PATIENCE):
        health.after_losses(1.3863, 0.6931)
    health.after_losses(1.3863, 0.6932)  # one that moves starts the count again
    for _ in range(Health.PATIENCE):
        health.after_losses(1.3863, 0.6931)
    assert said(caplog) == []
    for _ in range(3):
        health.after_losses(1.3863, 0.6931)
    assert caplog.messages == [
        "the losses stand still at 1.3863 (discriminator) and 0.6931 (generator), whatever the "
        "images: nothing reaches the logits; look for a saturated or dead activation or weights "
        "that are all 0 in the discriminator"
    ]


def test_a_run_looks_at_its_losses(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    run = gan.build(tiny(tmp_path, steps=Health.PATIENCE + 1, log_every=1, penalties=[]))
    for parameter in run.discriminator.raw.parameters():
        parameter.data.zero_()
    start(run)
    gan.fit(run)
    assert "the losses stand still at 0.6931" in caplog.text


def test_a_collapsed_generator_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    health = Health(torch.randn(500, 3, 4, 4))
    alike = torch.randn(1, 3, 4, 4) + 0.01 * torch.randn(64, 3, 4, 4)
    assert health.after_samples(alike) == pytest.approx(0.01, rel=0.1)
    health.after_samples(torch.randn(64, 3, 4, 4))  # a good grid between starts the count again
    health.after_samples(alike)
    health.after_samples(alike)
    assert said(caplog) == []
    for _ in range(3):
        health.after_samples(alike)
    assert said(caplog) == ["the generator has collapsed"]


def test_variety_is_the_spread_over_the_examples() -> None:
    images = torch.tensor([[0.0, 1.0], [2.0, 1.0]])
    assert variety(images) == pytest.approx(0.5)  # 1 in one pixel, 0 in the other


def test_updates_that_fp16_skips_often_are_warned_of_by_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    health = Health(torch.randn(50, 3))
    health.after_updates("discriminator", 60, 40)  # still looking for a scale
    health.after_updates("generator", 1990, 10)
    assert said(caplog) == []
    for updates in (120, 130):
        health.after_updates("discriminator", updates, 100)
    assert said(caplog) == [
        "the discriminator skips 45% of its updates, because gradients overflow fp16"
    ]


# --- gamma ---------------------------------------------------------------------------------------


def penalised(share: float, distance: float = 1.0) -> dict[str, float]:
    return {
        **FINE,
        "logits/real": distance / 2,
        "logits/fake": -distance / 2,
        "weight/r1": 2.0,
        "penalty_share/discriminator": share,
    }


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (penalised(0.6), "gamma 2 is too large: .*, they are 60% of it; try --gamma 0.2 "),
        (penalised(0.01, 1e-3), "gamma 2 is too large: .* same of real and fake; try --gamma 0.2 "),
        (penalised(1e-6), "gamma 2 is too small: the penalties are 1e-06 .* --gamma 20000 "),
    ],
)
def test_gamma_that_dominates_or_vanishes_is_named_once(
    values: dict[str, float], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    health = Health(torch.randn(50, 3), suggested_gamma=0.81)
    for _ in range(Health.PATIENCE - 1):
        health.after_scalars(values)
    health.after_scalars(penalised(0.1))  # not lasting
    for _ in range(Health.PATIENCE - 1):
        health.after_scalars(values)
    assert not caplog.messages
    for _ in range(5):
        health.after_scalars(values)
    (message,) = caplog.messages
    assert re.search(words + r"\(a rule for this size and batch starts at 0.81\)", message)


def test_penalties_without_gamma_and_a_passing_point_say_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    health = Health(torch.randn(50, 3))
    other = {k: v for k, v in penalised(0.9).items() if k != "weight/r1"}
    for i in range(60):
        health.after_scalars({**other, "weight/wgan-gp": 10.0})
        health.after_scalars(penalised(0.9 if i % 2 else 1e-6))
    assert not caplog.messages
