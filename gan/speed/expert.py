"""The best loop that people write by hand, for one configuration and nothing else."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from gan.data import ImageData
from gan.parts import optimizer_for
from gan.regularizers import clip_weights
from gan.speed.feed import Feed, MemoryFeed
from gan.speed.loops import Batch, Optimizer, PlainLoop

Pair = tuple[list[Tensor], list[Tensor]]


class ExpertLoop(PlainLoop):
    """The best loop that an expert writes for exactly one configuration.

    Unlike the plain one: real and fake images share a forward where the discriminator looks at
    each by itself, R1 and R2 take their gradients from that forward, fakes are made once where
    the configuration says so, optimizers are fused, the average is one operation, images are
    indexed in memory, channels-last if the configuration has it, and learning rates are set
    directly. With `compile` both networks are compiled.
    """

    def _own_feed(self, data: ImageData) -> Feed:
        return MemoryFeed(self.config, data, self.device)

    def _prepare(self) -> None:
        config = self.config
        self._per_example = judges_alone(self.discriminator, self._some_images(), self.num_classes)
        if config.channels_last:
            for network in (self.generator, self.discriminator, self.average):
                network.to(memory_format=torch.channels_last)
        self.g_optimizer = optimizer_for("generator", config.generator, self.generator)
        self.d_optimizer = optimizer_for("discriminator", config.discriminator, self.discriminator)
        averaged, trained = self.average, self.generator
        self._weights: Pair = list(averaged.parameters()), list(trained.parameters())
        self._statistics: Pair = list(averaged.buffers()), list(trained.buffers())
        compiled = torch.compile if config.compile else lambda network: network
        self._fast_generator: Any = compiled(self.generator)
        self._fast_discriminator: Any = compiled(self.discriminator)
        self._kept: list[Tensor] = []
        self._last = False

    def _before(self, role: str, optimizer: Optimizer) -> None:
        super()._before(role, optimizer)
        # A scheduler is one update behind the images that the discriminator's own update shows.
        lr = getattr(self.config, role).lr
        seen = self.images_seen if role == "discriminator" else self._images_at_step()
        for group in optimizer.param_groups:
            group["lr"] = lr.at(seen, self.total_images)

    def _images_at_step(self) -> int:
        return self.steps * self.config.n_critic * self.config.images_per_process

    def _after(self, role: str) -> None:
        pass

    def _update_discriminator(self, window: Sequence[Batch], update: int) -> None:
        self._last = (update + 1) % self.config.n_critic == 0  # the generator's update is next
        super()._update_discriminator(window, update)

    def _make(self, batch: Batch) -> Tensor:
        config = self.config  # the graphs of several micro-batches would all have to be kept
        reuse = config.reuse_fakes and config.gradient_accumulation_steps == 1 and self._last
        with torch.set_grad_enabled(reuse), self._precision():
            fake: Tensor = self._fast_generator(batch.z, *batch.condition).float()
        if reuse:
            self._kept.append(fake)
        return fake.detach()

    def _judge(
        self, batch: Batch, fake: Tensor, due: Mapping[str, float]
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        images = {"real": batch.real, "fake": fake}
        kinds = [kind for name, kind in (("r1", "real"), ("r2", "fake")) if name in due]
        if self.config.mixed_precision != "no" and len(kinds) == 1:
            kinds = []  # a second derivative wants full precision, so a forward of its own
        for kind in kinds:
            images[kind] = images[kind].detach().requires_grad_()
        judge = self.discriminator if kinds else self._fast_discriminator
        seen = [self._seen(each, batch, name) for name, each in images.items()]
        with nullcontext() if kinds else self._precision():
            if self._per_example and len(kinds) != 1:
                condition = [torch.cat([each, each]) for each in batch.condition]
                real_logits, fake_logits = judge(torch.cat(seen), *condition).chunk(2)
            else:
                real_logits, fake_logits = (judge(each, *batch.condition) for each in seen)
        total = {"real": real_logits, "fake": fake_logits}
        gradients: dict[str, Tensor] = {}
        if kinds:
            found = torch.autograd.grad(
                [total[kind].sum() for kind in kinds],
                [images[kind] for kind in kinds],
                create_graph=True,
            )
            gradients = {k: g.flatten(1) for k, g in zip(kinds, found, strict=True)}
        return real_logits, fake_logits, gradients

    def _fool(self, batch: Batch) -> tuple[Tensor, Tensor | None, Tensor]:
        if self._kept:
            fake = self._kept.pop(0)
        else:
            with self._precision():
                fake = self._fast_generator(batch.z, *batch.condition).float()
        return self._judged(batch, fake, self._fast_discriminator)

    def _clip(self, limit: float) -> None:
        clip_weights(self.discriminator, limit)

    def _average(self, share: float) -> None:
        torch._foreach_lerp_(*self._weights, share)
        if self._statistics[0]:
            torch._foreach_copy_(*self._statistics)

    def _some_images(self) -> Tensor:
        return torch.randn(4, *self.discriminator.shape, device=self.device)  # type: ignore[misc]


@torch.no_grad()
def judges_alone(discriminator: nn.Module, images: Tensor, num_classes: int) -> bool:
    """Whether the logit of an image depends on that image alone, so that forwards can be shared.

    Args:
        discriminator: is left as it was.
        images: a few different ones.
        num_classes: that it is told of.

    Returns:
        False with batch norm, and where the logits of two images change with the other two.
    """
    if any(isinstance(module, _BatchNorm) for module in discriminator.modules()):
        return False
    judge = copy.deepcopy(discriminator).eval()
    labels = torch.zeros(len(images), dtype=torch.int64, device=images.device)
    condition = (labels,) if num_classes else ()
    together = judge(images, *condition)
    apart = [judge(part, *(c[: len(part)] for c in condition)) for part in images.chunk(2)]
    return bool(torch.allclose(together, torch.cat(apart), rtol=1e-3, atol=1e-4))
