"""Where the hand-written loops get their images and their random numbers from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from gan.chance import Chance
from gan.config import Config
from gan.data import ImageData

_MEMORY = 2**28
"""Bytes that a loop's images may take as floats; of more images it shows the first ones."""


class Feed(Protocol):
    """Gives a loop what it trains on. The tests give both loops what the toolkit trains on."""

    def real(self) -> tuple[Tensor, Tensor]:
        """The next real images in [-1, 1], shape (batch, ...), and their labels."""

    def chance(self, step: int, phase: str, index: int) -> Chance:
        """Random numbers of one micro-batch.

        Args:
            step: completed steps.
            phase: "discriminator N", or "generator".
            index: which micro-batch of the update.
        """


class Fresh(Chance):
    """Random numbers as a hand-written loop draws them: straight on the device."""

    def normal(self, role: str, *shape: int) -> Tensor:
        """See `Chance`; every call gives other numbers."""
        return torch.randn(self.stop, *shape, device=self.device)

    def uniform(self, role: str, *shape: int) -> Tensor:
        """See `Chance`; every call gives other numbers."""
        return torch.rand(self.stop, *shape, device=self.device)


class _Both:
    """What both kinds of feed share: decoded images, mirroring, fresh random numbers."""

    def __init__(self, config: Config, data: ImageData, device: torch.device) -> None:
        self.config, self.device = config, device
        self._chance = Fresh((), 0, config.batch_size, device)
        self.images, self.labels = _in_memory(data, config.batch_size)

    def chance(self, step: int, phase: str, index: int) -> Chance:
        """See `Feed`."""
        return self._chance

    def _mirrored(self, images: Tensor) -> Tensor:
        if not self.config.horizontal_flip:
            return images
        coins = torch.rand(len(images), 1, 1, 1, device=images.device) < 0.5
        return torch.where(coins, images.flip(-1), images)


class LoaderFeed(_Both):
    """A shuffling DataLoader over single images, as in examples/gan_pure_pytorch.py."""

    def __init__(self, config: Config, data: ImageData, device: torch.device) -> None:
        super().__init__(config, data, device)
        self._batches = self._endless()

    def _endless(self) -> Iterator[tuple[Tensor, Tensor]]:
        examples = TensorDataset(self.images, self.labels)
        size, workers = self.config.batch_size, self.config.num_workers
        loader: DataLoader[Any] = DataLoader(
            examples, size, shuffle=True, drop_last=True, num_workers=workers
        )
        while True:
            yield from loader

    def real(self) -> tuple[Tensor, Tensor]:
        """See `Feed`."""
        images, labels = next(self._batches)
        return self._mirrored(images.to(self.device)), labels.to(self.device)


class MemoryFeed(_Both):
    """One indexing operation a batch, on the device where the images already are."""

    def __init__(self, config: Config, data: ImageData, device: torch.device) -> None:
        super().__init__(config, data, device)
        self.images, self.labels = self.images.to(device), self.labels.to(device)
        if config.channels_last and self.images.ndim == 4:
            self.images = self.images.to(memory_format=torch.channels_last)
        self._order, self._next = torch.empty(0, dtype=torch.int64, device=device), 0

    def real(self) -> tuple[Tensor, Tensor]:
        """See `Feed`."""
        end = self._next + self.config.batch_size
        if end > len(self._order):
            self._order = torch.randperm(len(self.images), device=self.device)
            self._next, end = 0, self.config.batch_size
        chosen = self._order[self._next : end]
        self._next = end
        images = self.images[chosen]
        if self.config.channels_last and images.ndim == 4:
            images = images.contiguous(memory_format=torch.channels_last)
        return self._mirrored(images), self.labels[chosen]


def _in_memory(data: ImageData, batch_size: int) -> tuple[Tensor, Tensor]:
    """As many decoded images as may be held, at least one batch of them, in [-1, 1]."""
    most = max(_MEMORY // (4 * data[0][0].numel()), batch_size)
    images, labels = data.__getitems__(torch.arange(min(len(data), most)))
    if images.dtype == torch.uint8:
        images = images.float().div_(127.5).sub_(1)
    if len(images) < batch_size:  # as the stream does, repeat
        again = torch.arange(batch_size) % len(images)
        images, labels = images[again], labels[again]
    return images, labels
