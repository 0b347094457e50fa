"""The heart: one update of the discriminator, one update of the generator.

What varies between methods comes in as a value or a function, so the same two functions train
unconditional, class-conditional and image-to-image pairs:

    unconditional      inputs (z,)          condition ()
    class-conditional  inputs (z, labels)   condition (labels,)
    image-to-image     inputs (image,)      condition (image,)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from accelerate import Accelerator
from torch import Tensor

from gan.chance import Chance
from gan.errors import ConfigError
from gan.losses import AdversarialLoss, signs
from gan.penalties import GradientNorm, Scores, by_kind, logits_and_gradients
from gan.player import Player

Penalties = Mapping[str, tuple[float, Callable[[Scores], Tensor]]]
Augment = Callable[[Tensor, Chance], Tensor]


@dataclass(frozen=True)
class MicroBatch:
    """What one forward and backward of either network needs.

    Attributes:
        real: real images in [-1, 1], shape (batch, channels, height, width), or points.
        inputs: what the generator is called with.
        condition: what the discriminator sees beside the images.
        chance: this micro-batch's random numbers, for penalties and augmentation; None: fresh
            ones from torch's global generator.
        fake: what `generator.ahead(*inputs)` gave, for both steps; None: each makes its own.
    """

    real: Tensor
    inputs: tuple[Tensor, ...]
    condition: tuple[Tensor, ...] = ()
    chance: Chance = None  # type: ignore[assignment]  # replaced below
    fake: Tensor | None = None

    def __post_init__(self) -> None:
        """Draw a chance where none was given."""
        if self.chance is None:
            object.__setattr__(self, "chance", Chance.fresh(len(self.real), self.real.device))


def unchanged(images: Tensor, chance: Chance) -> Tensor:
    """The augmentation that does nothing.

    Args:
        images: any shape.
        chance: unused.

    Returns:
        `images`.
    """
    return images


def discriminator_step(
    accelerator: Accelerator,
    generator: Player,
    discriminator: Player,
    batches: Sequence[MicroBatch],
    loss: AdversarialLoss,
    *,
    penalties: Penalties | None = None,
    augment: Augment = unchanged,
    measure: bool = True,
    joint: bool = False,
) -> dict[str, Tensor]:
    """One update of the discriminator from a window of micro-batches.

    The generator runs in training mode, with the statistics of its batch, because these are the
    fakes that its own step will show; its running statistics stay as they are, because they
    describe the generator at its own updates.

    Args:
        accelerator: the Accelerator that prepared both players.
        generator: makes the fakes; nothing of it changes.
        discriminator: is updated once.
        batches: the micro-batches of the update, on this process, all of one size. Cutting a
            batch into them, or over processes, changes nothing, except with batch norm, which
            normalises by the statistics of a micro-batch, and with a loss that itself looks
            across the batch (relativistic-average).
        loss: adversarial loss.
        penalties: those due now, {name: (weight, term)}; term maps `Scores` to one value per
            example, shape (batch,). They are taken in fp32 with respect to the images before
            augmentation, and share the one backward.
        augment: differentiable augmentation of images; real and fake ones each get their own.
        measure: whether anybody reads more than the terms of the objective. The norm of the
            gradient takes an operation for each parameter.
        joint: judge real and fake images in one forward, if the discriminator is `pure`. Where
            neither that nor a penalty keeps them together, a separable loss learns from the real
            images first, which takes half the memory.

    Returns:
        Detached scalars by TensorBoard tag: loss/discriminator, penalty/NAME (unweighted) and, if
        measured, logits/real, logits/fake, sign/real, sign/fake and grad_norm/discriminator.

    Raises:
        ConfigError: micro-batches of several sizes, or another number of them than the
            Accelerator's gradient_accumulation_steps.
    """
    _check_window(accelerator, batches)
    players, reports = (generator, discriminator), []
    joint = joint and discriminator.pure
    for i, batch in enumerate(batches):
        with discriminator.micro_batch(i, of=len(batches)):
            fake = _fakes(generator, batch)
            if loss.separable and not (penalties or joint):
                logits, gradients = _real_first(discriminator, batch, fake, loss, augment)
            else:
                logits, gradients = _judge(discriminator, batch, fake, augment, penalties, joint)
            adversarial = loss.discriminator(*logits)
            scores = _scores(players, batch, augment, fake, logits, gradients)
            objective, terms = _penalised(adversarial, penalties, scores)
            accelerator.backward(objective)
        report = {"loss/discriminator": adversarial.detach()} | terms
        reports.append(report | (_seen(loss, logits) if measure else {}))
    return _mean(reports) | _update(discriminator, measure)


def generator_step(
    accelerator: Accelerator,
    generator: Player,
    discriminator: Player,
    batches: Sequence[MicroBatch],
    loss: AdversarialLoss,
    *,
    penalties: Penalties | None = None,
    augment: Augment = unchanged,
    measure: bool = True,
) -> dict[str, Tensor]:
    """One update of the generator from a window of micro-batches.

    Args:
        accelerator: the Accelerator that prepared both players.
        generator: is updated once.
        discriminator: judges; nothing of it changes.
        batches: as in `discriminator_step`; `real` is used by relativistic losses only.
        loss: adversarial loss.
        penalties: as in `discriminator_step`, on the generator's objective: a reconstruction
            term, feature matching, ...
        augment: as in `discriminator_step`.
        measure: likewise.

    Returns:
        Detached scalars by TensorBoard tag: loss/generator, penalty/NAME (unweighted) and, if
        measured, grad_norm/generator.

    Raises:
        ConfigError: as in `discriminator_step`.
    """
    _check_window(accelerator, batches)
    players, reports = (generator, discriminator), []
    for i, batch in enumerate(batches):
        with generator.micro_batch(i, of=len(batches)), discriminator.frozen:
            fake = generator.model(*batch.inputs) if batch.fake is None else batch.fake
            shown = augment(fake, batch.chance.child("fake"))
            fake_logits, real_logits = discriminator.raw(shown, *batch.condition), None
            if loss.relativistic:
                shown = augment(batch.real, batch.chance.child("real"))
                real_logits = discriminator.raw(shown, *batch.condition)
            adversarial = loss.generator(real_logits, fake_logits)
            logits = (real_logits, fake_logits)
            scores = _scores(players, batch, augment, fake, logits, {})
            objective, terms = _penalised(adversarial, penalties, scores)
            accelerator.backward(objective)
        reports.append({"loss/generator": adversarial.detach()} | terms)
    return _mean(reports) | _update(generator, measure)


def _check_window(accelerator: Accelerator, batches: Sequence[MicroBatch]) -> None:
    sizes = [len(batch.real) for batch in batches]
    if len(set(sizes)) != 1:
        raise ConfigError(
            f"the micro-batches of one update must have one size, not {sizes}, or their examples "
            "would not weigh the same; give the DataLoader drop_last=True"
        )
    steps = accelerator.gradient_accumulation_steps
    if steps not in (1, len(batches)):
        raise ConfigError(
            f"gradient_accumulation_steps: the Accelerator has {steps}, but the update has "
            f"{len(batches)} micro-batches; give the update {steps}, or the Accelerator 1"
        )


def _fakes(generator: Player, batch: MicroBatch) -> Tensor:
    """Fakes without a way back; making them leaves the generator as it was."""
    if batch.fake is not None:
        return batch.fake.detach()
    with generator.frozen, torch.no_grad():
        fake: Tensor = generator.raw(*batch.inputs)
    return fake


def _real_first(
    discriminator: Player, batch: MicroBatch, fake: Tensor, loss: AdversarialLoss, augment: Augment
) -> tuple[list[Tensor], dict[str, Tensor]]:
    """As `_judge`, but without gradients, and the real images are learned from at once.

    So no memory holds the activations of both kinds. At the real logits, the gradient of a
    separable loss is the same whatever the fake ones are.
    """
    accelerator = discriminator.accelerator
    with accelerator.no_sync(discriminator.model):  # the backward of the fakes averages both
        shown = augment(batch.real, batch.chance.child("real"))
        logits: Tensor = discriminator.model(shown, *batch.condition)
        accelerator.backward(loss.discriminator(logits, torch.zeros_like(logits)))
    shown = augment(fake, batch.chance.child("fake"))
    return [logits.detach(), discriminator.model(shown, *batch.condition)], {}


def _judge(
    discriminator: Player,
    batch: MicroBatch,
    fake: Tensor,
    augment: Augment,
    penalties: Penalties | None,
    joint: bool,
) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Logits of the real and the fake images, and those gradients that penalties ask for.

    A forward in full precision gives the gradients too. Where the others are not, and both kinds of
    image need one for a penalty, it gives the logits too.
    """
    images = {"real": batch.real, "fake": fake}

    def judge(
        network: Callable[..., Tensor], names: Sequence[str], *images: Tensor
    ) -> list[Tensor]:
        pairs = zip(names, images, strict=True)
        shown = [augment(each, batch.chance.child(name)) for name, each in pairs]
        if len(shown) == 1 or not joint:
            return [network(each, *batch.condition) for each in shown]
        condition = [_in_turn([each] * len(shown)) for each in batch.condition]
        return list(network(_in_turn(shown), *condition).view(-1, len(shown)).unbind(1))

    terms = [term for _, term in (penalties or {}).values()]
    wanted = {term.at for term in terms if isinstance(term, GradientNorm)}
    asked = [name for name in images if name in wanted]
    # Never one kind of image in fp32 and the other in less: a loss compares their logits.
    alike = discriminator.twice_differentiable or asked == [*images]
    if not (asked and alike and discriminator.pure and discriminator.eager):
        return judge(discriminator.model, [*images], *images.values()), {}
    logits, gradients = logits_and_gradients(
        partial(judge, discriminator.exactly, asked), *[images[name] for name in asked]
    )
    found = dict(zip(asked, logits, strict=True))
    for name in images:
        if name not in found:
            found[name] = judge(discriminator.model, [name], images[name])[0]
    return [found[name] for name in images], dict(zip(asked, gradients, strict=True))


def _in_turn(kinds: list[Tensor]) -> Tensor:
    """One batch of several: the first row of each, the second of each, ...

    So a sum over rows cancels pair by pair: in most losses real and fake images pull equally hard
    at a bias whose units do not change sides. One kind after the other, its gradient would be a
    rounding error and no zero, of which Adam makes whole steps.
    """
    return torch.stack(kinds, 1).flatten(0, 1)


def _seen(loss: AdversarialLoss, logits: Sequence[Tensor]) -> dict[str, Tensor]:
    real, fake = (each.detach() for each in logits)
    values = {"logits/real": real, "logits/fake": fake}
    values["sign/real"], values["sign/fake"] = signs(loss, real, fake)
    return {tag: value.mean() for tag, value in values.items()}


def _scores(
    players: tuple[Player, Player],
    batch: MicroBatch,
    augment: Augment,
    fake: Tensor,
    logits: Sequence[Tensor | None],
    gradients: dict[str, Tensor],
) -> Scores:
    generator, discriminator = players

    def critic(images: Tensor, kind: str = "between") -> Tensor:
        shown = augment(images, batch.chance.child(kind))
        return discriminator.full_precision(shown, *batch.condition)

    real_logits, fake_logits = logits
    assert fake_logits is not None, "the fake images are always judged"
    return Scores(
        *(batch.real, fake, real_logits, fake_logits, critic, batch.chance),
        generator=generator.raw,
        inputs=batch.inputs,
        critics=by_kind(critic),
        gradients=gradients,
        exact=discriminator.twice_differentiable or bool(gradients),
    )


def _penalised(
    adversarial: Tensor, penalties: Penalties | None, scores: Scores
) -> tuple[Tensor, dict[str, Tensor]]:
    objective, terms = adversarial, {}
    for name, (weight, term) in (penalties or {}).items():
        value = term(scores).mean()
        terms[f"penalty/{name}"] = value.detach()
        objective = objective + weight * value
    return objective, terms


def _update(player: Player, measure: bool) -> dict[str, Tensor]:
    norm = player.step(measure)
    return {} if norm is None else {f"grad_norm/{player.name}": norm}


def _mean(reports: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Mean over the micro-batches."""
    if len(reports) == 1:
        return reports[0]
    return {tag: torch.stack([report[tag] for report in reports]).mean() for tag in reports[0]}
