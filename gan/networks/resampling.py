"""Twice and half the resolution, by filters that are boxes [1, 1] in a row.

One box repeats pixels, or averages pairs; two are [1, 2, 1]; three are [1, 3, 3, 1]. Pooling makes
them without a depthwise convolution, which is slow on many machines, and its gradients are exact
and deterministic.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import avg_pool2d, interpolate, pad


def double(x: Tensor, boxes: int = 1) -> Tensor:
    """Twice the height and width; zeros outside.

    Args:
        x: shape (batch, channels, height, width).
        boxes: length of the filter minus one, 1 to 3.

    Returns:
        Shape (batch, channels, 2 * height, 2 * width).
    """
    repeated = interpolate(x, scale_factor=2.0, mode="nearest")  # the first box
    return blur(_padded(repeated, boxes), boxes - 1)


def halve(x: Tensor, boxes: int = 1) -> Tensor:
    """Half the height and width; zeros outside.

    Args:
        x: shape (batch, channels, height, width), both even.
        boxes: length of the filter minus one, 1 to 3.

    Returns:
        Shape (batch, channels, height / 2, width / 2).
    """
    return avg_pool2d(blur(_padded(x, boxes), boxes - 1), 2)  # the last box


def blur(x: Tensor, boxes: int) -> Tensor:
    """Filter, without padding.

    Args:
        x: shape (batch, channels, height, width).
        boxes: length of the filter minus one.

    Returns:
        Shape (batch, channels, height - boxes, width - boxes).
    """
    for _ in range(boxes):
        x = avg_pool2d(x, 2, 1)
    return x


def _padded(x: Tensor, boxes: int) -> Tensor:
    if boxes == 1:
        return x
    after = boxes - 2
    return pad(x, (1, after, 1, after))
