"""What training reads: images as one tensor of bytes, or points in the plane, with labels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.utils.data import Dataset


class ImageData(Dataset[tuple[Tensor, int]]):
    """Images and their labels, all of one shape, read by index.

    Args:
        name: what the person called it, such as "digits".
        images: uint8 of shape (count, channels, height, width); or float32 points (count, 2).
        fingerprint: hash of the content's identity and of every setting that changes a value.
        labels: integers from 0 to the number of classes, shape (count,); None: unlabelled.
        class_names: one name a class; empty where unlabelled.
        notes: what a person should know about how the images were prepared, a sentence each.

    Attributes:
        shape: of one example, (channels, height, width) or (2,).
        labels: int64 of shape (count,), all zero where unlabelled.
        num_classes: how many classes there are; 0 where unlabelled.
    """

    def __init__(
        self,
        name: str,
        images: Tensor,
        fingerprint: str,
        *,
        labels: Tensor | None = None,
        class_names: Sequence[str] = (),
        notes: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.images = images
        self.fingerprint = fingerprint
        count = len(images)
        self.labels = torch.zeros(count, dtype=torch.int64) if labels is None else labels.long()
        self.class_names = tuple(class_names)
        self.notes = tuple(notes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one example."""
        return tuple(self.images.shape[1:])

    @property
    def num_classes(self) -> int:
        """Number of classes; 0 where unlabelled."""
        return len(self.class_names)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.images[index], int(self.labels[index])

    def __getitems__(self, indices: Sequence[int] | Tensor) -> tuple[Tensor, Tensor]:
        """Return many examples in one indexing operation.

        Args:
            indices: which examples, in order.

        Returns:
            Images of shape (batch, channels, height, width) and labels of shape (batch,).
        """
        chosen = torch.as_tensor(indices, dtype=torch.int64)
        return self.images[chosen], self.labels[chosen]
