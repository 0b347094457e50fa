from itertools import pairwise

import pytest
import torch
from torch.testing import assert_close

from gan.errors import GanError
from gan.networks import build_discriminator, build_generator, check_shape, count_parameters


def test_the_networks_of_the_digits_preset():
    generator = build_generator("mlp", (1, 8, 8), z_dim=32, hidden=(128, 256), num_classes=10)
    discriminator = build_discriminator("mlp", (1, 8, 8), hidden=(256, 128), num_classes=10)
    assert count_parameters(generator) == 55_360
    assert count_parameters(discriminator) == 50_945
    kinds = [type(layer).__name__ for layer in generator.layers]
    assert " ".join(kinds) == (
        "Linear BatchNorm1d ReLU Linear BatchNorm1d ReLU Linear Unflatten Tanh"
    )
    kinds = [type(layer).__name__ for layer in discriminator.features]
    assert " ".join(kinds) == "Flatten Linear LeakyReLU Linear LeakyReLU"


def test_mlp_makes_points_anywhere_in_the_plane():
    generator = build_generator("mlp", (2,), z_dim=4, hidden=(8,), norm="none")
    discriminator = build_discriminator("mlp", (2,), hidden=(8,))
    points = generator(1000 * torch.randn(16, 4))
    assert points.shape == (16, 2)
    assert points.abs().max() > 1
    assert discriminator(points).shape == (16,)
    with pytest.raises(ValueError, match=r"shape \(16, 3\); expected \(batch, 2\)"):
        discriminator(torch.zeros(16, 3))


def test_mlp_without_hidden_layers_is_linear():
    generator = build_generator("mlp", (2,), z_dim=2, hidden=())
    z = torch.randn(3, 2)
    differences = [b - a for a, b in pairwise(generator(z * k) for k in range(3))]
    assert_close(differences[0], differences[1])


@pytest.mark.parametrize("shape", [(), (0,), (1, 7, 13), (5,)])
def test_mlp_takes_every_shape_that_there_is(shape):
    if shape and min(shape) > 0:
        check_shape("mlp", shape)
        assert build_generator("mlp", shape)(torch.randn(2, 32)).shape == (2, *shape)
    else:
        with pytest.raises(GanError, match="every size must be a whole number above 0"):
            check_shape("mlp", shape)
