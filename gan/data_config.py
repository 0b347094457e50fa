"""The options that decide which images there are, shared by training and every other command."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gan.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Which images, and how they are brought to one shape."""

    data: str = "digits"
    """digits, mnist, fashion-mnist, cifar10, ring, fake:COUNT, hf:OWNER/NAME, or a folder, zip, tar
    or .npz of images."""
    data_root: Path | None = None
    """Where torchvision's data sets are kept; None: the user's cache folder."""
    resolution: str | None = None
    """SIZE or HEIGHTxWIDTH in pixels; None: the data's own."""
    channels: int | None = None
    """1 grey, 3 colour, 4 with transparency; None: the data's own."""
    fit: Literal["crop", "pad", "stretch"] = "crop"
    """How an image of another shape is brought to the resolution."""
    background: tuple[int, int, int] = (255, 255, 255)
    """RGB from 0 to 255 that shows through transparency and fills up what fit=pad adds."""
    labels: str = "auto"
    """Where class labels come from: auto, none, folders, or a file."""
    image_column: str | None = None
    """Column of a Hugging Face data set that holds the images; None: it is found."""
    label_column: str | None = None
    """Column of a Hugging Face data set that holds the classes; None: it is found."""
    skip_unreadable: bool = False
    """Leave damaged images out instead of refusing the data."""
    cache: bool = True
    """Keep the prepared images in the user's cache folder."""
    cache_limit: str = "50GB"
    """Most that all prepared images there may take, as in 500MB; the oldest are removed."""

    @property
    def size(self) -> tuple[int, int] | None:
        """Resolution as (height, width) in pixels, or None for the data's own.

        Raises:
            ConfigError: it is no size.
        """
        if self.resolution is None:
            return None
        if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)?", self.resolution):
            raise ConfigError(
                f"resolution: {self.resolution!r} is no size in pixels; write 64 or HEIGHTxWIDTH"
            )
        height, _, width = self.resolution.partition("x")
        return int(height), int(width or height)

    def opening(self) -> dict[str, Any]:
        """What `gan.open_data` takes besides the source.

        Returns:
            Its keyword arguments.

        Raises:
            ConfigError: `resolution` is no size.
        """
        names = ("channels", "fit", "background", "labels", "image_column", "label_column")
        return {
            "root": self.data_root,
            "resolution": self.size,
            "no_cache": not self.cache,
            "cache_limit": self.cache_limit,
            "skip_unreadable": self.skip_unreadable,
            **{name: getattr(self, name) for name in names},
        }
