"""R3GAN: residual networks without normalisation, the discriminator a mirror of the generator.

Made for the losses `relativistic` with `r1` and `r2`.

Reference: Huang et al., 2024, arXiv:2501.05441, section 4, configuration E. The residual branches
start as Zhang et al., 2019, arXiv:1901.09321 (Fixup): the last layer at zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain, pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from gan.errors import GanError
from gan.networks.interface import Discriminator, Generator, at_least, doublings, ladder
from gan.networks.precision import run, split
from gan.networks.resampling import double, halve

_SLOPE = 0.2
_LEAKY_GAIN = math.sqrt(2 / (1 + _SLOPE**2))


class R3GANGenerator(Generator):
    """z, and an embedding of the label beside it, to images about [-1, 1], without a tanh.

    Args:
        shape: (channels, height, width); height and width 2^n * m with m at least 4.
        z_dim: length of z, and of the embedding of the label.
        width: channels at the image's resolution; they double as the resolution halves. The paper:
            96 at 256x256, 384 at 64x64, 768 at 32x32.
        max_width: most channels of any feature map; the paper: 768.
        depth: residual blocks at each resolution.
        expansion: how much wider the inside of a block is.
        group_size: channels of a group in the blocks' 3x3 convolutions; the paper: 16, 32 for
            ImageNet. A block that is narrower inside has one group.
        low_precision: highest resolutions that follow `mixed_precision`; the others stay in fp32.
            None: all of them. The paper: 3 of 4 at 32x32, 4 at 64x64 and 256x256.
        num_classes: 0 for an unconditional generator.

    Raises:
        GanError: a resolution that cannot be made, or an option that cannot be.
    """

    def __init__(
        self,
        shape: Sequence[int],
        *,
        z_dim: int = 64,
        width: int = 96,
        max_width: int | None = 768,
        depth: int = 2,
        expansion: int = 2,
        group_size: int = 16,
        low_precision: int | None = None,
        num_classes: int = 0,
    ) -> None:
        super().__init__(shape, z_dim, num_classes)
        n, base = doublings(shape)
        widths = ladder(width, max_width, n + 1)
        self.embedding = nn.Embedding(num_classes, z_dim) if num_classes else None
        features = z_dim * (2 if num_classes else 1)
        self.linear = _scaled(nn.Linear(features, widths[0], bias=False))
        self.basis = nn.Parameter(torch.randn(widths[0], *base))
        stages = [_blocks(widths[0], depth, len(widths), expansion, group_size)]
        for wide, narrow in pairwise(widths):
            stages += [[_resize(wide, narrow), _Double()]]
            stages[-1] += _blocks(narrow, depth, len(widths), expansion, group_size)
        stages[-1] += [_scaled(nn.Conv2d(widths[-1], shape[0], 1, bias=False))]
        self.layers = nn.Sequential(*chain(*stages))
        self.full = sum(map(len, stages[: split(len(stages), low_precision)]))

    def _images(self, z: Tensor, labels: Tensor | None) -> Tensor:
        if self.embedding is not None:
            z = torch.cat([z, self.embedding(labels)], 1)
        x = run(self._begin, z, low=self.full == 0)
        images: Tensor = run(self.layers[self.full :], x, low=True)
        return images

    def _begin(self, z: Tensor) -> Tensor:
        """From z through the resolutions that stay in fp32."""
        x: Tensor = self.layers[: self.full](self.basis * self.linear(z)[:, :, None, None])
        return x


class R3GANDiscriminator(Discriminator):
    """Images to logits; classes by the inner product of an embedding with the features.

    Args:
        shape: (channels, height, width); height and width 2^n * m with m at least 4.
        width: as for the generator, like the options that follow.
        max_width: most channels of any feature map.
        depth: residual blocks at each resolution.
        expansion: how much wider the inside of a block is.
        group_size: channels of a group in the blocks' 3x3 convolutions.
        embedding: length of the embedding of the label.
        low_precision: as for the generator; what halves the resolution, and the change of width
            with it, belong to the higher one.
        num_classes: 0 for an unconditional discriminator.

    Raises:
        GanError: a resolution that cannot be judged, or an option that cannot be.
    """

    pure = True

    def __init__(
        self,
        shape: Sequence[int],
        *,
        width: int = 96,
        max_width: int | None = 768,
        depth: int = 2,
        expansion: int = 2,
        group_size: int = 16,
        embedding: int = 64,
        low_precision: int | None = None,
        num_classes: int = 0,
    ) -> None:
        super().__init__(shape, num_classes)
        at_least(1, embedding=embedding)
        n, base = doublings(shape)
        widths = ladder(width, max_width, n + 1)[::-1]
        stages: list[list[nn.Module]] = [[_scaled(nn.Conv2d(shape[0], widths[0], 1, bias=False))]]
        stages[0] += _blocks(widths[0], depth, len(widths), expansion, group_size)
        for narrow, wide in pairwise(widths):
            stages[-1] += [_Halve(), _resize(narrow, wide)]
            stages += [_blocks(wide, depth, len(widths), expansion, group_size)]
        self.layers = nn.Sequential(*chain(*stages))
        full = split(len(stages), low_precision)
        self.low = sum(map(len, stages[: len(stages) - full]))
        self.basis = nn.Parameter(torch.randn(widths[-1], *base) / math.sqrt(math.prod(base)))
        out = embedding if num_classes else 1
        self.linear = _scaled(nn.Linear(widths[-1], out, bias=False))
        self.embedding = nn.Embedding(num_classes, embedding) if num_classes else None
        if self.embedding is not None:
            nn.init.normal_(self.embedding.weight, 0.0, embedding**-0.5)

    def _logits(self, x: Tensor, labels: Tensor | None) -> Tensor:
        x = run(self.layers[: self.low], x, low=True)
        return run(self._end, x, labels, low=self.low == len(self.layers))

    def _end(self, x: Tensor, labels: Tensor | None) -> Tensor:
        """Through the resolutions that stay in fp32 to logits."""
        features: Tensor = self.linear((self.layers[self.low :](x) * self.basis).sum((2, 3)))
        if self.embedding is None:
            return features.squeeze(1)
        logits: Tensor = (features * self.embedding(labels)).sum(1)
        return logits


class _Double(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return double(x, boxes=2)


class _Halve(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return halve(x, boxes=2)


class _Block(nn.Module):
    """x + (1x1 wider, leaky ReLU, grouped 3x3, leaky ReLU, 1x1)(x); the identity at the start."""

    def __init__(self, channels: int, inner: int, groups: int, gain: float) -> None:
        super().__init__()
        self.widen = _scaled(nn.Conv2d(channels, inner, 1), gain)
        self.mix = _scaled(nn.Conv2d(inner, inner, 3, 1, 1, groups=groups), gain)
        self.narrow = _scaled(nn.Conv2d(inner, channels, 1, bias=False), 0.0)

    def forward(self, x: Tensor) -> Tensor:
        y = leaky_relu(self.widen(x), _SLOPE)
        y = self.narrow(leaky_relu(self.mix(y), _SLOPE))
        out: Tensor = x + y
        return out


def _blocks(
    channels: int, depth: int, resolutions: int, expansion: int, group_size: int
) -> list[nn.Module]:
    at_least(1, depth=depth, expansion=expansion, group_size=group_size)
    inner = channels * expansion
    if inner > group_size and inner % group_size:
        raise GanError(
            f"width: {channels} channels are {inner} inside a block, which is no multiple of the "
            f"group_size {group_size}; use a width that makes it one, or another group_size"
        )
    groups = max(1, inner // group_size)
    # Fixup: a block of 3 layers, of L blocks in a row, starts L^(-1 / (2 * 3 - 2)) smaller.
    gain = _LEAKY_GAIN * (depth * resolutions) ** -0.25
    return [_Block(channels, inner, groups, gain) for _ in range(depth)]


def _resize(channels: int, out: int) -> nn.Module:
    if channels == out:
        return nn.Identity()
    return _scaled(nn.Conv2d(channels, out, 1, bias=False))


def _scaled(layer: nn.Linear | nn.Conv2d, gain: float = 1.0) -> nn.Module:
    """Start with normal weights that scale a unit signal by `gain`, and without a bias."""
    nn.init.normal_(layer.weight, 0.0, gain / math.sqrt(layer.weight[0].numel()))
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer
