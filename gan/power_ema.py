"""Power-function averages: several are kept while training, any width between is made afterwards.

The average of width s at time t weighs the weights of time u by u^gamma, up to t, where s is the
standard deviation of that profile as a share of t: unlike a half-life, it is the same share of a
short run and of a long one. A profile that was not kept is a sum of those that were, as nearly as
least squares can make it.

Reference: Karras et al., 2024, arXiv:2312.02696, section 3 and appendix C.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gan.checkpoint import Checkpoint, load_weights, open_checkpoint
from gan.ema import EMA, Pairs
from gan.errors import CheckpointError, ConfigError
from gan.networks import build_generator

TOO_FAR = 0.2
"""Distance of a profile that was made from the true one, above which it is another average."""


def role(width: float) -> str:
    """What an average is called in a checkpoint.

    Args:
        width: its relative width.

    Returns:
        As in ema-0.05.
    """
    return f"ema-{width:g}"


def rebuild(folder: Path, width: float) -> tuple[nn.Module, float]:
    """Make the average of any width from those that the checkpoints of a run kept.

    Args:
        folder: the run folder.
        width: relative width, near the kept ones.

    Returns:
        The generator, in eval mode, and the distance of its profile from the true one, as a
        share: below 0.03 between widths that are at most twice each other.

    Raises:
        CheckpointError: no complete checkpoint, none with such averages, or a damaged one.
        ConfigError: there is no such width, or it is too far from the kept ones.
    """
    found = _complete_checkpoints(folder)
    snapshots = [
        (checkpoint, float(each))
        for checkpoint in found
        for each in checkpoint.manifest["config"].get("ema_widths", ())
    ]
    if not snapshots:
        what = "keep no power-function averages" if found else "are not complete yet"
        raise CheckpointError(f"{folder}: its checkpoints {what}; train with --ema_widths")
    points = [(float(each.manifest["images_seen"]), kept) for each, kept in snapshots]
    try:
        factors, distance = coefficients(points, width, points[-1][0])
    except ValueError as error:
        raise ConfigError(f"--ema_{error}") from None
    if distance > TOO_FAR:
        kept = ", ".join(f"{each:g}" for each in sorted({each for _, each in snapshots}))
        raise ConfigError(f"--ema_width: {width:g} is too far from {kept}, which were kept")
    saved = found[-1].manifest["generator"]
    generator = build_generator(saved["family"], saved["shape"], **saved["options"])
    states = [checkpoint.weights(role(each)) for checkpoint, each in snapshots]
    load_weights(generator, weighted_sum(states, factors), str(folder))
    return generator.eval(), distance


def _complete_checkpoints(folder: Path) -> list[Checkpoint]:
    found = []
    for path in sorted((folder / "checkpoints").glob("step-*")):
        with suppress(CheckpointError):  # a damaged one is a snapshot less
            found.append(open_checkpoint(path))
    return found


def exponent(width: float) -> float:
    """Gamma of the profile u^gamma with that relative standard deviation.

    Args:
        width: in (0, 0.28].

    Returns:
        The largest root of (gamma + 1) / ((gamma + 2)^2 (gamma + 3)) = width^2.

    Raises:
        ValueError: no profile is so wide.
    """
    if not 0 < width < 12**-0.5:
        raise ValueError(f"width: {width:g} is not in (0, {12**-0.5:.3f})")
    # With g = gamma: g^3 + 7 g^2 + (16 - s^-2) g + 12 - s^-2 = 0.
    roots = np.roots([1.0, 7.0, 16.0 - width**-2, 12.0 - width**-2])
    return float(roots.real[np.abs(roots.imag) < 1e-6].max())


class PowerEMA:
    """Averages of several widths of one network.

    Attributes:
        modules: {width: averaged network}, in eval mode, never trained; buffers are copied.
        images_seen: when they were last updated.
    """

    def __init__(self, module: nn.Module, widths: Sequence[float] = ()) -> None:
        """Start at the network's present weights, which the first update replaces.

        Args:
            module: the raw (unwrapped) network.
            widths: relative widths; none: nothing is kept.
        """
        self.modules = {width: EMA(module).module for width in widths}
        self.images_seen = 0

    @torch.no_grad()
    def update(self, module: nn.Module, images_seen: int) -> None:
        """Move towards the network. Call it after each successful update of the network.

        Args:
            module: the raw network.
            images_seen: images seen so far, this step's included.
        """
        for width, average in self.modules.items():
            beta = (self.images_seen / images_seen) ** (exponent(width) + 1)
            Pairs(average, module).move(1 - beta)
        self.images_seen = images_seen

    def state_dict(self) -> dict[str, Any]:
        """The clock; the weights are the modules'."""
        return {"images_seen": self.images_seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave.

        Args:
            state: a `state_dict`.
        """
        self.images_seen = state["images_seen"]


Snapshot = tuple[float, float]
"""(images seen, width)."""


def coefficients(
    snapshots: Sequence[Snapshot], width: float, images_seen: float
) -> tuple[list[float], float]:
    """How to add averages up to one of another width.

    Args:
        snapshots: the averages there are.
        width: of the one to be made.
        images_seen: its time; that of the newest weights in it.

    Returns:
        A factor for each snapshot, which sum to 1, and the distance of the profile they make from
        the true one, as a share of it.

    Raises:
        ValueError: as `exponent`.
    """
    end = max(images_seen, *(time for time, _ in snapshots))
    points = [(time / end, exponent(each)) for time, each in snapshots]
    target = (images_seen / end, exponent(width))
    inner = np.array([[_inner(a, b) for b in points] for a in points])
    wanted = np.array([_inner(a, target) for a in points])
    # Unlike the paper's, the factors sum to 1, or all weights would shrink a little. Nearly equal
    # snapshots make the system singular; their shares are then any that sum to the same.
    count = len(points)
    system = np.ones((count + 1, count + 1))
    system[:count, :count], system[count, count] = inner, 0.0
    factors = np.linalg.lstsq(system, np.append(wanted, 1.0), rcond=1e-12)[0][:count]
    square = _inner(target, target)
    left = square - 2 * factors @ wanted + factors @ inner @ factors
    return factors.tolist(), float(np.sqrt(max(left, 0.0) / square))


def _inner(a: tuple[float, float], b: tuple[float, float]) -> float:
    """Integral of the product of two profiles (gamma + 1) u^gamma / t^(gamma + 1), 0 < u < t."""
    (early, gamma_early), (late, gamma_late) = sorted((a, b))
    share: float = (early / late) ** gamma_late / late
    return (gamma_early + 1) * (gamma_late + 1) * share / (gamma_early + gamma_late + 1)


def weighted_sum(
    states: Sequence[Mapping[str, Tensor]], factors: Sequence[float]
) -> dict[str, Any]:
    """Add state dicts up in double precision; what is no weight comes from the last one.

    Args:
        states: of one network, oldest first.
        factors: one for each.

    Returns:
        A state dict.
    """
    made: dict[str, Any] = dict(states[-1])
    for name, value in made.items():
        if value.is_floating_point():
            terms = (f * state[name].double() for f, state in zip(factors, states, strict=True))
            made[name] = torch.stack(list(terms)).sum(0).to(value.dtype)
    return made
