"""Pictures by number, wherever they lie: what a source hands to whoever decodes.

Items are picklable and sliceable (`items[start:stop]`), so that a part of them can be sent to
another process. numpy and Pillow only.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from PIL import Image

from gan.data.decode import UnreadableError, open_picture


class Items(Protocol):
    """A row of pictures."""

    def __len__(self) -> int:
        """Return how many there are."""
        ...

    def __getitem__(self, part: slice) -> Items:
        """Return a part of them."""
        ...

    def name(self, index: int) -> str:
        """Return what a person calls one of them."""
        ...

    def picture(self, index: int) -> Image.Image:
        """Decode one of them, or raise `UnreadableError`."""
        ...


@dataclass
class FileItems:
    """Files below a folder.

    Attributes:
        root: the folder.
        names: their paths below it, with forward slashes.
    """

    root: Path
    names: Sequence[str]

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, part: slice) -> FileItems:
        return FileItems(self.root, self.names[part])

    def name(self, index: int) -> str:
        """Return its path below the folder."""
        return self.names[index]

    def picture(self, index: int) -> Image.Image:
        """Decode one file."""
        path = os.path.join(self.root, self.names[index])
        try:
            if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe would never end
                raise UnreadableError("not a regular file")
            with open(path, "rb") as file:
                data = file.read()
        except OSError as error:
            raise UnreadableError(error.strerror or str(error)) from error
        return open_picture(data)


@dataclass
class ArrayItems:
    """Images that are an array already.

    Attributes:
        pixels: uint8 of shape (count, channels, height, width), channels one of 1, 3, 4.
    """

    pixels: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, part: slice) -> ArrayItems:
        return ArrayItems(np.ascontiguousarray(self.pixels[part]))

    def name(self, index: int) -> str:
        """Return its number."""
        return f"image {index}"

    def picture(self, index: int) -> Image.Image:
        """Return one image as a picture."""
        planes: npt.NDArray[Any] = self.pixels[index]
        return Image.fromarray(planes[0] if len(planes) == 1 else planes.transpose(1, 2, 0))
