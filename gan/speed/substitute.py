"""Images to measure on where a preset's own are not on this machine."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gan.config import Config

_SHAPES: dict[str, tuple[tuple[int, ...], int]] = {
    "mnist": ((1, 28, 28), 10),
    "fashion-mnist": ((1, 28, 28), 10),
    "kmnist": ((1, 28, 28), 10),
    "cifar10": ((3, 32, 32), 10),
    "cifar100": ((3, 32, 32), 100),
    "svhn": ((3, 32, 32), 10),
    "stl10": ((3, 96, 96), 10),
    "celeba": ((3, 218, 178), 0),
}
"""Shape and classes of what has a name."""
_LIKELY = (3, 64, 64), 10
_BYTES, _COUNT = 2**26, 1024


class Substitute(NamedTuple):
    """A configuration of other images, and what they are.

    Attributes:
        config: to measure.
        note: one line for a person.
    """

    config: Config
    note: str


def substitute(config: Config, folder: Path, reason: str) -> Substitute:
    """Replace the images of a configuration by random ones of the same shape.

    They are what `fake:COUNT` gives, with random labels where the networks want some.

    Args:
        config: whose images cannot be opened.
        folder: where the random ones go.
        reason: why they cannot.

    Returns:
        The configuration to measure instead.
    """
    shape, classes = _SHAPES.get(config.data, _LIKELY)
    shape = (config.channels or shape[0], *(config.size or shape[1:]))
    classes = (classes or 10) if config.conditional else 0
    count = max(2 * config.images_per_process, min(_COUNT, _BYTES // math.prod(shape)))
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {"images": rng.integers(0, 256, (count, *shape), np.uint8)}
    if classes:
        arrays["labels"] = rng.permutation(np.arange(count) % classes)
    path = folder / "fake.npz"
    np.savez(path, **arrays)
    size = "x".join(map(str, shape))
    labels = f" in {classes} classes" if classes else ""
    note = f"measured on {count} random images of {size}{labels}: {reason}"
    labelled = "auto" if classes else "none"
    other = dataclasses.replace(config, data=str(path), labels=labelled, cache=False)
    return Substitute(other, note)
