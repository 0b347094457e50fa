"""What evaluation asks of data, and how images of any kind are brought to a network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor


class Images(Protocol):
    """A labelled set of images, as `gan.open_data` gives it.

    Attributes:
        name: what a person calls it.
        fingerprint: of its content and preparation.
        shape: of one image, (channels, height, width), or of one point, (2,).
        num_classes: 0 where unlabelled.
        labels: int64 of shape (count,).
    """

    name: str
    fingerprint: str
    labels: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one example."""

    @property
    def num_classes(self) -> int:
        """Number of classes."""

    def __len__(self) -> int: ...

    def __getitems__(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return bytes of shape (batch, *shape), and labels."""


def as_rgb(images: Tensor) -> Tensor:
    """Grey as three equal channels, transparent images on white.

    Args:
        images: uint8 of shape (batch, 1 or 3 or 4, height, width).

    Returns:
        uint8 of shape (batch, 3, height, width).
    """
    if images.shape[1] == 1:
        return images.expand(-1, 3, -1, -1)
    if images.shape[1] == 3:
        return images
    opacity = images[:, 3:].float() / 255
    mixed = images[:, :3].float() * opacity + 255 * (1 - opacity)
    return mixed.round().to(torch.uint8)


def as_square(images: Tensor, side: int) -> Tensor:
    """Bytes to floats of one size; each pixel the mean of what it covers.

    Args:
        images: uint8 of shape (batch, channels, height, width).
        side: height and width afterwards.

    Returns:
        float32 in [-1, 1], shape (batch, channels, side, side).
    """
    floats = images.float() / 127.5 - 1
    if floats.shape[2:] == (side, side):
        return floats
    return F.interpolate(floats, (side, side), mode="area")
