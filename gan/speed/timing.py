"""Timing in turns, so that whatever else the machine does hits all alike."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch


class Loop(Protocol):
    """What is timed."""

    def step(self) -> None:
        """Train one step."""

    def log(self) -> None:
        """Show the newest numbers, as is done now and then."""


@dataclass(frozen=True)
class Spread:
    """The median of several rounds, the lowest and the highest one."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Sum values up.

        Args:
            values: one a round, at least one.
        """
        return cls(statistics.median(values), min(values), max(values))

    def __str__(self) -> str:
        """Such as 1.52 (1.40 to 1.61)."""
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})"


def ratios(above: Sequence[float], below: Sequence[float]) -> Spread:
    """Spread of the ratios of two things that were measured in the same rounds.

    Args:
        above: one value a round.
        below: likewise.
    """
    return Spread.of([a / b for a, b in zip(above, below, strict=True)])


def wait_for(device: torch.device) -> None:
    """Let an accelerator finish what it was given.

    Args:
        device: any; a CPU has finished.
    """
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


class MatrixRate:
    """How fast the machine multiplies square matrices.

    Attributes:
        operations: floating-point operations of one product.
    """

    def __init__(self, device: torch.device, kind: torch.dtype) -> None:
        """Take two matrices that are large enough to keep the device busy.

        Args:
            device: which.
            kind: of the numbers.
        """
        size = 1024 if device.type == "cpu" else 8192
        self._device = device
        self._factors = [torch.randn(size, size, device=device).to(kind) for _ in range(2)]
        self._product = torch.empty(size, size, device=device, dtype=kind)
        self.operations = 2 * size**3
        self(0.0)  # the first product finds out how

    def __call__(self, seconds: float) -> float:
        """Multiply for a while.

        Args:
            seconds: about how long.

        Returns:
            Floating-point operations per second.
        """
        count, begin = 0, time.perf_counter()
        while count == 0 or time.perf_counter() - begin < seconds:
            torch.mm(*self._factors, out=self._product)
            count += 1
            wait_for(self._device)
        return count * self.operations / (time.perf_counter() - begin)


LEAST_ROUNDS = 3
"""Fewer rounds say nothing of the spread."""


@dataclass(frozen=True)
class Rounds:
    """What was measured, one value a round.

    Attributes:
        seconds: of one step of each loop, its share of a point of the curves included.
        matrix_rate: floating-point operations per second of a matrix product.
        logging: seconds of a point of the curves of each loop.
    """

    seconds: dict[str, list[float]]
    matrix_rate: list[float]
    logging: dict[str, list[float]]


def warm_up(
    loops: Mapping[str, Loop],
    steps: int,
    device: torch.device,
    tell: Callable[[str], None],
    seconds: float = 1.0,
) -> float:
    """Let every loop allocate, compile and choose what it does once only.

    Args:
        loops: by name.
        steps: least number of each.
        device: where they run.
        tell: is told which loop it is.
        seconds: least time of each; 5 times that is enough for two steps, 10 times that for one.

    Returns:
        Seconds of a step of the slowest loop, at its best: on a busy machine the mean says little.
    """
    best = []
    for name, loop in loops.items():
        tell(f"warming up: {name}")
        begin, each = time.perf_counter(), list[float]()
        taken = 0.0
        while not (
            taken > 10 * seconds
            or (taken > 5 * seconds and len(each) >= 2)
            or (taken > seconds and len(each) >= max(steps, 2))
        ):
            loop.step()
            wait_for(device)
            now = time.perf_counter()
            each.append(now - begin - taken)
            taken = now - begin
        best.append(min(each[1:] or each))
        loop.log()
    return max(best)


def in_turns(
    loops: Mapping[str, Loop],
    matrix_rate: Callable[[float], float],
    device: torch.device,
    *,
    steps: int,
    rounds: int,
    patience: float,
    log_every: int,
    tell: Callable[[str], None],
) -> Rounds:
    """Time short slices of several loops in turn, each round in another order.

    A slice ends with one point of the curves, which is timed by itself and counts as the share of
    a step that it is: slices need not fit between two points.

    Args:
        loops: by name.
        matrix_rate: measures the machine for so many seconds, in the same rounds.
        device: where the loops run.
        steps: of a slice.
        rounds: how many.
        patience: seconds after which the third round is the last one.
        log_every: steps between two points of the curves.
        tell: is told which round and which loop it is.

    Returns:
        The rounds.
    """
    names, rates, begin = list(loops), list[float](), time.perf_counter()
    seconds, logging = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    for number in range(rounds):
        if number >= LEAST_ROUNDS and time.perf_counter() - begin > patience:
            break
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            tell(f"round {number + 1} of {rounds}: {name}")
            step, log = _slice(loops[name], steps, device)
            seconds[name].append(step + log / log_every)
            logging[name].append(log)
        rates.append(matrix_rate(0.1))
    return Rounds(dict(seconds), rates, dict(logging))


def _slice(loop: Loop, steps: int, device: torch.device) -> tuple[float, float]:
    begin = time.perf_counter()
    for _ in range(steps):
        loop.step()
    wait_for(device)
    middle = time.perf_counter()
    loop.log()
    wait_for(device)
    return (middle - begin) / steps, time.perf_counter() - middle


def slice_of(seconds: float, each: float, period: int) -> int:
    """Steps of a slice: about so many seconds, and whole patterns of lazy penalties if they fit.

    Args:
        seconds: about how long a slice shall be.
        each: seconds of one step.
        period: steps after which the pattern of lazy penalties repeats.

    Returns:
        At least 1; a multiple of `period` unless that would take more than 8 times as long.
    """
    if period * each > 8 * seconds:
        return max(1, round(seconds / each))
    return max(1, round(seconds / each / period)) * period
