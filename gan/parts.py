"""The parts of a run that its options decide alone, from the Accelerator to the augmentation."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs
from torch import distributed, nn

from gan.accelerators import check_accelerator
from gan.augment import TRANSFORMS, Augmentation
from gan.config import Config
from gan.network_config import OWN_FLAGS, NetworkConfig, Option
from gan.networks import build_discriminator, build_generator, read_options
from gan.optimizers import build_optimizer
from gan.schedules import Schedule


def accelerator_for(config: Config) -> Accelerator:
    """The one Accelerator of a run.

    Args:
        config: the options.

    Returns:
        The Accelerator.

    Raises:
        ConfigError: it cannot train two networks.
    """
    on_cpu = not torch.accelerator.is_available()
    if on_cpu:
        _join_after_restart()
    wrapping = DistributedDataParallelKwargs(
        find_unused_parameters=config.find_unused_parameters, gradient_as_bucket_view=True
    )
    accelerator = Accelerator(
        # Unless told of the CPU, Accelerate trains one copy a process there, all unaware.
        cpu=on_cpu,
        mixed_precision=config.mixed_precision,
        gradient_accumulation_steps=config.gradient_accumulation_steps,
        step_scheduler_with_optimizer=False,  # a scheduler's unit is an update of its own network
        dynamo_backend="inductor" if config.compile else None,
        kwargs_handlers=[wrapping],
    )
    check_accelerator(accelerator)
    return accelerator


def _join_after_restart() -> None:
    """Meet the other processes where those of before a restart by torchrun left no addresses."""
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    if restarts != "0" and not distributed.is_initialized():
        store, rank, size = next(distributed.rendezvous("env://"))  # type: ignore[attr-defined]
        store = distributed.PrefixStore(f"restart-{restarts}", store)  # type: ignore[attr-defined]
        distributed.init_process_group("gloo", store=store, rank=rank, world_size=size)


def networks_for(
    config: Config, shape: Sequence[int], num_classes: int
) -> tuple[nn.Module, nn.Module, dict[str, Any]]:
    """Both networks, with fresh weights from torch's global random generator.

    Args:
        config: the options.
        shape: of one example.
        num_classes: 0 for unconditional networks.

    Returns:
        Generator, discriminator, and what the generator was built with.

    Raises:
        GanError: options that the networks do not take, or cannot have.
    """
    generator_options: dict[str, Any] = {
        "z_dim": config.generator.z_dim,
        "num_classes": num_classes,
        **_options("generator", config.generator),
    }
    generator = build_generator(config.generator.architecture, shape, **generator_options)
    discriminator = build_discriminator(
        config.discriminator.architecture,
        shape,
        num_classes=num_classes,
        **_options("discriminator", config.discriminator),
    )
    return generator, discriminator, generator_options


def optimizer_for(role: str, network: NetworkConfig, module: nn.Module) -> torch.optim.Optimizer:
    """The optimizer of one network.

    Args:
        role: generator or discriminator, for messages.
        network: the options.
        module: the network.

    Returns:
        The optimizer.

    Raises:
        ConfigError: options that it does not take, or cannot have.
    """
    return build_optimizer(
        network.optimizer,
        module.parameters(),
        lr=max(network.lr.values),
        betas=(network.beta1, network.beta2.start),
        weight_decay=network.weight_decay,
        extra=_words(network.optimizer_options),
        field=f"{role}.optimizer",
    )


def augmentation_for(config: Config) -> Augmentation:
    """The augmentation of a run, at the strength that it starts with.

    Args:
        config: the options.

    Returns:
        The augmentation; one that never does anything where there is none.
    """
    schedule = config.augment_strength
    if config.augment == "none":
        return Augmentation(lambda images, *_: images, Schedule(0.0))
    if config.augment == "diffaugment" and schedule is None:
        schedule = Schedule(1.0)
    transform = TRANSFORMS[config.augment]
    return Augmentation(transform, schedule, config.ada_target, config.ada_speed)


def _options(role: str, network: NetworkConfig) -> dict[str, Any]:
    """What the family is asked for; what is None stays the family's own."""
    values = {name: getattr(network, name) for name in OWN_FLAGS}
    asked = {name: value for name, value in values.items() if value is not None}
    return asked | read_options(role, network.architecture, _words(network.options))


def _words(options: tuple[Option, ...]) -> dict[str, str]:
    return {option.name: option.value for option in options}
