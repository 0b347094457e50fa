"""Power-function averages against the profile they are defined by, and widths made afterwards."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from tiny import tiny
from torch import nn

import gan
from gan.checkpoint import newest_checkpoint
from gan.cli import main
from gan.power_ema import PowerEMA, coefficients, exponent, rebuild, role, weighted_sum

WIDTHS = (0.05, 0.1, 0.2)


def profile(width: float, count: int) -> torch.Tensor:
    """Share of each of `count` updates in the average after the last one."""
    gamma = exponent(width)
    edges = torch.arange(count + 1, dtype=torch.float64) / count
    return (edges ** (gamma + 1)).diff()


@pytest.mark.parametrize("width", [*WIDTHS, 0.01, 0.28])
def test_the_exponent_gives_the_width(width: float) -> None:
    gamma = exponent(width)
    assert (gamma + 1) ** 0.5 / ((gamma + 2) * (gamma + 3) ** 0.5) == pytest.approx(width)
    centres = (torch.arange(4000, dtype=torch.float64) + 0.5) / 4000
    weights = profile(width, 4000)
    mean = (weights * centres).sum()
    assert (weights * (centres - mean).square()).sum().sqrt() == pytest.approx(width, rel=1e-3)


def test_a_width_that_no_profile_has() -> None:
    for width in (0.0, -1.0, 0.3):
        with pytest.raises(ValueError, match=rf"width: {width:g} is not in \(0, 0.289\)"):
            exponent(width)


def trained(count: int = 40) -> tuple[PowerEMA, torch.Tensor]:
    """Averages of a network whose weight takes random values, 8 images an update."""
    network = nn.BatchNorm1d(1).double()
    power, values = PowerEMA(network, WIDTHS), torch.randn(count, dtype=torch.float64)
    for i, value in enumerate(values):
        with torch.no_grad():
            network.weight.fill_(value)
            network.running_mean.fill_(i)
        power.update(network, 8 * (i + 1))
    return power, values


def test_the_average_weighs_every_update_by_the_profile() -> None:
    power, values = trained()
    for width, module in power.modules.items():
        assert module.weight.item() == pytest.approx((profile(width, 40) * values).sum().item())
        assert module.running_mean.item() == 39
        assert not module.weight.requires_grad
        assert not module.training


def test_a_width_that_was_kept_is_found_again_and_one_between_nearly() -> None:
    snapshots = [(320.0, width) for width in WIDTHS]
    factors, distance = coefficients(snapshots, 0.1, 320)
    torch.testing.assert_close(factors, [0.0, 1.0, 0.0], atol=1e-6, rtol=0)
    assert distance < 1e-6
    factors, distance = coefficients(snapshots, 0.08, 320)
    made = sum(f * profile(w, 40) for f, w in zip(factors, WIDTHS, strict=True))
    true = profile(0.08, 40)
    assert sum(factors) == pytest.approx(1)
    assert distance == pytest.approx(((made - true).norm() / true.norm()).item(), rel=0.2)
    assert 0.01 < distance < 0.04
    more = [(160.0, width) for width in WIDTHS]
    assert coefficients([*more, *snapshots], 0.08, 320)[1] < distance
    assert coefficients(snapshots, 0.02, 320)[1] > 0.2  # outside of what was kept


def test_states_are_added_up() -> None:
    states = [
        {"w": torch.tensor([1.0, 2.0]), "n": torch.tensor(3)},
        {"w": torch.tensor([3.0, 5.0]), "n": torch.tensor(4)},
    ]
    made = weighted_sum(states, [0.25, 0.75])
    assert made["w"].tolist() == [2.5, 4.25]
    assert made["n"].item() == 4


def test_a_run_keeps_the_widths_and_any_other_is_rebuilt(tmp_path) -> None:
    folder = gan.train(tiny(tmp_path, ema_widths=WIDTHS, steps=6, save_every=3))
    checkpoint = newest_checkpoint(folder / "checkpoints")
    assert set(map(role, WIDTHS)) < set(checkpoint.manifest["roles"])
    kept = checkpoint.weights("ema-0.1")
    generator, distance = rebuild(folder, 0.1)
    assert distance < 1e-5
    for name, value in generator.state_dict().items():
        torch.testing.assert_close(value, kept[name], rtol=1e-4, atol=1e-5)
    other, distance = rebuild(folder, 0.08)
    assert 0 < distance < 0.05
    assert not torch.equal(other.layers[0].weight, generator.layers[0].weight)
    assert gan.sample(other, range(2)).shape == (2, 1, 8, 8)


def test_a_run_without_widths_says_how_to_keep_them(tmp_path) -> None:
    folder = gan.train(tiny(tmp_path, steps=1))
    with pytest.raises(gan.GanError, match=r"no power-function averages; train with --ema_widths"):
        rebuild(folder, 0.1)
    folder = gan.train(tiny(tmp_path, steps=1, ema_widths=WIDTHS))
    with pytest.raises(gan.GanError, match=r"ema_width: 0.3 is not in"):
        rebuild(folder, 0.3)
    with pytest.raises(gan.GanError, match=r"--ema_width: 0.01 is too far from 0.05, 0.1, 0.2"):
        rebuild(folder, 0.01)


def test_sample_draws_from_a_width_between(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = gan.train(tiny(tmp_path, ema_widths=[0.05, 0.1], keep=9))
    out = tmp_path / "grid.png"
    words = ["sample", str(folder), "--num", "4", "--out", str(out)]
    assert main([*words, "--ema_width", "0.08"]) == 0
    first, last = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"average of width 0.08, off by \d+\.\d% of its profile", first)
    assert (last, out.exists()) == (str(out), True)
    assert main([*words, "--ema_width", "3"]) == 2
    assert "--ema_width" in capsys.readouterr().err
