"""What a run will take to its end: time, and room on the disk."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from PIL import Image
from torch import Tensor, nn

from gan import sampling
from gan.gauges import some_real
from gan.loop import probe
from gan.run import Run

_POINT = 50
"""Bytes of a point of a curve in TensorBoard's file."""
_CURVES = 30
"""About how many curves a run has."""
_BESIDES = 64, 40
"""Images of the pictures that go with a grid: samples with neighbours, and interpolations."""
_OVERHEAD = 2**15
"""Bytes of a checkpoint that are no tensors: random state, names, manifest."""


@dataclass(frozen=True)
class Projection:
    """What a run will take to its end.

    Attributes:
        seconds_per_step: as measured.
        seconds: of all its steps.
        checkpoint: bytes of a checkpoint.
        disk: bytes of the run folder at the end.
    """

    seconds_per_step: float
    seconds: float
    checkpoint: int
    disk: int


def estimate(run: Run, seconds_per_step: float | None = None) -> Projection:
    """Project a run to its end.

    Args:
        run: it has trained at least a step, or will now: the optimizers' state is part of a
            checkpoint.
        seconds_per_step: None: time some steps of the run, which is thrown away afterwards.

    Returns:
        The projection. Grids of samples, checkpoints and evaluations take their time besides.
    """
    seconds = probe(run) if seconds_per_step is None else seconds_per_step
    checkpoint = checkpoint_bytes(run)
    return Projection(seconds, seconds * run.config.steps, checkpoint, _disk(run, checkpoint))


def checkpoint_bytes(run: Run) -> int:
    """Size of a checkpoint.

    Args:
        run: after its first step.

    Returns:
        Bytes.
    """
    modules = (
        *(run.generator.raw, run.discriminator.raw, run.ema.module),
        *run.power_ema.modules.values(),
    )
    states = [player.optimizer.state_dict() for player in (run.generator, run.discriminator)]
    return _OVERHEAD + sum(map(_bytes, modules)) + sum(map(_size, _tensors(states)))


def grids(run: Run) -> int:
    """How many grids of samples a run draws."""
    every, steps = run.config.sample_every, run.config.steps
    return 1 if every is None else math.ceil(steps / every)


def checkpoints(run: Run) -> int:
    """How many checkpoints a run writes."""
    every, steps = run.config.save_every, run.config.steps
    return 1 if every is None else math.ceil(steps / every)


def _disk(run: Run, checkpoint: int) -> int:
    config = run.config
    kept = min(config.keep, checkpoints(run)) + (config.evaluate_every is not None)
    points = _CURVES * _POINT * math.ceil(config.steps / config.log_every)
    grid, besides = _picture_bytes(run)
    # A grid is a file, and in TensorBoard's file too; the real images and the end have one each.
    pictures = (2 * grid + besides) * grids(run) + 3 * grid
    return checkpoint * kept + _bytes(run.ema.module) + pictures + points


def _picture_bytes(run: Run) -> tuple[int, int]:
    """Size of a grid, and of what is drawn beside it; real images stand for samples."""
    most = max(run.config.sample_num, *_BESIDES)
    images = some_real(run.data, most, run.num_classes)[0]
    grid = _png(images[: run.config.sample_num], run.num_classes)
    if images.ndim != 4:
        return grid, 0
    neighbours, between = _BESIDES
    blended = (images[:between] + images[:between].flip(0)) / 2
    return grid, _png(images[:neighbours]) + _png(blended)


def _png(images: Tensor, num_classes: int = 0) -> int:
    columns = sampling.grid_columns(len(images), num_classes)
    pixels = sampling.picture(images, columns).permute(1, 2, 0).numpy()
    file = io.BytesIO()
    Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels).save(file, "png")
    return len(file.getvalue())


def _bytes(module: nn.Module) -> int:
    return sum(map(_size, module.state_dict().values()))


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _tensors(value: Any) -> Iterable[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _tensors(part)
