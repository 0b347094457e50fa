import pytest
import torch
from torch import nn
from torch.testing import assert_close

from gan.chance import Chance
from gan.config import PENALTY_NAMES
from gan.errors import GanError
from gan.penalties import (
    DRAGAN_STD,
    PENALTIES,
    Scores,
    dragan_penalty,
    gradient_penalty,
    r1_penalty,
    r2_penalty,
)

SHAPES = [(2,), (3, 4, 5)]
GRADIENTS = ["r1", "r2", "wgan-gp", "wgan-gp-one-sided", "dragan", "zero-centered-gp"]
"""The rows that this file tests; test_regularizers has the others."""


@pytest.fixture(autouse=True)
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def linear(weight):
    return lambda images: images.flatten(1) @ weight


def half_squared_norm(images):
    """D(x) = ||x||^2 / 2, whose gradient is x itself."""
    return images.flatten(1).square().sum(1) / 2


def conv_critic(activation):
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), activation, nn.Flatten(), nn.Linear(4 * 6 * 6, 1), nn.Flatten(0)
    )


def scores(critic, shape=(2,), batch=4, chance=None):
    real, fake = torch.randn(2, batch, *shape)
    return Scores(real, fake, critic(real), critic(fake), critic, chance or Chance((0,), 0, batch))


# --- closed forms --------------------------------------------------------------------------------


@pytest.mark.parametrize("penalty", [r1_penalty, r2_penalty])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_linear_critic_pays_the_squared_norm_of_its_weights(penalty, shape):
    images = torch.randn(4, *shape)
    weight = torch.randn(images[0].numel(), requires_grad=True)
    values = penalty(linear(weight), images)
    assert_close(values, weight.detach().square().sum().expand(4), check_stride=False)
    (gradient,) = torch.autograd.grad(values.mean(), weight)
    assert_close(gradient, 2 * weight.detach())


@pytest.mark.parametrize("shape", SHAPES)
def test_each_sample_pays_for_its_own_gradient(shape):
    images = torch.randn(4, *shape)
    assert_close(r1_penalty(half_squared_norm, images), images.flatten(1).square().sum(1))


@pytest.mark.parametrize("shape", SHAPES)
def test_the_penalty_of_a_batch_is_that_of_its_samples(shape):
    network = nn.Sequential(
        nn.Flatten(), nn.LazyLinear(8), nn.Softplus(), nn.Linear(8, 1), nn.Flatten(0)
    )
    images = torch.randn(5, *shape)
    whole = r1_penalty(network, images)
    assert whole.shape == (5,)
    assert_close(whole, torch.cat([r1_penalty(network, image[None]) for image in images]))


@pytest.mark.parametrize(("norm", "two_sided", "one_sided"), [(0.25, 0.5625, 0.0), (3.0, 4.0, 4.0)])
def test_wgan_gp_of_a_linear_critic(norm, two_sided, one_sided):
    weight = norm * torch.tensor([0.6, 0.8])
    real, fake = torch.randn(2, 4, 2)
    for sided, expected in ((False, two_sided), (True, one_sided)):
        values = gradient_penalty(linear(weight), real, fake, torch.rand(4), one_sided=sided)
        assert_close(values, torch.full((4,), expected))


def test_wgan_gp_trains_through_the_norm():
    weight = torch.tensor([3.0, 4.0], requires_grad=True)
    values = gradient_penalty(linear(weight), *torch.randn(2, 4, 2), torch.rand(4))
    (gradient,) = torch.autograd.grad(values.mean(), weight)
    assert_close(gradient, 2 * (5 - 1) * weight.detach() / 5)


@pytest.mark.parametrize("shape", SHAPES)
def test_each_pair_is_met_at_its_own_point_between(shape):
    real, fake = torch.randn(2, 4, *shape)
    alpha = torch.tensor([0.0, 1.0, 0.5, 0.25])
    values = gradient_penalty(half_squared_norm, real, fake, alpha, center=0.0)
    points = [fake[0], real[1], (real[2] + fake[2]) / 2, 0.25 * real[3] + 0.75 * fake[3]]
    assert_close(values, torch.stack(points).flatten(1).square().sum(1))


def test_a_center_is_subtracted_from_the_norm():
    real, fake = torch.full((2, 1, 2), 3.0)
    (value,) = gradient_penalty(half_squared_norm, real, fake, torch.zeros(1), center=2.0)
    assert value.item() == pytest.approx((18**0.5 - 2) ** 2)


@pytest.mark.parametrize("shape", SHAPES)
def test_dragan_looks_around_the_real_samples(shape):
    real, noise = torch.randn(2, 4, *shape)
    norms = (real + noise).flatten(1).norm(dim=1)
    assert_close(dragan_penalty(half_squared_norm, real, noise), (norms - 1).square())
    assert_close(dragan_penalty(half_squared_norm, real, noise, center=0.0), norms.square())


# --- gradients -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GRADIENTS)
def test_a_critic_of_zeros_gives_finite_gradients(name):
    weight = torch.zeros(2, requires_grad=True)
    value = PENALTIES[name].term(scores(linear(weight))).mean()
    (gradient,) = torch.autograd.grad(value, weight)
    assert value.isfinite()
    assert torch.equal(gradient, torch.zeros(2))


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_against_finite_differences(name):
    critic = nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 1), nn.Flatten(0))
    batch = scores(critic)
    inner = critic[0].weight

    def value(weight):
        def with_weight(points):
            parameters = {"0.weight": weight}
            return torch.func.functional_call(critic, parameters, points)

        return PENALTIES[name].term(
            Scores(batch.real, batch.fake, None, batch.fake_logits, with_weight, batch.chance)
        )

    assert torch.autograd.gradcheck(value, inner)


@pytest.mark.parametrize("name", GRADIENTS)
def test_nothing_flows_to_the_generator_or_into_the_critic_before_its_backward(name):
    critic = nn.Sequential(nn.Linear(2, 3), nn.Softplus(), nn.Linear(3, 1), nn.Flatten(0))
    real, fake = torch.randn(2, 4, 2)
    fake.requires_grad_()
    batch = Scores(real, fake, None, critic(fake.detach()), critic, Chance((0,), 0, 4))
    value = PENALTIES[name].term(batch).mean()
    assert critic[0].weight.grad is None
    value.backward()
    assert critic[0].weight.grad is not None
    assert fake.grad is None


# --- the table -----------------------------------------------------------------------------------


def test_the_table_is_what_the_configuration_offers():
    assert tuple(PENALTIES) == PENALTY_NAMES
    rows = {name: (row.scale, row.default_weight) for name, row in PENALTIES.items()}
    assert rows == {
        "r1": (0.5, None),
        "r2": (0.5, None),
        "wgan-gp": (1.0, 10.0),
        "wgan-gp-one-sided": (1.0, 10.0),
        "dragan": (1.0, 10.0),
        "zero-centered-gp": (1.0, 10.0),
        "lecam": (1.0, 0.3),
        "consistency": (1.0, 10.0),
        "balanced-consistency": (1.0, 10.0),
    }


def test_each_row_is_its_function():
    batch = scores(half_squared_norm, shape=(1, 3, 3))
    alpha = batch.chance.uniform("penalty/alpha")
    noise = DRAGAN_STD * batch.chance.normal("penalty/noise", 1, 3, 3)
    pair = (half_squared_norm, batch.real, batch.fake, alpha)
    expected = {
        "r1": r1_penalty(half_squared_norm, batch.real),
        "r2": r2_penalty(half_squared_norm, batch.fake),
        "wgan-gp": gradient_penalty(*pair),
        "wgan-gp-one-sided": gradient_penalty(*pair, one_sided=True),
        "dragan": dragan_penalty(half_squared_norm, batch.real, noise),
        "zero-centered-gp": gradient_penalty(*pair, center=0.0),
    }
    assert list(expected) == GRADIENTS
    for name, values in expected.items():
        assert torch.equal(PENALTIES[name].term(batch), values), name


@pytest.mark.parametrize("name", GRADIENTS)
def test_the_values_do_not_depend_on_how_the_batch_is_cut(name):
    def critic(images):
        return images.flatten(1).pow(3).sum(1)

    real, fake = torch.randn(2, 6, 1, 4, 4)

    def values(start, stop):
        chance = Chance((7, "discriminator"), start, stop)
        part = slice(start, stop)
        return PENALTIES[name].term(
            Scores(real[part], fake[part], None, critic(fake[part]), critic, chance)
        )

    assert_close(values(0, 6), torch.cat([values(0, 2), values(2, 6)]))


# --- mistakes ------------------------------------------------------------------------------------


def test_shapes_that_do_not_fit():
    real, critic = torch.zeros(4, 1, 2, 2), half_squared_norm
    with pytest.raises(ValueError, match="same shape, alpha the shape") as error:
        gradient_penalty(critic, real, torch.zeros(4, 1, 2, 3), torch.zeros(4))
    assert str(error.value) == (
        "real and fake must have the same shape, alpha the shape (batch,): "
        "real (4, 1, 2, 2), fake (4, 1, 2, 3), alpha (4,)"
    )
    with pytest.raises(ValueError, match=r"alpha \(4, 1\)"):
        gradient_penalty(critic, real, real, torch.zeros(4, 1))
    with pytest.raises(ValueError, match=r"noise \(1, 2, 2\), real \(4, 1, 2, 2\)"):
        dragan_penalty(critic, real, torch.zeros(1, 2, 2))


@pytest.mark.parametrize(
    "critic",
    [
        lambda images: torch.zeros(len(images)),
        lambda images: torch.zeros(len(images), requires_grad=True),
        lambda images: images.detach().sum(1) * torch.ones((), requires_grad=True),
        torch.no_grad()(lambda images: images.sum(1)),
    ],
)
def test_logits_that_do_not_depend_on_the_images(critic):
    with pytest.raises(GanError, match="logits do not depend on its images") as error:
        r1_penalty(critic, torch.randn(3, 2))
    assert "detach() or a no_grad()" in str(error.value)


IN_PLACE = [
    nn.ReLU,
    nn.ELU,
    nn.SiLU,
    lambda inplace: nn.LeakyReLU(0.2, inplace),
    lambda inplace: nn.LeakyReLU(0.0, inplace),
]


@pytest.mark.parametrize("activation", IN_PLACE)
def test_harmless_in_place_activations_give_the_same_gradient(activation):
    critic, images = conv_critic(activation(inplace=True)), torch.randn(3, 1, 8, 8)
    gradients = []
    for inplace in (True, False):
        critic[1].inplace = inplace
        value = r1_penalty(critic, images).sum()
        gradients.append(torch.autograd.grad(value, critic[0].weight)[0])
    assert_close(*gradients)


class Overwrites(nn.Module):
    """Changes a tensor that the gradient of an earlier operation needs."""

    def forward(self, x):
        return x.exp().mul_(2).flatten(1).sum(1)


class OverwritesItsInput(nn.Module):
    def forward(self, x):
        return x.mul_(2).flatten(1).sum(1)


@pytest.mark.parametrize(
    ("critic", "culprit"),
    [
        (lambda: conv_critic(nn.LeakyReLU(-0.1, inplace=True)), "LeakyReLU(negative_slope=-0.1, "),
        (OverwritesItsInput, "by OverwritesItsInput();"),
        (Overwrites, "by an operation in its forward;"),
    ],
)
def test_in_place_operations_that_break_the_gradient_are_named(critic, culprit):
    critic, images = critic(), torch.randn(3, 1, 8, 8)
    with pytest.raises(GanError, match="overwrites a tensor that its gradient needs") as error:
        r1_penalty(lambda x: critic(x), images)
    message = str(error.value)
    assert culprit in message
    assert "inplace=False" in message
    assert "\n" not in message


def test_other_errors_of_the_critic_are_its_own():
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        r1_penalty(nn.Linear(3, 1), torch.randn(4, 2))
