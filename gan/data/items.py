"""Pictures by number, wherever they lie: what a source hands to whoever decodes.

Items can be pickled and cut (`items[start:stop]`), so that a part of them can be sent to another
process. numpy and Pillow only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from gan.data.decode import Bytes, Target, UnreadableError, convert, glance, is_grey, open_picture


def printable(name: str) -> str:
    """Return a name as text of one line that can be written anywhere, whatever it is made of."""
    if name.isprintable():
        return name
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)


class Items(ABC):
    """A row of pictures.

    Attributes:
        parts: pictures that make one example: 2 in a pair, whose channels are stacked, else 1.
        layout: where the pictures of an example are: "single", "halves" or "rows".
    """

    parts: int = 1
    layout: str = "single"

    @abstractmethod
    def __len__(self) -> int:
        """Return how many there are."""

    @abstractmethod
    def take(self, chosen: slice | Sequence[int]) -> Items:
        """Return some of them, in the order given."""

    def portable(self, start: int, stop: int) -> Items:
        """Return a part of them that another process can read."""
        return self.take(slice(start, stop))

    @abstractmethod
    def name(self, index: int) -> str:
        """Return what a person calls one of them."""

    @abstractmethod
    def pictures(self, index: int) -> tuple[Image.Image, ...]:
        """Decode the picture or pictures of one example, or raise `UnreadableError`."""

    def glance(self, index: int) -> tuple[tuple[int, int], bool]:
        """Return the width and height of one example's picture, and whether all of it is grey."""
        pictures = self.pictures(index)
        return pictures[0].size, all(is_grey(picture) for picture in pictures)

    def planes(self, index: int, target: Target) -> Bytes:
        """Return one example, (parts * channels, height, width), or raise `UnreadableError`."""
        planes = [convert(picture, target) for picture in self.pictures(index)]
        return planes[0] if len(planes) == 1 else np.concatenate(planes)


def pick(values: Sequence[Any], chosen: slice | Sequence[int]) -> Sequence[Any]:
    """Return some of the values, in the order given."""
    return values[chosen] if isinstance(chosen, slice) else [values[index] for index in chosen]


class EncodedItems(Items):
    """Pictures that are files of some format, wherever their bytes come from."""

    @abstractmethod
    def read(self, index: int) -> bytes:
        """Return the bytes of one file, or raise `UnreadableError`."""

    def pictures(self, index: int) -> tuple[Image.Image, ...]:
        """Decode one file."""
        return (open_picture(self.read(index)),)

    def glance(self, index: int) -> tuple[tuple[int, int], bool]:
        """Look at the head of one file."""
        return glance(self.read(index))


@dataclass
class FileItems(EncodedItems):
    """Files below a folder.

    Attributes:
        root: the folder.
        names: their paths below it, with forward slashes.
        strange: those that are no plain files, such as pipes, whose reading might never end.
    """

    root: str
    names: Sequence[str]
    strange: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return len(self.names)

    def take(self, chosen: slice | Sequence[int]) -> FileItems:
        """Return some of the files."""
        return FileItems(self.root, pick(self.names, chosen), self.strange)

    def name(self, index: int) -> str:
        """Return its path below the folder."""
        return printable(self.names[index])

    def read(self, index: int) -> bytes:
        """Read one file."""
        name = self.names[index]
        if name in self.strange:
            raise UnreadableError("not a regular file")
        try:
            with open(f"{self.root}/{name}", "rb", buffering=0) as file:
                return file.readall()
        except OSError as error:
            raise UnreadableError(error.strerror or str(error)) from error


@dataclass
class BytesItems(EncodedItems):
    """Files whose bytes are here already, or the reason why they are not.

    Attributes:
        names: what they are called.
        files: their bytes, or the reason.
    """

    names: Sequence[str]
    files: Sequence[bytes | str]

    def __len__(self) -> int:
        return len(self.files)

    def take(self, chosen: slice | Sequence[int]) -> BytesItems:
        """Return some of the files."""
        return BytesItems(pick(self.names, chosen), pick(self.files, chosen))

    def name(self, index: int) -> str:
        """Return what it is called."""
        return printable(self.names[index])

    def read(self, index: int) -> bytes:
        """Return the bytes of one file."""
        data = self.files[index]
        if isinstance(data, str):
            raise UnreadableError(data)
        return data


@dataclass
class ArrayItems(Items):
    """Images that are an array already, in memory or mapped from a file.

    Attributes:
        pixels: shape (count, channels, height, width), channels one of 1, 3, 4.
        low: the value that becomes 0.
        high: the value that becomes 255.
    """

    pixels: npt.NDArray[Any]
    low: float = 0
    high: float = 255

    def __len__(self) -> int:
        return len(self.pixels)

    def take(self, chosen: slice | Sequence[int]) -> ArrayItems:
        """Return some of the images."""
        return ArrayItems(self.pixels[chosen], self.low, self.high)

    def portable(self, start: int, stop: int) -> ArrayItems:
        """Return a part in memory of its own."""
        return ArrayItems(np.array(self.pixels[start:stop]), self.low, self.high)

    def name(self, index: int) -> str:
        """Return its number."""
        return f"image {index}"

    def pictures(self, index: int) -> tuple[Image.Image, ...]:
        """Return one image as a picture."""
        planes = self.pixels[index]
        if planes.dtype != np.uint8:
            scaled = (planes.astype(np.float64) - self.low) * (255 / (self.high - self.low))
            planes = np.rint(scaled).astype(np.uint8)
        return (Image.fromarray(planes[0] if len(planes) == 1 else planes.transpose(1, 2, 0)),)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width."""
        return self.pixels.shape[1], self.pixels.shape[2], self.pixels.shape[3]

    @property
    def is_plain(self) -> bool:
        """Whether the values are bytes as they are."""
        return self.pixels.dtype == np.uint8 and (self.low, self.high) == (0, 255)


@dataclass
class PairItems(Items):
    """Two pictures an example: from two rows of items, or the halves of one.

    Attributes:
        first: the pictures to translate from; where `second` is None, their left halves.
        second: the pictures to translate to; None: the right halves.
    """

    first: Items
    second: Items | None
    parts = 2

    @property
    def layout(self) -> str:  # type: ignore[override]
        """Where the two pictures are."""
        return "halves" if self.second is None else "rows"

    def __len__(self) -> int:
        return len(self.first)

    def take(self, chosen: slice | Sequence[int]) -> PairItems:
        """Return some of the pairs."""
        return PairItems(self.first.take(chosen), self.second and self.second.take(chosen))

    def portable(self, start: int, stop: int) -> PairItems:
        """Return a part that another process can read."""
        second = self.second and self.second.portable(start, stop)
        return PairItems(self.first.portable(start, stop), second)

    def name(self, index: int) -> str:
        """Return the names of both pictures."""
        first = self.first.name(index)
        return first if self.second is None else f"{first} + {self.second.name(index)}"

    def pictures(self, index: int) -> tuple[Image.Image, ...]:
        """Decode both pictures, which must have the same proportions."""
        (left,) = self.first.pictures(index)
        if self.second is None:
            half, odd = divmod(left.width, 2)
            if odd:
                raise UnreadableError(f"its width, {left.width}, has no two equal halves")
            right = left.crop((half, 0, left.width, left.height))
            left = left.crop((0, 0, half, left.height))
        else:
            (right,) = self.second.pictures(index)
        if abs(left.width * right.height - right.width * left.height) > max(
            *left.size, *right.size
        ):
            raise UnreadableError(
                f"{left.width}x{left.height} and {right.width}x{right.height} pixels are not of "
                f"the same proportions"
            )
        return left, right
