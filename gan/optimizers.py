"""Optimizers by name, with their options checked, and schedules of their settings."""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from gan.errors import ConfigError
from gan.schedules import Schedule
from gan.serial import from_text

_UNUSABLE = ("LBFGS", "SparseAdam")
"""LBFGS wants a closure, which a window of micro-batches cannot give; SparseAdam wants sparse
gradients."""
_EIGHT_BIT = {"adam8bit": "Adam8bit", "adamw8bit": "AdamW8bit"}
"""Of bitsandbytes: a quarter of the memory for the optimizer's state."""
_OWN_FLAGS = ("params", "lr", "betas", "weight_decay")
"""What a network's options name themselves."""


def optimizer_class(name: str, field: str = "optimizer") -> type[torch.optim.Optimizer]:
    """Class of torch.optim by its name, in any case, or an 8-bit Adam of bitsandbytes.

    Args:
        name: such as Adam, adamw, RMSprop, adam8bit.
        field: what the option is called, for the message.

    Returns:
        The class.

    Raises:
        ConfigError: no such class; lists those there are. Or bitsandbytes is missing.
    """
    if name.lower() in _EIGHT_BIT:
        return _eight_bit(name, field)
    classes = {
        key: value
        for key, value in vars(torch.optim).items()
        if inspect.isclass(value)
        and issubclass(value, torch.optim.Optimizer)
        and value is not torch.optim.Optimizer
        and key not in _UNUSABLE
    }
    for unusable in _UNUSABLE:
        if name.lower() == unusable.lower():
            raise ConfigError(
                f"{field}: {unusable} cannot be used here: LBFGS evaluates the loss by itself, and "
                f"SparseAdam wants sparse gradients; use one of {', '.join(classes)}"
            )
    by_lower = {key.lower(): value for key, value in classes.items()}
    if name.lower() not in by_lower:
        near = difflib.get_close_matches(name.lower(), by_lower, n=1)
        hint = f"did you mean {by_lower[near[0]].__name__}? " if near else ""
        raise ConfigError(
            f"{field}: {name!r} is unknown; {hint}torch.optim has {', '.join(classes)}"
        )
    return by_lower[name.lower()]


def _eight_bit(name: str, field: str) -> type[torch.optim.Optimizer]:
    try:
        optimizers = importlib.import_module("bitsandbytes").optim
    except ImportError:
        raise ConfigError(
            f"{field}: {name} needs the package bitsandbytes: pip install bitsandbytes"
        ) from None
    kind: type[torch.optim.Optimizer] = getattr(optimizers, _EIGHT_BIT[name.lower()])
    return kind


def build_optimizer(
    name: str,
    parameters: Iterable[nn.Parameter],
    *,
    lr: float,
    betas: tuple[float, float],
    weight_decay: float = 0.0,
    extra: Mapping[str, str] | None = None,
    field: str = "optimizer",
) -> torch.optim.Optimizer:
    """Build an optimizer, fused where it can be.

    Args:
        name: class of torch.optim, in any case.
        parameters: what it updates.
        lr: learning rate.
        betas: Adam's decay rates; used by optimizers that have betas.
        weight_decay: the optimizer's own weight decay.
        extra: its other options as text, such as {"eps": "1e-8"}.
        field: what the option is called, for messages.

    Returns:
        The optimizer.

    Raises:
        ConfigError: no such class, no such option of it, it lacks weight decay when some is asked
            for, or it refuses the parameters or a value.
    """
    kind = optimizer_class(name, field)
    accepted = inspect.signature(kind).parameters
    options: dict[str, Any] = {"lr": lr}
    if "betas" in accepted:
        options["betas"] = betas
    if "weight_decay" in accepted:
        options["weight_decay"] = weight_decay
    elif weight_decay:
        raise ConfigError(
            f"{field}: {kind.__name__} has no weight decay, but {weight_decay:g} is asked for"
        )
    parameters = list(parameters)
    for option, text in (extra or {}).items():
        if option not in accepted:
            known = [name for name in accepted if name not in _OWN_FLAGS]
            raise ConfigError(
                f"{field}_options: {kind.__name__} takes no {option}; it takes {', '.join(known)}"
            )
        options[option] = _option(f"{field}_options: {option}", text, accepted[option].default)
    if (
        "fused" in accepted
        and not {"fused", "foreach"} & set(options)
        and {p.device.type for p in parameters} <= {"cpu", "cuda"}
    ):
        options["fused"] = True
    try:
        return kind(parameters, **options)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(f"{field}: {kind.__name__} refuses: {error}") from error


def _option(name: str, text: str, default: object) -> Any:
    number = isinstance(default, int | float) and not isinstance(default, bool)
    try:
        return from_text(text, float if number else type(default))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name}: {error}") from None


def schedule_lr(
    optimizer: torch.optim.Optimizer, lr: Schedule, images_per_update: int, total_images: int
) -> torch.optim.lr_scheduler.LambdaLR:
    """Scheduler whose unit is one update and whose clock is images.

    Args:
        optimizer: its learning rate becomes the schedule's.
        lr: the schedule.
        images_per_update: images seen between two updates of this network.
        total_images: images of the whole run.

    Returns:
        The scheduler; `step()` once after each successful update.
    """
    peak = max(lr.values)
    for group in optimizer.param_groups:
        group["lr"] = peak
    return torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda updates: lr.at(updates * images_per_update, total_images) / peak
    )


def set_beta2(optimizer: torch.optim.Optimizer, beta2: float) -> None:
    """Change Adam's second decay rate, in optimizers that have one.

    Args:
        optimizer: any.
        beta2: in [0, 1).
    """
    for group in optimizer.param_groups:
        if "betas" in group:
            group["betas"] = (group["betas"][0], beta2)
