"""From pixels of one size to pixels of another, by the exact area that each new pixel covers."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

Floats = npt.NDArray[np.float32]
Box = tuple[int, int, int, int]

_BAND = 16  # new pixels made at once at least, from the few old ones that they cover
_SMALL = 4096  # weights that are not worth cutting


def framed(width: int, height: int, to: tuple[int, int], fit: str) -> tuple[Box, int, int]:
    """Return which pixels are used, and the size that they are brought to.

    Args:
        width: of the picture, in pixels.
        height: of the picture, in pixels.
        to: width and height asked for.
        fit: "crop", "pad" or "stretch", see `Target`.

    Returns:
        Left, top, right and bottom of what is used; the new height and width.
    """
    across, down = to[0] / width, to[1] / height
    if fit == "stretch":
        return (0, 0, width, height), to[1], to[0]
    if fit == "pad":
        scale = min(across, down)
        tall, wide = max(1, round(height * scale)), max(1, round(width * scale))
        return (0, 0, width, height), tall, wide
    scale = max(across, down)
    # Whole pixels: an offset of half a pixel would blur every image that is not resized at all.
    wide = min(width, max(1, round(to[0] / scale)))
    tall = min(height, max(1, round(to[1] / scale)))
    left, top = (width - wide) // 2, (height - tall) // 2
    return (left, top, left + wide, top + tall), to[1], to[0]


def resized(picture: Image.Image, box: Box, height: int, width: int) -> npt.NDArray[np.uint8]:
    """Return a part of a picture at the size asked for.

    A smaller axis is averaged over the exact area of each new pixel, a larger one is interpolated
    linearly: neither rings, so no value leaves the range of its neighbours.

    Args:
        picture: in mode L, F (in 0..255), RGB or RGBA.
        box: left, top, right and bottom of the part.
        height: in pixels.
        width: in pixels.

    Returns:
        Array of shape (channels, height, width).
    """
    from_width, from_height = box[2] - box[0], box[3] - box[1]
    blocks, rest = zip(divmod(from_width, width), divmod(from_height, height), strict=True)
    if rest == (0, 0) and blocks != (1, 1) and picture.mode != "F":
        picture = picture.reduce(blocks, box)  # as exact, and faster
    elif box != (0, 0, *picture.size):
        picture = picture.crop(box)
    pixels = _pixels(picture)
    if picture.size == (width, height) and picture.mode != "F":
        return np.ascontiguousarray(pixels.transpose(2, 0, 1))
    if picture.mode == "RGBA":  # colour counts as much as it can be seen
        pixels = pixels.astype(np.float32)
        pixels[..., :3] *= pixels[..., 3:] / 255
    rows = _along(pixels, _bands(from_height, height))  # (height, old width, channels)
    values = _along(rows.transpose(1, 2, 0), _bands(from_width, width))
    values = values.transpose(1, 2, 0)
    if picture.mode == "RGBA":
        values[:3] *= 255 / np.maximum(values[3], 0.5)
    return np.rint(np.minimum(values, 255)).astype(np.uint8, order="C")


def _pixels(picture: Image.Image) -> npt.NDArray[Any]:
    """Return the pixels of a picture in mode L, F, RGB or RGBA, (height, width, channels)."""
    kind = np.float32 if picture.mode == "F" else np.uint8
    return np.frombuffer(picture.tobytes(), kind).reshape(picture.height, picture.width, -1)


Band = tuple[int, int, Floats]


@lru_cache(maxsize=512)
def _bands(length: int, new: int) -> tuple[Band, ...]:
    """Return, for every few new pixels, where the old ones begin and end, and their weights."""
    weights, bands = _weights(length, new), []
    many = max(_BAND, _SMALL // length)
    for start in range(0, new, many):
        few = weights[start : start + many]
        used = np.flatnonzero(few.any(0))
        first, end = int(used[0]), int(used[-1]) + 1
        bands.append((first, end, np.ascontiguousarray(few[:, first:end])))
    return tuple(bands)


def _along(values: npt.NDArray[Any], bands: tuple[Band, ...]) -> Floats:
    """Bring the first axis to its new length; the others keep theirs."""
    flat = values.reshape(len(values), -1)
    made = np.empty((sum(len(few) for _, _, few in bands), flat.shape[1]), np.float32)
    start = 0
    for first, end, few in bands:
        np.matmul(few, flat[first:end].astype(np.float32), out=made[start : start + len(few)])
        start += len(few)
    return made.reshape(-1, *values.shape[1:])


def _weights(length: int, new: int) -> Floats:
    """Return how much each of the old pixels counts in each new pixel, rows that sum to 1."""
    if new < length:
        edges = np.arange(length + 1)
        cuts = np.arange(new + 1) * (length / new)
        ends = np.minimum(edges[None, 1:], cuts[1:, None])
        overlap = np.maximum(ends - np.maximum(edges[None, :-1], cuts[:-1, None]), 0)
        return np.asarray(overlap / overlap.sum(1, keepdims=True), np.float32)
    centres = np.clip((np.arange(new) + 0.5) * (length / new) - 0.5, 0, length - 1)
    distance = np.abs(centres[:, None] - np.arange(length)[None])
    return np.asarray(np.maximum(1 - distance, 0), np.float32)
