"""Embedded colour profiles: what a camera or a screen calls red becomes the red of sRGB."""

from __future__ import annotations

import io
from functools import lru_cache
from typing import Any

import numpy as np
from PIL import Image

# Pillow's modes, and the colours that a profile for them speaks of.
_SPACES = {
    **dict.fromkeys(("L", "LA"), "GRAY"),
    **dict.fromkeys(("RGB", "RGBA", "P", "PA", "YCbCr"), "RGB "),
    "CMYK": "CMYK",
}
_MODES = {"GRAY": "L", "RGB ": "RGB", "CMYK": "CMYK"}
_SAME = 2  # of 255: sRGB itself is written down in many ways, which differ by rounding


def profile_effect(picture: Image.Image) -> str:
    """Return what a picture's profile does: "converted", "ignored", or "" where it is sRGB's.

    Args:
        picture: as it was opened.
    """
    profile = picture.info.get("icc_profile")
    return _transform(profile, _SPACES.get(picture.mode, ""))[0] if profile else ""


def in_srgb(picture: Image.Image) -> Image.Image:
    """Return a picture whose values mean the colours of sRGB, in mode L, RGB or RGBA.

    Args:
        picture: of any mode but deep or float grey; without a profile, or with one that is sRGB's
            or unusable, it is returned as it is.

    Reference: International Color Consortium, ICC.1:2022, relative colorimetric intent.
    """
    profile = picture.info.get("icc_profile")
    if not profile:
        return picture
    space = _SPACES.get(picture.mode, "")
    effect, transform = _transform(profile, space)
    if effect != "converted":
        return picture
    alpha = None
    if picture.mode in ("LA", "PA", "RGBA") or "transparency" in picture.info:
        picture = picture.convert("RGBA")
        alpha = picture.getchannel("A")
    converted: Image.Image = transform.apply(picture.convert(_MODES[space]))
    if space == "GRAY":
        converted = converted.getchannel("G")
    if alpha is not None:
        converted = converted.convert("RGB")
        converted.putalpha(alpha)
    return converted


@lru_cache(maxsize=64)
def _transform(profile: bytes, space: str) -> tuple[str, Any]:
    from PIL import ImageCms  # few pictures need it

    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        if source.profile.xcolor_space != space:
            return "ignored", None
        transform = ImageCms.buildTransform(
            source,
            ImageCms.createProfile("sRGB"),
            _MODES[space],
            "RGB",
            ImageCms.Intent.RELATIVE_COLORIMETRIC,
            ImageCms.Flags.BLACKPOINTCOMPENSATION,
        )
    except (OSError, ValueError, ImportError, ImageCms.PyCMSError):
        return "ignored", None
    return ("", None) if _is_srgb(transform, space) else ("converted", transform)


def _is_srgb(transform: Any, space: str) -> bool:
    if space == "CMYK":
        return False
    steps = np.arange(0, 256, 15)
    probe = np.stack(np.meshgrid(steps, steps, steps), -1).reshape(-1, len(steps), 3)
    if space == "GRAY":
        probe = probe[..., :1].repeat(3, -1)
    picture = Image.fromarray(probe.astype(np.uint8))
    found = np.asarray(transform.apply(picture.convert(_MODES[space])))
    return bool(np.abs(found.astype(int) - probe).max() <= _SAME)
