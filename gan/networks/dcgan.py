"""DCGAN: strided convolutions, batch norm, and nothing else.

Reference: Radford et al., 2016, arXiv:1511.06434, section 3. Unlike the paper, any resolution
2^n * m, any number of channels, classes, and optional fully connected layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

from torch import Tensor, nn

from gan.networks.interface import (
    Discriminator,
    Generator,
    ProjectionHead,
    doublings,
    fully_connected,
    ladder,
    one_of,
    spectrally_normalise,
    with_one_hot,
)


class DCGANGenerator(Generator):
    """z, and the one-hot label beside it, to images in [-1, 1] by transposed convolutions.

    Args:
        shape: (channels, height, width); height and width 2^n * m with m at least 4.
        z_dim: length of z.
        width: channels of the feature map at half the image's resolution; they double as the
            resolution halves.
        max_width: most channels of any feature map.
        hidden: widths of fully connected layers before the first feature map; () for the paper's.
        norm: batch or none.
        num_classes: 0 for an unconditional generator.
        init: "dcgan" for the paper's N(0, 0.02), "default" for torch's; None: the paper's for the
            paper's network, torch's where there are `hidden` layers.

    Raises:
        GanError: a resolution that cannot be made, or an option that cannot be.
    """

    def __init__(
        self,
        shape: Sequence[int],
        *,
        z_dim: int = 100,
        width: int = 64,
        max_width: int | None = None,
        hidden: Sequence[int] = (),
        norm: str = "batch",
        num_classes: int = 0,
        init: str | None = None,
    ) -> None:
        super().__init__(shape, z_dim, num_classes)
        normed = one_of("norm", norm, ("batch", "none")) == "batch"
        n, base = doublings(shape)
        widths = ladder(width, max_width, n)
        bias = not normed  # batch norm has its own

        layers = fully_connected(z_dim + num_classes, hidden, nn.ReLU, normed)
        features = (z_dim + num_classes, *hidden)[-1]
        layers += [nn.Linear(features, widths[0] * base[0] * base[1], bias=bias)]
        layers += [nn.Unflatten(1, (widths[0], *base))]
        layers += [nn.BatchNorm2d(widths[0])] * normed + [nn.ReLU()]
        # A kernel that the stride divides covers every pixel equally often: no checkerboard.
        for wide, narrow in pairwise(widths):
            layers += [nn.ConvTranspose2d(wide, narrow, 4, 2, 1, bias=bias)]
            layers += [nn.BatchNorm2d(narrow)] * normed + [nn.ReLU()]
        layers += [nn.ConvTranspose2d(widths[-1], shape[0], 4, 2, 1), nn.Tanh()]
        self.layers = nn.Sequential(*layers)
        _initialise(self, init, hidden)

    def _images(self, z: Tensor, labels: Tensor | None) -> Tensor:
        images: Tensor = self.layers(with_one_hot(z, labels, self.num_classes))
        return images


class DCGANDiscriminator(Discriminator):
    """Images to logits by strided convolutions; classes by projection.

    Args:
        shape: (channels, height, width); height and width 2^n * m with m at least 4.
        width: channels of the first feature map, at half the image's resolution; they double as
            the resolution halves.
        max_width: most channels of any feature map.
        hidden: widths of fully connected layers after the last feature map; () for the paper's.
        norm: batch (the paper's: on all feature maps but the first), none or spectral.
        num_classes: 0 for an unconditional discriminator.
        init: as for the generator.

    Raises:
        GanError: a resolution that cannot be judged, or an option that cannot be.
    """

    def __init__(
        self,
        shape: Sequence[int],
        *,
        width: int = 64,
        max_width: int | None = None,
        hidden: Sequence[int] = (),
        norm: str = "batch",
        num_classes: int = 0,
        init: str | None = None,
    ) -> None:
        super().__init__(shape, num_classes)
        normed = one_of("norm", norm, ("batch", "none", "spectral")) == "batch"
        self.pure = not normed
        n, base = doublings(shape)
        widths = ladder(width, max_width, n)[::-1]

        layers: list[nn.Module] = [nn.Conv2d(shape[0], widths[0], 4, 2, 1), nn.LeakyReLU(0.2)]
        for narrow, wide in pairwise(widths):
            layers += [nn.Conv2d(narrow, wide, 4, 2, 1, bias=not normed)]
            layers += [nn.BatchNorm2d(wide)] * normed + [nn.LeakyReLU(0.2)]
        # Before the last activation, whose gradient then lies in memory as its input does.
        layers.insert(-1, nn.Flatten())
        flat = widths[-1] * base[0] * base[1]
        layers += fully_connected(flat, hidden, partial(nn.LeakyReLU, 0.2))
        self.features = nn.Sequential(*layers)
        self.head = ProjectionHead((flat, *hidden)[-1], num_classes)
        _initialise(self, init, hidden)
        if norm == "spectral":
            spectrally_normalise(self)

    def _logits(self, x: Tensor, labels: Tensor | None) -> Tensor:
        logits: Tensor = self.head(self.features(x), labels)
        return logits


def _initialise(network: nn.Module, init: str | None, hidden: Sequence[int]) -> None:
    """Draw the weights as section 3 of the paper does, the scales of batch norm around 1."""
    if one_of("init", init or ("default" if hidden else "dcgan"), ("dcgan", "default")) != "dcgan":
        return
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d | nn.Linear | nn.BatchNorm2d):
            nn.init.normal_(layer.weight, float(isinstance(layer, nn.BatchNorm2d)), 0.02)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
