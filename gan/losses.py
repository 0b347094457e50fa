"""Adversarial losses: what each of the two networks minimises, as pairs of pure functions.

With r = D(x) and f = D(G(z)), unbounded logits and never probabilities, and s = softplus, so that
s(-t) = -log sigmoid(t) and nothing overflows:

    name                  discriminator                     generator                         chance
    minimax               s(-r) + s(f)                      -s(f)                             2 ln 2
    non-saturating        s(-r) + s(f)                      s(-f)                             2 ln 2
    hinge                 relu(1 - r) + relu(1 + f)         -f                                2
    least-squares         (r - 1)^2 / 2 + f^2 / 2           (f - 1)^2 / 2                     1/4
    wasserstein           f - r                             -f                                0
    relativistic          s(-(r - f))                       s(-(f - r))                       ln 2
    relativistic-average  s(-(r - mean f)) + s(f - mean r)  s(-(f - mean r)) + s(r - mean f)  2 ln 2

Every function takes `(real_logits, fake_logits)`, both of shape (batch,), and returns a scalar, the
mean over the batch. It raises `ValueError` for other or unequal shapes: (batch,) against (batch, 1)
would broadcast to (batch, batch) and train anyway.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps

from torch import Tensor
from torch.nn.functional import relu, softplus

Loss = Callable[[Tensor | None, Tensor], Tensor]


@dataclass(frozen=True)
class AdversarialLoss:
    """What the discriminator minimises and what the generator minimises.

    Attributes:
        discriminator: takes `(real_logits, fake_logits)`, each of shape (batch,); gives a scalar.
        generator: likewise; unless `relativistic` it ignores `real_logits`, which may be None.
        relativistic: the generator's loss compares fakes with reals, so it needs `real_logits`.
        anchored: whether the sign of a logit says real or fake. Where only differences of logits
            count, it is that of the difference from the other kind.
        separable: the discriminator's loss is a sum of one term of the real logits and one of the
            fake ones, so it may learn from each kind by itself.
        at_chance: the discriminator's loss when it gives every image the same logit, the best one:
            where its curve sits when it has nothing to say. None: unknown.
    """

    discriminator: Loss
    generator: Loss
    relativistic: bool = False
    anchored: bool = True
    separable: bool = False
    at_chance: float | None = None


def signs(loss: AdversarialLoss, real_logits: Tensor, fake_logits: Tensor) -> tuple[Tensor, Tensor]:
    """What the discriminator takes each image for: 1 real, -1 fake.

    Args:
        loss: the one that it is trained with.
        real_logits: shape (batch,).
        fake_logits: shape (batch,).

    Returns:
        Of the real and of the fake images, shape (batch,) each. Where the loss is not anchored
        these are opposite: which of the two images of a pair it takes for the real one.
    """
    if loss.anchored:
        return real_logits.sign(), fake_logits.sign()
    sign = (real_logits - fake_logits).sign()
    return sign, -sign


def _batch_mean(formula: Callable[..., Tensor]) -> Loss:
    """Check both shapes, then average the formula over the batch."""

    @wraps(formula)
    def loss(real_logits: Tensor | None, fake_logits: Tensor) -> Tensor:
        real_shape = fake_logits.shape if real_logits is None else real_logits.shape
        if fake_logits.ndim != 1 or real_shape != fake_logits.shape:
            raise ValueError(
                f"logits must both have shape (batch,): real_logits {_shape(real_logits)}, "
                f"fake_logits {_shape(fake_logits)}"
            )
        return formula(real_logits, fake_logits).mean()

    return loss


def _paired(formula: Callable[[Tensor, Tensor], Tensor]) -> Loss:
    """As `_batch_mean`, for a formula that cannot do without the real logits."""

    @wraps(formula)
    def needs_real(real_logits: Tensor | None, fake_logits: Tensor) -> Tensor:
        if real_logits is None:
            raise ValueError(f"{formula.__name__} compares fakes with reals: real_logits is None")
        return formula(real_logits, fake_logits)

    return _batch_mean(needs_real)


def _shape(logits: Tensor | None) -> object:
    return None if logits is None else tuple(logits.shape)


@_paired
def logistic_discriminator(real_logits: Tensor, fake_logits: Tensor) -> Tensor:
    """softplus(-D(x)) + softplus(D(G(z))): cross-entropy with real = 1; 2 ln 2 = 1.3863 at chance.

    The discriminator of both the minimax and the non-saturating game.

    Reference: Goodfellow et al., 2014, arXiv:1406.2661, eq. 1.
    """
    return softplus(-real_logits) + softplus(fake_logits)


@_batch_mean
def minimax_generator(_: Tensor | None, fake_logits: Tensor) -> Tensor:
    """-softplus(D(G(z))) = log(1 - sigmoid(D(G(z)))); -ln 2 = -0.6931 at chance.

    It saturates: where the discriminator is sure of a fake, at large negative logits, its gradient
    vanishes.

    Reference: Goodfellow et al., 2014, arXiv:1406.2661, eq. 1.
    """
    return -softplus(fake_logits)


@_batch_mean
def non_saturating_generator(_: Tensor | None, fake_logits: Tensor) -> Tensor:
    """softplus(-D(G(z))) = -log sigmoid(D(G(z))); ln 2 = 0.6931 at chance.

    Reference: Goodfellow et al., 2014, arXiv:1406.2661, section 3.
    """
    return softplus(-fake_logits)


@_paired
def hinge_discriminator(real_logits: Tensor, fake_logits: Tensor) -> Tensor:
    """max(0, 1 - D(x)) + max(0, 1 + D(G(z))); 2 at chance.

    Reference: Lim and Ye, 2017, arXiv:1705.02894; Miyato et al., 2018, arXiv:1802.05957, eq. 16.
    """
    return relu(1 - real_logits) + relu(1 + fake_logits)


@_batch_mean
def hinge_generator(_: Tensor | None, fake_logits: Tensor) -> Tensor:
    """-D(G(z)); 0 at chance, and unbounded.

    Reference: Lim and Ye, 2017, arXiv:1705.02894; Miyato et al., 2018, arXiv:1802.05957, eq. 17.
    """
    return -fake_logits


@_paired
def least_squares_discriminator(real_logits: Tensor, fake_logits: Tensor) -> Tensor:
    """(D(x) - 1)^2 / 2 + D(G(z))^2 / 2; 1/4 at chance (every logit 1/2; logits of zero cost 1/2).

    Reference: Mao et al., 2017, arXiv:1611.04076, eq. 9: targets 1 for real, 0 for fake.
    """
    return ((real_logits - 1).square() + fake_logits.square()) / 2


@_batch_mean
def least_squares_generator(_: Tensor | None, fake_logits: Tensor) -> Tensor:
    """(D(G(z)) - 1)^2 / 2; 1/8 at chance.

    Reference: Mao et al., 2017, arXiv:1611.04076, eq. 9: target 1.
    """
    return (fake_logits - 1).square() / 2


@_paired
def wasserstein_discriminator(real_logits: Tensor, fake_logits: Tensor) -> Tensor:
    """D(G(z)) - D(x); 0 at chance, and minus the earth mover's distance for the best Lipschitz D.

    Unbounded below unless a penalty, or clipping the weights, keeps D Lipschitz.

    Reference: Arjovsky et al., 2017, arXiv:1701.07875, eq. 2.
    """
    return fake_logits - real_logits


@_batch_mean
def wasserstein_generator(_: Tensor | None, fake_logits: Tensor) -> Tensor:
    """-D(G(z)); 0 at chance.

    Reference: Arjovsky et al., 2017, arXiv:1701.07875, algorithm 1.
    """
    return -fake_logits


@_paired
def relativistic_discriminator(real_logits: Tensor, fake_logits: Tensor) -> Tensor:
    """softplus(-(D(x) - D(G(z)))), the i-th real against the i-th fake; ln 2 = 0.6931 at chance.

    Known as RpGAN.

    Reference: Jolicoeur-Martineau, 2018, arXiv:1807.00734, section 4.1; Huang et al., 2024,
    arXiv:2501.05441, eq. 2.
    """
    return softplus(fake_logits - real_logits)


@_paired
def relativistic_generator(real_logits: Tensor, fake_logits: Tensor) -> Tensor:
    """softplus(-(D(G(z)) - D(x))), the same with the roles exchanged; ln 2 = 0.6931 at chance.

    Reference: as `relativistic_discriminator`.
    """
    return softplus(real_logits - fake_logits)


def _relativistic_average(more_real: Tensor, less_real: Tensor) -> Tensor:
    return softplus(less_real.mean() - more_real) + softplus(less_real - more_real.mean())


@_paired
def relativistic_average_discriminator(real_logits: Tensor, fake_logits: Tensor) -> Tensor:
    """softplus(-(D(x) - mean D(G(z)))) + softplus(D(G(z)) - mean D(x)); 2 ln 2 = 1.3863 at chance.

    Known as RaGAN. The means are over the logits given, those of one micro-batch on one process,
    so unlike the others this loss depends on how the batch is cut.

    Reference: Jolicoeur-Martineau, 2018, arXiv:1807.00734, section 4.2.
    """
    return _relativistic_average(real_logits, fake_logits)


@_paired
def relativistic_average_generator(real_logits: Tensor, fake_logits: Tensor) -> Tensor:
    """The discriminator's loss with the roles exchanged; 2 ln 2 = 1.3863 at chance.

    Reference: as `relativistic_average_discriminator`.
    """
    return _relativistic_average(fake_logits, real_logits)


_LN2 = math.log(2)

LOSSES: dict[str, AdversarialLoss] = {
    "minimax": AdversarialLoss(
        logistic_discriminator, minimax_generator, separable=True, at_chance=2 * _LN2
    ),
    "non-saturating": AdversarialLoss(
        logistic_discriminator, non_saturating_generator, separable=True, at_chance=2 * _LN2
    ),
    "hinge": AdversarialLoss(hinge_discriminator, hinge_generator, separable=True, at_chance=2.0),
    "least-squares": AdversarialLoss(
        least_squares_discriminator, least_squares_generator, separable=True, at_chance=0.25
    ),
    "wasserstein": AdversarialLoss(
        wasserstein_discriminator,
        wasserstein_generator,
        anchored=False,
        separable=True,
        at_chance=0.0,
    ),
    "relativistic": AdversarialLoss(
        relativistic_discriminator,
        relativistic_generator,
        relativistic=True,
        anchored=False,
        at_chance=_LN2,
    ),
    "relativistic-average": AdversarialLoss(
        relativistic_average_discriminator,
        relativistic_average_generator,
        relativistic=True,
        anchored=False,
        at_chance=2 * _LN2,
    ),
}
"""The losses by the name that the option `loss` takes."""
