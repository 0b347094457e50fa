"""Fully connected networks, for points in the plane and for small images of any shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from torch import Tensor, nn

from gan.errors import GanError
from gan.networks.interface import (
    Discriminator,
    Generator,
    ProjectionHead,
    fully_connected,
    one_of,
    spectrally_normalise,
    with_one_hot,
)


class MLPGenerator(Generator):
    """z, and the one-hot label beside it, to images in [-1, 1] or to unbounded points.

    Args:
        shape: (channels, height, width), for images that end in tanh, or (dimensions,), for points
            that end in a linear layer.
        z_dim: length of z.
        hidden: widths of the hidden layers.
        norm: batch or none.
        num_classes: 0 for an unconditional generator.

    Raises:
        GanError: an option that cannot be.
    """

    def __init__(
        self,
        shape: Sequence[int],
        *,
        z_dim: int = 32,
        hidden: Sequence[int] = (128, 256),
        norm: str = "batch",
        num_classes: int = 0,
    ) -> None:
        super().__init__(shape, z_dim, num_classes)
        normed = one_of("norm", norm, ("batch", "none")) == "batch"
        layers = fully_connected(z_dim + num_classes, hidden, nn.ReLU, normed)
        features = (z_dim + num_classes, *hidden)[-1]
        layers += [nn.Linear(features, math.prod(shape)), nn.Unflatten(1, tuple(shape))]
        self.layers = nn.Sequential(*layers, *[nn.Tanh()] * (len(shape) > 1))

    @classmethod
    def check_shape(cls, shape: Sequence[int]) -> None:
        """Accept every shape that there is.

        Args:
            shape: of one example, without the batch.

        Raises:
            GanError: no shape at all.
        """
        if not shape or any(size < 1 or size != int(size) for size in shape):
            raise GanError(f"shape {tuple(shape)}: every size must be a whole number above 0")

    def _images(self, z: Tensor, labels: Tensor | None) -> Tensor:
        images: Tensor = self.layers(with_one_hot(z, labels, self.num_classes))
        return images


class MLPDiscriminator(Discriminator):
    """Images or points to logits; classes by projection.

    Args:
        shape: (channels, height, width) or (dimensions,).
        hidden: widths of the hidden layers.
        norm: none or spectral.
        num_classes: 0 for an unconditional discriminator.

    Raises:
        GanError: an option that cannot be.
    """

    pure = True

    def __init__(
        self,
        shape: Sequence[int],
        *,
        hidden: Sequence[int] = (256, 128),
        norm: str = "none",
        num_classes: int = 0,
    ) -> None:
        super().__init__(shape, num_classes)
        MLPGenerator.check_shape(shape)
        flat = math.prod(shape)
        layers = fully_connected(flat, hidden, partial(nn.LeakyReLU, 0.2))
        self.features = nn.Sequential(nn.Flatten(), *layers)
        self.head = ProjectionHead((flat, *hidden)[-1], num_classes)
        if one_of("norm", norm, ("none", "spectral")) == "spectral":
            spectrally_normalise(self)

    def _logits(self, x: Tensor, labels: Tensor | None) -> Tensor:
        logits: Tensor = self.head(self.features(x), labels)
        return logits
