from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
import torch
from accelerate import Accelerator

from gan.data.stream import EndlessBatches, Stream, data_loader


class Numbers(torch.utils.data.Dataset[Any]):
    """Example i is a 1x2x2 image of value i, with label i."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitems__(self, indices: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        labels = torch.tensor(indices)
        images = labels.to(torch.uint8)[:, None, None, None] * torch.tensor([[[1, 0]]])
        return images.to(torch.uint8), labels


class NumbersHere(Numbers):
    """The same ones, on the device where the networks are."""

    device = torch.device("cpu")


def stream(accelerator: Accelerator, count: int, batch: int, **options: Any) -> Stream:
    order = EndlessBatches(count, batch, seed=3)
    numbers = options.pop("numbers", Numbers)(count)
    loader = accelerator.prepare(data_loader(numbers, order, options.pop("num_workers", 0)))
    return Stream(
        loader,
        order,
        num_processes=accelerator.num_processes,
        process_index=accelerator.process_index,
        **options,
    )


def labels(source: Stream, batches: int) -> list[list[int]]:
    return [next(source)[1].tolist() for _ in range(batches)]


def test_every_epoch_holds_every_image_once_in_another_order() -> None:
    order = [i for batch in islice(EndlessBatches(10, 4, seed=0), 10) for i in batch]
    epochs = [order[begin : begin + 10] for begin in range(0, 40, 10)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4


def test_the_order_depends_on_the_seed_and_not_on_the_batch() -> None:
    def order(seed: int, batch: int) -> list[int]:
        batches = islice(EndlessBatches(10, batch, seed), 60 // batch)
        return [i for one in batches for i in one]

    assert order(0, 4) == order(0, 6) == order(0, 12)
    assert order(0, 4) != order(1, 4)


def test_balanced_classes_are_seen_equally_often_and_each_example_within_its_class() -> None:
    labels = torch.tensor([0] * 60 + [1] * 30 + [3] * 10)  # class 2 is empty
    batches = EndlessBatches(100, 10, seed=0, balance=labels)
    order = torch.tensor([i for batch in islice(batches, 30) for i in batch])
    assert torch.bincount(labels[order]).tolist() == [102, 99, 0, 99]
    seen = torch.bincount(order, minlength=100)
    assert (seen[:60].max(), seen[60:90].min(), seen[90:].min()) == (3, 3, 9)
    again = EndlessBatches(100, 10, seed=0, position=13, balance=labels)
    assert [i for batch in islice(again, 17) for i in batch] == order[130:].tolist()


@pytest.mark.parametrize(("numbers", "num_workers"), [(Numbers, 0), (Numbers, 2), (NumbersHere, 0)])
@pytest.mark.parametrize("position", [1, 2, 3, 7])
def test_seeking_goes_on_with_the_very_next_image(
    cpu_accelerator: Accelerator, position: int, numbers: type, num_workers: int
) -> None:
    whole = labels(stream(cpu_accelerator, 10, 4), 10)
    resumed = stream(cpu_accelerator, 10, 4, numbers=numbers, num_workers=num_workers)
    labels(resumed, 2)  # whatever the loader has read ahead is forgotten
    resumed.seek(position)
    assert labels(resumed, 10 - position) == whole[position:]
    assert resumed.position == 10


def test_images_leave_it_in_the_one_range(cpu_accelerator: Accelerator) -> None:
    images, numbers = next(stream(cpu_accelerator, 256, 256))
    assert images.dtype == torch.float32
    torch.testing.assert_close(images[:, 0, 0, 0], numbers.float() / 127.5 - 1, rtol=0, atol=1e-6)
    assert (images[:, 0, 0, 1] == -1).all()


def test_mirroring_is_fair_and_does_not_depend_on_the_batch(cpu_accelerator: Accelerator) -> None:
    def mirrored(batch: int) -> list[bool]:
        source = stream(cpu_accelerator, 250, batch, horizontal_flip=True)
        images = torch.cat([next(source)[0] for _ in range(2000 // batch)])
        assert ((images[..., 0] > -1).any(-1) ^ (images[..., 1] > -1).any(-1)).sum() > 1900
        return (images[:, 0, 0, 1] > images[:, 0, 0, 0]).tolist()

    assert mirrored(50) == mirrored(125)
    assert 900 < sum(mirrored(50)) < 1100


def test_iterating_leaves_the_global_random_state_alone(cpu_accelerator: Accelerator) -> None:
    source = stream(cpu_accelerator, 10, 4, horizontal_flip=True)
    before = torch.get_rng_state()
    labels(source, 5)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(("numbers", "loaded"), [(Numbers, True), (NumbersHere, False)])
def test_only_examples_from_elsewhere_are_loaded(
    cpu_accelerator: Accelerator, monkeypatch: pytest.MonkeyPatch, numbers: type, loaded: bool
) -> None:
    calls: list[object] = []
    loader_iterator = torch.utils.data.DataLoader.__iter__

    def noted(loader: Any) -> Any:
        calls.append(loader)
        return loader_iterator(loader)

    monkeypatch.setattr(torch.utils.data.DataLoader, "__iter__", noted)
    next(stream(cpu_accelerator, 10, 4, numbers=numbers))
    assert bool(calls) is loaded


@pytest.mark.parametrize("numbers", [Numbers, NumbersHere])
def test_two_processes_share_one_order(two_processes: Any, numbers: type) -> None:
    def ranks() -> list[list[int]]:
        return labels(stream(Accelerator(cpu=True), 10, 2, numbers=numbers), 10)

    first, second = two_processes(ranks)
    dealt = [batch for pair in zip(first, second, strict=True) for batch in pair]
    assert [i for batch in dealt for i in batch] == [
        i for batch in islice(EndlessBatches(10, 4, seed=3), 10) for i in batch
    ]
