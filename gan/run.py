"""From a configuration to everything that trains: data, networks, players, average, stream.

The one `accelerator.prepare(...)` of the project's GANs is here.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from gan.augment import Augmentation
from gan.chance import generator_for
from gan.config import Config, Penalty
from gan.data import ImageData, open_data
from gan.data.stream import EndlessBatches, Stream, data_loader
from gan.ema import EMA
from gan.errors import ConfigError, GanError
from gan.losses import LOSSES, AdversarialLoss
from gan.networks import check_shape
from gan.optimizers import schedule_lr
from gan.parts import accelerator_for, augmentation_for, networks_for, optimizer_for
from gan.penalties import GENERATOR_PENALTIES, PENALTIES, Scores
from gan.player import Player
from gan.power_ema import PowerEMA
from gan.presets import PRESETS, preset_config
from gan.regularizers import Remembering, clip_weights
from gan.schedules import Schedule
from gan.steps import Penalties
from gan.stopwatch import Stopwatch

_log = logging.getLogger(__name__)
_ROWS = {**PENALTIES, **GENERATOR_PENALTIES}
_FEW = 2000
"""Real images below which a discriminator soon knows them by heart."""


@dataclass
class Run:
    """Everything that one training run is made of. What changes while it trains is at the end.

    Attributes:
        config: the configuration, with what came from the data filled in.
        accelerator: the one Accelerator of the run.
        data: the real examples.
        generator: the generator's player.
        discriminator: the discriminator's player.
        ema: the averaged generator.
        stream: real batches, for ever.
        loss: the adversarial loss.
        generator_options: what the generator's family was built with.
        augment: what the discriminator's images go through, and how strongly.
        power_ema: averages of other widths, if asked for.
        terms: the penalties of both networks by name; those that remember are this run's own.
        stopwatch: seconds of the phases of its steps.
        step: completed steps, that is, attempted generator updates.
        images_seen: real images shown to the discriminator, on all processes.
        rollbacks: how often the run went back to a checkpoint after a divergence.
        latest: newest value of every scalar of the steps, by TensorBoard tag.
        folder: the run folder, once there is one.
    """

    config: Config
    accelerator: Accelerator
    data: ImageData
    generator: Player
    discriminator: Player
    ema: EMA
    stream: Stream
    loss: AdversarialLoss
    generator_options: dict[str, Any]
    augment: Augmentation
    power_ema: PowerEMA
    terms: dict[str, Callable[[Scores], Tensor]]
    stopwatch: Stopwatch

    step: int = 0
    images_seen: int = 0
    rollbacks: int = 0
    latest: dict[str, Tensor] = field(default_factory=dict)
    folder: Path | None = None

    @property
    def images_per_update(self) -> int:
        """Real images of one update of the discriminator, over all processes."""
        return self.config.images_per_process * int(self.accelerator.num_processes)

    @property
    def total_images(self) -> int:
        """Real images that the whole run shows to the discriminator."""
        return self.config.steps * self.config.n_critic * self.images_per_update

    @property
    def num_classes(self) -> int:
        """Classes that the networks are told of; 0 if unconditional."""
        return self.data.num_classes if self.config.conditional else 0

    def scalars(self) -> dict[str, Tensor]:
        """Newest value of every scalar of the steps, averaged over the processes (float64)."""
        tags = sorted(self.latest)
        if not tags:  # before the first step
            return {}
        values = torch.stack([self.latest[tag].double() for tag in tags])
        return dict(zip(tags, self.accelerator.reduce(values, "mean"), strict=True))

    def penalty_weight(self, penalty: Penalty) -> float:
        """Weight of a penalty now, as if it were due at every update.

        Args:
            penalty: one of the configuration's.

        Returns:
            The weight; gamma for r1 and r2 without a weight of their own.
        """
        default = _ROWS[penalty.name].default_weight
        schedule = penalty.weight or (self.config.gamma if default is None else Schedule(default))
        return schedule.at(self.images_seen, self.total_images)

    def due_penalties(self) -> Penalties:
        """Penalties of the coming discriminator update, with lazy ones weighted up."""
        return self._due(self.config.penalties, self.discriminator)

    def due_generator_penalties(self) -> Penalties:
        """Penalties of the coming generator update, with lazy ones weighted up."""
        return self._due(self.config.generator_penalties, self.generator)

    def _due(self, penalties: tuple[Penalty, ...], player: Player) -> Penalties:
        update = player.updates + player.skipped
        return {
            each.name: (
                _ROWS[each.name].scale * self.penalty_weight(each) * each.every,
                self.terms[each.name],
            )
            for each in penalties
            if update % each.every == 0
        }

    def after_discriminator(self, scalars: dict[str, Tensor]) -> None:
        """Count the images of an update, and let follow from it what does. Every process calls it.

        Args:
            scalars: of this process's update.
        """
        self.images_seen += self.images_per_update
        if self.augment.schedule is None:
            sign = self.accelerator.reduce(scalars["sign/real"], "mean")
            self.augment.adapt(sign, self.images_per_update)
        if (limit := self.config.discriminator.clip_weights) is not None:
            clip_weights(self.discriminator.raw, limit)
        self._remember(self.config.penalties, scalars)

    def after_generator(self, scalars: dict[str, Tensor]) -> None:
        """Let follow from an update of the generator what does. Every process calls it.

        Args:
            scalars: of this process's update.
        """
        self._remember(self.config.generator_penalties, scalars)

    def _remember(self, penalties: tuple[Penalty, ...], scalars: dict[str, Tensor]) -> None:
        for each in penalties:
            term = self.terms[each.name]
            if isinstance(term, Remembering):
                term.after_update(scalars, lambda x: self.accelerator.reduce(x, "mean"))


def build(config: Config) -> Run:
    """Build a run, leaving nothing on disk.

    Args:
        config: the configuration.

    Returns:
        The run, at step 0.

    Raises:
        ConfigError: options that cannot be, for this data, these networks or this machine.
        DataError: the data cannot be used.
        TypeError: `config` is something else.
    """
    if not isinstance(config, Config):
        raise TypeError(
            f"a run is built from a gan.Config, not from {config!r}; gan.preset_config(NAME) or "
            "gan.Config.load(PATH) gives one"
        )
    config.check()
    accelerator = accelerator_for(config)
    with accelerator.main_process_first():  # one process downloads or prepares, the others find it
        data = open_data(config.data, **config.opening())
    config = _resolve(config, data, accelerator)
    num_classes = data.num_classes if config.conditional else 0

    set_seed(config.seed)  # the same initial weights on every process
    generator, discriminator, generator_options = networks_for(config, data.shape, num_classes)
    _check_networks(config, generator, discriminator)
    if accelerator.num_processes > 1 and config.sync_batch_norm:
        convert = nn.SyncBatchNorm.convert_sync_batchnorm
        generator, discriminator = convert(generator), convert(discriminator)
    memory_format = torch.channels_last if config.channels_last else torch.contiguous_format
    for network in (generator, discriminator):
        network.to(memory_format=memory_format)  # prepare moves it to the device

    images_per_update = config.images_per_process * accelerator.num_processes
    total_images = config.steps * config.n_critic * images_per_update
    g_optimizer = optimizer_for("generator", config.generator, generator)
    d_optimizer = optimizer_for("discriminator", config.discriminator, discriminator)
    g_scheduler = schedule_lr(
        g_optimizer, config.generator.lr, config.n_critic * images_per_update, total_images
    )
    d_scheduler = schedule_lr(d_optimizer, config.discriminator.lr, images_per_update, total_images)
    balance = data.labels if config.class_balanced else None
    order = EndlessBatches(len(data), config.batch_size, config.seed, balance=balance)
    near = data if config.num_workers else data.to(accelerator.device)
    loader = data_loader(near, order, config.num_workers)

    generator, discriminator, g_optimizer, d_optimizer, g_scheduler, d_scheduler, loader = (
        accelerator.prepare(
            generator, discriminator, g_optimizer, d_optimizer, g_scheduler, d_scheduler, loader
        )
    )
    # Not prepared on purpose: the average, which never trains, so needs no wrapper.
    g_player = Player(
        accelerator,
        generator,
        g_optimizer,
        g_scheduler,
        name="generator",
        clip_norm=config.generator.clip_norm,
    )
    d_player = Player(
        accelerator,
        discriminator,
        d_optimizer,
        d_scheduler,
        name="discriminator",
        clip_norm=config.discriminator.clip_norm,
    )
    # From here on the global generator differs between processes: dropout, noise of own networks.
    torch.manual_seed(
        generator_for(config.seed, "process", accelerator.process_index).initial_seed()
    )
    return Run(
        config=config,
        accelerator=accelerator,
        data=data,
        generator=g_player,
        discriminator=d_player,
        ema=EMA(g_player.raw, config.ema_half_life, config.ema_rampup),
        stream=Stream(
            loader,
            order,
            num_processes=accelerator.num_processes,
            process_index=accelerator.process_index,
            horizontal_flip=config.horizontal_flip,
            memory_format=memory_format,
        ),
        loss=LOSSES[config.loss],
        generator_options=generator_options,
        augment=augmentation_for(config),
        power_ema=PowerEMA(g_player.raw, config.ema_widths),
        terms={
            each.name: _own(_ROWS[each.name].term)
            for each in (*config.penalties, *config.generator_penalties)
        },
        stopwatch=Stopwatch(accelerator.device),
    )


def _own(term: Any) -> Any:
    """A term that remembers remembers one run: it starts each with nothing."""
    return type(term)() if isinstance(term, Remembering) else term


def _resolve(config: Config, data: ImageData, accelerator: Accelerator) -> Config:
    """Fill in what the data decides, and refuse what does not fit it."""
    problems = []
    if config.conditional and data.num_classes == 0:
        problems.append(
            f"conditional: the networks need class labels, but {config.data} has none "
            f"(labels is {config.labels}); give labels, or --no_conditional"
        )
    if config.class_balanced and data.num_classes == 0:
        problems.append(f"class_balanced: {config.data} has no class labels to balance")
    total = config.images_per_process * accelerator.num_processes
    if total > len(data):
        batch = (
            f"{config.batch_size} x {config.gradient_accumulation_steps} micro-batches x "
            f"{accelerator.num_processes} processes = {total} images are more than the {len(data)} "
            f"of {config.data}"
        )
        if config.batch_size != _preset_batch_size(config):  # somebody asked for it
            problems.append(f"batch_size: {batch}; use a smaller batch_size")
        else:
            _log.warning("batch_size: %s, so images repeat within a batch", batch)
    moving = [each.name for each in config.penalties if "consistency" in each.name]
    for name, asked in (
        ("horizontal_flip", config.horizontal_flip),
        ("augment", config.augment != "none"),
        (f"penalties: {' '.join(moving)} moves images", bool(moving)),
    ):
        if asked and len(data.shape) != 3:
            problems.append(f"{name}: {config.data} is no set of images")
    for network in (config.generator, config.discriminator):
        try:
            check_shape(network.architecture, data.shape)
        except GanError as error:
            problems.append(f"resolution: {error}")
    if (
        config.sync_batch_norm
        and accelerator.num_processes > 1
        and accelerator.device.type == "cpu"
    ):
        problems.append(
            "sync_batch_norm: PyTorch has it on accelerators only; leave it out on CPUs"
        )
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    for note in data.notes:
        _log.info("%s", note)
    if data.num_classes and not config.conditional:
        _log.info("%s has %d classes; unused without --conditional", config.data, data.num_classes)
    pictures = len(data.shape) == 3 and min(data.shape[1:]) >= 16
    if pictures and len(data) < _FEW and config.augment == "none":
        _log.info("%d images are few: they may be learned by heart; see --augment", len(data))
    if config.sync_batch_norm and accelerator.num_processes == 1:
        _log.warning("sync_batch_norm does nothing in one process")
    if len(data.shape) == 3:
        channels, height, width = data.shape
        size = str(height) if height == width else f"{height}x{width}"
        config = dataclasses.replace(config, channels=channels, resolution=size)
    return config


def _preset_batch_size(config: Config) -> int:
    known = config.preset in PRESETS
    return (preset_config(config.preset) if known else Config()).batch_size


def _check_networks(config: Config, generator: nn.Module, discriminator: nn.Module) -> None:
    """Refuse what would train, but wrongly."""
    for role, network in (("generator", generator), ("discriminator", discriminator)):
        normed = any(isinstance(module, _BatchNorm) for module in network.modules())
        if normed and config.batch_size == 1:
            raise ConfigError(
                f"batch_size: 1, but the {role} has batch norm, which compares the images of a "
                "batch; use at least 2, better 16"
            )
        if normed and config.batch_size == 2:
            _log.warning("batch_size: 2 gives the %s's batch norm poor statistics", role)
    last = list(discriminator.modules())[-1]
    if isinstance(last, nn.Sigmoid | nn.Softmax):
        raise ConfigError(
            f"discriminator: it ends in {type(last).__name__}, but the losses take unbounded "
            "logits; remove that layer"
        )
