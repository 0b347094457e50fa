"""What several tests train: runs on points in the plane, and pairs of networks of a few weights."""

from __future__ import annotations

from typing import Any
from unittest import mock

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from gan.config import Config
from gan.data.dataset import ImageData
from gan.player import Player
from gan.run import Run, build
from gan.steps import MicroBatch

TOTAL = 8
"""Real points of one update, over all processes and micro-batches."""


def points(count: int = 50, num_classes: int = 0) -> ImageData:
    """Points of torch's default type, in one order; with classes, each point is one of its own."""
    generator = torch.Generator().manual_seed(0)
    return ImageData(
        "points",
        torch.randn(count, 2, generator=generator),
        "",
        labels=torch.arange(count) % num_classes if num_classes else None,
        class_names=[str(i) for i in range(num_classes)],
    )


def points_run(data: ImageData | None = None, **options: Any) -> Run:
    """A run as `gan.build` builds it, on points."""
    network = {"family": "mlp", "hidden": [8], "norm": "none", "lr": "0.003..0.001"}
    base = {
        "data": "points",
        "steps": 3,
        "batch_size": TOTAL,
        "ema_half_life": 20,
        "ema_rampup": None,
        "generator": {**network, "z_dim": 4},
        "discriminator": network,
    }
    config = Config.from_dict(options, base=Config.from_dict(base))
    with mock.patch("gan.run.open_data", return_value=data or points()):
        return build(config)


def weights(*modules: nn.Module) -> Tensor:
    """All weights and statistics of some modules, in one vector."""
    return torch.cat(
        [value.double().flatten() for m in modules for value in m.state_dict().values()]
    )


def prepared(
    accelerator: Accelerator,
    generator: nn.Module,
    discriminator: nn.Module,
    *,
    optimizer: Any = torch.optim.Adam,
    lr: float = 1e-2,
    **options: Any,
) -> tuple[Player, Player]:
    """Two players, from one prepare."""
    g_optimizer = optimizer(generator.parameters(), lr=lr)
    d_optimizer = optimizer(discriminator.parameters(), lr=lr)
    generator, discriminator, g_optimizer, d_optimizer = accelerator.prepare(
        generator, discriminator, g_optimizer, d_optimizer
    )
    return (
        Player(accelerator, generator, g_optimizer, name="generator", **options),
        Player(accelerator, discriminator, d_optimizer, name="discriminator", **options),
    )


def accelerator(**options: Any) -> Accelerator:
    """On the CPU; the schedulers are the players'."""
    return Accelerator(cpu=True, step_scheduler_with_optimizer=False, **options)


class Squeezed(nn.Sequential):
    """Layers that end in one number an example, as logits of shape (batch,)."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).squeeze(1)


def window(micro_batches: int = 2, size: int = 4, *shape: int, z_dim: int = 3) -> list[MicroBatch]:
    """Micro-batches of random reals, of `shape` or points, and latents."""
    return [
        MicroBatch(torch.randn(size, *(shape or (2,))), (torch.randn(size, z_dim),))
        for _ in range(micro_batches)
    ]
