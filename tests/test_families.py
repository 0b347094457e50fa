"""Every family through the two steps as a run takes them: shapes, classes, precisions, resuming."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_networks import TINY, tiny
from toys import accelerator, prepared, weights

from gan.augment import TRANSFORMS, Augmentation
from gan.chance import Chance
from gan.losses import LOSSES
from gan.network_config import FAMILY_NAMES
from gan.networks import FAMILIES
from gan.penalties import GENERATOR_PENALTIES, PENALTIES
from gan.player import Player
from gan.steps import MicroBatch, discriminator_step, generator_step

CASES: list[tuple[tuple[int, ...], int, str]] = [
    ((1, 16, 16), 0, "no"),
    ((3, 16, 24), 3, "bf16"),
    ((4, 32, 32), 3, "no"),
    ((4, 48, 16), 0, "bf16"),
    ((1, 28, 28), 3, "bf16"),
    ((3, 64, 64), 0, "bf16"),
    ((3, 64, 64), 3, "no"),
]
"""Shape, number of classes, precision."""


def two_steps(g: Player, d: Player, shape: tuple[int, ...], classes: int, start: int = 0) -> Any:
    """Two steps of one D and one G update each, with everything that looks into a network."""
    loss, augment = LOSSES["relativistic"], Augmentation(TRANSFORMS["ada"], strength=0.5)
    penalties = {name: (0.1, PENALTIES[name].term) for name in ("r1", "r2", "consistency")}
    others = {name: (0.1, GENERATOR_PENALTIES[name].term) for name in GENERATOR_PENALTIES}
    scalars = {}
    for step in range(start, start + 2):
        chance = Chance((step,), 0, 4)
        labels = (torch.arange(4) % classes,) if classes else ()
        real = chance.uniform("real", *shape) * 2 - 1
        batch = MicroBatch(real, (chance.normal("z", 6), *labels), labels, chance)
        scalars = discriminator_step(
            d.accelerator, g, d, [batch], loss, penalties=penalties, augment=augment
        )
        scalars |= generator_step(
            g.accelerator, g, d, [batch], loss, penalties=others, augment=augment
        )
    return scalars


@pytest.mark.parametrize(("shape", "classes", "precision"), CASES, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_trains(
    family: str, shape: tuple[int, ...], classes: int, precision: str
) -> None:
    acc = accelerator(mixed_precision=precision)
    g, d = prepared(acc, *tiny(family, shape, classes))
    before = weights(g.raw, d.raw)
    scalars = two_steps(g, d, shape, classes)
    after = weights(g.raw, d.raw)
    assert torch.stack(list(scalars.values())).isfinite().all()
    assert after.isfinite().all()
    assert scalars["grad_norm/generator"] > 0
    assert scalars["grad_norm/discriminator"] > 0
    assert not torch.equal(before, after)
    assert {p.dtype for p in (*g.raw.parameters(), *d.raw.parameters())} == {torch.float32}


@pytest.mark.parametrize(
    ("family", "precision"),
    [*((variant, "no") for variant in TINY), *((family, "bf16") for family in FAMILIES)],
)
def test_every_family_goes_on_exactly(family: str, precision: str) -> None:
    acc, shape = accelerator(mixed_precision=precision), (3, 16, 16)
    g, d = prepared(acc, *tiny(family, shape, 3))
    two_steps(g, d, shape, 3)
    saved = [
        ({k: v.clone() for k, v in player.raw.state_dict().items()}, player.state_dict())
        for player in (g, d)
    ]
    saved_optimizers = torch.utils._pytree.tree_map(
        lambda x: x.clone() if isinstance(x, torch.Tensor) else x, [state for _, state in saved]
    )
    noise = torch.get_rng_state()
    two_steps(g, d, shape, 3, start=2)
    whole = weights(g.raw, d.raw)

    torch.manual_seed(99)
    g, d = prepared(acc, *tiny(family, shape, 3))
    for player, (network, _), state in zip((g, d), saved, saved_optimizers, strict=True):
        player.raw.load_state_dict(network)
        player.load_state_dict(state)
    torch.set_rng_state(noise)
    two_steps(g, d, shape, 3, start=2)
    assert torch.equal(weights(g.raw, d.raw), whole)


def test_the_options_know_every_family() -> None:
    assert sorted(FAMILIES) == sorted(FAMILY_NAMES)
