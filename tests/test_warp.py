"""Moves and filters of images, held against their closed forms."""

from __future__ import annotations

import math

import pytest
import torch

from gan.warp import SYM6, equalized, fetch, warp

SIZES = [(8, 8), (9, 6), (2, 3), (1, 5), (1, 1)]
ONE = torch.eye(2, dtype=torch.float64)[None]
MIRROR = torch.diag(torch.tensor([-1.0, 1.0]).double())[None]


def randn(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def offset(x, y, batch=1):
    return torch.tensor([[x, y]], dtype=torch.float64).expand(batch, -1)


def rotation(angle):
    cos, sin = math.cos(angle), math.sin(angle)
    return torch.tensor([[[cos, -sin], [sin, cos]]], dtype=torch.float64)


def places(size):
    """Horizontal and vertical places of a square's pixels, from its centre."""
    axis = torch.arange(size, dtype=torch.float64) - (size - 1) / 2
    return axis.expand(size, size), axis[:, None].expand(size, size)


def test_the_filter_is_the_symlet_with_six_vanishing_moments():
    taps = torch.tensor(SYM6, dtype=torch.float64)
    assert taps.sum().item() == pytest.approx(math.sqrt(2), abs=1e-12)
    assert taps.square().sum().item() == pytest.approx(1, abs=1e-11)
    for shift in range(2, 12, 2):
        assert (taps[shift:] * taps[:-shift]).sum().item() == pytest.approx(0, abs=1e-11)
    index = torch.arange(12) - 5.5
    high = taps * (-1) ** torch.arange(12)
    moments = [(high * index**power).sum().item() for power in range(7)]
    assert moments[:6] == pytest.approx([0] * 6, abs=1e-9)
    assert abs(moments[6]) > 1


@pytest.mark.parametrize("size", SIZES)
def test_up_and_down_again_gives_the_image_back(size):
    for dtype, error in ((torch.float64, 1e-10), (torch.float32, 1e-5)):
        images, one = randn(2, 3, *size).to(dtype), ONE.expand(2, -1, -1).to(dtype)
        # Hardly an offset, but the filters are in: without any, nothing is filtered at all.
        back = warp(images, one, one, torch.full((2, 2), 1e-13, dtype=dtype))
        assert back.dtype == dtype
        torch.testing.assert_close(back, images, atol=error, rtol=0)


@pytest.mark.parametrize("size", SIZES)
def test_whole_moves_move_pixels(size):
    height, width = size
    images = randn(1, 2, *size)
    for move in (offset(1.0, 0.0), offset(-2.0, 3.0), offset(40.0, -7.0)):
        torch.testing.assert_close(
            warp(images, MIRROR, ONE, move),
            fetch(images.flip(3), ONE, move),
            atol=1e-10,
            rtol=0,
        )
    period = offset(2.0 * (width - 1), -4.0 * (height - 1))  # of an image mirrored on and on
    torch.testing.assert_close(warp(images, ONE, ONE, period), images, atol=1e-10, rtol=0)
    assert torch.equal(fetch(images, ONE, period), images)


def test_flips_and_turns_move_pixels_exactly():
    images, still = randn(1, 2, 5, 5), offset(0.0, 0.0)
    assert torch.equal(warp(images, ONE, ONE, still), images)
    assert torch.equal(warp(images, MIRROR, ONE, still), images.flip(3))
    assert torch.equal(warp(images, -ONE, ONE, still), images.flip(2, 3))
    turn = torch.tensor([[[0.0, -1.0], [1.0, 0.0]]]).double()
    assert torch.equal(warp(images, turn, ONE, still), torch.rot90(images, 1, (2, 3)))
    moved = warp(images, turn, ONE, offset(1.0, 0.0))[..., 1:-1]
    torch.testing.assert_close(moved, torch.rot90(images, 1, (2, 3))[..., 2:], atol=1e-10, rtol=0)


@pytest.mark.parametrize(
    "matrix", [rotation(0.4), rotation(math.pi), 0.8 * ONE, rotation(1.0) @ MIRROR]
)
def test_every_move_is_around_the_centre(matrix):
    # A slope goes through both filters as it is, so each pixel shows where it came from.
    x, y = places(48)
    came = (0.5 * matrix[0]) @ torch.stack([x, y]).flatten(1) + offset(0.3, -1.7).T
    came = came.view(1, 2, 48, 48)
    out = warp(torch.stack([x, y])[None], ONE, 0.5 * matrix, offset(0.3, -1.7))
    torch.testing.assert_close(out[..., 4:-4, 4:-4], came[..., 4:-4, 4:-4], atol=1e-9, rtol=0)


@pytest.mark.parametrize("shift", [0.5, 0.25, 0.13, -0.4])
@pytest.mark.parametrize("frequency", [0.05, 0.15, 0.25])  # cycles a pixel; at most 0.5
def test_a_wave_moves_with_half_the_error_of_plain_interpolation(shift, frequency):
    def wave(x, y):
        return torch.cos(2 * math.pi * frequency * (x + 0.5 * y) + 0.3)[None, None]

    x, y = places(48)
    inside = slice(8, -8)
    errors = [
        (out - wave(x + shift, y - shift))[..., inside, inside].square().mean().sqrt().item()
        for out in (
            warp(wave(x, y), ONE, ONE, offset(shift, -shift)),
            fetch(wave(x, y), ONE, offset(shift, -shift)),
        )
    ]
    assert errors[0] < errors[1] / 2


def test_each_image_moves_on_its_own():
    images, matrix = randn(3, 2, 6, 7), torch.cat([ONE, rotation(0.7), 1.3 * ONE])
    move = torch.tensor([[0.0, 0.0], [1.5, 0.2], [-3.0, 9.1]]).double()
    exact = torch.cat([MIRROR, ONE, -ONE])
    together = warp(images, exact, matrix, move)
    for i in range(3):
        alone = warp(images[i : i + 1], exact[i : i + 1], matrix[i : i + 1], move[i : i + 1])
        torch.testing.assert_close(alone[0], together[i], atol=1e-12, rtol=0)


def test_gradients_pass_twice():
    images = randn(2, 1, 3, 2).requires_grad_()
    matrix, exact = torch.cat([rotation(0.7), 1.3 * ONE]), torch.cat([MIRROR, -ONE])
    gains = torch.tensor([[0.5, 2.0, 1.5, 3.0], [1.0, 1.0, 0.2, 1.0]]).double()
    for change in (
        lambda x: warp(x, exact, matrix, offset(0.3, 0.8, 2)),
        lambda x: fetch(x, matrix, offset(0.3, 0.8, 2)),
        lambda x: equalized(x, gains),
    ):
        assert torch.autograd.gradcheck(change, images)
        assert torch.autograd.gradgradcheck(lambda x, change=change: change(x).square(), images)


@pytest.mark.parametrize("size", SIZES)
def test_bands_without_gain_change_nothing(size):
    images = randn(2, 3, *size)
    torch.testing.assert_close(equalized(images, torch.ones(2, 4).double()), images)


def test_bands_have_the_response_of_the_wavelet():
    # A mirrored cosine goes through a symmetric filter as it is, times the filter's response.
    root = math.sqrt(3)
    taps = torch.tensor([1 - root, 3 - root, 3 + root, 1 + root]).double() / math.sqrt(32)
    size, gains = 17, torch.tensor([[0.3, 2.0, 5.0, 0.7]]).double()

    def low(frequency):
        waves = torch.polar(torch.ones(4).double(), -frequency * torch.arange(4).double())
        return (taps * waves).sum().abs().square().item() / 2

    for k in range(size):
        frequency = math.pi * k / (size - 1)
        one, two, four = (low(step * frequency) for step in (1, 2, 4))
        bands = (one * two * four, one * two * (1 - four), one * (1 - two), 1 - one)
        response = sum(g * b for g, b in zip(gains[0].tolist(), bands, strict=True))
        wave = torch.cos(frequency * torch.arange(size).double())
        for image in (wave.expand(1, 1, size, size), wave[:, None].expand(1, 1, size, size)):
            out = equalized(image, gains)
            torch.testing.assert_close(out, image * response * gains[0, 0])
