"""Layers with an equalised learning rate: unit weights, scaled when used.

Adam moves every weight by about the same length; so that this means the same for each layer,
its weights start with a standard deviation of 1, whatever its size.

Reference: Karras et al., 2018, arXiv:1710.10196, section 4.1.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, leaky_relu, linear, pad

from gan.errors import GanError
from gan.networks.resampling import blur


class EqualisedLinear(nn.Module):
    """Linear layer with weights of standard deviation 1 / rate, scaled by rate / sqrt(fan in)."""

    def __init__(
        self,
        channels: int,
        out: int,
        *,
        bias: float = 0.0,
        activated: bool = False,
        rate: float = 1.0,
    ) -> None:
        super().__init__()
        self.activated, self.rate = activated, rate
        self.weight = nn.Parameter(torch.randn(out, channels) / rate)
        self.bias = nn.Parameter(torch.full((out,), bias / rate))
        self.scale = rate / math.sqrt(channels)

    def forward(self, x: Tensor) -> Tensor:
        """Shape (batch, channels) to (batch, out)."""
        y = linear(x, self.weight * self.scale, self.bias * self.rate)
        return activate(y) if self.activated else y


class EqualisedConv(nn.Module):
    """Convolution with unit weights; with a bias also a leaky ReLU, and a limit if asked for."""

    def __init__(
        self,
        channels: int,
        out: int,
        kernel: int,
        *,
        bias: bool = True,
        downsample: bool = False,
        clamp: float | None = None,
    ) -> None:
        super().__init__()
        self.downsample, self.clamp = downsample, clamp
        self.weight = nn.Parameter(torch.randn(out, channels, kernel, kernel))
        self.bias = nn.Parameter(torch.zeros(out)) if bias else None
        self.scale = 1 / math.sqrt(channels * kernel**2)

    def forward(self, x: Tensor) -> Tensor:
        """Shape (batch, channels, height, width) to (batch, out, ...), half as large if asked."""
        weight = self.weight * self.scale
        if self.downsample:
            y = conv2d(blur(pad(x, (2, 2, 2, 2)), 3), weight, self.bias, stride=2)
        else:
            y = conv2d(x, weight, self.bias, padding=weight.shape[2] // 2)
        return y if self.bias is None else activate(y, self.clamp)


def activate(x: Tensor, clamp: float | None = None) -> Tensor:
    """Leaky ReLU that keeps the mean square of a normal input about 1.

    Args:
        x: of any shape.
        clamp: largest magnitude that comes out; None: no limit.

    Returns:
        Shape of `x`.
    """
    return limit(leaky_relu(x, 0.2) * math.sqrt(2), clamp)


def limit(x: Tensor, clamp: float | None) -> Tensor:
    """Clamp to [-clamp, clamp].

    Args:
        x: of any shape.
        clamp: the limit; None: none.

    Returns:
        Shape of `x`.
    """
    return x if clamp is None else x.clamp(-clamp, clamp)


def check_clamp(clamp: float | None) -> None:
    """Refuse a limit that leaves nothing.

    Args:
        clamp: as `limit` takes it.

    Raises:
        GanError: it is not above 0.
    """
    if clamp is not None and not clamp > 0:
        raise GanError(f"clamp: {clamp:g} is not above 0; None turns it off")


def unit(x: Tensor) -> Tensor:
    """Scale each row to a mean square of 1.

    Args:
        x: shape (batch, channels).

    Returns:
        Shape of `x`.
    """
    return x * torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-8)
