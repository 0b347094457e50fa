"""Regularisers that look at more than one gradient, in closed form."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from toys import Squeezed, accelerator, points_run, prepared, weights, window

from gan.augment import flip_and_shift
from gan.chance import Chance
from gan.config import GENERATOR_PENALTY_NAMES, PENALTY_NAMES
from gan.errors import GanError
from gan.loop import train_step
from gan.losses import LOSSES
from gan.networks import build_discriminator, build_generator
from gan.penalties import GENERATOR_PENALTIES, PENALTIES, Scores
from gan.regularizers import (
    LeCam,
    PathLength,
    clip_weights,
    consistency_penalty,
    feature_matching,
    last_features,
    path_lengths,
)
from gan.steps import MicroBatch, discriminator_step, generator_step


def scores(critic, real, fake, generator=None, inputs=()):
    chance = Chance((0,), 0, len(real))
    return Scores(real, fake, critic(real), critic(fake), critic, chance, generator, inputs)


def same(value):
    return value


def logits_of(images):
    return images.flatten(1).sum(1)


def test_the_tables_hold_what_the_options_name():
    assert tuple(PENALTIES) == PENALTY_NAMES
    assert tuple(GENERATOR_PENALTIES) == GENERATOR_PENALTY_NAMES


# --- LeCam ---------------------------------------------------------------------------------------


def test_lecam_is_the_distance_from_the_other_sides_mean():
    lecam, real, fake = LeCam(), torch.tensor([[3.0], [5.0]]), torch.tensor([[-1.0], [1.0]])
    batch = scores(logits_of, real, fake)
    assert lecam(batch).tolist() == [0.0, 0.0]
    lecam.after_update({"logits/real": torch.tensor(4.0), "logits/fake": torch.tensor(1.0)}, same)
    assert lecam(batch).tolist() == [2.0**2 + 5.0**2, 4.0**2 + 3.0**2]
    lecam.after_update({"logits/real": torch.tensor(0.0), "logits/fake": torch.tensor(2.0)}, same)
    assert_close(lecam.means, {"real": torch.tensor(3.96), "fake": torch.tensor(1.01)})


def test_lecam_goes_on_where_it_was():
    lecam, other = LeCam(), LeCam()
    lecam.after_update({"logits/real": torch.tensor(4.0), "logits/fake": torch.tensor(1.0)}, same)
    other.load_state_dict(lecam.state_dict())
    batch = scores(logits_of, torch.randn(3, 2), torch.randn(3, 2))
    assert torch.equal(lecam(batch), other(batch))
    assert not other(batch).equal(LeCam()(batch))


# --- path length ---------------------------------------------------------------------------------


class Stretch(nn.Module):
    """Points that are z times a number: J is that number times the identity."""

    def __init__(self, factor):
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(factor))

    def forward(self, z, labels=None):
        return self.factor * z


def test_the_length_of_a_linear_generator_is_that_of_the_noise_it_stretches():
    z, noise = torch.randn(5, 2, requires_grad=True), torch.randn(5, 2)
    assert_close(path_lengths(3 * z, z, noise), 3 * noise.norm(dim=1))
    # Images of 4 pixels: y is divided by the root of their number.
    images = (2 * z)[:, :1, None, None].expand(-1, 3, 2, 2)
    noise = torch.randn(5, 3, 2, 2)
    assert_close(path_lengths(images, z, noise), noise.sum((1, 2, 3)).abs() * 2 / 2)


def test_path_length_is_the_squared_distance_from_the_mean():
    generator, z = Stretch(2.0), torch.randn(6, 2)
    batch = scores(logits_of, torch.randn(6, 2), generator(z), generator, (z,))
    length = 2 * batch.chance.normal("path length", 2).norm(dim=1)
    term = PathLength()
    assert term(batch).tolist() == [0.0] * 6  # the first update only measures
    term.after_update({}, same)
    assert_close(term.means["length"], length.mean().detach())
    term.means["length"] = torch.tensor(1.5)
    assert_close(term(batch), (length - 1.5).square())
    term(batch).mean().backward()
    gradient = (2 * (length - 1.5) * length / 2).mean()
    assert_close(generator.factor.grad, gradient.detach())


def test_path_length_goes_through_the_styles_of_stylegan2():
    generator = build_generator(
        "stylegan2", (3, 8, 8), z_dim=4, width=4, style_dim=8, mapping_layers=2, num_classes=3
    )
    z, labels = torch.randn(4, 4), torch.arange(4) % 3
    batch = scores(logits_of, torch.randn(4, 3, 8, 8), generator(z, labels), generator, (z, labels))
    term = PathLength()
    term.means["length"] = torch.tensor(0.0)
    values = term(batch)
    assert values.shape == (4,)
    values.mean().backward()
    assert next(generator.mapping.layers.parameters()).grad is not None
    assert generator.synthesis.constant.grad.abs().sum() > 0


# --- consistency ---------------------------------------------------------------------------------


def test_consistency_is_the_squared_change_of_the_logit():
    images, changed = torch.randn(4, 3, 8, 8), torch.randn(4, 3, 8, 8)
    values = consistency_penalty(logits_of, images, logits_of(images), changed)
    assert_close(values, (logits_of(images) - logits_of(changed)).square())
    with pytest.raises(ValueError, match=r"have shape \(4, 2\), not \(4, 3, 8, 8\)"):
        consistency_penalty(logits_of, images, logits_of(images), torch.randn(4, 2))


def test_a_critic_that_sees_no_place_is_consistent_and_both_sides_are_balanced():
    real, fake = torch.randn(2, 4, 1, 8, 8)

    def place(images):
        return images[:, 0, 0, 0]

    flat = scores(lambda x: x.amax((1, 2, 3)), torch.ones(4, 1, 8, 8), torch.zeros(4, 1, 8, 8))
    assert PENALTIES["balanced-consistency"].term(flat).tolist() == [0.0] * 4
    batch = scores(place, real, fake)
    one, both = (PENALTIES[name].term(batch) for name in ("consistency", "balanced-consistency"))
    chance = batch.chance.child("consistency")
    expected = (place(real) - place(flip_and_shift(real, chance))).square()
    assert_close(one, expected)
    assert_close(both, expected + (place(fake) - place(flip_and_shift(fake, chance))).square())


def test_points_are_not_mirrored():
    batch = scores(logits_of, torch.randn(4, 2), torch.randn(4, 2))
    with pytest.raises(GanError, match=r"points of shape \(2,\); use another penalty"):
        PENALTIES["consistency"].term(batch)


# --- feature matching ----------------------------------------------------------------------------


def test_the_last_features_are_what_the_last_layer_sees():
    layers = [nn.Linear(2, 5), nn.ReLU(), nn.Linear(5, 1), nn.Flatten(0)]
    x = torch.randn(3, 2)
    assert_close(last_features(nn.Sequential(*layers), x), layers[1](layers[0](x)))
    with pytest.raises(GanError, match="calls no layer with weights"):
        last_features(logits_of, x)


@pytest.mark.parametrize("family", ["dcgan", "mlp", "resnet", "r3gan", "stylegan2"])
def test_every_family_has_features(family):
    discriminator = build_discriminator(family, (3, 8, 8), num_classes=2)
    labels = torch.tensor([0, 1])
    features = last_features(lambda x: discriminator(x, labels), torch.randn(2, 3, 8, 8))
    assert features.shape[0] == 2
    assert features.shape[1] >= 16


def test_feature_matching_is_the_distance_of_the_means():
    critic = Squeezed(nn.Linear(2, 1))  # the last layer sees the points themselves
    real, fake = torch.randn(4, 2), torch.randn(4, 2, requires_grad=True)
    values = feature_matching(scores(critic, real, fake))
    expected = (real.mean(0) - fake.mean(0)).square().mean()
    assert_close(values, expected.expand(4))
    values.mean().backward()
    assert_close(fake.grad, ((fake.mean(0) - real.mean(0)) / 4).detach().expand(4, 2))


# --- weights -------------------------------------------------------------------------------------


def test_clipped_weights_lie_in_the_box_and_the_others_stay():
    network = nn.Linear(3, 1)
    with torch.no_grad():
        network.weight.copy_(torch.tensor([[-2.0, 0.005, 0.5]]))
        network.bias.fill_(0.02)
    clip_weights(network, 0.01)
    assert_close(network.weight.data, torch.tensor([[-0.01, 0.005, 0.01]]))
    assert network.bias.item() == pytest.approx(0.01)


# --- any loss with any of them -------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_trains_with_every_regulariser_at_once(loss):
    g, d = prepared(
        accelerator(),
        build_generator("dcgan", (1, 8, 8), z_dim=3, width=4, norm="none"),
        build_discriminator("dcgan", (1, 8, 8), width=4, norm="none"),
    )
    batches = window(2, 4, 1, 8, 8)
    penalties = {name: (0.1, row.term) for name, row in PENALTIES.items()}
    scalars = discriminator_step(d.accelerator, g, d, batches, LOSSES[loss], penalties=penalties)
    others = {name: (0.1, row.term) for name, row in GENERATOR_PENALTIES.items()}
    scalars |= generator_step(d.accelerator, g, d, batches, LOSSES[loss], penalties=others)
    assert {f"penalty/{name}" for name in (*PENALTIES, *GENERATOR_PENALTIES)} < set(scalars)
    assert all(math.isfinite(value) for value in scalars.values())
    assert scalars["grad_norm/generator"] > 0


def test_the_terms_of_cut_batches_are_those_of_the_whole():
    torch.set_default_dtype(torch.float64)
    try:
        weights = []
        real, z = torch.randn(8, 1, 8, 8), torch.randn(8, 3)
        for cuts in (1, 2):
            torch.manual_seed(3)
            g, d = prepared(
                accelerator(),
                build_generator("dcgan", (1, 8, 8), z_dim=3, width=4, norm="none"),
                build_discriminator("dcgan", (1, 8, 8), width=4, norm="none"),
                optimizer=torch.optim.SGD,
            )
            size = 8 // cuts
            batches = [
                MicroBatch(real[i : i + size], (z[i : i + size],), chance=Chance((0,), i, i + size))
                for i in range(0, 8, size)
            ]
            term = PathLength()
            term.means["length"] = torch.tensor(1.0)
            loss = LOSSES["hinge"]
            names = ("consistency", "balanced-consistency")
            penalties = {name: (1.0, PENALTIES[name].term) for name in names}
            discriminator_step(d.accelerator, g, d, batches, loss, penalties=penalties)
            others = {"path-length": (1.0, term)}
            generator_step(d.accelerator, g, d, batches, loss, penalties=others)
            term.after_update({}, same)
            values = [*g.raw.parameters(), *d.raw.parameters(), term.means["length"]]
            weights.append(torch.cat([value.detach().flatten().double() for value in values]))
        assert_close(weights[0], weights[1], rtol=1e-6, atol=1e-7)
    finally:
        torch.set_default_dtype(torch.float32)


def _remembering_run(size: int) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    run = points_run(
        batch_size=size,
        penalties=["lecam", "r1/2"],
        generator_penalties=["path-length/2"],
    )
    for _ in range(3):
        train_step(run)
    means = {k: v for term in ("lecam", "path-length") for k, v in run.terms[term].means.items()}
    return weights(run.generator.raw, run.discriminator.raw), means


def test_two_processes_remember_what_one_does(two_processes):
    whole, means = _remembering_run(8)
    for mine, theirs in two_processes(_remembering_run, 4):
        assert_close(mine, whole, rtol=0, atol=2e-5)
        assert_close(theirs, means, rtol=1e-4, atol=1e-5)


def test_consistency_compares_an_image_with_one_that_was_augmented_in_the_same_way():
    images = torch.randn(4, 1, 8, 8)

    def judging(factor):
        return lambda x: factor * x.mean((1, 2, 3))

    critics = {"real": judging(2.0), "fake": judging(3.0)}
    logits = critics["real"](images), critics["fake"](images)
    batch = scores(judging(1.0), images, images)
    batch = dataclasses.replace(
        batch, real_logits=logits[0], fake_logits=logits[1], critics=critics
    )
    values = PENALTIES["balanced-consistency"].term(batch)
    chance = batch.chance.child("consistency")
    moved = flip_and_shift(images, chance)
    change = (images.mean((1, 2, 3)) - moved.mean((1, 2, 3))).square()
    assert_close(values, (4 + 9) * change)
    rough = dataclasses.replace(
        batch, real_logits=logits[0] + 1, fake_logits=logits[1] + 1, exact=False
    )
    assert_close(PENALTIES["balanced-consistency"].term(rough), values)
