import math

import pytest
import torch
from torch import Tensor, tensor
from torch.testing import assert_close

from gan import losses
from gan.losses import LOSSES, AdversarialLoss, signs

LN2 = math.log(2)
PAIRED = [name for name, loss in LOSSES.items() if loss.relativistic]


def sigmoid(t: float) -> float:
    return 1 / (1 + math.exp(-t))


# Two logits each, worked out from the papers' formulas with Python's own arithmetic.
REAL, FAKE = (0.5, -2.0), (1.5, -0.25)
MEAN_REAL, MEAN_FAKE = -0.75, 0.625


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


LOGISTIC = mean(
    [-math.log(sigmoid(r)) - math.log(1 - sigmoid(f)) for r, f in zip(REAL, FAKE, strict=True)]
)
BY_HAND = {
    "minimax": (LOGISTIC, mean([math.log(1 - sigmoid(f)) for f in FAKE])),
    "non-saturating": (LOGISTIC, mean([-math.log(sigmoid(f)) for f in FAKE])),
    "hinge": (mean([0.5 + 2.5, 3.0 + 0.75]), mean([-1.5, 0.25])),
    "least-squares": (
        mean([0.5 * 0.25 + 0.5 * 2.25, 0.5 * 9 + 0.5 * 0.0625]),
        mean([0.5 * 0.25, 0.5 * 1.5625]),
    ),
    "wasserstein": (mean([1.0, 1.75]), mean([-1.5, 0.25])),
    "relativistic": (
        mean([-math.log(sigmoid(0.5 - 1.5)), -math.log(sigmoid(-2.0 + 0.25))]),
        mean([-math.log(sigmoid(1.5 - 0.5)), -math.log(sigmoid(-0.25 + 2.0))]),
    ),
    "relativistic-average": (
        mean([-math.log(sigmoid(r - MEAN_FAKE)) for r in REAL])
        + mean([-math.log(1 - sigmoid(f - MEAN_REAL)) for f in FAKE]),
        mean([-math.log(sigmoid(f - MEAN_REAL)) for f in FAKE])
        + mean([-math.log(1 - sigmoid(r - MEAN_FAKE)) for r in REAL]),
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_two_logits_by_hand(name):
    real, fake = tensor(REAL, dtype=torch.float64), tensor(FAKE, dtype=torch.float64)
    discriminator, generator = BY_HAND[name]
    assert_close(LOSSES[name].discriminator(real, fake), tensor(discriminator, dtype=torch.float64))
    assert_close(LOSSES[name].generator(real, fake), tensor(generator, dtype=torch.float64))


def test_the_table_in_the_docstring_is_the_code():
    real, fake = torch.randn(2, 5, dtype=torch.float64)
    words = {
        "r": real,
        "f": fake,
        "s": torch.nn.functional.softplus,
        "relu": torch.relu,
        "mean_f": fake.mean(),
        "mean_r": real.mean(),
        "ln2": LN2,
    }

    def value(cell: str) -> Tensor:
        python = cell.replace("^", "**").replace("mean ", "mean_").replace("2 ln 2", "2 * ln2")
        return torch.as_tensor(eval(python.replace("ln 2", "ln2"), words), dtype=torch.float64)

    lines = [line[4:] for line in losses.__doc__.splitlines() if line.startswith("    ")]
    header, *rows = lines
    columns = [header.index(word) for word in ("name", "discriminator", "generator", "chance")]
    spans = list(zip(columns, [*columns[1:], None], strict=True))
    table = [[row[start:stop].strip() for start, stop in spans] for row in rows]
    assert [name for name, *_ in table] == list(LOSSES)
    for name, discriminator, generator, chance in table:
        loss = LOSSES[name]
        assert_close(loss.discriminator(real, fake), value(discriminator).mean())
        assert_close(loss.generator(real, fake), value(generator).mean())
        assert_close(torch.tensor(loss.at_chance, dtype=torch.float64), value(chance))


@pytest.mark.parametrize("name", LOSSES)
def test_at_chance_is_the_best_that_a_constant_discriminator_can_do(name):
    loss = LOSSES[name]
    constants = torch.linspace(-2, 2, 401)
    best = min(loss.discriminator(c.repeat(3), c.repeat(3)).item() for c in constants)
    assert best == pytest.approx(loss.at_chance, abs=1e-6)


def test_where_a_discriminator_of_zeros_sits():
    zeros = torch.zeros(4)
    sits = {name: loss.discriminator(zeros, zeros).item() for name, loss in LOSSES.items()}
    assert sits == pytest.approx(
        {
            "minimax": 1.3863,
            "non-saturating": 1.3863,
            "hinge": 2.0,
            "least-squares": 0.5,
            "wasserstein": 0.0,
            "relativistic": 0.6931,
            "relativistic-average": 1.3863,
        },
        abs=1e-4,
    )


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("name", LOSSES)
def test_logits_scaled_by_ten_thousand_stay_finite(name, sign):
    real = (sign * tensor([1e4, 1.0])).requires_grad_()
    fake = (sign * tensor([-1e4, -2.0])).requires_grad_()
    loss = LOSSES[name]
    for player in (loss.discriminator, loss.generator):
        value = player(real, fake)
        gradients = torch.autograd.grad(value, (real, fake), allow_unused=True)
        assert value.isfinite()
        assert all(g.isfinite().all() for g in gradients if g is not None)


@pytest.mark.parametrize("name", [name for name in LOSSES if name != "minimax"])
def test_the_generator_still_learns_from_a_discriminator_that_has_won(name):
    real, fake = tensor([1e4, 9e3]), tensor([-1e4, -2e4]).requires_grad_()
    (gradient,) = torch.autograd.grad(LOSSES[name].generator(real, fake), fake)
    assert (gradient < 0).all()


def test_the_minimax_generator_saturates_as_the_paper_says():
    fake = tensor([-1e4]).requires_grad_()
    (gradient,) = torch.autograd.grad(LOSSES["minimax"].generator(None, fake), fake)
    assert gradient.item() == 0


def test_both_generators_of_goodfellow_agree_on_the_direction():
    fake = torch.randn(5).requires_grad_()
    gradients = [
        torch.autograd.grad(LOSSES[name].generator(None, fake), fake)[0]
        for name in ("minimax", "non-saturating")
    ]
    assert all((gradient < 0).all() for gradient in gradients)


@pytest.mark.parametrize("name", PAIRED)
def test_relativistic_losses_only_see_differences_and_exchange_the_roles(name):
    real, fake = torch.randn(2, 6, dtype=torch.float64)
    loss = LOSSES[name]
    assert_close(loss.discriminator(real + 3, fake + 3), loss.discriminator(real, fake))
    assert loss.generator(real, fake) == loss.discriminator(fake, real)


def test_the_pairing_loss_is_the_logistic_loss_of_the_difference():
    real, fake = torch.randn(2, 6, dtype=torch.float64)
    logistic = torch.nn.functional.binary_cross_entropy_with_logits
    assert_close(
        LOSSES["relativistic"].discriminator(real, fake),
        logistic(real - fake, torch.ones(6, dtype=torch.float64)),
    )


@pytest.mark.parametrize("name", [name for name in LOSSES if name not in PAIRED])
def test_the_generator_of_an_absolute_loss_ignores_the_reals(name):
    fake = torch.randn(3)
    generator = LOSSES[name].generator
    assert generator(None, fake) == generator(torch.randn(3), fake)


@pytest.mark.parametrize("name", PAIRED)
def test_the_generator_of_a_relativistic_loss_needs_the_reals(name):
    with pytest.raises(ValueError, match="compares fakes with reals: real_logits is None"):
        LOSSES[name].generator(None, torch.randn(3))


@pytest.mark.parametrize("player", ["discriminator", "generator"])
@pytest.mark.parametrize("name", LOSSES)
def test_shapes_that_would_broadcast_are_refused(name, player):
    loss = getattr(LOSSES[name], player)
    with pytest.raises(ValueError, match="logits must both have shape") as error:
        loss(torch.zeros(4), torch.zeros(4, 1))
    assert str(error.value) == (
        "logits must both have shape (batch,): real_logits (4,), fake_logits (4, 1)"
    )
    for real, fake in [((4, 1), (4, 1)), ((3,), (4,)), ((), ()), ((4,), ())]:
        with pytest.raises(ValueError, match="logits must both have shape"):
            loss(torch.zeros(real), torch.zeros(fake))


def test_a_loss_of_ones_own():
    loss = AdversarialLoss(lambda r, f: (f - r).mean(), lambda r, f: -f.mean())
    assert (loss.relativistic, loss.at_chance) == (False, None)


@pytest.mark.parametrize("name", LOSSES)
def test_signs_do_not_depend_on_what_the_loss_cannot_see(name):
    """Where all logits may move together without a change of the loss, so may the signs."""
    loss, real, fake = LOSSES[name], tensor([3.0, -1.0, 1.0]), tensor([2.0, -2.0, 2.0])
    both = [signs(loss, real + shift, fake + shift) for shift in (0.0, 100.0)]
    moved = loss.discriminator(real + 100, fake + 100)
    blind = bool((moved - loss.discriminator(real, fake)).abs() < 1e-4)
    assert blind is not loss.anchored
    assert all(map(torch.equal, *both)) is blind
    expected = ([1, 1, -1], [-1, -1, 1]) if blind else ([1, -1, 1], [1, -1, 1])
    assert tuple(each.tolist() for each in both[0]) == expected


@pytest.mark.parametrize("name", LOSSES)
def test_a_separable_loss_pulls_at_real_logits_whatever_the_fake_ones_are(name):
    loss, real = LOSSES[name], tensor([3.0, -1.0, 0.5], requires_grad=True)
    fakes = torch.zeros(3), tensor([2.0, -2.0, 0.1])
    pulls = [torch.autograd.grad(loss.discriminator(real, fake), real)[0] for fake in fakes]
    assert torch.equal(*pulls) is loss.separable
