"""The feature network `self`: a small classifier, trained on the data that it is to judge.

For machines that cannot download weights, and for images that photographs' features cannot judge.
With labels it learns the classes; without, by how many quarter turns an image was rotated.

Reference: Gidaris et al. 2018, arXiv 1803.07728, for rotations.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from gan.chance import generator_for
from gan.metrics.images import Images, as_square
from gan.progress import progress_bar

VERSION = 1
"""Changes whenever the network or its training does, so that old ones are not taken for it."""
SIDE = 32
"""Larger images are averaged down to this height and width."""
LENGTH = 96
"""Length of the feature vector."""
_UPDATES, _BATCH, _LR = 1500, 128, 4e-3


class Judge(nn.Module):
    """Three convolutions, a feature vector, a linear classifier.

    Attributes:
        side: height and width of what it looks at.
        accuracy: share of the held-out tenth of the data that it classifies rightly.
    """

    def __init__(self, channels: int, side: int, classes: int) -> None:
        super().__init__()
        self.side, self.accuracy = side, float("nan")
        layers: list[nn.Module] = []
        for width in (16, 32, 64):
            layers += [nn.Conv2d(channels, width, 3, padding=1, bias=False)]
            layers += [nn.BatchNorm2d(width), nn.ReLU()]
            if side >= 4:
                layers, side = [*layers, nn.MaxPool2d(2)], side // 2
            channels = width
        self.body = nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * side**2, LENGTH))
        self.head = nn.Linear(LENGTH, classes)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Bytes of shape (batch, channels, height, width) to features and logits."""
        features = self.body(as_square(images, self.side))
        return features, self.head(F.relu(features))


def open_judge(data: Images, cache: Path | None, progress: bool = False) -> Judge:
    """The judge of a data set, trained now unless it is in the cache.

    Args:
        data: images with labels, or without.
        cache: folder of judges; None: keep nothing.
        progress: show a bar while it trains.

    Returns:
        The judge, in eval mode, on the CPU.
    """
    channels, height, width = data.shape
    side = min(SIDE, max(height, width))
    with torch.random.fork_rng([]):
        torch.default_generator.manual_seed(0)
        judge = Judge(channels, side, data.num_classes or 4)
    name = hashlib.sha256(f"{VERSION} {data.fingerprint} {data.num_classes}".encode()).hexdigest()
    path = None if cache is None else cache / f"judge-{name[:24]}.safetensors"
    if path is None or not _load(judge, path):
        train_judge(judge, data, progress)
        if path is not None:
            _save(judge, path)
    return judge.eval().requires_grad_(False)


def train_judge(judge: Judge, data: Images, progress: bool = False) -> None:
    """Train on nine tenths of the data, and measure the accuracy on the rest.

    Args:
        judge: is trained in place.
        data: see `open_judge`.
        progress: show a bar.
    """
    order = torch.randperm(len(data), generator=generator_for("judge"))
    held_out, kept = order[: len(data) // 10], order[len(data) // 10 :]
    optimizer = torch.optim.Adam(judge.parameters(), lr=_LR, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _LR, total_steps=_UPDATES)
    chance = generator_for("judge", "batches")
    judge.train()
    with torch.enable_grad():
        for _ in progress_bar(range(_UPDATES), "training the judge", disable=not progress):
            chosen = kept[torch.randint(len(kept), (_BATCH,), generator=chance)]
            images, targets = _batch(data, chosen, chance)
            loss = F.cross_entropy(judge(images)[1], targets, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    judge.eval()
    right = 0
    with torch.no_grad():
        for part in torch.split(held_out, _BATCH):
            images, targets = _batch(data, part, chance)
            right += int((judge(images)[1].argmax(1) == targets).sum())
    judge.accuracy = right / max(len(held_out), 1)


def _batch(data: Images, chosen: Tensor, chance: torch.Generator) -> tuple[Tensor, Tensor]:
    images, labels = data.__getitems__(chosen.tolist())
    if data.num_classes:
        return images, labels
    turns = torch.randint(4, (len(images),), generator=chance)
    squares = ((as_square(images, min(SIDE, max(images.shape[2:]))) + 1) * 127.5).round()
    turned = [torch.rot90(square, int(k), (1, 2)) for square, k in zip(squares, turns, strict=True)]
    return torch.stack(turned).to(torch.uint8), turns


def _save(judge: Judge, path: Path) -> None:
    temporary = path.with_name(f".{os.getpid()}-{path.name}")
    with suppress(OSError):  # a cache that cannot be written costs time, not the result
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(judge.state_dict(), temporary, {"accuracy": repr(judge.accuracy)})
        os.replace(temporary, path)


def _load(judge: Judge, path: Path) -> bool:
    try:
        with safe_open(path, "pt") as file:
            state: dict[str, Any] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            judge.accuracy = float(file.metadata()["accuracy"])
        judge.load_state_dict(state)
    except (OSError, SafetensorError, RuntimeError, KeyError, TypeError, ValueError):
        return False
    return True
