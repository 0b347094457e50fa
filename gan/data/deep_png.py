"""PNGs of 16 bits a value and more than grey, of which Pillow keeps only the upper bytes."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

_DEPTH = 24  # place of the byte that says how many bits a value has
# How Pillow unpacks the upper bytes, and what unpacks the lower ones: of LA, all four.
_LOWER = {"RGB;16B": "RGB;16L", "RGBA;16B": "RGBA;16L", "LA;16B": "RGBA"}


def is_deep(data: bytes, picture: Image.Image) -> bool:
    """Whether a picture is such a PNG.

    Args:
        data: the file.
        picture: as it was opened.
    """
    return picture.format == "PNG" and data[_DEPTH] == 16 and picture.mode in ("RGB", "RGBA")


def deepened(data: bytes, picture: Image.Image) -> Image.Image:
    """Return a picture with each value v brought to round(255 v / 65535).

    Args:
        data: the file.
        picture: as it was loaded.

    Returns:
        In mode RGB or RGBA; transparent where all 16 bits are those of the transparent colour.

    Reference: Portable Network Graphics (PNG) Specification, third edition, 11.3.1.1 and 13.12.
    """
    below = Image.open(io.BytesIO(data), formats=("PNG",))
    packing = str(below.tile[0].args)
    below.tile = [tile._replace(args=_LOWER[packing]) for tile in below.tile]
    lower = np.asarray(below)[..., [1, 1, 1, 3] if packing == "LA;16B" else slice(None)]
    values = np.asarray(picture) * np.uint32(256) + lower
    pixels = ((values * 255 + 32767) // 65535).astype(np.uint8)
    info = dict(picture.info)
    key = info.pop("transparency", None)
    if key is not None:
        clear = (values == np.array(key)).all(-1, keepdims=True)
        pixels = np.concatenate([pixels, np.where(clear, 0, 255).astype(np.uint8)], -1)
    deep = Image.fromarray(pixels)
    deep.info = {**info, "deep": True}
    deep.format = "PNG"
    return deep
