"""The options of one network and its optimizer."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from gan.schedules import Schedule

FAMILY_NAMES = ("dcgan", "mlp", "resnet", "r3gan", "stylegan2")
"""The families of networks; gan.networks holds one row for each."""
Network = TypeVar("Network", bound="NetworkConfig")
OWN_FLAGS = ("width", "max_width", "depth", "hidden", "norm")
"""Options that several families have, so each is a field."""


@dataclass(frozen=True)
class Option:
    """An option that some classes take, written `NAME=VALUE`; the class decides what VALUE is."""

    name: str
    value: str

    @classmethod
    def parse(cls, text: str | Option) -> Option:
        """Read an option from its written form.

        Args:
            text: see the class.

        Returns:
            The option.

        Raises:
            ValueError: `text` does not have the written form.
        """
        if isinstance(text, Option):
            return text
        name, equals, value = text.partition("=")
        if not (name.strip().isidentifier() and equals and value.strip()):
            raise ValueError(f"{text!r} is no option; write NAME=VALUE, as in attention=16")
        return cls(name.strip(), value.strip())

    def __str__(self) -> str:
        """Give the written form back."""
        return f"{self.name}={self.value}"


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """One network and its optimizer."""

    family: str = "dcgan"
    """Family of networks: dcgan, mlp, ..."""
    width: int | None = None
    """Channels of the feature maps at the highest resolution; None: the family's own."""
    max_width: int | None = None
    """Most channels that a feature map may have; None: the family's own."""
    depth: int | None = None
    """Blocks a resolution; None: the family's own."""
    hidden: tuple[int, ...] | None = None
    """Widths of the fully connected layers; None: the family's own."""
    norm: str | None = None
    """Normalisation: batch, none or spectral, where the family has a choice."""
    optimizer: str = "Adam"
    """Any optimizer class of torch.optim, by name."""
    lr: Schedule = Schedule(2e-4)
    """Learning rate: a number or a schedule."""
    beta1: float = 0.5
    """Adam's first decay rate, for optimizers that have betas."""
    beta2: Schedule = Schedule(0.999)
    """Adam's second decay rate: a number or a schedule."""
    weight_decay: float = 0.0
    """The optimizer's weight decay."""
    clip_norm: float | None = None
    """Clip this network's gradient to that norm; None: only measure it."""
    options: tuple[Option, ...] = ()
    """The family's other options, each NAME=VALUE: attention=16, low_precision=4, flat=2, ..."""
    optimizer_options: tuple[Option, ...] = ()
    """The optimizer's other options, each NAME=VALUE: eps=1e-8, momentum=0.9, ..."""
    module: str | None = None
    """A network of your own instead of a family, PACKAGE:CLASS."""

    def without_options(self: Network) -> Network:
        """The same without what only some networks take."""
        nothing: dict[str, Any] = dict.fromkeys(OWN_FLAGS)
        return replace(self, **nothing, options=())

    @property
    def architecture(self) -> str:
        """What `build_generator` and `build_discriminator` take: PACKAGE:CLASS, or the family."""
        return self.module or self.family


@dataclass(frozen=True, kw_only=True)
class GeneratorConfig(NetworkConfig):
    """The generator and its optimizer."""

    z_dim: int = 100
    """Length of the latent vector z."""


@dataclass(frozen=True, kw_only=True)
class DiscriminatorConfig(NetworkConfig):
    """The discriminator and its optimizer."""

    clip_weights: float | None = None
    """Keep every weight within plus and minus this, as the first Wasserstein GAN; None: no."""


def network_problems(role: str, network: NetworkConfig) -> Iterator[str]:
    """Look for values that cannot be.

    Args:
        role: generator or discriminator.
        network: its options.

    Yields:
        One sentence for each, naming field, value and what is allowed.
    """
    if network.module is None and network.family not in FAMILY_NAMES:
        near = difflib.get_close_matches(network.family, FAMILY_NAMES, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        yield (
            f"{role}.family: {network.family!r} is unknown; {hint}"
            f"families: {', '.join(FAMILY_NAMES)}"
        )
    if min(network.lr.values) < 0 or max(network.lr.values) == 0:
        yield f"{role}.lr: {network.lr} is not above 0"
    if not 0 <= network.beta1 < 1:
        yield f"{role}.beta1: {network.beta1:g} is outside [0, 1); R3GAN uses 0, DCGAN 0.5"
    if not all(0 <= value < 1 for value in network.beta2.values):
        yield f"{role}.beta2: {network.beta2} is outside [0, 1); R3GAN uses 0.9..0.99"
    if not 0 <= network.weight_decay < math.inf:
        yield f"{role}.weight_decay: {network.weight_decay:g} is outside [0, inf)"
    if network.clip_norm is not None and not network.clip_norm > 0:
        yield f"{role}.clip_norm: {network.clip_norm:g} is not above 0; None turns it off"
    for name in ("width", "max_width", "depth"):
        value = getattr(network, name)
        if value is not None and value < 1:
            yield f"{role}.{name}: {value} is below 1"
    if network.hidden is not None and any(value < 1 for value in network.hidden):
        yield f"{role}.hidden: {' '.join(map(str, network.hidden))} has a width below 1"
    if network.module is not None and not re.fullmatch(r"[\w.]+:\w+", network.module):
        yield f"{role}.module: {network.module!r} is not PACKAGE:CLASS, as in my_package:MyNetwork"
    for option in network.options:
        if option.name in (*OWN_FLAGS, "z_dim", "num_classes"):
            yield f"{role}.options: {option.name} is no extra option; use --{role}.{option.name}"
    for option in network.optimizer_options:
        if option.name in ("lr", "betas", "weight_decay", "params"):
            yield f"{role}.optimizer_options: {option.name} has flags of its own, --{role}.lr, ..."
    for field in ("options", "optimizer_options"):
        names = [option.name for option in getattr(network, field)]
        if len(set(names)) < len(names):
            yield f"{role}.{field}: {' '.join(names)} names one of them twice"
    if isinstance(network, GeneratorConfig) and network.z_dim < 1:
        yield f"{role}.z_dim: {network.z_dim} is below 1"
    if isinstance(network, DiscriminatorConfig):
        limit = network.clip_weights
        if limit is not None and limit <= 0:
            yield f"{role}.clip_weights: {limit:g} is not above 0; None turns it off"
