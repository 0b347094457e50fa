"""The networks: one family a file, generator and discriminator side by side.

A generator is called as `generator(z, labels=None)` and gives images in [-1, 1], shape
(batch, *shape); a discriminator as `discriminator(x, labels=None)` and gives logits, shape
(batch,). `FAMILIES` is the table that the option `family` chooses from.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, get_type_hints

from torch import nn

from gan.errors import GanError
from gan.networks.dcgan import DCGANDiscriminator, DCGANGenerator
from gan.networks.interface import Discriminator, Generator
from gan.networks.mlp import MLPDiscriminator, MLPGenerator
from gan.networks.own import build_own, own_class
from gan.networks.r3gan import R3GANDiscriminator, R3GANGenerator
from gan.networks.resnet import ResNetDiscriminator, ResNetGenerator
from gan.networks.stylegan2 import StyleGAN2Discriminator, StyleGAN2Generator
from gan.serial import from_text

FAMILIES: dict[str, tuple[type[Generator], type[Discriminator]]] = {
    "dcgan": (DCGANGenerator, DCGANDiscriminator),
    "mlp": (MLPGenerator, MLPDiscriminator),
    "resnet": (ResNetGenerator, ResNetDiscriminator),
    "r3gan": (R3GANGenerator, R3GANDiscriminator),
    "stylegan2": (StyleGAN2Generator, StyleGAN2Discriminator),
}
"""Families by name: (generator class, discriminator class)."""


def build_generator(name: str, shape: Sequence[int], **options: Any) -> Generator:
    """Build the generator of a family.

    Args:
        name: a key of `FAMILIES`, or a class of your own as `package:Class` (see `build_own`).
        shape: (channels, height, width), or (2,) for points.
        options: what the family's generator takes, such as z_dim, width and num_classes.

    Returns:
        The network, with fresh weights from torch's global random generator.

    Raises:
        GanError: an unknown family, an option that it does not take, or a shape that it cannot
            make.
    """
    check_shape(name, shape)
    kind = None if ":" in name else _family(name)[0]
    generator: Generator = _build("generator", name, kind, shape, options)
    return generator


def build_discriminator(name: str, shape: Sequence[int], **options: Any) -> Discriminator:
    """Build the discriminator of a family.

    Args:
        name: a key of `FAMILIES`, or a class of your own as `package:Class` (see `build_own`).
        shape: (channels, height, width), or (2,) for points.
        options: what the family's discriminator takes, such as width, norm and num_classes.

    Returns:
        The network, with fresh weights from torch's global random generator.

    Raises:
        GanError: an unknown family, an option that it does not take, or a shape that it cannot
            judge.
    """
    check_shape(name, shape)
    kind = None if ":" in name else _family(name)[1]
    discriminator: Discriminator = _build("discriminator", name, kind, shape, options)
    return discriminator


def check_shape(name: str, shape: Sequence[int]) -> None:
    """Find out, without building it, whether a family can make a shape.

    Args:
        name: a key of `FAMILIES`; of a class of your own, only building it shows.
        shape: (channels, height, width), or (2,) for points.

    Raises:
        GanError: an unknown family, or a shape that it cannot make; names the nearest that it can.
    """
    if ":" in name:
        return
    generator, _ = _family(name)
    try:
        generator.check_shape(shape)
    except GanError as error:
        raise GanError(f"{name}: {error}") from None


def read_options(role: str, name: str, words: Mapping[str, str]) -> dict[str, Any]:
    """Options that were written as text, as the types that a network takes.

    Args:
        role: generator or discriminator.
        name: as `build_generator` takes it.
        words: {option: text}.

    Returns:
        {option: value}. Names that the network does not take are left to the building.

    Raises:
        GanError: an unknown family, or a value of another type.
    """
    kind: Any = own_class(role, name) if ":" in name else _family(name)[role == "discriminator"]
    try:
        hints = get_type_hints(kind.__init__)
    except NameError:  # of a class of one's own, for type checkers only
        hints = {}
    values: dict[str, Any] = {}
    for option, text in words.items():
        try:
            values[option] = from_text(text, hints.get(option))
        except (TypeError, ValueError) as error:
            raise GanError(f"{role}.options: {option}: {error}") from None
    return values


def count_parameters(module: nn.Module) -> int:
    """Count the numbers that training changes.

    Args:
        module: any network.

    Returns:
        Number of elements of all its parameters.
    """
    return sum(parameter.numel() for parameter in module.parameters())


def _family(name: str) -> tuple[type[Generator], type[Discriminator]]:
    if name not in FAMILIES:
        near = difflib.get_close_matches(name, FAMILIES, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise GanError(f"family: {name!r} is unknown; {hint}families: {', '.join(FAMILIES)}")
    return FAMILIES[name]


def _build(role: str, name: str, kind: Any, shape: Sequence[int], options: dict[str, Any]) -> Any:
    if kind is None:
        return build_own(role, name, shape, options)
    parameters = inspect.signature(kind).parameters.values()
    takes = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
    for option in options:
        if option not in takes:
            raise GanError(
                f"{role}.{option}: the family {name} takes no such option; "
                f"its {role} takes {', '.join(takes)}"
            )
    try:
        return kind(shape, **options)
    except GanError as error:
        raise GanError(f"{role}.{error}") from None
