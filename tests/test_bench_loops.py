"""The loops that the toolkit is compared with train what it trains, and skip nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from toys import weights

from gan import preset_config
from gan.chance import Chance
from gan.config import Config
from gan.loop import train_step
from gan.networks import build_discriminator
from gan.run import Run, build
from gan.speed.expert import ExpertLoop, judges_alone
from gan.speed.feed import Fresh, LoaderFeed, MemoryFeed
from gan.speed.loops import PlainLoop, period, unfused

MLP = {
    "reuse_fakes": False,
    "steps": 20,
    "batch_size": 16,
    "generator": {"hidden": [16]},
    "discriminator": {"hidden": [16]},
}
CONV: dict[str, Any] = {
    "data": "fake:64",
    "resolution": "8",
    "steps": 20,
    "batch_size": 8,
    "generator": {"width": 8},
    "discriminator": {"width": 8, "norm": "none"},
}


class Replay:
    """The images and the random numbers of a run, for a loop that is to train the same."""

    def __init__(self, config: Config) -> None:
        self.run = build(config)

    def real(self) -> tuple[Tensor, Tensor]:
        return next(self.run.stream)

    def chance(self, step: int, phase: str, index: int) -> Chance:
        size = self.run.config.batch_size
        key = (self.run.config.seed, 0, step, phase)
        return Chance(key, index * size, (index + 1) * size)


def parameters(module: nn.Module) -> Tensor:
    """All but the last bias of a discriminator.

    A relativistic loss does not depend on it: its gradient is rounding, which Adam blows up.
    """
    return torch.cat(
        [
            parameter.detach().flatten()
            for name, parameter in module.named_parameters()
            if name != "head.linear.bias"
        ]
    )


def trained(config: Config, steps: int) -> tuple[Run, PlainLoop, ExpertLoop]:
    """All three, after the same steps."""
    run = build(config)
    plain, expert = (
        kind(run.config, run.data, run.accelerator.device, Replay(config))
        for kind in (PlainLoop, ExpertLoop)
    )
    for loop in (plain, expert):
        assert torch.equal(parameters(loop.generator), parameters(run.generator.raw))
        assert torch.equal(parameters(loop.discriminator), parameters(run.discriminator.raw))
    for _ in range(steps):
        train_step(run)
        plain.step()
        expert.step()
    return run, plain, expert


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(Config.from_dict(MLP, preset_config("digits")), id="lazy, classes"),
        pytest.param(
            Config.from_dict({**MLP, "n_critic": 2}, preset_config("digits")), id="n_critic 2"
        ),
        pytest.param(
            Config.from_dict(
                {**MLP, "gradient_accumulation_steps": 2, "reuse_fakes": True},
                preset_config("digits"),
            ),
            id="two micro-batches",
        ),
        pytest.param(
            Config.from_dict({**MLP, "reuse_fakes": True, "n_critic": 2}, preset_config("digits")),
            id="reused fakes, n_critic 2",
        ),
        pytest.param(
            Config.from_dict(
                {
                    **CONV,
                    "resolution": "16",
                    "loss": "hinge",
                    "discriminator": {"width": 8, "norm": "batch"},
                }
            ),
            id="hinge, batch norm",
        ),
        pytest.param(
            Config.from_dict({**CONV, "penalties": ["r1/2"], "channels_last": True}),
            id="r1 alone, channels last",
        ),
        pytest.param(
            Config.from_dict(
                {
                    **CONV,
                    "loss": "wasserstein",
                    "penalties": ["wgan-gp", "lecam=1"],
                    "augment": "diffaugment",
                    "generator_penalties": ["feature-matching/2"],
                }
            ),
            id="many terms, augmentation",
        ),
        pytest.param(
            Config.from_dict(
                {
                    **CONV,
                    "augment": "ada",
                    "ada_speed": 100,
                    "ada_target": -0.9,
                    "ema_widths": [0.1],
                    "discriminator": {"width": 8, "norm": "none", "clip_weights": 0.05},
                    "generator": {"width": 8, "clip_norm": 0.01, "optimizer": "SGD"},
                }
            ),
            id="controller, clipping",
        ),
    ],
)
def test_all_three_loops_end_with_the_same_weights(config: Config) -> None:
    run, plain, expert = trained(config, steps=5)
    before = build(config)
    for role in ("generator", "discriminator"):
        mine, start = (parameters(getattr(each, role).raw) for each in (run, before))
        moved = (mine - start).abs().max()
        for loop in (plain, expert):
            theirs = parameters(getattr(loop, role))
            # Adam without momentum magnifies the last bit of a small gradient.
            assert (mine - theirs).abs().mean() < 1e-3 * (mine - start).abs().mean()
            assert (mine - theirs).abs().max() < 0.1 * moved
    for loop in (plain, expert):
        torch.testing.assert_close(
            parameters(loop.average), parameters(run.ema.module), rtol=1e-4, atol=1e-5
        )
        for width, module in run.power_ema.modules.items():
            torch.testing.assert_close(
                parameters(loop.more_averages.modules[width]), parameters(module),
                rtol=1e-4, atol=1e-5,
            )  # fmt: skip
        assert loop.augment.strength == run.augment.strength
    if config.augment == "ada":
        assert run.augment.strength > 0  # the controller had something to do


def test_all_three_loops_train_the_same_in_bf16() -> None:
    penalised = {"penalties": ["r1/2", "r2"], "mixed_precision": "bf16", "augment": "r3gan"}
    sgd = {"width": 8, "norm": "none", "optimizer": "SGD", "lr": 0.01}
    networks = {"generator": sgd, "discriminator": sgd}
    config = Config.from_dict({**CONV, **penalised, **networks, "augment_strength": 0.5})
    run, plain, expert = trained(config, steps=4)
    before = build(config)
    for role in ("generator", "discriminator"):
        mine, start = (parameters(getattr(each, role).raw) for each in (run, before))
        for loop in (plain, expert):
            theirs = parameters(getattr(loop, role))
            assert (mine - theirs).norm() < 0.02 * (mine - start).norm()


def test_a_loop_that_skips_a_penalty_is_found_out() -> None:
    config = Config.from_dict(MLP, preset_config("digits"))
    run, plain, _ = trained(config, steps=1)
    lazy = PlainLoop(run.config, run.data, run.accelerator.device, Replay(config))
    lazy.due = lambda penalties, update: {}  # type: ignore[method-assign]
    lazy.step()
    mine, theirs, start = map(
        parameters, (plain.discriminator, lazy.discriminator, build(config).discriminator.raw)
    )
    assert (mine - theirs).abs().mean() > 1e-2 * (mine - start).abs().mean()


@pytest.mark.parametrize(
    ("family", "options", "alone"),
    [
        ("mlp", {}, True),
        ("dcgan", {"norm": "none"}, True),
        ("dcgan", {"norm": "spectral"}, True),
        ("dcgan", {"norm": "batch"}, False),
        ("stylegan2", {}, False),
        ("r3gan", {}, True),
    ],
)
def test_it_is_found_out_who_looks_across_the_batch(
    family: str, options: dict[str, Any], alone: bool
) -> None:
    discriminator = build_discriminator(family, (3, 16, 16), num_classes=3, **options)
    before = weights(discriminator)
    assert judges_alone(discriminator, torch.randn(4, 3, 16, 16), 3) is alone
    assert torch.equal(weights(discriminator), before)
    assert discriminator.training


def test_statistics_of_the_average_are_the_generators() -> None:
    run, plain, expert = trained(Config.from_dict(CONV), steps=2)
    for loop in (plain, expert):
        pairs = zip(loop.average.buffers(), loop.generator.buffers(), strict=True)
        assert all(torch.equal(mine, theirs) for mine, theirs in pairs)
    assert len(list(run.ema.module.buffers())) > 0


def test_the_loops_differ_as_their_descriptions_say() -> None:
    run = build(Config.from_dict({**CONV, "channels_last": True}))
    device = run.accelerator.device
    plain, expert = (kind(run.config, run.data, device) for kind in (PlainLoop, ExpertLoop))
    assert isinstance(plain.feed, LoaderFeed)
    assert isinstance(expert.feed, MemoryFeed)
    assert not plain.d_optimizer.defaults["fused"]
    assert expert.d_optimizer.defaults["fused"]
    calls: dict[str, int] = {}
    for name, loop in (("plain", plain), ("expert", expert)):

        def count(*_: Any, name: str = name) -> None:
            calls[name] = calls.get(name, 0) + 1

        loop.discriminator.register_forward_hook(count)
        loop.step()
    assert calls == {"plain": 3, "expert": 2}
    weights = [p for p in expert.discriminator.parameters() if p.ndim == 4]
    assert all(p.is_contiguous(memory_format=torch.channels_last) for p in weights)
    assert all(p.is_contiguous() for p in plain.discriminator.parameters())


@pytest.mark.parametrize("kind", [LoaderFeed, MemoryFeed])
def test_a_feed_shows_every_image_once_an_epoch(kind: type[LoaderFeed | MemoryFeed]) -> None:
    run = build(Config.from_dict(CONV))
    feed = kind(run.config, run.data, run.accelerator.device)
    shown = torch.cat([feed.real()[0] for _ in range(64 // 8)])
    assert shown.shape == (64, 3, 8, 8)
    expected = run.data.images.float() / 127.5 - 1
    assert torch.allclose(shown.flatten(1).sum(1).sort()[0], expected.flatten(1).sum(1).sort()[0])
    again = feed.real()[0]
    assert not torch.equal(again, shown[:8])


@pytest.mark.parametrize("kind", [LoaderFeed, MemoryFeed])
def test_a_feed_mirrors_half_of_the_images(kind: type[LoaderFeed | MemoryFeed]) -> None:
    run = build(Config.from_dict({**CONV, "horizontal_flip": True}))
    feed = kind(run.config, run.data, run.accelerator.device)
    originals = {image.numpy().tobytes() for image in run.data.images.float() / 127.5 - 1}
    shown = torch.cat([feed.real()[0] for _ in range(8)])
    kept = sum(image.contiguous().numpy().tobytes() in originals for image in shown)
    assert 16 < kept < 48


def test_fewer_images_than_a_batch_repeat() -> None:
    run = build(Config.from_dict({**CONV, "data": "fake:8"}))
    config = Config.from_dict({"batch_size": 20}, run.config)
    for kind in (LoaderFeed, MemoryFeed):
        assert kind(config, run.data, run.accelerator.device).real()[0].shape[0] == 20


def test_fresh_numbers_are_new_at_every_call() -> None:
    chance = Fresh((), 0, 4)
    assert chance.normal("z", 3).shape == (4, 3)
    assert not torch.equal(chance.normal("z", 3), chance.normal("z", 3))
    numbers = chance.child("part").uniform("u", 1000)
    assert 0 <= numbers.min() < 0.01 < 0.99 < numbers.max() < 1


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({}, 1),
        ({"penalties": ["r1/4", "r2/6"]}, 12),
        ({"penalties": ["r1/4"], "n_critic": 2}, 2),
        ({"penalties": ["r1/4"], "n_critic": 3}, 4),
        ({"penalties": ["r1/2"], "generator_penalties": ["path-length/3"]}, 6),
    ],
)
def test_the_period_of_lazy_penalties(options: dict[str, Any], steps: int) -> None:
    config = Config.from_dict(options)
    assert period(config) == steps
    assert all(
        (steps * config.n_critic) % each.every == 0 for each in config.penalties
    )  # so many updates bring each back to where it was


def test_an_unfused_optimizer_keeps_its_options() -> None:
    parameter = nn.Parameter(torch.ones(3))
    fused = torch.optim.AdamW([parameter], lr=0.5, betas=(0.1, 0.2), weight_decay=0.3, fused=True)
    plain = unfused(fused)
    assert type(plain) is torch.optim.AdamW
    kept = {name: plain.defaults[name] for name in ("lr", "betas", "weight_decay", "fused")}
    assert kept == {"lr": 0.5, "betas": (0.1, 0.2), "weight_decay": 0.3, "fused": None}
    assert plain.param_groups[0]["params"][0] is parameter
    assert unfused(plain) is plain
