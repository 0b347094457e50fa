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

import torch
from accelerate import Accelerator
from torch import Tensor

from gan.chance import Chance
from gan.errors import ConfigError
from gan.losses import AdversarialLoss
from gan.penalties import Scores
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
    """

    real: Tensor
    inputs: tuple[Tensor, ...]
    condition: tuple[Tensor, ...] = ()
    chance: Chance = None  # type: ignore[assignment]  # replaced below

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
        augment: differentiable augmentation of images; the i-th real and the i-th fake get the
            same one.

    Returns:
        Detached scalars by TensorBoard tag: loss/discriminator, logits/real, logits/fake,
        sign/real, sign/fake, penalty/NAME (unweighted) and grad_norm/discriminator.

    Raises:
        ConfigError: micro-batches of several sizes, or another number of them than the
            Accelerator's gradient_accumulation_steps.
    """
    _check_window(accelerator, batches)
    players, reports = (generator, discriminator), []
    for i, batch in enumerate(batches):
        chance, condition = batch.chance, batch.condition
        with discriminator.micro_batch(i, of=len(batches)), generator.frozen:
            with torch.no_grad():
                fake = generator.raw(*batch.inputs)
            real_logits = discriminator.model(augment(batch.real, chance), *condition)
            fake_logits = discriminator.model(augment(fake, chance), *condition)
            adversarial = loss.discriminator(real_logits, fake_logits)
            scores = _scores(players, batch, augment, fake, real_logits, fake_logits)
            objective, terms = _penalised(adversarial, penalties, scores)
            accelerator.backward(objective)
        logits = {"real": real_logits.detach(), "fake": fake_logits.detach()}
        report = {f"logits/{name}": value.mean() for name, value in logits.items()}
        report |= {f"sign/{name}": value.sign().mean() for name, value in logits.items()}
        reports.append({"loss/discriminator": adversarial.detach()} | report | terms)
    return _mean(reports) | {"grad_norm/discriminator": discriminator.step()}


def generator_step(
    accelerator: Accelerator,
    generator: Player,
    discriminator: Player,
    batches: Sequence[MicroBatch],
    loss: AdversarialLoss,
    *,
    penalties: Penalties | None = None,
    augment: Augment = unchanged,
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

    Returns:
        Detached scalars by TensorBoard tag: loss/generator, penalty/NAME (unweighted) and
        grad_norm/generator.

    Raises:
        ConfigError: as in `discriminator_step`.
    """
    _check_window(accelerator, batches)
    players, reports = (generator, discriminator), []
    for i, batch in enumerate(batches):
        chance, condition = batch.chance, batch.condition
        with generator.micro_batch(i, of=len(batches)), discriminator.frozen:
            fake = generator.model(*batch.inputs)
            fake_logits = discriminator.raw(augment(fake, chance), *condition)
            real_logits = None
            if loss.relativistic:
                real_logits = discriminator.raw(augment(batch.real, chance), *condition)
            adversarial = loss.generator(real_logits, fake_logits)
            scores = _scores(players, batch, augment, fake, real_logits, fake_logits)
            objective, terms = _penalised(adversarial, penalties, scores)
            accelerator.backward(objective)
        reports.append({"loss/generator": adversarial.detach()} | terms)
    return _mean(reports) | {"grad_norm/generator": generator.step()}


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


def _scores(
    players: tuple[Player, Player],
    batch: MicroBatch,
    augment: Augment,
    fake: Tensor,
    real_logits: Tensor | None,
    fake_logits: Tensor,
) -> Scores:
    generator, discriminator = players

    def critic(images: Tensor) -> Tensor:
        return discriminator.full_precision(augment(images, batch.chance), *batch.condition)

    logits = real_logits, fake_logits
    return Scores(batch.real, fake, *logits, critic, batch.chance, generator.raw, batch.inputs)


def _penalised(
    adversarial: Tensor, penalties: Penalties | None, scores: Scores
) -> tuple[Tensor, dict[str, Tensor]]:
    objective, terms = adversarial, {}
    for name, (weight, term) in (penalties or {}).items():
        value = term(scores).mean()
        terms[f"penalty/{name}"] = value.detach()
        objective = objective + weight * value
    return objective, terms


def _mean(reports: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Mean over the micro-batches."""
    if len(reports) == 1:
        return reports[0]
    return {tag: torch.stack([report[tag] for report in reports]).mean() for tag in reports[0]}
