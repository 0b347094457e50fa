"""Differentiable augmentation: what the discriminator sees of real and generated images alike.

Few images are soon learned by heart. Changed at random, real and generated ones in the same ways,
they last longer, and the generator does not learn the changes as long as some images stay as they
are. Every number that decides a change is one example's own and comes from its `Chance`, so a
change does not depend on how the batch is cut. All is twice differentiable, which penalties with
respect to the images before augmentation need.

    diffaugment   colour, translation, cutout; Zhao et al., 2020, arXiv:2006.10738
    ada           flips, turns, scales and colours; Karras et al., 2020, arXiv:2006.06676
    ada-full      and frequencies, noise and cutout, which that paper found to be of little use
    r3gan         ada with colours half as often, and cutout; Huang et al., 2024, arXiv:2501.05441

The strength is the probability of each change: at 0 images pass untouched, at 1 all are changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gan.schedules import Schedule
from gan.warp import equalized, fetch, warp

if TYPE_CHECKING:
    from gan.chance import Chance

Transform = Callable[[Tensor, "Chance", float], Tensor]

WINDOW = 4
"""Updates of the discriminator between two moves of the adaptive strength, as in the paper."""


@dataclass
class Augmentation:
    """A transform and its present strength, which a schedule or a controller moves.

    The controller holds the mean sign of the real logits, a measure of how much the discriminator
    knows the training images by heart, near a target: above it the strength grows.

    Attributes:
        transform: one of `TRANSFORMS`, or any function of images, chance and strength.
        schedule: the strength over training; None: the controller moves it, from 0.
        target: of the mean sign of the real logits, in (-1, 1).
        speed: images over which the controller can move the strength from 0 to 1.
        strength: the present one, in [0, 1].

    Reference: Karras et al., 2020, arXiv:2006.06676, section 3.1 (r_t, target 0.6, 500k images).
    """

    transform: Transform
    schedule: Schedule | None = None
    target: float = 0.6
    speed: float = 500_000.0
    strength: float = 0.0
    _signs: Tensor | float = 0.0
    _images: int = 0
    _updates: int = 0

    def __call__(self, images: Tensor, chance: Chance) -> Tensor:
        """Augment images.

        Args:
            images: in [-1, 1], shape (batch, channels, height, width).
            chance: decides what happens to each.

        Returns:
            Same shape; the same tensor at strength 0.
        """
        return images if self.strength == 0 else self.transform(images, chance, self.strength)

    def follow(self, images_seen: int, total_images: int) -> None:
        """Before an update of the discriminator: the schedule's strength, if there is one.

        Args:
            images_seen: images seen so far.
            total_images: images of the whole run.
        """
        if self.schedule is not None:
            self.strength = self.schedule.at(images_seen, total_images)

    def adapt(self, sign: Tensor, images: int) -> None:
        """After an update of the discriminator: the controller's move, if there is no schedule.

        Args:
            sign: mean sign of the logits of this update's real images, on all processes.
            images: how many they were.
        """
        if self.schedule is not None:
            return
        self._signs, self._images = self._signs + sign.double(), self._images + images
        self._updates += 1
        if self._updates == WINDOW:
            excess = float(self._signs) / WINDOW - self.target
            move = math.copysign(self._images / self.speed, excess) if excess else 0.0
            self.strength = min(max(self.strength + move, 0.0), 1.0)
            self._signs, self._images, self._updates = 0.0, 0, 0

    def state_dict(self) -> dict[str, Any]:
        """Where the controller is."""
        return {
            "strength": self.strength,
            "signs": float(self._signs),
            "images": self._images,
            "updates": self._updates,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave.

        Args:
            state: a `state_dict`.
        """
        self.strength, self._signs = state["strength"], state["signs"]
        self._images, self._updates = state["images"], state["updates"]


def diff_augment(images: Tensor, chance: Chance, strength: float) -> Tensor:
    """Brightness, saturation, contrast, translation by an eighth, a square of a half cut out.

    At strength 1 all of them happen to every image, as in the paper.

    Args:
        images: in [-1, 1], shape (batch, channels, height, width); a fourth channel is no colour.
        chance: decides what happens to each.
        strength: probability of each change.

    Returns:
        Same shape.

    Reference: Zhao et al., 2020, arXiv:2006.10738, section 3.3.
    """
    u = chance.uniform("augment", 12).to(images.dtype)
    brightness, saturation, contrast, rows, columns, top, left = u[:, :7].unbind(1)
    light, colour, grey, moved, cut = u[:, 7:].unbind(1)
    pick = _Pick(strength)

    colours, rest = _colours(images)
    colours = colours + _per_image(pick(light, brightness - 0.5, 0.0))
    for dims, uniform, factor in (
        ((1,), colour, 2 * saturation),
        ((1, 2, 3), grey, contrast + 0.5),
    ):
        mean = colours.mean(dims, keepdim=True)
        stretched = mean + (colours - mean) * _per_image(factor)
        colours = torch.where(_per_image(uniform < strength), stretched, colours)
    images = torch.cat([colours, rest], 1)

    height, width = images.shape[2:]
    down, right = (
        pick(moved, ((2 * most + 1) * uniform).floor() - most, 0.0)  # each as often as another
        for most, uniform in ((round(height / 8), rows), (round(width / 8), columns))
    )
    return _cut_out(shifted(images, down, right), top, left, cut < strength)


@dataclass(frozen=True)
class Pipeline:
    """The transforms of ADA, in the paper's order.

    Where the paper turns images by quarters, those that are not square make half turns only.

    Attributes:
        geometry: multiplies the probability of flips, turns, translations and scales.
        colour: of brightness, contrast, inversion, hue and saturation.
        filtering: of amplifying each of four bands of spatial frequency.
        noise: of noise in every value.
        cutout: of a square of half the size, cut out.

    Reference: Karras et al., 2020, arXiv:2006.06676, appendix B.
    """

    geometry: float = 1.0
    colour: float = 1.0
    filtering: float = 0.0
    noise: float = 0.0
    cutout: float = 0.0

    def __call__(self, images: Tensor, chance: Chance, strength: float) -> Tensor:
        """Augment images.

        Args:
            images: in [-1, 1], shape (batch, channels, height, width).
            chance: decides what happens to each.
            strength: probability of each change, before the multipliers.

        Returns:
            Same shape and type; half precision is computed in single.
        """
        given, images = images.dtype, images.to(torch.promote_types(images.dtype, torch.float32))
        u = chance.uniform("augment", 24).to(images.dtype)
        n = chance.normal("augment size", 7).to(images.dtype)
        if self.geometry:
            pick = _Pick(strength * self.geometry)
            images = warp(images, *_geometry(images, u[:, :14], n[:, :4], pick))
        if self.colour:
            images = _recolour(images, u[:, 14:21], n[:, 4:], _Pick(strength * self.colour))
        if self.filtering:
            images = _refilter(images, chance, _Pick(strength * self.filtering))
        if self.noise:
            images = _add_noise(images, chance, _Pick(strength * self.noise))
        if self.cutout:
            top, left, cut = u[:, 21:].unbind(1)
            images = _cut_out(images, top, left, cut < strength * self.cutout)
        return images.to(given)


TRANSFORMS: dict[str, Transform] = {
    "diffaugment": diff_augment,
    "ada": Pipeline(),
    "ada-full": Pipeline(filtering=1.0, noise=1.0, cutout=1.0),
    "r3gan": Pipeline(colour=0.5, cutout=1.0),
}
"""The transforms by the name that the option `augment` takes."""


@dataclass(frozen=True)
class _Pick:
    """The changed value where a uniform number is below the probability, else exactly the other."""

    probability: float

    def __call__(self, uniform: Tensor, changed: Tensor, unchanged: float) -> Tensor:
        return torch.where(uniform < self.probability, changed, unchanged)


def _geometry(images: Tensor, u: Tensor, n: Tensor, pick: _Pick) -> tuple[Tensor, Tensor, Tensor]:
    """Where each output pixel comes from, as `warp` takes it.

    The moves in the paper's order, each around the centre: flip, turn, whole translation, scale,
    rotation, stretch, rotation, translation.
    """
    height, width = images.shape[2:]
    size = torch.tensor([width, height], dtype=u.dtype, device=u.device)
    flips, turns, moves, scales, rotates, stretches, rotates2, drifts = u[:, :8].unbind(1)
    flip, turn, angle, angle2 = u[:, 8:12].unbind(1)

    mirror = pick(flips, 1 - 2 * (flip < 0.5).to(u.dtype), 1.0)
    steps = (4 * turn).floor() if height == width else 2 * (2 * turn).floor()
    # Each of the two rotations comes so often that one of them comes with the probability.
    either = _Pick(1 - math.sqrt(1 - min(pick.probability, 1.0)))
    scale = pick(scales, torch.exp2(0.2 * n[:, 0]), 1.0)
    stretch = pick(stretches, torch.exp2(0.2 * n[:, 1]), 1.0)
    first = either(rotates, 2 * math.pi * angle, 0.0)
    second = either(rotates2, 2 * math.pi * angle2, 0.0)

    one = torch.ones_like(mirror)
    exact = _diagonal(mirror, one) @ _quarter_turns(pick(turns, steps, 0.0))
    whole = pick(moves[:, None], ((2 * u[:, 12:14] - 1) * size / 8).round(), 0.0)
    matrix = _diagonal(scale, scale) @ _rotation(first)
    matrix = matrix @ _diagonal(stretch, 1 / stretch) @ _rotation(second)
    drift = pick(drifts[:, None], n[:, 2:4] * size / 8, 0.0)
    return exact, matrix, whole + (matrix @ drift.unsqueeze(2)).squeeze(2)


def _recolour(images: Tensor, u: Tensor, n: Tensor, pick: _Pick) -> Tensor:
    """Brightness, contrast and inversion; with three colours also hue and saturation."""
    brightens, contrasts, inverts, turns, saturates, invert, hue = u.unbind(1)
    gain = pick(contrasts, torch.exp2(0.5 * n[:, 1]), 1.0)
    sign = pick(inverts, 1 - 2 * (invert < 0.5).to(u.dtype), 1.0)
    offset = pick(brightens, 0.2 * n[:, 0], 0.0) * gain * sign
    colours, rest = _colours(images)
    if colours.shape[1] < 3:
        return torch.cat([colours * _per_image(gain * sign) + _per_image(offset), rest], 1)
    angle = pick(turns, 2 * math.pi * hue, 0.0)
    saturation = pick(saturates, torch.exp2(n[:, 2]), 1.0)

    # The grey axis: inverted by a reflection, turned around by hue, kept by saturation.
    one = torch.eye(3, dtype=u.dtype, device=u.device)
    grey = torch.full_like(one, 1 / 3)
    cross = torch.tensor([[0, -1, 1], [1, 0, -1], [-1, 1, 0]], dtype=u.dtype, device=u.device)
    angle, saturation, sign = angle[:, None, None], saturation[:, None, None], sign[:, None, None]
    turned = angle.cos() * one + angle.sin() / math.sqrt(3) * cross + (1 - angle.cos()) * grey
    matrix = (saturation * one + (1 - saturation) * grey) @ turned @ (one + (sign - 1) * grey)
    matrix = matrix * gain[:, None, None]
    pixels = (matrix @ colours.flatten(2)).view_as(colours) + _per_image(offset)
    return torch.cat([pixels, rest], 1)


def _refilter(images: Tensor, chance: Chance, pick: _Pick) -> Tensor:
    """Amplify bands, each by 2^N in proportion to the others: the power of 1/f noise is kept."""
    u = chance.uniform("augment filter", 4).to(images.dtype)
    n = chance.normal("augment filter size", 4).to(images.dtype)
    power = torch.tensor([10, 1, 1, 1], dtype=u.dtype, device=u.device) / 13
    gains = 1 + torch.diag_embed(pick(u, torch.exp2(n), 1.0) - 1)  # a row for each amplified band
    gains = gains / (power * gains.square()).sum(2, keepdim=True).sqrt()
    some = _per_image((u < pick.probability).any(1))
    return torch.where(some, equalized(images, gains.prod(1)), images)


def _add_noise(images: Tensor, chance: Chance, pick: _Pick) -> Tensor:
    """Normal noise of a standard deviation that is itself half a normal number's: 0.1 |N|."""
    u = chance.uniform("augment noise").to(images.dtype)
    n = chance.normal("augment noise size", 1 + images[0].numel()).to(images.dtype)
    return images + _per_image(pick(u, 0.1 * n[:, 0].abs(), 0.0)) * n[:, 1:].view_as(images)


def flip_and_shift(images: Tensor, chance: Chance) -> Tensor:
    """Mirror with probability one half and translate by up to an eighth, mirrored at the borders.

    Args:
        images: shape (batch, channels, height, width).
        chance: decides what happens to each.

    Returns:
        Same shape.
    """
    flip, rows, columns = chance.uniform("flip and shift", 3).to(images.dtype).unbind(1)
    height, width = images.shape[2:]
    mirror = 1 - 2 * (flip < 0.5).to(images.dtype)
    offset = torch.stack(
        [((2 * columns - 1) * width / 8).round(), ((2 * rows - 1) * height / 8).round()], 1
    )
    return fetch(images, _diagonal(mirror, torch.ones_like(mirror)), offset)


def shifted(images: Tensor, down: Tensor, right: Tensor) -> Tensor:
    """Translate each image by whole pixels; zeros come in.

    Args:
        images: shape (batch, channels, height, width).
        down: whole numbers, shape (batch,).
        right: whole numbers, shape (batch,).

    Returns:
        Same shape.
    """
    for dim, shift in ((2, down), (3, right)):
        size = images.shape[dim]
        source = torch.arange(size, device=images.device) - shift.long()[:, None]
        shape = [len(source), 1, 1, 1]
        shape[dim] = size
        inside = (source == source.clamp(0, size - 1)).view(shape)
        index = source.clamp(0, size - 1).view(shape).expand_as(images)
        images = torch.where(inside, images.gather(dim, index), 0.0)
    return images


def _cut_out(images: Tensor, top: Tensor, left: Tensor, chosen: Tensor) -> Tensor:
    """Zero the pixels in a rectangle of half the height and width around a uniform centre."""
    height, width = images.shape[2:]
    y, x = ((torch.arange(size).to(top) + 0.5) / size for size in (height, width))
    rows, columns = (y - top[:, None]).abs() < 0.25, (x - left[:, None]).abs() < 0.25
    cut = rows[:, None, :, None] & columns[:, None, None, :] & _per_image(chosen)
    return torch.where(cut, 0.0, images)


def _colours(images: Tensor) -> tuple[Tensor, Tensor]:
    """Colour channels, and the others: the transparency of four."""
    return images[:, :3], images[:, 3:]


def _per_image(values: Tensor) -> Tensor:
    return values.view(-1, 1, 1, 1)


def _diagonal(first: Tensor, second: Tensor) -> Tensor:
    return torch.diag_embed(torch.stack([first, second], 1))


def _rotation(angle: Tensor) -> Tensor:
    rows = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], 1)
    return rows.view(-1, 2, 2)


def _quarter_turns(steps: Tensor) -> Tensor:
    """Rotation by multiples of 90 degrees, exactly."""
    cos = (steps - 2).abs() - 1  # 0, 1, 2, 3 to 1, 0, -1, 0
    sin = torch.where(steps == 1, 1.0, torch.where(steps == 3, -1.0, 0.0)).to(steps.dtype)
    return torch.stack([cos, -sin, sin, cos], 1).view(-1, 2, 2)
