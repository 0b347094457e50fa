"""The one way from an encoded picture to bytes of the shape asked for.

Whatever the file holds is converted by value: orientation applied, colours brought to sRGB,
transparency composited or kept, deep and float values scaled by their range and never clipped.
numpy and Pillow only, so that a decoding process starts fast.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFile, ImageOps, UnidentifiedImageError

from gan.data.colours import in_srgb
from gan.data.deep_png import deepened, is_deep
from gan.data.ranges import FLOATS, INTEGERS, are_whole, not_finite, value_range, why_none
from gan.data.resizing import framed, resized
from gan.data.whole import ends_too_early

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

# Formats that only decode pixels. Others may run a program (EPS) or are no pictures at all.
_FORMATS = (
    *("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM"),
    *("AVIF", "JPEG2000", "TGA", "DIB", "ICO", "PCX", "QOI"),
)
_ORIENTATION = 0x0112
_METADATA = ("exif", "xmp", "XML:com.adobe.xmp", "Raw profile type exif")
_DEEP = ("I;16", "I;16L", "I;16B", "I;16N")
_RANGES = {"F": FLOATS, "I": (*INTEGERS, (0, 2**31 - 1))}
_GREY = ("1", "L", "LA", "La", "I", "F", *_DEEP)
_PALETTES = ("P", "PA")
_OPACITY = ("LA", "La", "PA", "RGBA", "RGBa")


class UnreadableError(Exception):
    """One picture that cannot be decoded; the message is the reason, without the picture's name."""


@dataclass(frozen=True)
class Target:
    """What every picture is turned into.

    Attributes:
        channels: 1 (grey), 3 (RGB) or 4 (RGB and opacity).
        height: in pixels.
        width: in pixels.
        fit: "crop" fills the target and cuts what is left over off evenly, "pad" shows all of the
            picture on the background, "stretch" changes its proportions.
        background: RGB that shows through transparency (1 and 3 channels) and around "pad".
        ranges: what is black and white in mode F (floats) and I (32 bits); None: no range fits.
            Of a mode that is missing, each picture has its own.
    """

    channels: int
    height: int
    width: int
    fit: str = "crop"
    background: tuple[int, int, int] = (255, 255, 255)
    ranges: Mapping[str, Sequence[int] | None] = field(default_factory=dict, repr=False)


@cache
def formats() -> tuple[str, ...]:
    """Return the names of the formats that are read; loads Pillow's plugins."""
    Image.init()
    return tuple(name for name in _FORMATS if name in Image.OPEN)


def open_picture(data: bytes) -> Image.Image:
    """Decode all pixels of an encoded picture (of its first frame), upright.

    Args:
        data: the bytes of the file.

    Returns:
        The picture in the mode that the file has; its `format` says what the file was.

    Raises:
        UnreadableError: if any part of it cannot be decoded.
    """
    try:
        opened = Image.open(io.BytesIO(data), formats=formats())
        opened.load()
        picture = deepened(data, opened) if is_deep(data, opened) else opened
    except Exception as error:  # a decoder's complaint may be of any class
        raise UnreadableError(_reason(data, error)) from error
    if ends_too_early(data, picture):
        raise UnreadableError("the file ends before the picture does (an unfinished download?)")
    return _upright(picture)


def glance(data: bytes) -> tuple[tuple[int, int], bool]:
    """Return an encoded picture's upright size and whether it is grey, from its head if possible.

    Args:
        data: the bytes of the file.

    Raises:
        UnreadableError: if its head cannot be read.
    """
    try:
        picture: Image.Image = Image.open(io.BytesIO(data), formats=formats())
        # Pillow's own TIFF gives its size upright already.
        turned = picture.format != "TIFF" and picture.getexif().get(_ORIENTATION) in (5, 6, 7, 8)
    except Exception as error:
        raise UnreadableError(_reason(data, error)) from error
    if picture.mode in _PALETTES:
        picture, turned = open_picture(data), False
    width, height = picture.size
    return ((height, width) if turned else (width, height)), is_grey(picture)


def _reason(data: bytes, error: Exception) -> str:
    if not data:
        return "the file is empty"
    if isinstance(error, UnidentifiedImageError):
        return "not an image of a known format"
    return str(error) or type(error).__name__


def _upright(picture: Image.Image) -> Image.Image:
    """Apply the orientation that a camera noted; a damaged note counts as none."""
    kind = picture.format
    try:
        if not any(key in picture.info for key in _METADATA) or (
            picture.getexif().get(_ORIENTATION, 1) == 1
        ):
            return picture
        turned = ImageOps.exif_transpose(picture)
    except Exception:  # the pixels are whole, whatever is wrong with the note
        return picture
    turned.format = kind
    return turned


@contextmanager
def strictly() -> Iterator[None]:
    """Have Pillow refuse what is damaged, whatever the program chose, and warn of nothing else."""
    lenient = ImageFile.LOAD_TRUNCATED_IMAGES
    ImageFile.LOAD_TRUNCATED_IMAGES = False  # else the missing part of a picture becomes grey
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd metadata, mostly
            yield
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = lenient


def is_grey(picture: Image.Image) -> bool:
    """Whether the picture's mode has no colour; a palette counts by the colours that it shows."""
    if picture.mode not in _PALETTES:
        return picture.mode in _GREY
    colours = np.asarray(picture.convert("RGBA"))[..., :3]
    return bool((colours == colours[..., :1]).all())


def mode_name(picture: Image.Image) -> str:
    """Return Pillow's name of the mode, or what it was before Pillow reduced it."""
    return picture.mode + " 16-bit" * ("deep" in picture.info)


def has_opacity(picture: Image.Image) -> bool:
    """Whether something may show through the picture."""
    return picture.mode in _OPACITY or "transparency" in picture.info


def range_of_all(mode: str, met: tuple[float, float, bool]) -> Sequence[int] | None:
    """Return the range of all pictures of a mode.

    Args:
        mode: F or I.
        met: the smallest and the largest value of all of them, and whether all are whole.
    """
    return value_range(met[0], met[1], _RANGES[mode], whole=met[2])


def convert(picture: Image.Image, target: Target) -> Bytes:
    """Bring a picture to the channels and the resolution asked for.

    Args:
        picture: of any mode and size.
        target: what to make of it.

    Returns:
        Array of shape (channels, height, width).

    Raises:
        UnreadableError: if its values have no known range.
    """
    try:
        plain = _plain(picture, target)
    except (ValueError, OSError) as error:
        raise UnreadableError(f"mode {picture.mode}: {error}") from error
    box, height, width = framed(*plain.size, (target.width, target.height), target.fit)
    planes = _with_channels(resized(plain, box, height, width), target.channels)
    if (height, width) == (target.height, target.width):
        return planes
    canvas = np.empty((target.channels, target.height, target.width), np.uint8)
    canvas[:] = _background(target)[:, None, None]
    top, left = (target.height - height) // 2, (target.width - width) // 2
    canvas[:, top : top + height, left : left + width] = planes
    return canvas


def _background(target: Target) -> Bytes:
    if target.channels == 4:
        return np.array((*target.background, 0), np.uint8)
    if target.channels == 3:
        return np.array(target.background, np.uint8)
    grey = Image.new("RGB", (1, 1), target.background).convert("L")
    return np.asarray(grey, np.uint8).reshape(1)


# --- values --------------------------------------------------------------------------------------


def _plain(picture: Image.Image, target: Target) -> Image.Image:
    """Return it in mode L or F (grey in 0..255), RGB, or RGBA where opacity is to be kept."""
    if picture.mode in (*_DEEP, "I", "F"):
        scaled, key = _scaled(picture, target), picture.info.get("transparency")
        if key is None:
            return Image.fromarray(scaled)
        grey = Image.fromarray(np.rint(scaled).astype(np.uint8))
        seen = Image.fromarray(np.where(np.asarray(picture) == key, 0, 255).astype(np.uint8))
        picture = Image.merge("RGBA", (grey, grey, grey, seen))
    picture = in_srgb(picture)
    if has_opacity(picture):
        picture = picture.convert("RGBA")
        if target.channels == 4:
            return picture
        picture = _composited(picture, target.background)
    mode = "L" if target.channels == 1 or picture.mode in ("1", "L") else "RGB"
    return picture if picture.mode == mode else picture.convert(mode)  # else copies it all the same


def _composited(picture: Image.Image, background: tuple[int, int, int]) -> Image.Image:
    if picture.getchannel("A").getextrema() == (255, 255):
        return picture.convert("RGB")
    below = Image.new("RGBA", picture.size, (*background, 255))
    return Image.alpha_composite(below, picture).convert("RGB")


def extremes(picture: Image.Image) -> tuple[float, float, bool] | None:
    """Return the smallest and largest value, and whether all are whole, where those mean a range.

    Args:
        picture: of any mode.

    Raises:
        UnreadableError: if some value is not a number.
    """
    if picture.mode not in _RANGES or picture.format in ("PNG", "PPM"):
        return None
    values = np.asarray(picture)
    if strange := not_finite(values):
        raise UnreadableError(f"mode {picture.mode}: it holds {strange}")
    return float(values.min()), float(values.max()), are_whole(values)


def _scaled(picture: Image.Image, target: Target) -> Floats:
    """Return deep or float grey values as floats in 0..255, by the range that they are kept in."""
    values = np.asarray(picture).astype(np.float32)
    met = extremes(picture)
    if met is None:
        return values / np.float32(257)
    low, high, whole = met
    ranges = _RANGES[picture.mode]
    chosen = target.ranges.get(picture.mode, value_range(low, high, ranges, whole=whole))
    if chosen is None:
        raise ValueError(f"the values from {why_none(low, high, ranges)}; all such images have one")
    return (values - np.float32(chosen[0])) * np.float32(255 / (chosen[1] - chosen[0]))


def _with_channels(planes: Bytes, channels: int) -> Bytes:
    if len(planes) == 1 and channels > 1:
        planes = np.repeat(planes, 3, axis=0)
    if len(planes) == 3 and channels == 4:
        planes = np.concatenate([planes, np.full_like(planes[:1], 255)])
    return planes
