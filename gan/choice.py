"""Help with choosing: a preset from the data and the machine, and gamma from size and batch."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch

from gan import serial
from gan.config import Config
from gan.data_config import DataConfig
from gan.errors import GanError
from gan.networks import check_shape
from gan.presets import preset_config

FEW = 2000
"""Fewer images than this are soon learned by heart without augmentation."""
EACH = 50
"""Images that a class needs on average to be worth telling the networks."""


class Data(Protocol):
    """What the choice looks at; `ImageData` has it."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one example."""

    @property
    def num_classes(self) -> int:
        """0 without labels."""

    def __len__(self) -> int: ...


@dataclass(frozen=True)
class Machine:
    """What the choice looks at of a machine.

    Attributes:
        accelerator: whether there is a GPU or the like.
        cores: of the processor.
        processes: that share a step.
    """

    accelerator: bool
    cores: int
    processes: int = 1

    @classmethod
    def here(cls) -> Machine:
        """This one."""
        processes = int(os.environ.get("WORLD_SIZE", "1"))
        return cls(torch.accelerator.is_available(), os.cpu_count() or 1, processes)


class Choice(NamedTuple):
    """A configuration, and a sentence for each decision in it."""

    config: Config
    reasons: list[str]


def choose(
    data: Data, asked: Config, machine: Machine | None = None, batch_size: int | None = None
) -> Choice:
    """Choose options for images that no preset was named for.

    Args:
        data: opened with the options asked for.
        asked: its data options are kept, and a resolution that was asked for is not changed.
        machine: what will train; None: this one.
        batch_size: that was asked for; None: that of `asked` where it is not the default.

    Returns:
        Options in full, whose `preset` is the nearest one, and why.

    Raises:
        GanError: no family of networks can make such images, whatever their resolution.
    """
    machine = machine or Machine.here()
    shape, count = tuple(data.shape), len(data)
    name, why = _preset(shape, count, _classes_help(data), machine)
    config = preset_config(name)
    reasons = [f"preset {name}: {why} (gan train PRESET)"]
    fields = dataclasses.fields(DataConfig)
    options = {field.name: serial.to_plain(getattr(asked, field.name)) for field in fields}
    if len(shape) == 3:
        size, why_size = _resolution(config.generator.family, shape, asked, machine)
        options["resolution"] = size if why_size else asked.resolution
        reasons += [why_size] if why_size else []
        side = int(size.partition("x")[0]), int(size.partition("x")[2] or size)
        options |= _few(count, config, reasons)
    if batch_size is None and asked.batch_size != Config().batch_size:
        batch_size = asked.batch_size
    batch = config.batch_size if batch_size is None else batch_size
    batch = min(batch, count) if count > 1 else batch  # one image repeats
    options |= {"batch_size": batch, "conditional": _classes_help(data)}
    if data.num_classes:
        told = "told to" if options["conditional"] else "too small to be told to"
        words = f"{data.num_classes} classes of {count // data.num_classes} images on average"
        flag = "--no_conditional" if options["conditional"] else "--conditional"
        reasons.append(f"labels: {words}, {told} the networks ({flag})")
    if len(shape) == 3 and name == "few-shot":
        batch *= asked.gradient_accumulation_steps * machine.processes
        gamma = suggest_gamma(side, batch)
        options["gamma"] = f"{gamma:g}..{gamma / 10:g},cosine"
        reasons.append(
            f"gamma {gamma:g}, falling to a tenth: a fit of published values to {size} pixels and "
            f"{batch} images a step, good within a factor of three (--gamma)"
        )
    if config.horizontal_flip:
        reasons.append("horizontal_flip: every second image is mirrored (--no_horizontal_flip)")
    return Choice(Config.from_dict(options, config), reasons)


def suggest_gamma(size: Sequence[int], batch: int) -> float:
    """Weight of R1 and R2, together with the relativistic loss, at the start of a training.

    1.5e-7 * pixels^1.74 * batch^0.23, rounded: our own least squares through the logarithms of
    the five values that R3GAN published for 32 to 256 pixels and batches of 256 to 4096. It meets
    each within a factor of 2.7. The more varied the data, the smaller the published value, and
    that the rule cannot see; all five fall to a tenth over the training.

    Args:
        size: height and width in pixels.
        batch: real images of one update, over all processes.

    Returns:
        Gamma, with two digits.
    """
    gamma: float = 1.54e-7 * math.prod(size) ** 1.745 * batch**0.232
    digits = 1 - math.floor(math.log10(gamma))
    return round(gamma, digits)


def _preset(shape: tuple[int, ...], count: int, classes: bool, machine: Machine) -> tuple[str, str]:
    if len(shape) == 1:
        return "ring", "points, not images"
    side = max(shape[1:])
    if side <= 16:
        return "digits", f"{side} pixels are few enough for fully connected networks"
    if count < FEW:
        return "few-shot", f"{count:,} images are few"
    if machine.accelerator:
        name = "stylegan2-64" if side <= 64 else "stylegan2-256"
        return name, f"{count:,} images of {side} pixels, and an accelerator"
    where = f"{machine.cores} CPU cores"
    if side <= 40:
        name = "fashion-mnist" if classes else "fashion-mnist-unconditional"
        return name, f"{side} pixels on {where}"
    return "few-shot", f"the networks that {where} can train at 64 pixels"


def _classes_help(data: Data) -> bool:
    return data.num_classes > 1 and len(data) >= EACH * data.num_classes


def _few(count: int, config: Config, reasons: list[str]) -> dict[str, Any]:
    """Augmentation where images are few, and none in a preset for few where they are many."""
    if count < FEW and config.augment == "none" and config.generator.family != "mlp":
        config = dataclasses.replace(config, augment="diffaugment")
    elif count >= 10 * FEW and config.augment == "diffaugment":
        return {"augment": "none"}
    if config.augment != "none":
        reasons.append(f"augment {config.augment}: {count:,} images must last (--augment none)")
    return {"augment": config.augment}


def _resolution(
    family: str, shape: tuple[int, ...], asked: Config, machine: Machine
) -> tuple[str, str]:
    """Size to train at, and a reason where it is not the data's own."""
    channels, height, width = shape
    own = str(height) if height == width else f"{height}x{width}"
    most = 256 if machine.accelerator else 64
    if asked.resolution is not None or (max(height, width) <= most and _fits(family, shape)):
        return own, ""
    side = min(height, width, most)
    while side >= 8 and not _fits(family, (channels, side, side)):
        side -= 1
    if side < 8:
        raise GanError(f"resolution: images of {own} are too small; ask for --resolution 16")
    limit = " is the most that this machine trains in reasonable time" if side == most else ""
    why = limit or f" is the nearest size below {own} that the networks make"
    return str(side), f"resolution {side}:{why} (--resolution)"


def _fits(family: str, shape: tuple[int, ...]) -> bool:
    try:
        check_shape(family, shape)
    except GanError:
        return False
    return True
