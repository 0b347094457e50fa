"""How fast a configuration trains: all that `gan bench PRESET` says, as plain values."""

from __future__ import annotations

import logging
import math
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from gan.config import Config
from gan.errors import DataError
from gan.presets import PRESETS, preset_config
from gan.speed import memory, phases, projection
from gan.speed.expert import ExpertLoop
from gan.speed.loops import period
from gan.speed.operations import needed
from gan.speed.substitute import substitute
from gan.speed.timing import MatrixRate, Rounds, Spread, in_turns, ratios, slice_of, warm_up
from gan.speed.trio import LOOPS, Trio
from gan.state import save

_LARGEST = 2**28
"""Bytes of a checkpoint above which none is written to see how long it takes."""
_ROUNDS, _PATIENCE = 15, 45.0
"""Rounds, and the seconds after which there are no more than three."""
_KINDS = {"bf16": torch.bfloat16, "fp16": torch.float16}

PAIRS = (("toolkit", "plain"), ("toolkit", "expert"), ("expert", "plain"))
"""What is compared with what; a ratio above 1 means that the first is faster, or larger."""

Tell = Callable[[str], None]


def measure(config: Config, *, rounds: int | None, seconds: float, tell: Tell) -> dict[str, Any]:
    """Time the toolkit's loop, the plain one and the best one, side by side.

    Args:
        config: what to train; nothing of it is left on the disk.
        rounds: how often each is timed, in turn; None: 15 times, or fewer where that takes long.
        seconds: about how long a slice of a round is.
        tell: is told what is being done.

    Returns:
        Plain values by name, ready for JSON. Seconds are medians over the rounds, ratios the
        median with the lowest and the highest round.

    Raises:
        ConfigError: options that cannot be.
        DataError: the data cannot be opened, and it is not the preset's own.
    """
    with tempfile.TemporaryDirectory() as name, _quiet():
        tell("building")
        trio, config, note = _built(config, Path(name))
        with trio:
            rows = _about(trio, note)
            rows |= _measured(trio, rounds, seconds, tell)
        del trio
        rows |= _memory(config, tell)
    return rows


def _built(config: Config, folder: Path) -> tuple[Trio, Config, str | None]:
    try:
        return Trio(config, folder), config, None
    except DataError:
        preset = config.preset
        if preset not in PRESETS or config.data != preset_config(preset).data:
            raise  # somebody asked for this data
        other = substitute(config, folder, f"{config.data} cannot be opened on this machine")
        return Trio(other.config, folder), other.config, other.note


def _about(trio: Trio, note: str | None) -> dict[str, Any]:
    run = trio.toolkit.run
    device = trio.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    return {
        "preset": run.config.preset,
        "note": note,
        "images": len(run.data),
        "shape": list(run.data.shape),
        "batch_size": run.config.batch_size,
        "mixed_precision": run.config.mixed_precision,
        "device": f"{device.type} ({name})",
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def _measured(trio: Trio, rounds: int | None, seconds: float, tell: Tell) -> dict[str, Any]:
    run, device = trio.toolkit.run, trio.device
    config, length = run.config, period(run.config)
    each = warm_up(trio.loops, length + 2, device, tell)
    steps = slice_of(seconds, each, length)
    matrix = MatrixRate(device, _KINDS.get(config.mixed_precision, torch.float32))
    timed = in_turns(
        trio.loops,
        matrix,
        device,
        steps=steps,
        rounds=rounds or _ROUNDS,
        patience=math.inf if rounds else _PATIENCE,
        log_every=config.log_every,
        tell=tell,
    )
    rounds = len(timed.matrix_rate)
    images = config.n_critic * run.images_per_update
    each_loop = {name: Spread.of(timed.seconds[name]).median for name in LOOPS}
    rows: dict[str, Any] = {
        "rounds": rounds,
        "steps_of_a_slice": steps,
        "period_of_penalties": length,
        "seconds_per_step": each_loop,
        "images_per_second": {name: images / value for name, value in each_loop.items()},
        "seconds_per_1000_images": {
            name: 1000 * value / images for name, value in each_loop.items()
        },
        "ratios": {
            f"{one}/{other}": asdict(ratios(timed.seconds[other], timed.seconds[one]))
            for one, other in PAIRS
        },
    }
    tell("phases of a step")
    logging_share = Spread.of(timed.logging["toolkit"]).median / config.log_every
    turns = max(1, rounds // 3)
    rows["phases"] = phases.shares(trio.toolkit, steps, turns, logging_share)
    rows |= _operations(trio, timed, tell)
    rows["projection"] = _projection(trio, each_loop["toolkit"], tell)
    return rows


def _operations(trio: Trio, timed: Rounds, tell: Tell) -> dict[str, Any]:
    """What a step needs, and how much of what the machine can do each loop achieves."""
    run = trio.toolkit.run
    tell("counting operations")
    expert = trio.expert
    if run.config.compile:  # what a compiled network does cannot be counted
        expert = ExpertLoop(replace(run.config, compile=False), run.data, trio.device)
    count = needed(expert)
    return {
        "operations_per_step": count,
        "matrix_operations_per_second": asdict(Spread.of(timed.matrix_rate)),
        "achieved_of_possible": {
            name: asdict(ratios([count / each for each in timed.seconds[name]], timed.matrix_rate))
            for name in LOOPS
        },
    }


def _projection(trio: Trio, seconds_per_step: float, tell: Tell) -> dict[str, Any]:
    """To the end of the run, with a grid of samples and a checkpoint that are made once."""
    tell("a grid and a checkpoint")
    run = trio.toolkit.run
    short = projection.estimate(run, seconds_per_step)
    begin = time.perf_counter()
    trio.toolkit.reporter.samples()
    middle = time.perf_counter()
    grid, checkpoint = middle - begin, math.nan
    if short.checkpoint <= _LARGEST:
        save(run)
        checkpoint = time.perf_counter() - middle
    grids = grid * projection.grids(run) if run.config.sample_every else grid
    written = checkpoint * projection.checkpoints(run)
    return {
        "steps": run.config.steps,
        "seconds": short.seconds,
        "seconds_of_grids": grids,
        "seconds_of_checkpoints": None if math.isnan(written) else written,
        "checkpoint_bytes": short.checkpoint,
        "disk_bytes": short.disk,
    }


def _memory(config: Config, tell: Tell) -> dict[str, Any]:
    found = memory.peaks(config, LOOPS, tell)
    above = {name: float(peak.above) for name, peak in found.items()}
    whole = {name: float(peak.peak) for name, peak in found.items()}
    return {
        "memory_before_training": {name: float(peak.base) for name, peak in found.items()},
        "memory_of_training": above,
        "memory_ratios": {
            f"{one}/{other}": above[one] / max(above[other], 1.0) for one, other in PAIRS
        },
        "memory_ratios_of_process": {
            f"{one}/{other}": whole[one] / whole[other] for one, other in PAIRS
        },
    }


@contextmanager
def _quiet() -> Iterator[None]:
    """What a run says about its data, its health and its options is not about its speed."""
    logger = logging.getLogger("gan")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
