"""What every family shares: the shapes that it can make, the inputs it refuses, its classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot
from torch.nn.utils.parametrizations import spectral_norm

from gan.errors import GanError

SMALLEST_BASE = 4
"""Least height and width of the first feature map."""
LARGEST_BASE = 32 * 32
"""Most pixels of the first feature map, which one fully connected layer paints at once."""


class Generator(nn.Module):
    """A network from latents to images.

    Attributes:
        shape: of one image, (channels, height, width), or of one point, (2,).
        z_dim: length of the latent vector z, which is standard normal.
        num_classes: 0 for an unconditional generator.
    """

    def __init__(self, shape: Sequence[int], z_dim: int, num_classes: int) -> None:
        super().__init__()
        self.check_shape(shape)
        at_least(1, z_dim=z_dim)
        at_least(0, num_classes=num_classes)
        self.shape, self.z_dim, self.num_classes = tuple(shape), z_dim, num_classes

    @classmethod
    def check_shape(cls, shape: Sequence[int]) -> None:
        """Find out whether the family can make a shape.

        Args:
            shape: of one example, without the batch.

        Raises:
            GanError: it cannot; names the nearest that it can.
        """
        doublings(shape)

    def forward(self, z: Tensor, labels: Tensor | None = None) -> Tensor:
        """Make images, or points.

        Args:
            z: standard normal, shape (batch, z_dim).
            labels: int64, shape (batch,); None if and only if the network has no classes.

        Returns:
            Images in [-1, 1] (about, in families without a last tanh), or unbounded points,
            shape (batch, *shape).

        Raises:
            ValueError: inputs of another shape, or labels that do not fit `num_classes`.
        """
        self._check(z, labels)
        return self._images(z, labels)

    def _check(self, z: Tensor, labels: Tensor | None) -> None:
        if z.ndim != 2 or z.shape[1] != self.z_dim:
            raise ValueError(f"z has shape {tuple(z.shape)}; expected (batch, {self.z_dim})")
        _check_labels(labels, self.num_classes, z.shape[0])

    def _images(self, z: Tensor, labels: Tensor | None) -> Tensor:
        """Make images from inputs that fit."""
        raise NotImplementedError


class Discriminator(nn.Module):
    """A network from images to unbounded logits, never after a sigmoid.

    Attributes:
        shape: of one image, (channels, height, width), or of one point, (2,).
        num_classes: 0 for an unconditional discriminator.
        pure: whether the logit of an image depends on that image and the weights alone, on no
            other image of the batch and no earlier forward; then penalties need no forward of
            their own. A family that is says so.
    """

    pure = False

    def __init__(self, shape: Sequence[int], num_classes: int) -> None:
        super().__init__()
        at_least(0, num_classes=num_classes)
        self.shape, self.num_classes = tuple(shape), num_classes

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Tensor:
        """Judge images, or points.

        Args:
            x: images in [-1, 1], or points, shape (batch, *shape).
            labels: int64, shape (batch,); None if and only if the network has no classes.

        Returns:
            Unbounded logits, shape (batch,).

        Raises:
            ValueError: inputs of another shape, or labels that do not fit `num_classes`.
        """
        if tuple(x.shape[1:]) != self.shape:
            expected = ", ".join(map(str, ("batch", *self.shape)))
            raise ValueError(f"images have shape {tuple(x.shape)}; expected ({expected})")
        _check_labels(labels, self.num_classes, x.shape[0])
        return self._logits(x, labels)

    def _logits(self, x: Tensor, labels: Tensor | None) -> Tensor:
        """Judge inputs that fit."""
        raise NotImplementedError


class ProjectionHead(nn.Module):
    """Features to logits: a linear layer, plus, with classes, <embedding of the label, features>.

    Reference: Miyato and Koyama, 2018, arXiv:1802.05637, eq. 3.
    """

    def __init__(self, features: int, num_classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, 1)
        self.embedding = nn.Embedding(num_classes, features) if num_classes else None
        if self.embedding is not None:
            nn.init.normal_(self.embedding.weight, 0.0, 0.02)

    def forward(self, features: Tensor, labels: Tensor | None) -> Tensor:
        """Features of shape (batch, features) to logits of shape (batch,)."""
        logits: Tensor = self.linear(features).squeeze(1)
        if self.embedding is not None:
            logits = logits + (self.embedding(labels) * features).sum(1)
        return logits


def with_one_hot(z: Tensor, labels: Tensor | None, num_classes: int) -> Tensor:
    """Latents with the one-hot label beside them, shape (batch, z_dim + num_classes).

    Reference: Mirza and Osindero, 2014, arXiv:1411.1784.
    """
    if labels is None:
        return z
    return torch.cat([z, one_hot(labels, num_classes).to(z.dtype)], 1)


def fully_connected(
    features: int,
    hidden: Sequence[int],
    activation: Callable[[], nn.Module],
    batch_norm: bool = False,
) -> list[nn.Module]:
    """Linear layers, each with its activation, and batch norm before it if asked for.

    Args:
        features: what goes in.
        hidden: what comes out of each layer.
        activation: makes the activation of a layer.
        batch_norm: normalise; the linear layers then have no bias.

    Returns:
        The layers, to be put into a Sequential.

    Raises:
        GanError: a width below 1.
    """
    layers: list[nn.Module] = []
    for inner, out in pairwise((features, *hidden)):
        at_least(1, hidden=out)
        layers += [nn.Linear(inner, out, bias=not batch_norm)]
        layers += [nn.BatchNorm1d(out)] * batch_norm + [activation()]
    return layers


def spectrally_normalise(network: nn.Module) -> None:
    """Divide the weight of every layer of a network by its largest singular value.

    Args:
        network: its layers are parametrised in place; initialise them before.

    Reference: Miyato et al., 2018, arXiv:1802.05957.
    """
    network.pure = False  # type: ignore[assignment]  # each forward in training moves its vectors
    for layer in list(network.modules()):
        if isinstance(layer, nn.Linear | nn.Conv2d | nn.ConvTranspose2d | nn.Embedding):
            spectral_norm(layer)


def at_least(least: int, **options: int) -> None:
    """Refuse options below a least value.

    Args:
        least: the least allowed.
        options: by name.

    Raises:
        GanError: names the first one that is too small.
    """
    for name, value in options.items():
        if value < least:
            raise GanError(f"{name}: {value} is below {least}")


def one_of(name: str, value: str, allowed: Sequence[str]) -> str:
    """Refuse a choice that the family does not have.

    Args:
        name: of the option.
        value: what was chosen.
        allowed: what may be.

    Returns:
        `value`.

    Raises:
        GanError: `value` is not allowed; lists what is.
    """
    if value not in allowed:
        raise GanError(f"{name}: {value!r} is not one of {', '.join(allowed)}")
    return value


def ladder(width: int, max_width: int | None, count: int) -> list[int]:
    """Channels of the feature maps, lowest resolution first.

    Args:
        width: channels at the highest resolution; they double as the resolution halves.
        max_width: most channels anywhere; None for no limit.
        count: number of feature maps.

    Returns:
        `count` numbers, the last one `width` (or `max_width`, where that is smaller).

    Raises:
        GanError: a width below 1.
    """
    at_least(1, width=width, max_width=1 if max_width is None else max_width)
    widths = [width * 2**i for i in reversed(range(count))]
    return widths if max_width is None else [min(each, max_width) for each in widths]


def doublings(shape: Sequence[int]) -> tuple[int, tuple[int, int]]:
    """Write a resolution as base * 2^n, with the smallest base of at least 4x4.

    Args:
        shape: (channels, height, width).

    Returns:
        n, at least 1, and the base as (height, width).

    Raises:
        GanError: the shape is none of an image, or cannot be written so; names the nearest that
            can.
    """
    if len(shape) != 3 or shape[0] < 1 or any(size != int(size) for size in shape):
        raise GanError(
            f"shape {tuple(shape)}: this family makes images, (channels, height, width); "
            "points are for the family mlp"
        )
    height, width = shape[1:]
    n = _doublings(height, width)
    if n is None:
        sizes = " and ".join(f"{h}x{w}" for h, w in _nearest(height, width))
        raise GanError(
            f"resolution {height}x{width} cannot be made by doubling, at least once, a feature map "
            f"of {SMALLEST_BASE}x{SMALLEST_BASE} or more and at most {LARGEST_BASE} pixels; "
            f"nearest: {sizes}"
        )
    return n, (height >> n, width >> n)


def _doublings(height: int, width: int) -> int | None:
    n = 0
    while height % 2 == width % 2 == 0 and min(height, width) >= 2 * SMALLEST_BASE:
        n, height, width = n + 1, height // 2, width // 2
    return n if n and height * width <= LARGEST_BASE else None


def _nearest(height: int, width: int) -> list[tuple[int, int]]:
    """The nearest resolutions that can be made: one smaller, where there is one, and one larger."""
    least = SMALLEST_BASE
    height, width = max(height, 2 * least), max(width, 2 * least)
    steps = [2**n for n in range(1, 16)]
    smaller = [(height // step * step, width // step * step) for step in steps]
    larger = [
        (max(-(-height // step), least) * step, max(-(-width // step), least) * step)
        for step in steps
    ]
    below = sorted((size for size in smaller if _doublings(*size)), key=sum)
    above = sorted((size for size in larger if _doublings(*size)), key=sum)
    return sorted({*below[-1:], *above[:1]})


def _check_labels(labels: Tensor | None, num_classes: int, batch: int) -> None:
    if labels is None and num_classes:
        raise ValueError(f"a network of {num_classes} classes needs labels, shape ({batch},)")
    if labels is not None and not num_classes:
        raise ValueError("labels were given to a network without classes (num_classes=0)")
    if labels is not None and (labels.shape != (batch,) or labels.dtype != torch.int64):
        raise ValueError(
            f"labels have shape {tuple(labels.shape)} and type {labels.dtype}; "
            f"expected ({batch},) and torch.int64"
        )
