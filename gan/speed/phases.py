"""Where the time of the toolkit's step goes."""

from __future__ import annotations

import dataclasses
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gan.player import Player
from gan.run import Run
from gan.speed.timing import wait_for
from gan.speed.toolkit import Toolkit

PHASES = (
    *("data", "discriminator", "penalties", "generator"),
    *("optimizers", "average", "logging", "rest"),
)


def shares(toolkit: Toolkit, steps: int, rounds: int, logging: float) -> dict[str, float]:
    """Share of each phase in the time of a step.

    The run's stopwatch gives data (with the latents of the discriminator's updates),
    discriminator, generator and average. The optimizers are timed inside the two networks' phases
    and taken out of them: they are a player's whole `step`, with the gradient's norm, scheduler
    and clearing. A penalty shares the one backward with the loss, so it can only be had as a
    difference: of the networks' phases with and without penalties, measured in turns. Logging is
    the progress bar, the check of every step's numbers, and the share of a point of the curves.
    The rest is what remains: latents of the generator's update, schedules, bookkeeping.

    Args:
        toolkit: a run that is thrown away afterwards; trains `2 * rounds * steps` steps.
        steps: of a turn; a multiple of the period of lazy penalties, or all is of those steps.
        rounds: turns.
        logging: seconds of a point of the curves, divided by the steps between two of them.

    Returns:
        By the names in `PHASES`; they sum to 1, and none is below 0.
    """
    run = toolkit.run
    with_all, without = defaultdict[str, float](float), defaultdict[str, float](float)
    penalised = run.config.penalties or run.config.generator_penalties
    with _timed(toolkit):
        for _ in range(rounds):
            _measure(toolkit, steps, with_all)
            if penalised:
                with _no_penalties(run):
                    _measure(toolkit, steps, without)
    found = _split(with_all)
    if penalised:
        bare = _split(without)
        for name in ("discriminator", "generator"):
            least = min(bare[name], found[name])
            found["penalties"] += found[name] - least
            found[name] = least
    found["logging"] += logging * steps * rounds
    found["rest"] = max(with_all["all"] + logging * steps * rounds - sum(found.values()), 0.0)
    total = sum(found.values())
    return {name: found[name] / total for name in PHASES}


def _measure(toolkit: Toolkit, steps: int, into: dict[str, float]) -> None:
    run = toolkit.run
    run.stopwatch.read()
    begin = time.perf_counter()
    for _ in range(steps):
        toolkit.step()
    wait_for(run.accelerator.device)
    into["all"] += time.perf_counter() - begin
    for name, seconds in run.stopwatch.read().items():
        into[name] += seconds


def _split(seconds: dict[str, float]) -> dict[str, float]:
    optimizers = {name: seconds[f"optimizer {name}"] for name in ("discriminator", "generator")}
    found = defaultdict[str, float](float, {name: seconds[name] for name in ("data", "average")})
    for name, inside in optimizers.items():
        found[name] = max(seconds[name] - inside, 0.0)
    found["optimizers"] = sum(optimizers.values())
    found["logging"] = seconds["logging"]
    return found


@contextmanager
def _timed(toolkit: Toolkit) -> Iterator[None]:
    """Let the run's stopwatch see more of its step."""
    run, changed = toolkit.run, []

    def time_call(owner: Any, attribute: str, name: str) -> None:
        call: Callable[..., Any] = getattr(owner, attribute)

        def timed(*arguments: Any) -> Any:
            with run.stopwatch.phase(name):
                return call(*arguments)

        setattr(owner, attribute, timed)
        changed.append((owner, attribute))

    players: tuple[Player, Player] = run.discriminator, run.generator
    for player in players:
        time_call(player, "step", f"optimizer {player.name}")
    time_call(toolkit, "watch", "logging")
    try:
        yield
    finally:
        for owner, attribute in changed:
            delattr(owner, attribute)


@contextmanager
def _no_penalties(run: Run) -> Iterator[None]:
    before = run.config
    run.config = dataclasses.replace(before, penalties=(), generator_penalties=())
    try:
        yield
    finally:
        run.config = before
