"""Pixels moved and filtered, each image in its own way, so that gradients pass through twice.

`fetch` takes pixels where they are and mixes the four around a point between them. That blurs, and
by how much depends on the point, which a discriminator can see. `warp` does it at twice the
resolution, between wavelet filters that undo each other. Filters are applied as matrices from the
left and the right: exact in any size, and mirroring at the borders is part of the matrix.

Reference: Karras et al., 2020, arXiv:2006.06676, appendix B.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

SYM6 = (
    *(0.015404109327027373, 0.0034907120842174702, -0.11799011114819057, -0.048311742585633),
    *(0.4910559419267466, 0.787641141030194, 0.3379294217276218, -0.07263752278646252),
    *(-0.021060292512300564, 0.04472490177066578, 0.0017677118642428036, -0.007800708325034148),
)
"""Low-pass filter of the symlet with 6 vanishing moments; Daubechies, 1992, section 8.1."""

_HALF_BAND = (-1 / 32, 0.0, 9 / 32, 16 / 32, 9 / 32, 0.0, -1 / 32)
"""The low-pass filter of the symlet with 2, forwards and then backwards, halved."""

_LEAD = 5
"""Taps of SYM6 before the even one of the two samples that a pixel becomes."""


def fetch(images: Tensor, matrix: Tensor, offset: Tensor) -> Tensor:
    """Fetch pixels by linear interpolation, mirrored at the borders.

    Args:
        images: shape (batch, channels, height, width).
        matrix: takes places in the output to places in the image, (x, y) in pixels from the
            centre; shape (batch, 2, 2).
        offset: added to them, shape (batch, 2).

    Returns:
        Same shape as the images; the pixels themselves where the places are whole.
    """
    height, width = images.shape[2:]
    x, y = (torch.arange(size).to(matrix) - (size - 1) / 2 for size in (width, height))
    columns, rows = (matrix @ _grid(x, y) + offset.unsqueeze(2)).unbind(1)
    columns, rows = columns + (width - 1) / 2, rows + (height - 1) / 2
    return _interpolate(images, columns, rows, _mirror).view_as(images)


def warp(images: Tensor, exact: Tensor, matrix: Tensor, offset: Tensor) -> Tensor:
    """Move pixels at twice the resolution, between wavelet filters; mirrored at the borders.

    Flips and turns come first, and only move pixels: the filter is not symmetric. Its centre of
    mass is where a pixel is, so that the middle of the image is that of each move.

    Args:
        images: shape (batch, channels, height, width).
        exact: flip and quarter turn, as a matrix like that of `fetch`; half turns only where the
            image is not square; shape (batch, 2, 2).
        matrix: the rest of the move, as in `fetch`: places go through it before they go through
            `exact`.
        offset: added between the two, shape (batch, 2).

    Returns:
        Same shape as the images. Where the matrix is one and the offset whole, the pixels
        themselves up to rounding; where the offset is zero, bitwise.
    """
    flipped = fetch(images, exact, torch.zeros_like(offset))
    height, width = images.shape[2:]
    kind = images.dtype, images.device
    up, down = (
        [_ready(make, size, *kind) for size in (height, width)]
        for make in (_upsampling, _downsampling)
    )
    double = separable(flipped, *up)
    x, y = (torch.arange(-_LEAD, 2 * s + _LEAD).to(matrix) for s in (width, height))
    # A sample m of a row lies at m + delay - (width - 1) half pixels from the centre.
    delay = _LEAD - sum(i * tap for i, tap in enumerate(SYM6)) / sum(SYM6)
    points = _grid(x + (delay - width + 1), y + (delay - height + 1))
    one = torch.eye(2).to(matrix)
    moves = (matrix - one) @ points + 2 * offset.unsqueeze(2)  # exactly whole if nothing else is
    columns, rows = (_grid(x, y) + moves).unbind(1)
    moved = _interpolate(double, columns, rows, torch.remainder)
    moved = moved.view(*images.shape[:2], len(y), len(x))
    filtered = separable(moved, *down)
    still = (matrix == one).flatten(1).all(1) & (offset == 0).all(1)
    return torch.where(still.view(-1, 1, 1, 1), flipped, filtered)


def equalized(images: Tensor, gains: Tensor) -> Tensor:
    """Amplify bands of spatial frequency, mirrored at the borders.

    Args:
        images: shape (batch, channels, height, width).
        gains: of the bands up to 1/8, 1/4, 1/2 and the whole of the highest frequency, shape
            (batch, 4).

    Returns:
        Same shape; the images up to rounding where all gains are 1.
    """
    rows, columns = (
        torch.einsum(
            "bg,gij->bij", gains, _ready(_bands, size, gains.dtype, gains.device)
        ).unsqueeze(1)
        for size in images.shape[2:]
    )
    return separable(images, rows, columns)


def separable(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Filter along the height and along the width.

    Args:
        images: shape (batch, channels, height, width).
        rows: matrix of shape (..., new height, height).
        columns: matrix of shape (..., new width, width).

    Returns:
        Shape (batch, channels, new height, new width).
    """
    return rows.to(images) @ (images @ columns.to(images).mT)


def _interpolate(
    images: Tensor, columns: Tensor, rows: Tensor, fold: Callable[[Tensor, int], Tensor]
) -> Tensor:
    """Mix the four pixels around each place; `fold` tells which pixel an outer one repeats.

    By indexing, since torch's own grid_sample cannot be differentiated twice.
    """
    height, width = images.shape[2:]
    pixels = images.flatten(2)
    left, top = columns.floor(), rows.floor()
    across, down = columns - left, rows - top
    x0, x1 = (fold(left.long() + i, width) for i in (0, 1))
    y0, y1 = (fold(top.long() + i, height) * width for i in (0, 1))
    around = torch.stack([y0 + x0, y0 + x1, y1 + x0, y1 + x1], 1)
    beside, below = torch.stack([1 - across, across], 1), down.unsqueeze(1)
    shares = torch.cat([beside * (1 - below), beside * below], 1)  # (batch, 4, places)
    index = around.flatten(1).unsqueeze(1).expand(-1, pixels.shape[1], -1)
    found = pixels.gather(2, index).view(*pixels.shape[:2], *around.shape[1:])
    return (found * shares.unsqueeze(1)).sum(2)


def _grid(x: Tensor, y: Tensor) -> Tensor:
    """All pairs, row by row: shape (2, len(y) * len(x))."""
    shape = len(y), len(x)
    return torch.stack([x.expand(shape), y[:, None].expand(shape)]).flatten(1)


def _mirror(index: Tensor, size: int) -> Tensor:
    """The pixel that an index outside shows, without repeating the one at the border."""
    last = size - 1
    return last - (index.remainder(2 * last) - last).abs() if last else torch.zeros_like(index)


def _matrix(columns: Tensor, taps: Tensor, size: int) -> Tensor:
    """Row by row, taps at their columns; those at the same column add up."""
    return taps.new_zeros(len(columns), size).scatter_add_(1, columns, taps.expand(columns.shape))


@lru_cache(maxsize=64)
def _ready(
    make: Callable[[int], Tensor], size: int, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """A filter's matrix on the device, where it stays: a training asks for the same ones again."""
    return make(size).to(device, dtype)


def _upsampling(size: int) -> Tensor:
    """From pixels to twice as many samples of one period of the mirrored image."""
    samples = torch.arange(2 * max(2 * (size - 1), 1))[:, None]
    lags = (samples + _LEAD) % 2 + torch.arange(0, len(SYM6), 2)
    pixels = (samples + _LEAD - lags) // 2
    taps = math.sqrt(2) * torch.tensor(SYM6, dtype=torch.float64)
    return _matrix(_mirror(pixels, size), taps[lags], size)


def _downsampling(size: int) -> Tensor:
    """Back, from as many samples as these pixels need."""
    lags = torch.arange(len(SYM6))
    taps = torch.tensor(SYM6, dtype=torch.float64) / math.sqrt(2)
    return _matrix(2 * torch.arange(size)[:, None] + lags, taps, 2 * size + 2 * _LEAD)


def _bands(size: int) -> Tensor:
    """Four filters that add up to doing nothing: shape (4, size, size), lowest band first."""
    taps = torch.tensor(_HALF_BAND, dtype=torch.float64)
    low, bands = torch.eye(size, dtype=torch.float64), []
    for step in (1, 2, 4):
        pixels = torch.arange(size)[:, None] + step * torch.arange(-3, 4)
        lower = _matrix(_mirror(pixels, size), taps, size) @ low
        bands.append(low - lower)
        low = lower
    return torch.stack([low, *reversed(bands)])
