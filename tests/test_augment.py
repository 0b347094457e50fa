"""Augmentation: exact where it does nothing, differentiable twice, one example's own affair."""

from __future__ import annotations

import math
import typing

import pytest
import torch

from gan.augment import (
    TRANSFORMS,
    Augmentation,
    Pipeline,
    diff_augment,
    flip_and_shift,
    shifted,
)
from gan.chance import Chance
from gan.config import Config
from gan.penalties import r1_penalty
from gan.schedules import Schedule

SHAPES = [(1, 8, 8), (3, 8, 8), (4, 8, 12)]


def chance(batch: int, start: int = 0) -> Chance:
    return Chance(("augment",), start, start + batch)


@pytest.fixture(params=TRANSFORMS)
def transform(request):
    return TRANSFORMS[request.param]


@pytest.mark.parametrize("shape", SHAPES)
def test_strength_0_is_the_identity(transform, shape):
    images = torch.randn(6, *shape)
    assert Augmentation(transform, strength=0.0)(images, chance(6)) is images
    assert torch.equal(transform(images, chance(6), 0.0), images)


@pytest.mark.parametrize("shape", SHAPES)
def test_strength_1_changes_every_image_and_a_little_leaves_most_of_them(transform, shape):
    images = torch.randn(64, *shape)

    def unchanged(strength):
        changed = transform(images, chance(64), strength)
        assert changed.shape == images.shape
        assert changed.isfinite().all()
        return sum(torch.equal(a, b) for a, b in zip(images, changed, strict=True))

    assert unchanged(1.0) == 0
    assert 30 <= unchanged(0.02) <= 63  # bitwise, beside images that are changed


def test_an_images_change_is_its_own_however_the_batch_is_cut(transform):
    images = torch.randn(24, 3, 8, 8)
    whole = transform(images, chance(24), 0.7)
    parts = [transform(images[i : i + 8], chance(8, i), 0.7) for i in (0, 8, 16)]
    torch.testing.assert_close(torch.cat(parts), whole)
    assert not torch.equal(whole[:8], transform(images[:8], chance(8, 8), 0.7))


def test_no_numbers_are_drawn_twice(transform):
    # Normal numbers of the same role as uniform ones are made of the same bits.
    roles = []

    class Noting(Chance):
        def _draw(self, draw, role, shape):
            roles.append(role)
            return super()._draw(draw, role, shape)

    transform(torch.randn(2, 3, 8, 8), Noting(("augment",), 0, 2), 0.5)
    assert roles
    assert len(set(roles)) == len(roles)


def test_gradients_are_exact_twice(transform):
    images = torch.randn(3, 3, 4, 4, dtype=torch.float64, requires_grad=True)

    def change(x):
        return transform(x, chance(3), 0.8)

    assert torch.autograd.gradcheck(change, images)
    assert torch.autograd.gradgradcheck(lambda x: change(x).square(), images)


def test_the_penalty_of_a_linear_critic_goes_through_the_augmentation():
    # D(x) = w . shifted(x) has the gradient w shifted back: its norm loses what left the image.
    weight = torch.randn(1, 4, 4, requires_grad=True)
    down, right = torch.tensor([0.0, 1.0]), torch.tensor([0.0, 0.0])
    values = r1_penalty(
        lambda x: (weight * shifted(x, down, right)).flatten(1).sum(1), torch.randn(2, 1, 4, 4)
    )
    expected = [weight.square().sum(), weight[:, 1:].square().sum()]
    torch.testing.assert_close(values, torch.stack(expected))
    (gradient,) = torch.autograd.grad(values[1], weight)
    assert not gradient[:, 0].any()


def test_transparency_keeps_its_values():
    images = torch.cat([torch.randn(32, 3, 8, 8), torch.full((32, 1, 8, 8), 0.25)], 1)
    for changed in (
        diff_augment(images, chance(32), 1.0),
        Pipeline(geometry=1.0, colour=1.0)(images, chance(32), 1.0),
    ):
        alpha = changed[:, 3]
        assert ((alpha - 0.25).abs().minimum(alpha.abs()) < 1e-6).all()  # itself, or cut out


def test_moves_of_whole_pixels_are_exact():
    image = torch.arange(16.0).view(1, 1, 4, 4)
    down, right = torch.tensor([1]), torch.tensor([-2])
    expected = torch.zeros(4, 4)
    expected[1:, :2] = image[0, 0, :3, 2:]
    assert torch.equal(shifted(image, down, right)[0, 0], expected)
    values = set(flip_and_shift(image.expand(64, -1, -1, -1), chance(64)).flatten().tolist())
    assert values == set(image.flatten().tolist())  # fetched, never mixed


def test_geometry_keeps_colours_and_colours_keep_places():
    flat = torch.randn(16, 3, 1, 1).expand(-1, -1, 8, 8)
    torch.testing.assert_close(Pipeline(colour=0.0)(flat, chance(16), 1.0), flat)
    recoloured = Pipeline(geometry=0.0)(flat, chance(16), 1.0)
    assert (recoloured.std((2, 3)) < 1e-6).all()
    assert not torch.equal(recoloured, flat)


def test_the_geometry_is_what_the_paper_draws():
    # A picture that is its own horizontal position: what comes out shows where it came from.
    size, count = 32, 2000
    ramp = (torch.arange(size) - (size - 1) / 2).expand(1, 1, size, size)
    images = ramp.expand(count, -1, -1, -1)
    out = Pipeline(colour=0.0)(images, chance(count), 1.0)
    centre = out[:, 0, size // 2 - 1 : size // 2 + 1, size // 2 - 1 : size // 2 + 1]
    slope = torch.stack(
        [(centre[:, :, 1] - centre[:, :, 0]).mean(1), (centre[:, 1] - centre[:, 0]).mean(1)], 1
    )
    zoom = slope.norm(dim=1).log2().abs()  # flips and turns change its direction only
    assert zoom.median() == pytest.approx(0.2, abs=0.08)  # scale and stretch of 2^(0.2 N)
    moved = centre.mean((1, 2)).abs() / size
    assert moved.mean() == pytest.approx(math.sqrt(0.125**2 / 3 + 0.125**2) * 0.8, rel=0.25)
    angles = torch.atan2(slope[:, 1], slope[:, 0])
    counts = torch.histc(angles, 8, -math.pi, math.pi) / count
    assert counts.min() > 0.09  # any direction, about equally often


def test_a_strength_is_how_often_each_change_comes():
    images = torch.randn(4000, 1, 4, 4)
    changed = Pipeline(geometry=0.0, colour=0.0, cutout=1.0)(images, chance(4000), 0.3)
    share = (changed != images).flatten(1).any(1).float().mean()
    assert share == pytest.approx(0.3, abs=0.03)
    left = (changed[(changed != images).flatten(1).any(1)] == 0).float().mean()
    assert 0.12 < left <= 0.26  # a quarter, less at the borders


def test_filtering_keeps_the_power_of_natural_images():
    # What is flat is amplified by the lowest band's gain, a checkerboard by the highest one's.
    count, size = 4000, 8
    flat = torch.ones(count, 1, size, size)
    checkered = flat * (torch.arange(size)[:, None] + torch.arange(size)).remainder(2).mul(2).sub(1)
    only = Pipeline(geometry=0.0, colour=0.0, filtering=1.0)
    low, high = (
        (only(images, chance(count), 0.05) / images).double().mean((1, 2, 3))
        for images in (flat, checkered)
    )  # squared gains, since both directions are filtered
    changed = low != 1
    assert changed.float().mean() == pytest.approx(1 - 0.95**4, abs=0.02)
    lowest = (10 * low + 3 * high - 13).abs() < 1e-3  # the power of the bands is 10, 1, 1 and 1
    highest = (12 * low + high - 13).abs() < 1e-3
    between = (low - high).abs() < 1e-3
    counts = torch.stack([x[changed].float().mean() for x in (lowest, highest, between)])
    torch.testing.assert_close(counts, torch.tensor([0.24, 0.24, 0.47]), atol=0.05, rtol=0)
    ratio = (low / high)[changed & lowest & ~between].log2() / 2
    assert ratio.std() == pytest.approx(1, abs=0.15)  # amplified by 2^N


def test_noise_has_a_deviation_of_its_own():
    images = torch.randn(2000, 3, 8, 8, dtype=torch.float64)
    noise = Pipeline(geometry=0.0, colour=0.0, noise=1.0)(images, chance(2000), 0.4) - images
    deviations = noise.flatten(1).std(1)
    noisy = deviations > 0
    assert noisy.float().mean() == pytest.approx(0.4, abs=0.03)
    assert deviations[noisy].square().mean().sqrt() == pytest.approx(0.1, abs=0.005)
    assert deviations[noisy].mean() == pytest.approx(0.1 * math.sqrt(2 / math.pi), abs=0.005)
    standard = noise[noisy] / deviations[noisy][:, None, None, None]
    assert standard.mean((0,)).abs().max() < 0.15  # another number in each value


def test_cutout_treats_both_directions_alike():
    images = torch.ones(6000, 1, 6, 5)
    kept = Pipeline(geometry=0.0, colour=0.0, cutout=1.0)(images, chance(6000), 1.0)[:, 0]
    rows, columns = 1 - kept.amin(2).mean(0), 1 - kept.amin(1).mean(0)
    for share in (rows, columns):
        torch.testing.assert_close(share, share.flip(0), atol=0.03, rtol=0)
        assert share.max() == pytest.approx(0.5, abs=0.03)


def test_half_precision_is_computed_in_single():
    images = torch.randn(8, 3, 32, 32).bfloat16()
    changed = TRANSFORMS["ada-full"](images, chance(8), 1.0)
    assert changed.dtype == torch.bfloat16
    single = TRANSFORMS["ada-full"](images.float(), chance(8), 1.0)
    assert torch.equal(changed, single.bfloat16())


def test_the_options_name_every_transform():
    names = typing.get_args(typing.get_type_hints(Config)["augment"])
    assert set(names) == {"none", *TRANSFORMS}


# --- the strength --------------------------------------------------------------------------------


def test_the_controller_moves_every_fourth_update_by_images_over_speed():
    augmentation = Augmentation(TRANSFORMS["ada"], target=0.6, speed=1000)
    for _ in range(7):
        augmentation.follow(0, 1)
        augmentation.adapt(torch.tensor(0.7), 50)
    assert augmentation.strength == pytest.approx(200 / 1000)
    augmentation.adapt(torch.tensor(-3.0), 50)  # the mean of four is below the target
    assert augmentation.strength == 0.0
    for _ in range(40):
        augmentation.adapt(torch.tensor(1.0), 200)
    assert augmentation.strength == 1.0


def test_the_controller_goes_on_where_it_was():
    signs = torch.rand(13) + 0.3
    one = Augmentation(TRANSFORMS["ada"], speed=500)
    for sign in signs:
        one.adapt(sign, 32)
    other = Augmentation(TRANSFORMS["ada"], speed=500)
    for sign in signs[:6]:
        other.adapt(sign, 32)
    state = other.state_dict()
    other = Augmentation(TRANSFORMS["ada"], speed=500)
    other.load_state_dict(state)
    for sign in signs[6:]:
        other.adapt(sign, 32)
    assert one.state_dict() == other.state_dict()
    assert 0 < one.strength < 1


def test_a_schedule_leaves_nothing_to_the_controller():
    augmentation = Augmentation(TRANSFORMS["ada"], Schedule.parse("0..0.5,to=50%"))
    strengths = []
    for images_seen in (0, 25, 50, 100):
        augmentation.follow(images_seen, 100)
        augmentation.adapt(torch.tensor(1.0), 10_000_000)
        strengths.append(augmentation.strength)
    assert strengths == [0.0, 0.25, 0.5, 0.5]
