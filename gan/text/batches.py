"""From texts to batches: tokens, and an order in which no epoch's tail is lost or counted twice.

An update is a window: `gradient_accumulation_steps` micro-batches on each process. The order of an
epoch is a function of (seed, epoch). It is cut into windows first and into micro-batches then, so
every number of processes and of micro-batches that makes the same window makes the same update.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler
from transformers import DataCollatorWithPadding

from gan.text.dataset import Texts

_log = logging.getLogger(__name__)


def encode(
    tokenizer: Any, texts: Texts, max_length: int, name: str = "texts"
) -> list[dict[str, Any]]:
    """Turn texts into token numbers, once, before any loading process is forked.

    Args:
        tokenizer: of transformers.
        texts: one or two strings each.
        max_length: cut what is longer, and say how many were.
        name: what to call the texts when saying it.

    Returns:
        For each text `input_ids`, `attention_mask` and what else the model takes, as lists, and its
        `label` if it has one.
    """
    columns = [list(column) for column in zip(*texts.texts, strict=True)]
    # Not cut at first, to see how long they are; the tokenizer need not say so for each.
    encoded = tokenizer(*columns, verbose=False)
    long = [i for i, ids in enumerate(encoded["input_ids"]) if len(ids) > max_length]
    if long:
        cut = tokenizer(
            *([column[i] for i in long] for column in columns),
            truncation=True,
            max_length=max_length,
        )
        for values, shorter in ((encoded[key], cut[key]) for key in cut):
            for i, value in zip(long, shorter, strict=True):
                values[i] = value
        _log.info(
            "%d of %d %s are longer than %d tokens; cut", len(long), len(texts), name, max_length
        )
    examples = [
        dict(zip(encoded, values, strict=True)) for values in zip(*encoded.values(), strict=True)
    ]
    for example, label in zip(examples, texts.labels or (), strict=False):
        example["label"] = label
    for example in examples:
        if not example[
            "input_ids"
        ]:  # no model takes nothing; some tokenizers make it of an empty text
            example |= {"input_ids": [tokenizer.pad_token_id], "attention_mask": [1]}
    return examples


class Windows(Sampler[list[int]]):
    """Micro-batches of one epoch, window by window, dealt to the processes in turn.

    Every window has a micro-batch for every process. The last one of an epoch may be smaller; a
    process that has nothing to do in it gets the window's first text with weight 0.

    Attributes:
        position: the window that the next iteration begins with, counted from the first epoch on.
    """

    drop_last = False  # no batch_size either: Accelerate then deals the micro-batches as they are

    def __init__(
        self,
        lengths: Sequence[int],
        batch_size: int,
        *,
        micro_batches: int = 1,
        processes: int = 1,
        seed: int = 0,
        group_by_length: bool = False,
    ) -> None:
        """Describe the order.

        Args:
            lengths: of the texts, in tokens.
            batch_size: texts of one micro-batch.
            micro_batches: of one update on one process.
            processes: how many share an update.
            seed: decides the order, together with the epoch.
            group_by_length: put texts of similar length into one window, and into one micro-batch.
        """
        self.lengths = torch.tensor(lengths)
        self.batch_size, self.processes, self.seed = batch_size, processes, seed
        self.size = batch_size * micro_batches * processes
        self.group_by_length = group_by_length
        self.windows = -(-len(lengths) // self.size)
        self.position = 0

    def __len__(self) -> int:
        """Micro-batches of an epoch, over all processes."""
        return sum(len(self.counts(window)) for window in range(self.windows))

    def counts(self, window: int) -> list[int]:
        """Texts in each micro-batch of a window, over all processes.

        Args:
            window: number in its epoch.

        Returns:
            As many as `processes` times the micro-batches of each. Zeros are at the end.
        """
        texts = min(self.size, len(self.lengths) - window * self.size)
        slots = -(-texts // (self.batch_size * self.processes)) * self.processes
        return [
            min(max(texts - slot * self.batch_size, 0), self.batch_size) for slot in range(slots)
        ]

    def weights(self, window: int, process: int) -> list[float]:
        """What to multiply the mean loss of each micro-batch of a process with.

        Averaged over the micro-batches and the processes, the weighted means are the mean over the
        texts of the window. All are 1, except in the last window of an epoch.

        Args:
            window: number in its epoch.
            process: which.

        Returns:
            One weight for each micro-batch.
        """
        counts = self.counts(window)
        return [count * len(counts) / sum(counts) for count in counts[process :: self.processes]]

    def __iter__(self) -> Iterator[list[int]]:
        """Yield micro-batches from `position` to the end of its epoch."""
        epoch, first = divmod(self.position, self.windows)
        for window, texts in enumerate(self.epoch(epoch)[first:], first):
            parts = [part.tolist() for part in _cut(texts, self.batch_size)]
            yield from parts
            yield from [texts[:1].tolist()] * (len(self.counts(window)) - len(parts))

    def epoch(self, epoch: int) -> list[Tensor]:
        """The texts of each window of an epoch.

        Ungrouped, the order is that of Accelerate's seedable sampler, so that a plain loop and
        Trainer can be held against this one.

        Args:
            epoch: from 0.

        Returns:
            Numbers of texts. Grouped by length, the longest of a window come first.
        """
        generator = torch.Generator().manual_seed(self.seed + epoch)
        order = torch.randperm(len(self.lengths), generator=generator)
        if not self.group_by_length:
            return _cut(order, self.size)

        def by_length(texts: Tensor) -> Tensor:
            return texts[self.lengths[texts].argsort(descending=True, stable=True)]

        full = len(order) // self.size * self.size
        # Sorted fifty windows at a time at most, so that a text's company still varies.
        blocks = _cut(order[:full], self.size * min(50, max(1, self.windows // 4)))
        windows = [window for block in blocks for window in _cut(by_length(block), self.size)]
        windows = [windows[i] for i in torch.randperm(len(windows), generator=generator).tolist()]
        return [*windows, by_length(order[full:])] if full < len(order) else windows


def _cut(texts: Tensor, size: int) -> list[Tensor]:
    return [texts[start : start + size] for start in range(0, len(texts), size)]


def data_loader(
    examples: Sequence[dict[str, Any]],
    order: Sampler[list[int]] | Sequence[list[int]],
    tokenizer: Any,
    *,
    pad_to: int | None = None,
    num_workers: int = 0,
) -> DataLoader[Any]:
    """Loader of padded batches.

    Args:
        examples: what `encode` gave.
        order: numbers of the examples of each batch.
        tokenizer: that knows how to pad.
        pad_to: pad all texts to that length; None: to the longest of their batch.
        num_workers: loading processes; 0: this one.

    Returns:
        The loader, of dictionaries of int64 tensors: `labels` of shape (batch,), all others (batch,
        length). It has a random generator of its own, so iterating it leaves the global one alone.
    """
    if num_workers:  # the tokenizer is done when they fork, and need not warn in each of them
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    return DataLoader(
        examples,  # type: ignore[arg-type]
        batch_sampler=order,
        collate_fn=DataCollatorWithPadding(
            tokenizer, padding="max_length" if pad_to else "longest", max_length=pad_to
        ),
        num_workers=num_workers,
        pin_memory=torch.cuda.is_available(),
        generator=torch.Generator(),
    )


def by_length(examples: Sequence[dict[str, Any]], batch_size: int) -> list[list[int]]:
    """Batches of similar length, for evaluation, which has no order of its own.

    Args:
        examples: what `encode` gave.
        batch_size: most examples in a batch.

    Returns:
        Numbers of the examples, each once.
    """
    order = sorted(range(len(examples)), key=lambda i: (-len(examples[i]["input_ids"]), i))
    return [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
