"""The averaged generator: the one that samples, metrics and exports use."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from gan.errors import ConfigError
from gan.freeze import Buffers
from gan.schedules import Schedule


class Pairs:
    """The tensors of an average beside those of its network, looked up once."""

    def __init__(self, average: nn.Module, source: nn.Module) -> None:
        """Match two networks of one shape.

        Args:
            average: is moved.
            source: is followed.
        """
        self.source = source
        self._mine: list[Tensor] = list(average.parameters())
        self._theirs: list[Tensor] = list(source.parameters())
        self._buffers = Buffers(average), Buffers(source)

    def move(self, weight: float) -> None:
        """Move the parameters by a share of the way, and the buffers (statistics) all of it.

        Args:
            weight: the share, 0 to 1.
        """
        torch._foreach_lerp_(self._mine, self._theirs, weight)
        mine, theirs = self._buffers
        mine.restore(theirs.now())


class EMA:
    """Exponential moving average of a network, with a half-life in images.

    Each update moves the average by 1 - 2^(-images / half_life) towards the network, so another
    batch size gives the same average. Buffers (batch-norm statistics) are copied. With a ramp-up
    the half-life is at most that share of the images seen, which forgets the untrained weights.

    Reference: half-life and ramp-up as in Karras et al. 2020, arXiv 1912.04958, appendix B.

    Attributes:
        module: the averaged network, in eval mode and full precision, never prepared, never
            trained.
        images_seen: when it was last updated.
    """

    def __init__(
        self, module: nn.Module, half_life: Schedule | float = 10_000.0, rampup: float | None = 0.05
    ) -> None:
        """Start the average at the network's present weights.

        Args:
            module: the raw (unwrapped) network.
            half_life: in images; 0: the average is the network itself.
            rampup: largest half-life as a share of the images seen; None: no ramp-up.

        Raises:
            ConfigError: a module inside cannot be copied; names it.
        """
        self.half_life, self.rampup = Schedule.parse(half_life), rampup
        self.images_seen = 0
        self.module = _copy(module).eval().requires_grad_(False)
        self._pairs = Pairs(self.module, module)

    def half_life_at(self, images_seen: int, total_images: int) -> float:
        """Half-life in force, in images.

        Args:
            images_seen: images seen so far.
            total_images: images of the whole run.

        Returns:
            The half-life.
        """
        half_life = self.half_life.at(images_seen, total_images)
        return half_life if self.rampup is None else min(half_life, self.rampup * images_seen)

    @torch.no_grad()
    def update(self, module: nn.Module, images_seen: int, total_images: int) -> None:
        """Move towards the network. Call it after each successful update of the network.

        Args:
            module: the raw network.
            images_seen: images seen so far, this step's included.
            total_images: images of the whole run.
        """
        half_life = self.half_life_at(images_seen, total_images)
        images = images_seen - self.images_seen
        beta = 0.5 ** (images / half_life) if half_life > 0 else 0.0
        if self._pairs.source is not module:
            self._pairs = Pairs(self.module, module)
        self._pairs.move(1 - beta)
        self.images_seen = images_seen

    def state_dict(self) -> dict[str, Any]:
        """The clock; the weights are `module.state_dict()`."""
        return {"images_seen": self.images_seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave.

        Args:
            state: a `state_dict`.
        """
        self.images_seen = state["images_seen"]


def _copy(module: nn.Module) -> nn.Module:
    """Copy a network as it was built, which is without the autocast that Accelerate puts on it."""
    try:
        copied = _detached_copy(module)
    except Exception as error:
        raise ConfigError(
            f"the average: {_culprit(module)} cannot be copied, because of: {error}"
        ) from error
    if "_original_forward" in vars(copied):
        copied.forward = vars(copied).pop("_original_forward")
    return copied


def _detached_copy(module: nn.Module) -> nn.Module:
    # Hook-style spectral and weight norm keep the weight of the last forward, with its graph.
    computed = [
        value
        for part in module.modules()
        for value in vars(part).values()
        if isinstance(value, Tensor) and not value.is_leaf
    ]
    return copy.deepcopy(module, {id(value): value.detach().clone() for value in computed})


def _culprit(module: nn.Module) -> str:
    """Name the innermost module that cannot be copied."""
    for name, part in reversed(list(module.named_modules())):
        try:
            _detached_copy(part)
        except Exception:
            return f"{name or 'the network'} ({type(part).__name__})"
    return type(module).__name__
