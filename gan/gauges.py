"""Numbers that are read off a run now and then, on the main process."""

from __future__ import annotations

from collections.abc import Mapping

import psutil
import torch
from torch import Tensor

from gan.chance import Chance, generator_for
from gan.data import ImageData
from gan.freeze import Buffers
from gan.penalties import PENALTIES, Scores, by_kind
from gan.player import Player
from gan.run import Run

_MIB = 2**20


def gauges(run: Run, scalars: Mapping[str, float]) -> dict[str, float]:
    """What follows from a run as it stands, and from the scalars of its newest step.

    Args:
        run: the run.
        scalars: of the newest step, by TensorBoard tag.

    Returns:
        By tag: the norm of each network's weights; the share of real and of fake images that the
        discriminator tells rightly; which part of its loss are penalties, where there are any;
        and memory in MiB.
    """
    values = {f"weight_norm/{each.name}": weight_norm(each) for each in _players(run)}
    values["accuracy/real"] = (1 + scalars["sign/real"]) / 2
    values["accuracy/fake"] = (1 - scalars["sign/fake"]) / 2
    if run.config.penalties:
        values["penalty_share/discriminator"] = penalty_share(run, scalars)
    values["memory/process"] = psutil.Process().memory_info().rss / _MIB
    if run.accelerator.device.type == "cuda":
        values["memory/accelerator"] = torch.cuda.max_memory_allocated() / _MIB
    return values


def _players(run: Run) -> tuple[Player, Player]:
    return run.generator, run.discriminator


def weight_norm(player: Player) -> float:
    """Norm of all weights of a network taken together.

    Args:
        player: the network's.

    Returns:
        The square root of the sum of their squares.
    """
    norms = torch._foreach_norm([parameter.detach() for parameter in player.raw.parameters()])
    return float(torch.stack([norm.float() for norm in norms]).norm())


def penalty_share(run: Run, scalars: Mapping[str, float]) -> float:
    """Which part of the discriminator's loss are penalties.

    Args:
        run: the run.
        scalars: of the newest step, by TensorBoard tag.

    Returns:
        Their weighted sum, over itself plus the size of the adversarial loss: from 0 to 1. A lazy
        penalty counts as if it were due at every update.
    """
    penalties = sum(
        run.penalty_weight(each) * PENALTIES[each.name].scale * scalars[f"penalty/{each.name}"]
        for each in run.config.penalties
        if f"penalty/{each.name}" in scalars
    )
    return penalties / max(penalties + abs(scalars["loss/discriminator"]), 1e-12)


def gradient_share(run: Run, real: Tensor, labels: Tensor) -> float:
    """Which part of the discriminator's gradient comes from its penalties.

    Two more backward passes, through the networks as they stand; afterwards both are as before.

    Args:
        run: the run.
        real: in [-1, 1], shape (n, *shape), the same ones each time.
        labels: int64, shape (n,).

    Returns:
        Norm of the penalties' gradient, over itself plus the norm of the adversarial loss's: from
        0 to 1. A lazy penalty counts as if it were due at every update.
    """
    device, discriminator = run.accelerator.device, run.discriminator
    chance = Chance((run.config.seed, "penalty share"), 0, len(real), device)
    condition = (labels.to(device),) if run.num_classes else ()
    inputs = (chance.normal("z", run.config.generator.z_dim), *condition)
    buffers = Buffers(discriminator.raw)
    before = buffers.copy()

    def critic(images: Tensor, kind: str = "between") -> Tensor:
        shown = run.augment(images, chance.child(kind))
        return discriminator.full_precision(shown, *condition)

    on_cuda = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(on_cuda), run.generator.frozen:
        with torch.no_grad():
            fake = run.generator.full_precision(*inputs).float()
        logits = critic(real.to(device), "real"), critic(fake, "fake")
        adversarial = run.loss.discriminator(*logits)
        scores = Scores(
            *(real.to(device), fake, *logits, critic, chance),
            generator=run.generator.raw,
            inputs=inputs,
            critics=by_kind(critic),
        )
        terms = [
            run.penalty_weight(each) * PENALTIES[each.name].scale * run.terms[each.name](scores)
            for each in run.config.penalties
        ]
        parts = _gradient_norm(torch.stack(terms).mean(1).sum(), discriminator)
        others = _gradient_norm(adversarial, discriminator)
    buffers.restore(before)
    return parts / max(parts + others, 1e-12)


def _gradient_norm(objective: Tensor, player: Player) -> float:
    parameters = [each for each in player.raw.parameters() if each.requires_grad]
    found = torch.autograd.grad(objective, parameters, retain_graph=True, allow_unused=True)
    norms = torch._foreach_norm([each for each in found if each is not None])
    return float(torch.stack([norm.float() for norm in norms]).norm())


def judged(run: Run, images: Tensor, labels: Tensor) -> dict[str, float]:
    """What the discriminator says of real images that training does not show it.

    Args:
        run: the run.
        images: in [-1, 1], shape (n, *shape).
        labels: int64, shape (n,).

    Returns:
        `logits/held_out`, their mean, and `accuracy/held_out`, against the mean logit of the newest
        fakes where the loss is not anchored. Where the real images of the
        training do much better, the discriminator knows them by heart.
    """
    network, device = run.discriminator.raw, run.accelerator.device
    modes = [(module, module.training) for module in network.modules()]
    condition = (labels.to(device),) if run.num_classes else ()
    network.eval()
    try:
        with torch.no_grad():
            logits = run.discriminator.full_precision(images.to(device), *condition).float()
    finally:
        for module, mode in modes:
            module.training = mode
    zero = 0.0 if run.loss.anchored else run.latest["logits/fake"].item()
    right = (logits > zero).float().mean()
    return {"logits/held_out": logits.mean().item(), "accuracy/held_out": right.item()}


def some_real(data: ImageData, count: int, num_classes: int = 0) -> tuple[Tensor, Tensor]:
    """Some of the real examples, always the same ones.

    Args:
        data: all of them.
        count: at most how many.
        num_classes: above 0, the i-th example is of class i modulo `num_classes`, as in a grid of
            samples, as far as each class has enough of them.

    Returns:
        Examples in [-1, 1], shape (n, *shape), and labels, int64 of shape (n,).
    """
    order = torch.randperm(len(data), generator=generator_for("some real examples"))
    if num_classes:
        labels = data.labels.cpu()[order]
        turn = torch.empty_like(labels)
        for each in range(num_classes):
            mine = labels == each
            turn[mine] = torch.arange(int(mine.sum()))
        order = order[(turn * num_classes + labels).argsort(stable=True)]
    examples, found = data.__getitems__(order[:count].tolist())
    if examples.dtype == torch.uint8:
        examples = examples.float() / 127.5 - 1
    return examples.cpu(), found.cpu()
