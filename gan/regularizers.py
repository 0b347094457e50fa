"""Regularisers that look at more than the gradient of one forward, for either network.

Those that remember something are objects: called with the `Scores` of a micro-batch like every
other term, told after each update what happened in it, and kept in the checkpoint. Take a copy of
the table's for each run.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from gan.augment import flip_and_shift
from gan.errors import GanError

if TYPE_CHECKING:
    from gan.penalties import Critic, Scores


Reduce = Callable[[Tensor], Tensor]


class Remembering(ABC):
    """A term whose value depends on running means."""

    DECAY = 0.99

    def __init__(self) -> None:
        self.means: dict[str, Tensor] = {}

    @abstractmethod
    def __call__(self, scores: Scores) -> Tensor:
        """The term, shape (batch,).

        Args:
            scores: of one micro-batch.
        """

    @abstractmethod
    def after_update(self, scalars: dict[str, Tensor], reduce: Reduce) -> None:
        """Move the running means. Every process calls it.

        Args:
            scalars: of this process's update, by TensorBoard tag.
            reduce: mean of a tensor over the processes.
        """

    def _move(self, name: str, value: Tensor) -> None:
        mean = self.means.get(name)
        self.means[name] = value if mean is None else mean.lerp(value, 1 - self.DECAY)

    def state_dict(self) -> dict[str, Any]:
        """The running means there are."""
        return dict(self.means)

    def load_state_dict(self, state: dict[str, Any], device: torch.device | str = "cpu") -> None:
        """Take back what `state_dict` gave.

        Args:
            state: a `state_dict`.
            device: where the logits are.
        """
        self.means = {name: value.to(device) for name, value in state.items()}


class LeCam(Remembering):
    """Holds the logits near running means: (D(x) - mean D(G(z)))^2 + (D(G(z)) - mean D(x))^2.

    0 before the first update.

    Reference: Tseng et al., 2021, arXiv:2104.03310, eqs. 5 and 6.
    """

    def __call__(self, scores: Scores) -> Tensor:
        """Each pair's distance from the running means.

        Args:
            scores: with logits of real and fake images.

        Returns:
            Shape (batch,), differentiable.
        """
        real, fake = scores.real_logits, scores.fake_logits
        if real is None:
            raise ValueError("lecam looks at real logits: real_logits is None")
        if not self.means:
            return 0 * fake
        terms: Tensor = (real - self.means["fake"]).square() + (fake - self.means["real"]).square()
        return terms

    def after_update(self, scalars: dict[str, Tensor], reduce: Reduce) -> None:
        """Move the running means of the logits.

        Args:
            scalars: of this process's update, by TensorBoard tag.
            reduce: mean of a tensor over the processes.
        """
        for name in ("real", "fake"):
            self._move(name, reduce(scalars[f"logits/{name}"].detach()))


class PathLength(Remembering):
    """A step in the style should move every image equally far: (|J^T y| - a)^2.

    J is the derivative of the image by the style, y random pixels, a the running mean of the
    length; before there is one the term is 0. A generator that has a `mapping` and a `synthesis`
    is measured between the two; any other from z.

    Reference: Karras et al., 2020, arXiv:1912.04958, section 3.2, eq. 4, and appendix B.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lengths: list[Tensor] = []

    def __call__(self, scores: Scores) -> Tensor:
        """Each latent's squared distance from the mean length.

        Args:
            scores: of a generator's update.

        Returns:
            Shape (batch,), differentiable.
        """
        noise = scores.chance.normal("path length", *scores.fake.shape[1:])
        lengths = path_lengths(*_synthesis(scores), noise)
        self._lengths.append(lengths.detach().mean())
        if "length" not in self.means:
            return 0 * lengths
        return (lengths - self.means["length"]).square()

    def load_state_dict(self, state: dict[str, Any], device: torch.device | str = "cpu") -> None:
        """Take back what `state_dict` gave, and forget an update that was not finished.

        Args:
            state: a `state_dict`.
            device: where the images are.
        """
        super().load_state_dict(state, device)
        self._lengths = []

    def after_update(self, scalars: dict[str, Tensor], reduce: Reduce) -> None:
        """Move the running mean of the length, if the update measured it.

        Args:
            scalars: unused.
            reduce: mean of a tensor over the processes.
        """
        if self._lengths:
            self._move("length", reduce(torch.stack(self._lengths).mean()))
            self._lengths = []


def path_lengths(images: Tensor, styles: Tensor, noise: Tensor) -> Tensor:
    """Length of J^T y, with y the noise over the square root of the number of pixels.

    Args:
        images: made from the styles, shape (batch, ...).
        styles: shape (batch, layers, style_dim) or (batch, z_dim); the root of the mean square
            over the layers is taken.
        noise: standard normal, shape of the images.

    Returns:
        Shape (batch,), differentiable.
    """
    pixels = images[0, 0].numel() if images.ndim > 2 else 1
    (gradient,) = torch.autograd.grad(
        (images * noise.to(images)).sum() / math.sqrt(pixels), styles, create_graph=True
    )
    gradient = gradient.reshape(len(styles), -1, styles.shape[-1])
    # vector_norm has a gradient of zero at zero; a root written by hand has NaN there.
    length: Tensor = torch.linalg.vector_norm(gradient.flatten(1), dim=1)
    return length / math.sqrt(gradient.shape[1])


def _synthesis(scores: Scores) -> tuple[Tensor, Tensor]:
    """Images made once more, in full precision, and the styles that they were made from."""
    if scores.generator is None:
        raise ValueError("path length makes images of its own: the scores have no generator")
    generator, (z, *condition) = scores.generator, scores.inputs
    mapping, synthesis = (getattr(generator, name, None) for name in ("mapping", "synthesis"))
    with torch.autocast(z.device.type, enabled=False):
        if isinstance(mapping, nn.Module) and isinstance(synthesis, nn.Module):
            w = mapping(z, *condition).unsqueeze(1)
            styles = w.expand(-1, synthesis.num_styles, -1)
            return synthesis(styles), styles
        styles = z.detach().requires_grad_()
        forward = getattr(generator, "_original_forward", generator.forward)
        return forward(styles, *condition), styles


def consistency_penalty(critic: Critic, images: Tensor, logits: Tensor, changed: Tensor) -> Tensor:
    """(D(x) - D(T(x)))^2: what a harmless change does to the logit.

    Args:
        critic: images to logits.
        images: shape (batch, ...); only their shape is used, for the message.
        logits: what the critic said of the images, shape (batch,).
        changed: the images after the change.

    Returns:
        Shape (batch,), differentiable.

    Raises:
        ValueError: the change has another shape.

    Reference: Zhang et al., 2020, arXiv:1910.12027, eq. 2, on the last layer.
    """
    if changed.shape != images.shape:
        raise ValueError(
            f"the changed images have shape {tuple(changed.shape)}, not {tuple(images.shape)}"
        )
    return (logits - critic(changed)).square()


def consistency(scores: Scores) -> Tensor:
    """The consistency of real images under mirroring and translation.

    Args:
        scores: with logits of real images.

    Returns:
        Shape (batch,), differentiable.
    """
    assert scores.real_logits is not None
    return _consistency(scores, "real", scores.real, scores.real_logits)


def balanced_consistency(scores: Scores) -> Tensor:
    """The consistency of real images and that of generated ones.

    Args:
        scores: with logits of both.

    Returns:
        Shape (batch,), differentiable.

    Reference: Zhao et al., 2020, arXiv:2002.04724, algorithm 1, with equal weights.
    """
    fake = scores.fake.detach()
    return consistency(scores) + _consistency(scores, "fake", fake, scores.fake_logits)


def _consistency(scores: Scores, kind: str, images: Tensor, logits: Tensor) -> Tensor:
    if images.ndim != 4:
        raise GanError(
            "penalties: consistency compares images with moved ones, but these are points of "
            f"shape {tuple(images.shape[1:])}; use another penalty"
        )
    changed = flip_and_shift(images, scores.chance.child("consistency"))
    critic = scores.critics.get(kind, scores.critic)  # augments both in the same way
    logits = logits if scores.exact else critic(images)
    return consistency_penalty(critic, images, logits, changed)


def feature_matching(scores: Scores) -> Tensor:
    """||mean f(x) - mean f(G(z))||^2 / length, f being what the discriminator's last layer sees.

    The means are over the micro-batch, so unlike the others this term depends on how a batch is
    cut; every sample gets the same value.

    Args:
        scores: of a generator's update.

    Returns:
        Shape (batch,), differentiable with respect to the fakes.

    Reference: Salimans et al., 2016, arXiv:1606.03498, section 3.1.
    """
    with torch.no_grad():
        real = last_features(scores.critic, scores.real)
    fake = last_features(scores.critic, scores.fake)
    distance = (real.mean(0) - fake.mean(0)).square().mean()
    return distance.expand(len(scores.fake))


def last_features(critic: Critic, images: Tensor) -> Tensor:
    """What goes into the last layer with weights that a critic calls.

    Args:
        critic: images to logits, made of torch modules.
        images: shape (batch, ...).

    Returns:
        Shape (batch, length).

    Raises:
        GanError: no layer has weights.
    """
    found: list[Tensor] = []

    def before(layer: nn.Module, inputs: tuple[object, ...]) -> None:
        x = inputs[0] if inputs else None
        if (
            isinstance(x, Tensor)
            and x.is_floating_point()
            and any(True for _ in layer.parameters())
        ):
            found[:] = [x]

    handle = register_module_forward_pre_hook(before)
    try:
        critic(images)
    finally:
        handle.remove()
    if not found:
        raise GanError("feature-matching: the discriminator calls no layer with weights")
    return found[0].flatten(1)


@torch.no_grad()
def clip_weights(network: nn.Module, limit: float) -> None:
    """Put every parameter back into [-limit, limit].

    Args:
        network: a critic; after each of its updates.
        limit: 0.01 in the paper.

    Reference: Arjovsky et al., 2017, arXiv:1701.07875, algorithm 1.
    """
    torch._foreach_clamp_max_(list(network.parameters()), limit)
    torch._foreach_clamp_min_(list(network.parameters()), -limit)
