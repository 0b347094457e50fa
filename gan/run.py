"""From a configuration to everything that trains: data, networks, players, average, stream.

The one `accelerator.prepare(...)` of the project's GANs is here.
"""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs, set_seed
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from gan.chance import generator_for
from gan.config import Config, Penalty
from gan.data import ImageData, open_data
from gan.data.stream import EndlessBatches, Stream, data_loader
from gan.ema import EMA
from gan.errors import ConfigError, GanError
from gan.losses import LOSSES, AdversarialLoss
from gan.network_config import OWN_FLAGS, NetworkConfig, Option
from gan.networks import build_discriminator, build_generator, check_shape, read_options
from gan.optimizers import build_optimizer, schedule_lr
from gan.penalties import PENALTIES
from gan.player import Player, check_accelerator
from gan.presets import PRESETS, preset_config
from gan.schedules import Schedule
from gan.steps import Penalties

_log = logging.getLogger(__name__)


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
        default = PENALTIES[penalty.name].default_weight
        schedule = penalty.weight or (self.config.gamma if default is None else Schedule(default))
        return schedule.at(self.images_seen, self.total_images)

    def due_penalties(self) -> Penalties:
        """Penalties of the coming discriminator update, with lazy ones weighted up."""
        update = self.discriminator.updates + self.discriminator.skipped
        return {
            penalty.name: (row.scale * self.penalty_weight(penalty) * penalty.every, row.term)
            for penalty in self.config.penalties
            for row in [PENALTIES[penalty.name]]
            if update % penalty.every == 0
        }


def build(config: Config) -> Run:
    """Build a run, leaving nothing on disk.

    Args:
        config: the configuration.

    Returns:
        The run, at step 0.

    Raises:
        ConfigError: options that cannot be, for this data, these networks or this machine.
        DataError: the data cannot be used.
    """
    config.check()
    accelerator = _accelerator(config)
    with accelerator.main_process_first():  # one process downloads or prepares, the others find it
        data = open_data(config.data, **config.opening())
    config = _resolve(config, data, accelerator)
    num_classes = data.num_classes if config.conditional else 0

    set_seed(config.seed)  # the same initial weights on every process
    generator_options: dict[str, Any] = {
        "z_dim": config.generator.z_dim,
        "num_classes": num_classes,
        **_options("generator", config.generator),
    }
    generator: nn.Module = build_generator(
        config.generator.architecture, data.shape, **generator_options
    )
    discriminator: nn.Module = build_discriminator(
        config.discriminator.architecture,
        data.shape,
        num_classes=num_classes,
        **_options("discriminator", config.discriminator),
    )
    _check_networks(config, generator, discriminator)
    if accelerator.num_processes > 1 and config.sync_batch_norm:
        convert = nn.SyncBatchNorm.convert_sync_batchnorm
        generator, discriminator = convert(generator), convert(discriminator)  # type: ignore[no-untyped-call]
    memory_format = torch.channels_last if config.channels_last else torch.contiguous_format
    for network in (generator, discriminator):
        network.to(memory_format=memory_format)  # prepare moves it to the device

    images_per_update = config.images_per_process * accelerator.num_processes
    total_images = config.steps * config.n_critic * images_per_update
    g_optimizer = _optimizer("generator", config.generator, generator)
    d_optimizer = _optimizer("discriminator", config.discriminator, discriminator)
    g_scheduler = schedule_lr(
        g_optimizer, config.generator.lr, config.n_critic * images_per_update, total_images
    )
    d_scheduler = schedule_lr(d_optimizer, config.discriminator.lr, images_per_update, total_images)
    order = EndlessBatches(len(data), config.batch_size, config.seed)
    loader = data_loader(data, order, config.num_workers)

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
    )


def _accelerator(config: Config) -> Accelerator:
    accelerator = Accelerator(
        # Unless told of the CPU, Accelerate trains one copy a process there, all unaware.
        cpu=not torch.accelerator.is_available(),
        mixed_precision=config.mixed_precision,
        gradient_accumulation_steps=config.gradient_accumulation_steps,
        step_scheduler_with_optimizer=False,  # a scheduler's unit is an update of its own network
        dynamo_backend="inductor" if config.compile else None,
        kwargs_handlers=[DistributedDataParallelKwargs(gradient_as_bucket_view=True)],
    )
    check_accelerator(accelerator)
    return accelerator


def _resolve(config: Config, data: ImageData, accelerator: Accelerator) -> Config:
    """Fill in what the data decides, and refuse what does not fit it."""
    problems = []
    if config.conditional and data.num_classes == 0:
        problems.append(
            f"conditional: the networks need class labels, but {config.data} has none "
            f"(labels is {config.labels}); leave --conditional out, or give labels"
        )
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
    if config.horizontal_flip and len(data.shape) != 3:
        problems.append(f"horizontal_flip: {config.data} is no set of images")
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


def _options(role: str, network: NetworkConfig) -> dict[str, Any]:
    """What the family is asked for; what is None stays the family's own."""
    values = {name: getattr(network, name) for name in OWN_FLAGS}
    asked = {name: value for name, value in values.items() if value is not None}
    return asked | read_options(role, network.architecture, _words(network.options))


def _words(options: tuple[Option, ...]) -> dict[str, str]:
    return {option.name: option.value for option in options}


def _optimizer(role: str, network: NetworkConfig, module: nn.Module) -> torch.optim.Optimizer:
    return build_optimizer(
        network.optimizer,
        module.parameters(),
        lr=max(network.lr.values),
        betas=(network.beta1, network.beta2.start),
        weight_decay=network.weight_decay,
        extra=_words(network.optimizer_options),
        field=f"{role}.optimizer",
    )
