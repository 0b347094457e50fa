"""StyleGAN2 in plain PyTorch operations.

The generator maps z to a style w, which scales the channels of every convolution; its images are
the sum of what each resolution adds. The discriminator is residual and compares the images of a
batch. Weights are normal with a standard deviation of 1 and scaled when used (equalised).

Reference: Karras et al., 2020, arXiv:1912.04958; Karras et al., 2019, arXiv:1812.04948 (mapping,
style mixing, truncation, noise); Karras et al., 2018, arXiv:1710.10196 (equalised learning rate,
standard deviation of the batch).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, conv_transpose2d, linear, pad

from gan.errors import GanError
from gan.networks.equalised import (
    EqualisedConv,
    EqualisedLinear,
    activate,
    check_clamp,
    limit,
    unit,
)
from gan.networks.interface import Discriminator, Generator, at_least, doublings, ladder
from gan.networks.precision import run, split
from gan.networks.resampling import blur, double, halve


class StyleGAN2Generator(Generator):
    """z to images about [-1, 1], without a tanh: mapping network, then synthesis network.

    While it trains, it draws from torch's global random generator: noise for every convolution,
    and other styles to mix in. In eval mode the noise is fixed and nothing is mixed, so that a
    latent is one image.

    Args:
        shape: (channels, height, width); height and width 2^n * m with m at least 4.
        z_dim: length of z.
        width: channels at the image's resolution; they double as the resolution halves. 64 at
            256x256 is the usual network there, of 24.8 million parameters (arXiv:2006.06676).
        max_width: most channels of any feature map.
        style_dim: length of w.
        mapping_layers: layers of the mapping network.
        style_mixing: how often an image of the training takes its finer resolutions from another
            style, a probability.
        low_precision: highest resolutions that follow `mixed_precision`, never the lowest; the
            others stay in fp32. None: all of them. The mapping network, the styles and the sum of
            the images are always in fp32. arXiv:2006.06676: 4.
        clamp: largest magnitude that leaves a convolution, so that fp16 does not overflow; None:
            no limit. arXiv:2006.06676: 256, with low precision.
        num_classes: 0 for an unconditional generator.

    Attributes:
        mapping: (z, labels) to w, shape (batch, style_dim).
        synthesis: styles, shape (batch, synthesis.num_styles, style_dim), to images.
        average_style: running mean of w over the training, shape (style_dim,).

    Raises:
        GanError: a resolution that cannot be made, or an option that cannot be.
    """

    average_style: Tensor

    def __init__(
        self,
        shape: Sequence[int],
        *,
        z_dim: int = 512,
        width: int = 64,
        max_width: int | None = 512,
        style_dim: int = 512,
        mapping_layers: int = 8,
        style_mixing: float = 0.9,
        low_precision: int | None = None,
        clamp: float | None = None,
        num_classes: int = 0,
    ) -> None:
        super().__init__(shape, z_dim, num_classes)
        check_clamp(clamp)
        at_least(1, style_dim=style_dim, mapping_layers=mapping_layers)
        if not 0 <= style_mixing <= 1:
            raise GanError(f"style_mixing: {style_mixing:g} is no probability")
        self.style_mixing = style_mixing
        self.mapping = Mapping(z_dim, style_dim, mapping_layers, num_classes)
        widths = ladder(width, max_width, doublings(shape)[0] + 1)
        self.synthesis = Synthesis(shape, widths, style_dim, low_precision, clamp)
        self.register_buffer("average_style", torch.zeros(style_dim))

    def forward(
        self, z: Tensor, labels: Tensor | None = None, *, truncation: float = 1.0
    ) -> Tensor:
        """Make images.

        Args:
            z: standard normal, shape (batch, z_dim).
            labels: int64, shape (batch,); None if and only if the network has no classes.
            truncation: how far from the average style to go: 1 all the way, 0 not at all.

        Returns:
            Images about [-1, 1], shape (batch, *shape).

        Raises:
            ValueError: inputs of another shape, or labels that do not fit `num_classes`.
        """
        self._check(z, labels)
        w = run(self.mapping, z, labels, low=False)
        if self.training:
            self.average_style.lerp_(w.detach().mean(0).to(self.average_style), 0.005)
        if truncation != 1:
            w = self.average_style + truncation * (w - self.average_style)
        styles = w.unsqueeze(1).expand(-1, self.synthesis.num_styles, -1)
        if self.training and self.style_mixing:
            styles = self._mixed(styles, torch.randn_like(z), labels)
        images: Tensor = self.synthesis(styles)
        return images

    def _mixed(self, styles: Tensor, z: Tensor, labels: Tensor | None) -> Tensor:
        """Let some of the images take the styles from a random layer on from another z."""
        batch, layers, _ = styles.shape
        other = run(self.mapping, z, labels, low=False).unsqueeze(1)
        start = torch.randint(1, layers, (batch, 1), device=styles.device)
        mixes = torch.rand(batch, 1, device=styles.device) < self.style_mixing
        replaced = mixes & (torch.arange(layers, device=styles.device) >= start)
        return torch.where(replaced.unsqueeze(2), other, styles)


class StyleGAN2Discriminator(Discriminator):
    """Images to logits by residual blocks; classes by projection.

    Args:
        shape: (channels, height, width); height and width 2^n * m with m at least 4.
        width: channels at the image's resolution; they double as the resolution halves.
        max_width: most channels of any feature map.
        group_size: consecutive images whose standard deviation the discriminator sees. Where the
            batch is no multiple of it, the largest divisor of the batch below it.
        low_precision: as for the generator; a block belongs to the resolution that it halves, the
            head to the lowest.
        clamp: as for the generator.
        num_classes: 0 for an unconditional discriminator.

    Raises:
        GanError: a resolution that cannot be judged, or an option that cannot be.

    Reference: the projection as in Karras et al., 2020, arXiv:2006.06676. Unlike there, the label
    is embedded by one layer.
    """

    def __init__(
        self,
        shape: Sequence[int],
        *,
        width: int = 64,
        max_width: int | None = 512,
        group_size: int = 4,
        low_precision: int | None = None,
        clamp: float | None = None,
        num_classes: int = 0,
    ) -> None:
        super().__init__(shape, num_classes)
        check_clamp(clamp)
        at_least(1, group_size=group_size)
        n, base = doublings(shape)
        widths = ladder(width, max_width, n + 1)[::-1]
        last = widths[-1]
        self.layers = nn.Sequential(
            EqualisedConv(shape[0], widths[0], 1, clamp=clamp),
            *[_DownBlock(narrow, wide, clamp) for narrow, wide in pairwise(widths)],
            _BatchDeviation(group_size),
            EqualisedConv(last + 1, last, 3, clamp=clamp),
            nn.Flatten(),
            EqualisedLinear(last * base[0] * base[1], last, activated=True),
            EqualisedLinear(last, last if num_classes else 1),
        )
        full = split(n + 1, low_precision, least=1)
        # One layer from the pixels, a block for each resolution but the lowest, the head.
        self.low = n + 2 - full if full else len(self.layers)
        self.embedding = nn.Embedding(num_classes, last) if num_classes else None

    def _logits(self, x: Tensor, labels: Tensor | None) -> Tensor:
        x = run(self.layers[: self.low], x, low=True)
        features: Tensor = run(self.layers[self.low :], x, low=False)
        if self.embedding is None:
            return features.squeeze(1)
        label = unit(self.embedding(labels))
        return (features * label).sum(1) / math.sqrt(features.shape[1])


class Mapping(nn.Module):
    """z, and an embedding of the label beside it, to the style w."""

    def __init__(self, z_dim: int, style_dim: int, layers: int, num_classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_classes, style_dim) if num_classes else None
        features = z_dim + (style_dim if num_classes else 0)
        widths = [features] + [style_dim] * layers
        self.layers = nn.Sequential(
            *[EqualisedLinear(a, b, activated=True, rate=0.01) for a, b in pairwise(widths)]
        )

    def forward(self, z: Tensor, labels: Tensor | None = None) -> Tensor:
        """Shape (batch, z_dim) to (batch, style_dim)."""
        x = unit(z)
        if self.embedding is not None:
            x = torch.cat([x, unit(self.embedding(labels))], 1)
        w: Tensor = self.layers(x)
        return w


class Synthesis(nn.Module):
    """A learned constant to images, by convolutions that the styles modulate.

    Attributes:
        num_styles: how many layers each have a style of their own.
    """

    def __init__(
        self,
        shape: Sequence[int],
        widths: Sequence[int],
        style_dim: int,
        low_precision: int | None = None,
        clamp: float | None = None,
    ) -> None:
        super().__init__()
        self.full = split(len(widths), low_precision, least=1)
        channels, height, width = shape
        n = len(widths) - 1
        sizes = [(height >> i, width >> i) for i in reversed(range(n + 1))]
        self.constant = nn.Parameter(torch.randn(widths[0], *sizes[0]))
        styled = partial(_StyledConv, style_dim=style_dim, clamp=clamp)
        self.convolutions = nn.ModuleList([styled(widths[0], widths[0], sizes[0])])
        for (a, b), size in zip(pairwise(widths), sizes[1:], strict=True):
            self.convolutions.append(styled(a, b, size, upsample=True))
            self.convolutions.append(styled(b, b, size))
        self.to_pixels = nn.ModuleList(
            _ToPixels(each, channels, style_dim, clamp) for each in widths
        )
        self.num_styles = 2 * n + 2

    def forward(self, styles: Tensor) -> Tensor:
        """Styles of shape (batch, num_styles, style_dim) to images of shape (batch, *shape)."""
        w = styles.unbind(1)
        x = self.constant.expand(styles.shape[0], -1, -1, -1)
        x = run(self.convolutions[0], x, w[0], low=self.full == 0)
        images: Tensor = run(self.to_pixels[0], x, w[1], low=self.full == 0).float()
        for i, to_pixels in enumerate(self.to_pixels[1:], start=1):
            low = i >= self.full
            x = run(self.convolutions[2 * i - 1], x, w[2 * i - 1], low=low)
            x = run(self.convolutions[2 * i], x, w[2 * i], low=low)
            images = double(images, boxes=3) + run(to_pixels, x, w[2 * i + 1], low=low)
        return images


class _ModulatedConv(nn.Module):
    """Convolution whose kernel a style scales, for each image and input channel.

    With `demodulate` each output channel is divided by the norm of its scaled kernel. Scaling
    the input and the output does the same with one shared kernel. The size of the style and of
    the kernel then cancels, so they are first made small enough for fp16.

    Reference: Karras et al., 2020, arXiv:1912.04958, eqs. 1 and 3; arXiv:2006.06676 for fp16.
    """

    def __init__(
        self,
        channels: int,
        out: int,
        kernel: int,
        style_dim: int,
        *,
        demodulate: bool = True,
        upsample: bool = False,
    ) -> None:
        super().__init__()
        self.demodulate, self.upsample = demodulate, upsample
        self.style = EqualisedLinear(style_dim, channels, bias=1.0)
        self.weight = nn.Parameter(torch.randn(out, channels, kernel, kernel))
        self.scale = 1 / math.sqrt(channels * kernel**2)

    def forward(self, x: Tensor, w: Tensor) -> Tensor:
        style, weight, demodulation = run(self._factors, w, low=False)
        x = x * style[:, :, None, None].to(x.dtype)
        if self.upsample:
            x = conv_transpose2d(x, weight.transpose(0, 1), stride=2)  # 2 height + 1
            x = 4 * blur(pad(x, (1, 1, 1, 1)), 3)  # three quarters of its input are zeros
        else:
            x = conv2d(x, weight, padding=weight.shape[2] // 2)
        return x if demodulation is None else x * demodulation[:, :, None, None].to(x.dtype)

    def _factors(self, w: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """What scales the input, shape (batch, channels), the kernel, what scales the output."""
        style: Tensor = self.style(w)
        if not self.demodulate:
            return style, self.weight * self.scale, None
        # Any number would do for both, so that no gradient has to pass through them.
        style = style / _largest(style, (1,))
        weight = self.weight * (self.scale / _largest(self.weight, (1, 2, 3)))
        squares = linear(style.square(), weight.square().sum((2, 3)))  # (batch, out)
        return style, weight, torch.rsqrt(squares + 1e-8)


def _largest(x: Tensor, dim: tuple[int, ...]) -> Tensor:
    return x.detach().abs().amax(dim, keepdim=True).clamp_min(1e-8)


class _StyledConv(nn.Module):
    """3x3 modulated convolution, noise, bias, leaky ReLU."""

    noise: Tensor

    def __init__(
        self,
        channels: int,
        out: int,
        size: tuple[int, int],
        *,
        style_dim: int,
        clamp: float | None,
        upsample: bool = False,
    ) -> None:
        super().__init__()
        self.clamp = clamp
        self.conv = _ModulatedConv(channels, out, 3, style_dim, upsample=upsample)
        self.bias = nn.Parameter(torch.zeros(out, 1, 1))
        self.strength = nn.Parameter(torch.zeros(()))
        self.register_buffer("noise", torch.randn(size))

    def forward(self, x: Tensor, w: Tensor) -> Tensor:
        x = self.conv(x, w)
        noise = torch.randn_like(x[:, :1]) if self.training else self.noise.to(x.dtype)
        return activate(x + self.strength * noise + self.bias.to(x.dtype), self.clamp)


class _ToPixels(nn.Module):
    """1x1 modulated convolution to the channels of the images."""

    def __init__(self, channels: int, out: int, style_dim: int, clamp: float | None) -> None:
        super().__init__()
        self.clamp = clamp
        self.conv = _ModulatedConv(channels, out, 1, style_dim, demodulate=False)
        self.bias = nn.Parameter(torch.zeros(out, 1, 1))

    def forward(self, x: Tensor, w: Tensor) -> Tensor:
        x = self.conv(x, w)
        return limit(x + self.bias.to(x.dtype), self.clamp)


class _DownBlock(nn.Module):
    """(3x3, blur, 3x3 at stride 2) beside (halve, 1x1), divided by sqrt(2)."""

    def __init__(self, channels: int, out: int, clamp: float | None) -> None:
        super().__init__()
        self.conv1 = EqualisedConv(channels, channels, 3, clamp=clamp)
        self.conv2 = EqualisedConv(channels, out, 3, downsample=True, clamp=clamp)
        self.shortcut = EqualisedConv(channels, out, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv2(self.conv1(x))
        out: Tensor = (y + self.shortcut(halve(x, boxes=3))) / math.sqrt(2)
        return out


class _BatchDeviation(nn.Module):
    """Append one feature map: the standard deviation over a group of images, averaged.

    A generator that always makes the same image gives itself away. Groups are consecutive, so
    micro-batches that are multiples of the group see what the whole batch sees.

    Reference: Karras et al., 2018, arXiv:1710.10196, section 3.
    """

    def __init__(self, group_size: int) -> None:
        super().__init__()
        self.group_size = group_size

    def forward(self, x: Tensor) -> Tensor:
        batch = x.shape[0]
        group = max(size for size in range(1, self.group_size + 1) if batch % size == 0)
        groups = x.reshape(batch // group, group, *x.shape[1:])
        variance = groups.var(1, correction=0)
        deviation = torch.sqrt(variance + 1e-8).mean((1, 2, 3))
        extra = deviation.unsqueeze(1).expand(-1, group).reshape(batch, 1, 1, 1)
        return torch.cat([x, extra.expand(-1, 1, *x.shape[2:]).to(x.dtype)], 1)
