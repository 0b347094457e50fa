"""The stream: an endless, resumable order of the data, the same for every number of processes.

The order is a function of (seed, epoch). The position is one number, the batches consumed, so a
resumed run goes on with the very next image, whatever a loader had read ahead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from gan.chance import generator_for


class EndlessBatches(Sampler[list[int]]):
    """Batches of indices without end: permutation after permutation, cut into equal batches.

    A batch may hold the end of one epoch and the beginning of the next, so every batch is full
    and no image is left out. Accelerate deals batch n to process n mod num_processes.

    Attributes:
        batch_size: indices in a batch.
        position: the batch that the next iteration starts with, counted over all processes.
    """

    drop_last = False

    def __init__(
        self,
        examples: int,
        batch_size: int,
        seed: int,
        position: int = 0,
        balance: Tensor | None = None,
    ) -> None:
        """Describe the order.

        Args:
            examples: how many there are.
            batch_size: indices in a batch.
            seed: decides the order, together with the epoch.
            position: the batch to start with.
            balance: class of each example, int64 of shape (examples,): every class is then seen
                equally often, the examples of a small one again and again; None: every example
                is seen equally often.
        """
        self._members = [] if balance is None else _members(balance)
        self.examples, self.batch_size, self.seed, self.position = (
            examples,
            batch_size,
            seed,
            position,
        )

    def __iter__(self) -> Iterator[list[int]]:
        """Yield batches for ever."""
        epoch, offset = divmod(self.position * self.batch_size, self.examples)
        order = self._epoch(epoch)[offset:]
        while True:
            while len(order) < self.batch_size:
                epoch += 1
                order = torch.cat([order, self._epoch(epoch)])
            yield order[: self.batch_size].tolist()
            order = order[self.batch_size :]

    def _epoch(self, epoch: int) -> Tensor:
        chance = generator_for(self.seed, "order", epoch)
        if not self._members:
            return torch.randperm(self.examples, generator=chance)
        # Every class gets the same number of places, each filled from its own permutations.
        place = torch.randperm(self.examples, generator=chance) % len(self._members)
        order = torch.empty_like(place)
        for number, members in enumerate(self._members):
            places = (place == number).nonzero().squeeze(1)
            rounds = range(-(-len(places) // len(members)))
            shuffles = [torch.randperm(len(members), generator=chance) for _ in rounds]
            order[places] = members[torch.cat(shuffles)[: len(places)]]
        return order


def _members(labels: Tensor) -> list[Tensor]:
    classes = [(labels == number).nonzero().squeeze(1) for number in range(int(labels.max()) + 1)]
    return [members for members in classes if len(members)]


def _coins(seed: int, start: int, stop: int, block: int = 1024) -> Tensor:
    """One coin for each place in the order of the data, however the order is cut into batches."""
    blocks = range(start // block, (stop - 1) // block + 1)
    coins = torch.cat(
        [torch.rand(block, generator=generator_for(seed, "flip", i)) < 0.5 for i in blocks]
    )
    return coins[start - blocks.start * block : stop - blocks.start * block]


def _as_it_is(batch: Any) -> Any:
    return batch


def data_loader(
    dataset: Dataset[Any], batches: EndlessBatches, num_workers: int = 0
) -> DataLoader[Any]:
    """Loader of whole batches, to be passed through `accelerator.prepare`.

    Args:
        dataset: with `__getitems__(indices) -> (images, labels)`.
        batches: the order.
        num_workers: loading processes; 0: this one.

    Returns:
        The loader. It has a random generator of its own, so that iterating it leaves the global
        one alone.
    """
    return DataLoader(
        dataset,
        batch_sampler=batches,
        collate_fn=_as_it_is,
        num_workers=num_workers,
        persistent_workers=num_workers > 0,
        pin_memory=torch.cuda.is_available(),
        generator=generator_for("loader"),
    )


class Stream:
    """Real batches, ready for the networks, for ever.

    Examples that are on the device of the networks already are indexed there; others come through
    the loader, with its workers. Images leave it as float in [-1, 1], shape (batch, channels,
    height, width); points as they are, shape (batch, 2). Mirroring is a function of (seed, place
    in the order).

    Attributes:
        position: batches consumed so far, over all processes.
    """

    def __init__(
        self,
        loader: DataLoader[Any],
        batches: EndlessBatches,
        *,
        num_processes: int = 1,
        process_index: int = 0,
        horizontal_flip: bool = False,
        memory_format: torch.memory_format = torch.contiguous_format,
    ) -> None:
        """Bind a prepared loader to its order.

        Args:
            loader: `data_loader(...)` after `accelerator.prepare`.
            batches: the order that it was made with.
            num_processes: how many share the stream.
            process_index: which of them this is.
            horizontal_flip: mirror each image with probability one half.
            memory_format: of the images.
        """
        self._loader, self._batches = loader, batches
        self._processes, self._process = num_processes, process_index
        self._flip, self._format = horizontal_flip, memory_format
        self._iterator: Iterator[Any] | None = None
        self.position = batches.position

    def __iter__(self) -> Stream:
        """Return itself."""
        return self

    def __next__(self) -> tuple[Tensor, Tensor]:
        """Give the next batch of this process.

        Returns:
            Images or points (float32) and labels (int64, shape (batch,)), on the loader's device.
        """
        if self._iterator is None:
            self._batches.position = self.position
            self._iterator = self._examples()
        images, labels = next(self._iterator)
        mine = self.position + self._process
        self.position += self._processes
        if images.dtype == torch.uint8:
            images = images.to(torch.float32, memory_format=self._format).div_(127.5).sub_(1)
        if self._flip:
            start = mine * self._batches.batch_size
            mirrored = _coins(self._batches.seed, start, start + len(images)).to(images.device)
            images = torch.where(mirrored[:, None, None, None], images.flip(-1), images)
        return images, labels

    def _examples(self) -> Iterator[Any]:
        loader, data = self._loader, self._loader.dataset
        device = getattr(loader, "device", None) or torch.device("cpu")
        here = getattr(data, "device", None)
        if loader.num_workers or here is None or here.type != device.type:
            return iter(loader)
        assert loader.batch_sampler is not None, "data_loader gave it one"
        return map(data.__getitems__, loader.batch_sampler)  # type: ignore[attr-defined]

    def seek(self, position: int) -> None:
        """Go to a position.

        Args:
            position: batches consumed, over all processes.
        """
        self.position, self._iterator = position, None
