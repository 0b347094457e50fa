"""What training reads: images as one tensor of bytes, or points in the plane, with labels."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset

from gan.data.decode import Target, UnreadableError, strictly
from gan.data.items import Items
from gan.errors import DataError


@dataclass(frozen=True)
class Stored:
    """Bytes in a file that serve as a tensor without being read first.

    Attributes:
        path: the file.
        shape: (count, channels, height, width).
        offset: where the bytes begin.
        channels_last: whether they are in the order (count, height, width, channels).
    """

    path: Path
    shape: tuple[int, ...]
    offset: int = 0
    channels_last: bool = False

    @classmethod
    def of(cls, pixels: npt.NDArray[np.uint8]) -> Stored | None:
        """Describe an array that numpy maps from a file; None where it is something else.

        Args:
            pixels: shape (count, channels, height, width).
        """
        mapped: Any = pixels
        while isinstance(mapped.base, np.ndarray):  # a part of a map calls itself one too
            mapped = mapped.base
        if not isinstance(mapped, np.memmap) or mapped.filename is None:
            return None
        count, channels, height, width = pixels.shape
        last = channels > 1 and pixels.strides[1] == 1
        plain = pixels.transpose(0, 2, 3, 1) if last else pixels
        if not plain.flags.c_contiguous:
            return None
        start = plain.__array_interface__["data"][0] - mapped.__array_interface__["data"][0]
        shape = (count, channels, height, width)
        return cls(Path(mapped.filename), shape, mapped.offset + start, last)

    def open(self) -> Tensor:
        """Map the file; the tensor must not be written to."""
        count, channels, height, width = self.shape
        shape = (count, height, width, channels) if self.channels_last else self.shape
        pixels = np.memmap(self.path, np.uint8, "r", self.offset, shape)
        with warnings.catch_warnings():
            # A private mapping could be written to, but counts as memory for all of its size.
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            tensor = torch.from_numpy(pixels)
        return tensor.permute(0, 3, 1, 2) if self.channels_last else tensor


@dataclass
class LazyImages:
    """Images that are decoded each time they are asked for.

    Attributes:
        items: the pictures, all of which can be read.
        target: what to make of them.
    """

    items: Items
    target: Target

    @property
    def shape(self) -> tuple[int, ...]:
        """(count, channels, height, width)."""
        channels = self.items.parts * self.target.channels
        return len(self.items), channels, self.target.height, self.target.width

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, chosen: Tensor | int) -> Tensor:
        indices = [chosen] if isinstance(chosen, int) else chosen.tolist()
        pixels = np.empty((len(indices), *self.shape[1:]), np.uint8)
        with strictly():
            for row, index in enumerate(indices):
                try:
                    pixels[row] = self.items.planes(index, self.target)
                except UnreadableError as error:
                    name = self.items.name(index)
                    raise DataError(
                        f"data: {name} could be read before but no longer: {error}"
                    ) from error
        images = torch.from_numpy(pixels)
        return images[0] if isinstance(chosen, int) else images


class ImageData(Dataset[tuple[Tensor, int]]):
    """Images and their labels, all of one shape, read by index.

    Args:
        name: what the person called it, such as "digits".
        images: uint8 of shape (count, channels, height, width); or float32 points (count, 2).
        fingerprint: hash of the content's identity and of every setting that changes a value.
        labels: integers from 0 to the number of classes, shape (count,); None: unlabelled.
        class_names: one name a class; empty where unlabelled.
        notes: what a person should know about how the images were prepared, a sentence each.
        stored: where the images are mapped from; None: they are in memory.

    Attributes:
        shape: of one example, (channels, height, width) or (2,). A pair for image-to-image has
            the channels of both, the one to translate from first.
        labels: int64 of shape (count,), all zero where unlabelled.
        num_classes: how many classes there are; 0 where unlabelled.
    """

    def __init__(
        self,
        name: str,
        images: Tensor | LazyImages,
        fingerprint: str,
        *,
        labels: Tensor | None = None,
        class_names: Sequence[str] = (),
        notes: Sequence[str] = (),
        stored: Stored | None = None,
    ) -> None:
        self.name = name
        self.images = images
        self.fingerprint = fingerprint
        count = len(images)
        self.labels = torch.zeros(count, dtype=torch.int64) if labels is None else labels.long()
        self.class_names = tuple(class_names)
        self.notes = tuple(notes)
        self._stored = stored

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one example."""
        return tuple(self.images.shape[1:])

    @property
    def device(self) -> torch.device | None:
        """Where the images are; None where each is decoded when it is asked for."""
        return self.images.device if isinstance(self.images, Tensor) else None

    @property
    def num_classes(self) -> int:
        """Number of classes; 0 where unlabelled."""
        return len(self.class_names)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"example {index} of {len(self)}")
        # A copy: whoever writes into one image must not write into the data.
        return self.images[index % len(self)].clone(), int(self.labels[index])

    def __getitems__(self, indices: Sequence[int] | Tensor) -> tuple[Tensor, Tensor]:
        """Return many examples in one indexing operation.

        Args:
            indices: which examples, in order.

        Returns:
            Images of shape (batch, channels, height, width) and labels of shape (batch,).
        """
        chosen = torch.as_tensor(indices, dtype=torch.int64, device=self.labels.device)
        return self.images[chosen], self.labels[chosen]

    def to(self, device: torch.device) -> ImageData:
        """Return the same data on a device, as far as it has room for it.

        Args:
            device: an accelerator, or the CPU.

        Returns:
            A copy whose images and labels are there; itself where they would fill more than a
            quarter of what is free, or are decoded each time they are asked for.
        """
        if isinstance(self.images, LazyImages) or device.type == self.images.device.type:
            return self
        if self.images.nbytes > _free(device) // 4:
            return self
        moved = copy.copy(self)
        moved.images, moved.labels = self.images.to(device), self.labels.to(device)
        moved._stored = None
        return moved

    def __getstate__(self) -> dict[str, Any]:
        # Another process maps the file again instead of being sent its content.
        state = self.__dict__.copy()
        if self._stored is not None:
            state["images"] = None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._stored is not None:
            self.images = self._stored.open()


def _free(device: torch.device) -> int:
    """Bytes that are free on a device; 0 where nobody can tell."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 0
