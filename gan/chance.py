"""Chance as a function: the same seed, step and role give the same numbers, however a batch is cut.

The latents, labels and augmentations of a step are drawn for the whole global batch, and each
process and micro-batch takes its slice. So a run does not depend on how many processes share it,
into how many micro-batches an update is cut, or how often it was interrupted. No generator state
needs saving.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

_NUMBERS = 4096
"""Numbers that one generator draws: few, so that a slice of the batch costs little more than its
own length, but so many that making the generator costs less than drawing them."""


def generator_for(*key: int | str) -> torch.Generator:
    """Random generator that depends on its key only.

    Args:
        key: for example (seed, "order", epoch).

    Returns:
        A CPU generator; the CPU's, so that every device sees the same numbers.
    """
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little"))


@dataclass(frozen=True)
class Chance:
    """The random numbers of one micro-batch: its slice of what the whole global batch draws.

    Attributes:
        key: what the numbers depend on besides their role, such as (seed, step, phase).
        start: where this micro-batch begins in the global batch of the update, which is cut over
            processes and micro-batches.
        stop: where it ends.
        device: where the numbers go.
    """

    key: tuple[int | str, ...]
    start: int
    stop: int
    device: torch.device | str = "cpu"

    @classmethod
    def fresh(cls, batch: int, device: torch.device | str = "cpu") -> Chance:
        """Numbers for a batch that nobody else shares, decided by torch's global generator.

        Args:
            batch: number of examples.
            device: where the numbers go.

        Returns:
            A chance of its own; processes that were seeded alike get different ones.
        """
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        rank = torch.distributed.get_rank() if distributed else 0
        return cls((int(torch.randint(2**62, ())), rank), 0, batch, device)

    def normal(self, role: str, *shape: int) -> Tensor:
        """Standard normal numbers.

        Args:
            role: names the use; another role gives other numbers.
            shape: shape of one example's numbers.

        Returns:
            Tensor of shape (stop - start, *shape).
        """
        return self._draw(torch.randn, role, shape)

    def uniform(self, role: str, *shape: int) -> Tensor:
        """Numbers spread evenly over [0, 1).

        Args:
            role: names the use; another role gives other numbers.
            shape: shape of one example's numbers.

        Returns:
            Tensor of shape (stop - start, *shape).
        """
        return self._draw(torch.rand, role, shape)

    def child(self, role: str) -> Chance:
        """Independent numbers for a part of the same micro-batch.

        Args:
            role: names the part.

        Returns:
            Same slice, another key.
        """
        return Chance((*self.key, role), self.start, self.stop, self.device)

    def _draw(self, draw: Callable[..., Tensor], role: str, shape: tuple[int, ...]) -> Tensor:
        size = max(1, _NUMBERS // max(1, math.prod(shape)))  # examples that one generator serves
        blocks = range(self.start // size, (self.stop - 1) // size + 1)
        # Drawn from the same bits, a normal and an even number would depend on each other.
        key = (*self.key, role, draw.__name__)
        drawn = [draw(size, *shape, generator=generator_for(*key, i)) for i in blocks]
        numbers = torch.cat(drawn) if len(drawn) > 1 else drawn[0]
        begin = self.start - blocks.start * size
        mine = numbers[begin : begin + self.stop - self.start]
        return mine.to(self.device, non_blocking=True)
