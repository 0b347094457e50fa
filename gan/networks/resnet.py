"""Residual networks in the line of SNGAN, SAGAN and BigGAN.

Batch norm with a gain and a bias for each class in the generator, spectral norm and projection in
the discriminator, self-attention at one resolution if asked for.

Reference: Miyato et al., 2018, arXiv:1802.05957, appendix B.4; Miyato and Koyama, 2018,
arXiv:1802.05637; Zhang et al., 2019, arXiv:1805.08318; Brock et al., 2019, arXiv:1809.11096.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d, relu

from gan.errors import GanError
from gan.networks.interface import (
    Discriminator,
    Generator,
    ProjectionHead,
    at_least,
    doublings,
    ladder,
    one_of,
    spectrally_normalise,
)
from gan.networks.resampling import double, halve


class ResNetGenerator(Generator):
    """z to images in [-1, 1] by residual blocks that double the resolution.

    Args:
        shape: (channels, height, width); height and width 2^n * m with m at least 4.
        z_dim: length of z.
        width: channels at the image's resolution; they double as the resolution halves. The paper:
            64 at 128x128, 256 with max_width 256 at 32x32.
        max_width: most channels of any feature map.
        norm: batch (SNGAN), or spectral: batch norm, and spectral norm of the weights (SAGAN).
        attention: height of the feature map that attends to itself; None for none.
        num_classes: 0 for an unconditional generator.

    Raises:
        GanError: a resolution that cannot be made, or an option that cannot be.
    """

    def __init__(
        self,
        shape: Sequence[int],
        *,
        z_dim: int = 128,
        width: int = 64,
        max_width: int | None = 1024,
        norm: str = "batch",
        attention: int | None = None,
        num_classes: int = 0,
    ) -> None:
        super().__init__(shape, z_dim, num_classes)
        one_of("norm", norm, ("batch", "spectral"))
        n, base = doublings(shape)
        widths = ladder(width, max_width, n + 1)
        self.first = nn.Sequential(
            nn.Linear(z_dim, widths[0] * base[0] * base[1]), nn.Unflatten(1, (widths[0], *base))
        )
        blocks: list[nn.Module] = [_UpBlock(a, b, num_classes) for a, b in pairwise(widths)]
        heights = [base[0] << i for i in range(1, n + 1)]
        self.blocks = nn.ModuleList(_with_attention(blocks, widths[1:], heights, attention))
        self.norm = nn.BatchNorm2d(widths[-1])
        self.last = nn.Conv2d(widths[-1], shape[0], 3, 1, 1)
        _initialise(self)
        if norm == "spectral":
            spectrally_normalise(self)

    def _images(self, z: Tensor, labels: Tensor | None) -> Tensor:
        x = self.first(z)
        for block in self.blocks:
            x = block(x, labels)
        return torch.tanh(self.last(relu(self.norm(x))))


class ResNetDiscriminator(Discriminator):
    """Images to logits by residual blocks, most of which halve the resolution.

    Args:
        shape: (channels, height, width); height and width 2^n * m with m at least 4.
        width: channels of the first block; they double as the resolution halves. The paper: 64 at
            128x128, 128 with max_width 128 at 32x32.
        max_width: most channels of any feature map.
        norm: spectral or none.
        flat: how many of the n + 1 blocks keep the resolution, at the end. The paper: 1 at
            128x128, 2 at 32x32.
        attention: height of the feature map that attends to itself; None for none.
        num_classes: 0 for an unconditional discriminator.

    Raises:
        GanError: a resolution that cannot be judged, or an option that cannot be.
    """

    pure = True

    def __init__(
        self,
        shape: Sequence[int],
        *,
        width: int = 64,
        max_width: int | None = 1024,
        norm: str = "spectral",
        flat: int = 1,
        attention: int | None = None,
        num_classes: int = 0,
    ) -> None:
        super().__init__(shape, num_classes)
        one_of("norm", norm, ("spectral", "none"))
        n, _ = doublings(shape)
        at_least(1, flat=flat)
        if flat > n:
            raise GanError(f"flat: {flat} is above {n}, the doublings of {shape[1]}x{shape[2]}")
        halvings = n + 1 - flat
        widths = ladder(width, max_width, halvings)[::-1]
        widths += [widths[-1]] * flat
        blocks: list[nn.Module] = [
            _DownBlock(a, b, down=i < halvings, first=i == 0)
            for i, (a, b) in enumerate(pairwise((shape[0], *widths)))
        ]
        heights = [shape[1] >> min(i, halvings) for i in range(1, n + 2)]
        self.blocks = nn.Sequential(*_with_attention(blocks, widths, heights, attention))
        self.head = ProjectionHead(widths[-1], num_classes)
        _initialise(self)
        if norm == "spectral":
            spectrally_normalise(self)

    def _logits(self, x: Tensor, labels: Tensor | None) -> Tensor:
        features = relu(self.blocks(x)).sum((2, 3))
        logits: Tensor = self.head(features, labels)
        return logits


class _UpBlock(nn.Module):
    """(norm, ReLU, double, 3x3, norm, ReLU, 3x3) beside (1x1, double)."""

    def __init__(self, channels: int, out: int, num_classes: int) -> None:
        super().__init__()
        self.norm1 = _BatchNorm(channels, num_classes)
        self.conv1 = nn.Conv2d(channels, out, 3, 1, 1)
        self.norm2 = _BatchNorm(out, num_classes)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1)
        self.shortcut = nn.Conv2d(channels, out, 1)

    def forward(self, x: Tensor, labels: Tensor | None) -> Tensor:
        y = self.conv1(double(relu(self.norm1(x, labels))))
        y = self.conv2(relu(self.norm2(y, labels)))
        # The 1x1 convolution and the doubling commute; in this order they are cheaper.
        out: Tensor = y + double(self.shortcut(x))
        return out


class _DownBlock(nn.Module):
    """(ReLU, 3x3, ReLU, 3x3, halve) beside (halve, 1x1); the first block starts without ReLU."""

    def __init__(self, channels: int, out: int, *, down: bool, first: bool) -> None:
        super().__init__()
        self.down, self.first = down, first
        self.conv1 = nn.Conv2d(channels, out, 3, 1, 1)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1)
        learned = down or channels != out
        self.shortcut = nn.Conv2d(channels, out, 1) if learned else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv2(relu(self.conv1(x if self.first else relu(x))))
        if self.down:
            x, y = halve(x), halve(y)
        out: Tensor = y + self.shortcut(x)
        return out


class _BatchNorm(nn.Module):
    """Batch norm whose gain and bias depend on the class, if there are classes.

    Reference: Dumoulin et al., 2017, arXiv:1610.07629, eq. 5, for batch norm.
    """

    def __init__(self, channels: int, num_classes: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels, affine=num_classes == 0)
        if num_classes:
            self.gain = nn.Parameter(torch.ones(num_classes, channels, 1, 1))
            self.bias = nn.Parameter(torch.zeros(num_classes, channels, 1, 1))

    def forward(self, x: Tensor, labels: Tensor | None) -> Tensor:
        y: Tensor = self.norm(x)
        return y if labels is None else y * self.gain[labels] + self.bias[labels]


class _SelfAttention(nn.Module):
    """x + strength * attention(x), strength 0 at the start; keys and values at half resolution.

    Reference: Zhang et al., 2019, arXiv:1805.08318, section 3.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        narrow, half = max(1, channels // 8), max(1, channels // 2)
        self.query = nn.Conv2d(channels, narrow, 1, bias=False)
        self.key = nn.Conv2d(channels, narrow, 1, bias=False)
        self.value = nn.Conv2d(channels, half, 1, bias=False)
        self.out = nn.Conv2d(half, channels, 1, bias=False)
        self.strength = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor, _: Tensor | None = None) -> Tensor:
        query = self.query(x).flatten(2)  # (batch, narrow, height * width)
        key = max_pool2d(self.key(x), 2).flatten(2)
        value = max_pool2d(self.value(x), 2).flatten(2)
        # Written out, since the fused attention cannot be differentiated twice.
        weights = torch.softmax(query.transpose(1, 2) @ key, dim=2)
        attended = (value @ weights.transpose(1, 2)).view(x.shape[0], -1, *x.shape[2:])
        change: Tensor = self.strength * self.out(attended)
        return x + change


def _with_attention(
    blocks: Sequence[nn.Module], widths: Sequence[int], heights: Sequence[int], height: int | None
) -> list[nn.Module]:
    """Put self-attention behind the first block whose feature map has the height."""
    if height is None:
        return list(blocks)
    if height not in heights:
        raise GanError(
            f"attention: no feature map is {height} pixels high; "
            f"there are {', '.join(map(str, dict.fromkeys(heights)))}"
        )
    after = heights.index(height)
    return [*blocks[: after + 1], _SelfAttention(widths[after]), *blocks[after + 1 :]]


def _initialise(network: nn.Module) -> None:
    """Glorot's uniform weights, sqrt(2) wider where a ReLU comes before them inside a block."""
    for layer in network.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            residual = isinstance(layer, nn.Conv2d) and layer.kernel_size == (3, 3)
            nn.init.xavier_uniform_(layer.weight, math.sqrt(2) if residual else 1.0)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
