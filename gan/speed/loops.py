"""The loop that people write by hand. `gan.speed.expert` is the best one.

Both train what a configuration asks for, from the weights that the toolkit starts with: given the
same images and random numbers, all three end with the same weights. They are written from the
losses, penalties, networks and schedules of this package, but from nothing of its steps, players
and loop, and they print, save and check nothing.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from accelerate.utils import set_seed
from torch import Tensor, nn

from gan.chance import Chance
from gan.config import Config, Penalty
from gan.data import ImageData
from gan.losses import LOSSES, signs
from gan.optimizers import schedule_lr, set_beta2
from gan.parts import augmentation_for, networks_for, optimizer_for
from gan.penalties import GENERATOR_PENALTIES, PENALTIES, Scores, by_kind
from gan.power_ema import PowerEMA
from gan.regularizers import Remembering
from gan.schedules import Schedule
from gan.speed.feed import Feed, LoaderFeed

_ROWS = {**PENALTIES, **GENERATOR_PENALTIES}
Optimizer = torch.optim.Optimizer


class Batch(NamedTuple):
    """One micro-batch: images, latents, what both networks are told of them, random numbers."""

    real: Tensor
    z: Tensor
    condition: tuple[Tensor, ...]
    chance: Chance


class PlainLoop:
    """The loop of examples/gan_pure_pytorch.py, for any configuration.

    Real and fake images go through the discriminator one after the other, each penalty makes a
    forward of its own, optimizers are torch's default kind, schedulers are torch's, the average is
    a loop over parameters, memory is contiguous, and a DataLoader collates single images. As in
    that script the discriminator requires no gradients while the generator trains.

    Attributes:
        generator: trains.
        discriminator: trains.
        average: the averaged generator.
        steps: completed steps.
        losses: newest loss of each network, on the device.
    """

    def __init__(
        self, config: Config, data: ImageData, device: torch.device, feed: Feed | None = None
    ) -> None:
        """Build everything.

        Args:
            config: as a run has it, with what the data decides filled in.
            data: the real examples.
            device: where to train.
            feed: where images and random numbers come from; None: as the class says.
        """
        self.config, self.device = config, device
        self.feed = feed or self._own_feed(data)
        self.num_classes = data.num_classes if config.conditional else 0
        set_seed(config.seed)  # the toolkit's initial weights
        self.generator, self.discriminator, _ = networks_for(config, data.shape, self.num_classes)
        for network in (self.generator, self.discriminator):
            network.to(device)
        self.average = copy.deepcopy(self.generator).requires_grad_(False).eval()
        self.more_averages = PowerEMA(self.generator, config.ema_widths)
        self.loss, self.augment = LOSSES[config.loss], augmentation_for(config)
        self.terms = {
            each.name: _own(_ROWS[each.name].term)
            for each in (*config.penalties, *config.generator_penalties)
        }
        self.steps = self.images_seen = 0
        self.losses: dict[str, Tensor | float] = {}
        self._averaged_at = 0
        self._logits: list[tuple[Tensor, Tensor]] = []
        fp16 = config.mixed_precision == "fp16"
        self._scalers = {
            role: torch.amp.GradScaler(device.type, enabled=fp16)
            for role in ("generator", "discriminator")
        }
        self._prepare()

    # --- what the best loop does otherwise ------------------------------------------------------

    def _own_feed(self, data: ImageData) -> Feed:
        return LoaderFeed(self.config, data, self.device)

    def _prepare(self) -> None:
        config = self.config
        self.g_optimizer = self._optimizer("generator", self.generator)
        self.d_optimizer = self._optimizer("discriminator", self.discriminator)
        between = config.n_critic * config.images_per_process
        self.g_scheduler = schedule_lr(
            self.g_optimizer, config.generator.lr, between, self.total_images
        )
        self.d_scheduler = schedule_lr(
            self.d_optimizer, config.discriminator.lr, config.images_per_process, self.total_images
        )

    def _optimizer(self, role: str, network: nn.Module) -> Optimizer:
        return unfused(optimizer_for(role, getattr(self.config, role), network))

    def _make(self, batch: Batch) -> Tensor:
        """Fakes for the discriminator to learn from."""
        with torch.no_grad(), self._precision():
            fake: Tensor = self.generator(batch.z, *batch.condition)
        return fake.float()

    def _judge(
        self, batch: Batch, fake: Tensor, due: Mapping[str, float]
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Logits of real and fake, and the gradients that penalties need, if they are there."""
        real, fake = self._seen(batch.real, batch, "real"), self._seen(fake, batch, "fake")
        with self._precision():
            real_logits = self.discriminator(real, *batch.condition)
            fake_logits = self.discriminator(fake, *batch.condition)
        return real_logits, fake_logits, {}

    def _fool(self, batch: Batch) -> tuple[Tensor, Tensor | None, Tensor]:
        """Fakes for the generator to learn from, and logits of real, where needed, and fake."""
        with self._precision():
            fake = self.generator(batch.z, *batch.condition)
        return self._judged(batch, fake.float(), self.discriminator)

    def _judged(
        self, batch: Batch, fake: Tensor, discriminator: Any
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        seen, real, real_logits = self._seen(fake, batch, "fake"), None, None
        if self.loss.relativistic:
            real = self._seen(batch.real, batch, "real")
        with self._precision():
            if real is not None:
                real_logits = discriminator(real, *batch.condition)
            fake_logits = discriminator(seen, *batch.condition)
        return fake, real_logits, fake_logits

    def _clip(self, limit: float) -> None:
        for parameter in self.discriminator.parameters():
            parameter.data.clamp_(-limit, limit)

    def _average(self, share: float) -> None:
        for mine, new in zip(self.average.parameters(), self.generator.parameters(), strict=True):
            mine.lerp_(new, share)
        for old, now in zip(self.average.buffers(), self.generator.buffers(), strict=True):
            old.copy_(now)

    def _before(self, role: str, optimizer: Optimizer) -> None:
        """Set what changes over the training before an update."""
        network = getattr(self.config, role)
        set_beta2(optimizer, network.beta2.at(self.images_seen, self.total_images))

    def _after(self, role: str) -> None:
        (self.d_scheduler if role == "discriminator" else self.g_scheduler).step()

    # --- what every such loop does --------------------------------------------------------------

    @property
    def total_images(self) -> int:
        """Real images that the whole run shows to the discriminator."""
        config = self.config
        return config.steps * config.n_critic * config.images_per_process

    def step(self) -> None:
        """`n_critic` updates of the discriminator, one of the generator, the average."""
        config = self.config
        count = range(config.gradient_accumulation_steps)
        self.images_seen = self.steps * config.n_critic * config.images_per_process
        for critic in range(config.n_critic):
            window = [self._batch(self.feed.real(), f"discriminator {critic}", i) for i in count]
            self._update_discriminator(window, self.steps * config.n_critic + critic)
        if not config.reuse_fakes:
            reals = [(batch.real, *batch.condition) for batch in window]
            window = [self._batch(real, "generator", i) for i, real in enumerate(reals)]
        self._update_generator(window)
        with torch.no_grad():
            self._average(self._share())
        self.more_averages.update(self.generator, self.images_seen)
        self.steps += 1

    def log(self) -> None:
        """Read the losses, as if to print them."""
        for value in self.losses.values():
            float(value)

    def due(self, penalties: Sequence[Penalty], update: int) -> dict[str, float]:
        """Penalties of an update and their weights, lazy ones weighted up.

        Args:
            penalties: of one network.
            update: of that network, from 0.

        Returns:
            By name.
        """
        found = {}
        for each in penalties:
            if update % each.every == 0:
                row = _ROWS[each.name]
                default = row.default_weight
                weight = each.weight or (
                    self.config.gamma if default is None else Schedule(default)
                )
                at = weight.at(self.images_seen, self.total_images)
                found[each.name] = row.scale * at * each.every
        return found

    def _batch(self, real: tuple[Tensor, ...], phase: str, index: int) -> Batch:
        chance = self.feed.chance(self.steps, phase, index)
        z = chance.normal("z", self.config.generator.z_dim)
        return Batch(real[0], z, tuple(real[1:]) if self.num_classes else (), chance)

    def _precision(self) -> AbstractContextManager[Any]:
        kinds = {"bf16": torch.bfloat16, "fp16": torch.float16}
        kind = kinds.get(self.config.mixed_precision)
        return nullcontext() if kind is None else torch.autocast(self.device.type, kind)

    def _seen(self, images: Tensor, batch: Batch, kind: str) -> Tensor:
        return self.augment(images, batch.chance.child(kind))

    def _update_discriminator(self, window: Sequence[Batch], update: int) -> None:
        config = self.config
        self._before("discriminator", self.d_optimizer)
        self.augment.follow(self.images_seen, self.total_images)
        due, self._logits = self.due(config.penalties, update), []
        total = torch.zeros((), device=self.device)
        for batch in window:
            fake = self._make(batch)
            real_logits, fake_logits, gradients = self._judge(batch, fake, due)
            adversarial = self.loss.discriminator(real_logits.float(), fake_logits.float())
            total = total + adversarial.detach() / len(window)
            self._logits.append((real_logits.detach(), fake_logits.detach()))
            logits = real_logits.float(), fake_logits.float()
            objective = self._penalised(adversarial, due, batch, fake.detach(), logits, gradients)
            self._backward("discriminator", objective / len(window))
        self._apply("discriminator", self.discriminator, self.d_optimizer)
        self.losses["discriminator"] = total
        self.images_seen += config.images_per_process
        if config.discriminator.clip_weights is not None:
            self._clip(config.discriminator.clip_weights)
        self._remember()

    def _update_generator(self, window: Sequence[Batch]) -> None:
        self._before("generator", self.g_optimizer)
        due = self.due(self.config.generator_penalties, self.steps)
        total = torch.zeros((), device=self.device)
        self.discriminator.requires_grad_(False)
        for batch in window:
            fake, real_logits, fake_logits = self._fool(batch)
            real_logits = None if real_logits is None else real_logits.float()
            adversarial = self.loss.generator(real_logits, fake_logits.float())
            total = total + adversarial.detach() / len(window)
            logits = real_logits, fake_logits.float()
            objective = self._penalised(adversarial, due, batch, fake, logits, {})
            self._backward("generator", objective / len(window))
        self.discriminator.requires_grad_(True)
        self._apply("generator", self.generator, self.g_optimizer)
        self.losses["generator"] = total
        for name in due:
            if isinstance(term := self.terms[name], Remembering):
                term.after_update({}, _itself)

    def _penalised(
        self,
        adversarial: Tensor,
        due: Mapping[str, float],
        batch: Batch,
        fake: Tensor,
        logits: tuple[Tensor | None, Tensor],
        gradients: dict[str, Tensor],
    ) -> Tensor:
        if not due:
            return adversarial

        def critic(images: Tensor, kind: str = "between") -> Tensor:
            seen = self._seen(images, batch, kind)
            return self.discriminator(seen, *batch.condition)  # type: ignore[no-any-return]

        inputs = (batch.z, *batch.condition)
        scores = Scores(
            *(batch.real, fake, *logits, critic, batch.chance, self.generator, inputs),
            critics=by_kind(critic),
            gradients=gradients,
            exact=self.config.mixed_precision == "no",
        )
        for name, weight in due.items():
            adversarial = adversarial + weight * self.terms[name](scores).mean()
        return adversarial

    def _backward(self, role: str, objective: Tensor) -> None:
        self._scalers[role].scale(objective).backward()

    def _apply(self, role: str, network: nn.Module, optimizer: Optimizer) -> None:
        scaler, limit = self._scalers[role], getattr(self.config, role).clip_norm
        if limit is not None:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(network.parameters(), limit)
        scaler.step(optimizer)
        scaler.update()
        self._after(role)
        optimizer.zero_grad()

    def _remember(self) -> None:
        """Tell those that follow the logits; in most configurations nobody does."""
        terms = [self.terms[each.name] for each in self.config.penalties]
        followers = [term for term in terms if isinstance(term, Remembering)]
        if not followers and self.augment.schedule is not None:
            return
        real, fake = (torch.cat(each) for each in zip(*self._logits, strict=True))
        sign, _ = signs(self.loss, real, fake)
        self.augment.adapt(sign.mean(), self.config.images_per_process)
        for term in followers:
            term.after_update({"logits/real": real.mean(), "logits/fake": fake.mean()}, _itself)

    def _share(self) -> float:
        """How far the average moves towards the generator."""
        config, images = self.config, self.images_seen - self._averaged_at
        half_life = config.ema_half_life.at(self.images_seen, self.total_images)
        if config.ema_rampup is not None:
            half_life = min(half_life, config.ema_rampup * self.images_seen)
        self._averaged_at = self.images_seen
        return 1 - 0.5 ** (images / half_life) if half_life > 0 else 1.0


def unfused(optimizer: Optimizer) -> Optimizer:
    """The same optimizer of the kind that torch takes without being asked for a fused one.

    Args:
        optimizer: with any options.

    Returns:
        A new one of the same class, parameters and options; itself where it was not fused.
    """
    if not optimizer.defaults.get("fused"):
        return optimizer
    accepted = inspect.signature(type(optimizer)).parameters
    options = {k: v for k, v in optimizer.defaults.items() if k in accepted and k != "fused"}
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    kind: Any = type(optimizer)
    made: Optimizer = kind(parameters, **options)
    return made


def period(config: Config) -> int:
    """Steps after which the pattern of lazy penalties repeats.

    Args:
        config: the options.

    Returns:
        At least 1.
    """
    critic = [each.every // math.gcd(each.every, config.n_critic) for each in config.penalties]
    return math.lcm(1, *critic, *(each.every for each in config.generator_penalties))


def _own(term: Any) -> Any:
    """A term that remembers remembers one training."""
    return type(term)() if isinstance(term, Remembering) else term


def _itself(value: Tensor) -> Tensor:
    return value
