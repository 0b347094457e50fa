"""Data that needs no file: scikit-learn's digits, random images, and points in the plane."""

from __future__ import annotations

import math
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gan.data.dataset import ImageData
from gan.data.items import ArrayItems
from gan.data.sources import Source, fingerprint_of
from gan.errors import DataError

POINTS_SCALE = {"ring": 2.5, "grid": 5.0}
"""Divides the points, to bring them into [-1, 1] as images are."""
POINTS_STD = 0.02
FAKE_COUNT = 1000
_DIGITS = "datasets/data/digits.csv.gz"
_FAKE_LIMIT = 4 << 30


def made(name: str, split: str, resolution: tuple[int, int] | None, channels: int | None) -> Source:
    """Make "digits" or "fake:COUNT".

    Args:
        name: which.
        split: "train"; there is no other.
        resolution: of fake images, height and width.
        channels: of fake images.

    Raises:
        DataError: for another split, or a COUNT that cannot be.
    """
    if split != "train":
        raise DataError(f"split: {name!r} has no {split} split. Use split train.")
    return digits() if name == "digits" else fake(name, resolution, channels)


def digits() -> Source:
    """1,797 handwritten digits of 8x8 pixels, their 17 grey values spread over 0 to 255.

    Reference: E. Alpaydin, C. Kaynak, "Optical Recognition of Handwritten Digits", UCI, 1998,
    as `sklearn.datasets.load_digits` ships it.
    """
    pixels, labels = _digits()
    images = np.rint(pixels.reshape(-1, 1, 8, 8) * (255 / 16)).astype(np.uint8)
    names = tuple(str(digit) for digit in range(10))
    return Source(
        "digits", ArrayItems(images), fingerprint_of(images), labels.astype(np.int64), names
    )


def _digits() -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Pixels from 0 to 16, shape (1797, 64), and labels.

    Read from scikit-learn's file where that lies where it did for years: importing scikit-learn
    would be a quarter of the time that a small training takes to start.
    """
    found = find_spec("sklearn")
    if found and found.origin and (path := Path(found.origin).parent / _DIGITS).is_file():
        table = np.loadtxt(path, delimiter=",")
        return table[:, :-1], table[:, -1]
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    return pixels, labels


def fake(name: str, resolution: tuple[int, int] | None, channels: int | None) -> Source:
    """Random bytes in the shape of images, the same ones each time.

    Args:
        name: "fake:COUNT", or "fake" for 1,000.
        resolution: height and width; None: 64 by 64.
        channels: None: 3.

    Raises:
        DataError: if COUNT is no positive number, or the images would take more than 4 GiB.
    """
    text = name.partition(":")[2] if ":" in name else str(FAKE_COUNT)
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise DataError(
            f"data: {name!r}: {text!r} is no number of images. Write fake:COUNT, as in fake:1000."
        )
    height, width = resolution or (64, 64)
    shape = (int(text), channels or 3, height, width)
    if math.prod(shape) > _FAKE_LIMIT:
        raise DataError(
            f"data: {name!r} at {height}x{width} would take {math.prod(shape) / 2**30:.1f} GiB of "
            f"memory; at most {_FAKE_LIMIT >> 30} GiB is allowed. Ask for fewer or smaller images."
        )
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    return Source(name, ArrayItems(pixels), fingerprint_of("fake", shape))


def centres(name: str) -> Tensor:
    """Return the means of the Gaussians of "ring" or "grid".

    "ring" has eight on a circle of radius 2, "grid" 25 at all pairs from -4, -2, 0, 2, 4, before
    the division by `POINTS_SCALE`.

    Returns:
        Points of shape (8, 2) or (25, 2).

    Reference: Metz et al. 2017, arXiv 1611.02163, appendix A, for the ring.
    """
    if name == "ring":
        angles = torch.arange(8, dtype=torch.float64) * (2 * math.pi / 8)
        places = 2 * torch.stack([angles.cos(), angles.sin()], dim=1)
    else:
        steps = torch.arange(-4, 5, 2, dtype=torch.float64)
        places = torch.cartesian_prod(steps, steps)
    return (places / POINTS_SCALE[name]).float()


def points(name: str, split: str = "train", count: int = 50_000) -> ImageData:
    """Draw equally many points from each Gaussian of "ring" or "grid", std 0.02 before scaling.

    Args:
        name: "ring" or "grid".
        split: "train" or "test", two independent draws.
        count: how many points.

    Returns:
        Unlabelled points, float32 of shape (count, 2).
    """
    seed = {"train": 0, "test": 1}[split]
    generator = torch.Generator().manual_seed(seed)
    means = centres(name)
    drawn = means[torch.arange(count) % len(means)]
    drawn = drawn + torch.randn(count, 2, generator=generator) * (POINTS_STD / POINTS_SCALE[name])
    return ImageData(name, drawn, fingerprint_of(name, split, drawn.numpy()))
