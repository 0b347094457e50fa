"""Penalties on the discriminator's gradient with respect to its input: pure, per sample.

Each function takes a `critic`, any callable from images (or points) to logits of shape (batch,),
and returns one value for each sample, shape (batch,), never a norm over the whole batch. The
result is differentiable: its own backward is the double backward that trains the discriminator.
`PENALTIES` is the table that the option `penalties` chooses from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from gan.errors import GanError
from gan.regularizers import (
    LeCam,
    PathLength,
    balanced_consistency,
    consistency,
    feature_matching,
)

if TYPE_CHECKING:
    from gan.chance import Chance

Critic = Callable[[Tensor], Tensor]

DRAGAN_STD = 0.25
"""Standard deviation of the table's DRAGAN noise, for data that spans [-1, 1]."""


@dataclass(frozen=True)
class Scores:
    """One micro-batch, what the discriminator said of it, and the means to ask it more.

    Attributes:
        real: real images, shape (batch, channels, height, width), or points, shape (batch, 2).
        fake: generated ones, of the same shape.
        real_logits: shape (batch,); None where nobody asked about the real ones.
        fake_logits: shape (batch,).
        critic: the discriminator in full precision with its condition filled in.
        chance: the random numbers of this micro-batch.
        generator: the raw generator, for terms that make images of their own.
        inputs: what it was called with: (z,) or (z, labels).
        critics: the one of the "real" and the one of the "fake" images, where they are augmented
            each in their own way.
        exact: whether the logits came from the critic, or from a forward in lower precision.
        gradients: of the logits with respect to the "real" or "fake" images, as far as the
            forward that gave the logits gave them too; shape (batch, numbers of an image).
    """

    real: Tensor
    fake: Tensor
    real_logits: Tensor | None
    fake_logits: Tensor
    critic: Critic
    chance: Chance
    generator: nn.Module | None = None
    inputs: tuple[Tensor, ...] = ()
    critics: Mapping[str, Critic] = field(default_factory=dict)
    gradients: Mapping[str, Tensor] = field(default_factory=dict)
    exact: bool = True

    def gradient(self, at: str) -> Tensor:
        """Gradient of each image's logit with respect to that image, differentiable.

        Args:
            at: "real" or "fake".

        Returns:
            Shape (batch, numbers of an image).

        Raises:
            GanError: as `r1_penalty`.
        """
        if at in self.gradients:
            return self.gradients[at]
        return _input_gradient(self.critics.get(at, self.critic), getattr(self, at))


@dataclass(frozen=True)
class GradientNorm:
    """The term of R1 and R2: squared norm of the gradient at the "real" or the "fake" images.

    It says where it looks, so that a step can take the gradient from the forward that it makes
    anyway.
    """

    at: str

    def __call__(self, scores: Scores) -> Tensor:
        """One value for each image, shape (batch,).

        Args:
            scores: of one micro-batch.
        """
        return scores.gradient(self.at).square().sum(1)


@dataclass(frozen=True)
class Penalty:
    """One row of the table; the objective gets `weight * scale * term(scores).mean()`.

    Attributes:
        term: what is logged as penalty/NAME (its mean), shape (batch,). One that remembers is an
            object; a run takes a copy of it.
        scale: a constant factor of the paper's formula.
        default_weight: the paper's weight; None: the option `gamma`.
    """

    term: Callable[[Scores], Tensor]
    scale: float = 1.0
    default_weight: float | None = None


def r1_penalty(critic: Critic, real: Tensor) -> Tensor:
    """Squared norm of the critic's gradient at the real samples: ||grad D(x)||^2.

    A linear critic gives the squared norm of its weights. The objective adds gamma / 2 times its
    mean.

    Args:
        critic: images to logits, shape (batch,).
        real: real samples, shape (batch, ...).

    Returns:
        Shape (batch,), differentiable.

    Raises:
        GanError: the logits do not depend on the images, or cannot be differentiated twice.

    Reference: Mescheder et al., 2018, arXiv:1801.04406, eq. 9.
    """
    return _input_gradient(critic, real).square().sum(1)


def r2_penalty(critic: Critic, fake: Tensor) -> Tensor:
    """Squared norm of the critic's gradient at the generated samples: ||grad D(G(z))||^2.

    Args:
        critic: images to logits, shape (batch,).
        fake: generated samples, shape (batch, ...); no gradient flows back to the generator.

    Returns:
        Shape (batch,), differentiable.

    Raises:
        GanError: as `r1_penalty`.

    Reference: Mescheder et al., 2018, arXiv:1801.04406, eq. 10.
    """
    return r1_penalty(critic, fake)


def gradient_penalty(
    critic: Critic,
    real: Tensor,
    fake: Tensor,
    alpha: Tensor,
    *,
    center: float = 1.0,
    one_sided: bool = False,
) -> Tensor:
    """(||grad D(y)|| - center)^2 at a random point y = alpha x + (1 - alpha) G(z) between the two.

    Args:
        critic: images to logits, shape (batch,).
        real: real samples, shape (batch, ...).
        fake: generated samples of the same shape; no gradient flows back to the generator.
        alpha: one number in [0, 1] for each pair, shape (batch,).
        center: the gradient norm asked for; 1 for a Lipschitz critic, 0 for a flat one.
        one_sided: leave norms below `center` alone.

    Returns:
        Shape (batch,), differentiable, also where the gradient is exactly zero.

    Raises:
        ValueError: `real` and `fake` differ in shape, or `alpha` is not of shape (batch,).
        GanError: as `r1_penalty`.

    Reference: center 1: Gulrajani et al., 2017, arXiv:1704.00028, eq. 3; one-sided: Petzka et al.,
    2018, arXiv:1709.08894; center 0: Thanh-Tung et al., 2019, arXiv:1902.03984.
    """
    if real.shape != fake.shape or alpha.shape != real.shape[:1]:
        raise ValueError(
            "real and fake must have the same shape, alpha the shape (batch,): "
            f"real {tuple(real.shape)}, fake {tuple(fake.shape)}, alpha {tuple(alpha.shape)}"
        )
    weight = alpha.view(-1, *[1] * (real.ndim - 1))
    between = weight * real + (1 - weight) * fake
    return _norm_penalty(critic, between, center, one_sided)


def dragan_penalty(critic: Critic, real: Tensor, noise: Tensor, *, center: float = 1.0) -> Tensor:
    """(||grad D(x + noise)|| - center)^2: the gradient norm around the data.

    Unlike the authors' code, which scales its noise by the standard deviation of the batch, the
    caller gives the noise, so a sample's penalty does not depend on the rest of its batch.

    Args:
        critic: images to logits, shape (batch,).
        real: real samples, shape (batch, ...).
        noise: of the same shape, added to them.
        center: the gradient norm asked for.

    Returns:
        Shape (batch,), differentiable, also where the gradient is exactly zero.

    Raises:
        ValueError: `noise` has not the shape of `real`.
        GanError: as `r1_penalty`.

    Reference: Kodali et al., 2017, arXiv:1705.07215, section 2.4.
    """
    if noise.shape != real.shape:
        raise ValueError(
            "noise must have the shape of real: "
            f"noise {tuple(noise.shape)}, real {tuple(real.shape)}"
        )
    return _norm_penalty(critic, real + noise, center)


def _norm_penalty(critic: Critic, images: Tensor, center: float, one_sided: bool = False) -> Tensor:
    # vector_norm has a gradient of zero at zero; a root written by hand has NaN there.
    norm: Tensor = torch.linalg.vector_norm(_input_gradient(critic, images), dim=1)
    excess = (norm - center).relu() if one_sided else norm - center
    return excess.square()


def _input_gradient(critic: Critic, images: Tensor) -> Tensor:
    """Gradient of each sample's logit with respect to that sample, shape (batch, its numbers)."""
    return logits_and_gradients(lambda x: (critic(x),), images)[1][0]


def logits_and_gradients(
    judge: Callable[..., Sequence[Tensor]], *images: Tensor
) -> tuple[list[Tensor], list[Tensor]]:
    """Logits of images, and the gradient of each image's logit with respect to that image.

    Args:
        judge: as many batches of images to as many batches of logits; the logit of an image
            depends on no image of another batch.
        images: the batches; no gradient flows back to where they come from.

    Returns:
        The logits, and for each batch of images the gradients, shape (batch, numbers of an
        image). Both are differentiable and share one graph.

    Raises:
        GanError: as `r1_penalty`.
    """
    leaves = [each.detach().requires_grad_() for each in images]
    gradients: Sequence[Tensor | None] = [None]
    try:
        logits = list(judge(*leaves))
        if all(each.requires_grad for each in logits):
            total = torch.stack([each.sum() for each in logits]).sum()
            gradients = torch.autograd.grad(total, leaves, create_graph=True, allow_unused=True)
    except RuntimeError as error:
        if "inplace" not in str(error) and "in-place" not in str(error):
            raise
        layers = ", ".join(_layers_that_overwrite(judge, images)) or "an operation in its forward"
        raise GanError(
            "penalties: the discriminator overwrites a tensor that its gradient needs, by "
            f"{layers}; let it work out of place (inplace=False, no function ending in _). "
            f"Torch says: {str(error).splitlines()[0]}"
        ) from error
    found = [gradient.flatten(1) for gradient in gradients if gradient is not None]
    if len(found) < len(leaves):
        raise GanError(
            "penalties: the discriminator's logits do not depend on its images, so there is no "
            "gradient to penalise; look for a detach() or a no_grad() in its forward"
        )
    return logits, found


def _layers_that_overwrite(
    judge: Callable[..., Sequence[Tensor]], images: Sequence[Tensor]
) -> list[str]:
    """Run the discriminator once more and name the layers that change their input in place."""
    versions: list[list[int]] = []
    found: list[str] = []

    def version(inputs: tuple[object, ...]) -> list[int]:
        return [value._version for value in inputs if isinstance(value, Tensor)]

    def before(_: nn.Module, inputs: tuple[object, ...]) -> None:
        versions.append(version(inputs))

    def after(layer: nn.Module, inputs: tuple[object, ...], _: object) -> None:
        if version(inputs) != versions.pop():
            found.append(repr(layer))

    handles = [register_module_forward_pre_hook(before), register_module_forward_hook(after)]
    try:
        with torch.no_grad():
            judge(*(each.detach().clone() for each in images))
    finally:
        for handle in handles:
            handle.remove()
    return list(dict.fromkeys(found))


def by_kind(critic: Callable[..., Tensor]) -> dict[str, Critic]:
    """What `Scores.critics` holds, of a critic that is told which kind of image it sees.

    Args:
        critic: takes images and `kind`, "real" or "fake", and gives logits of shape (batch,).

    Returns:
        A critic of images alone for each kind.
    """
    return {kind: partial(critic, kind=kind) for kind in ("real", "fake")}


def _between(scores: Scores, center: float = 1.0, one_sided: bool = False) -> Tensor:
    alpha = scores.chance.uniform("penalty/alpha")
    return gradient_penalty(
        scores.critic, scores.real, scores.fake, alpha, center=center, one_sided=one_sided
    )


def _around(scores: Scores) -> Tensor:
    noise = DRAGAN_STD * scores.chance.normal("penalty/noise", *scores.real.shape[1:])
    return dragan_penalty(scores.critic, scores.real, noise)


PENALTIES: dict[str, Penalty] = {
    "r1": Penalty(GradientNorm("real"), scale=0.5),
    "r2": Penalty(GradientNorm("fake"), scale=0.5),
    "wgan-gp": Penalty(_between, default_weight=10.0),
    "wgan-gp-one-sided": Penalty(lambda s: _between(s, one_sided=True), default_weight=10.0),
    "dragan": Penalty(_around, default_weight=10.0),
    "zero-centered-gp": Penalty(lambda s: _between(s, center=0.0), default_weight=10.0),
    "lecam": Penalty(LeCam(), default_weight=0.3),
    "consistency": Penalty(consistency, default_weight=10.0),
    "balanced-consistency": Penalty(balanced_consistency, default_weight=10.0),
}
"""The discriminator's penalties, by the name that the option `penalties` takes."""

GENERATOR_PENALTIES: dict[str, Penalty] = {
    "path-length": Penalty(PathLength(), default_weight=2.0),
    "feature-matching": Penalty(feature_matching, default_weight=1.0),
}
"""The generator's, by the name that the option `generator_penalties` takes."""
