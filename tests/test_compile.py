"""Both networks compiled: the same training, penalties included."""

import pytest
import torch
from conftest import reset_accelerate
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm
from toys import accelerator, points_run, prepared, weights

from gan.loop import train_step
from gan.losses import LOSSES
from gan.penalties import PENALTIES
from gan.steps import MicroBatch, discriminator_step, generator_step

DUE = {name: (1.0, PENALTIES[name].term) for name in ("r1", "r2", "wgan-gp")}


def pair(norms):
    generator = nn.Sequential(
        nn.Linear(3, 32),
        nn.Unflatten(1, (8, 2, 2)),
        *[nn.BatchNorm2d(8)] * norms,
        nn.ReLU(),
        nn.ConvTranspose2d(8, 3, 4, 2, 1),
        nn.Tanh(),
    )
    convolution = nn.Conv2d(3, 8, 3, 2, 1)
    discriminator = nn.Sequential(
        spectral_norm(convolution) if norms else convolution,
        *[nn.BatchNorm2d(8)] * norms,
        nn.LeakyReLU(0.2),
        nn.Flatten(),
        nn.Linear(32, 1),
        nn.Flatten(0),
    )
    return generator, discriminator


def trained(norms=True, memory_format=torch.contiguous_format, **options):
    """Weights of a pair of small convolutional networks after three steps with penalties."""
    reset_accelerate()
    torch.manual_seed(0)
    acc = accelerator(**options)
    networks = [network.double().to(memory_format=memory_format) for network in pair(norms)]
    # Not Adam, which makes of a gradient of 1e-17, where batch norm takes a bias away, a step.
    generator, discriminator = prepared(acc, *networks, optimizer=torch.optim.SGD, lr=0.1)
    for _ in range(3):
        batches = [
            MicroBatch(
                torch.randn(4, 3, 4, 4, dtype=torch.float64).to(memory_format=memory_format),
                (torch.randn(4, 3, dtype=torch.float64),),
            )
            for _ in range(2)
        ]
        loss = LOSSES["relativistic"]
        scalars = discriminator_step(acc, generator, discriminator, batches, loss, penalties=DUE)
        assert min(scalars[f"penalty/{name}"].item() for name in DUE) > 0
        generator_step(acc, generator, discriminator, batches, loss)
    return weights(*networks), discriminator


@pytest.mark.parametrize("norms", [False, True])
def test_channels_last_changes_nothing(norms):
    expected, _ = trained(norms)
    mine, discriminator = trained(norms, torch.channels_last)
    assert discriminator.raw[0].weight.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(mine, expected, rtol=0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("norms", [False, True])
def test_compiled_networks_train_as_eager_ones(norms):
    expected, eager = trained(norms)
    mine, compiled = trained(norms, dynamo_backend="aot_eager")
    assert eager.model is eager.raw
    assert compiled.model is not compiled.raw is compiled.model._orig_mod
    torch.testing.assert_close(mine, expected, rtol=0, atol=1e-12)


def run_weights(**options):
    run = points_run(**options)
    for _ in range(run.config.steps):
        train_step(run)
    return weights(run.generator.raw, run.discriminator.raw, run.ema.module), run


@pytest.mark.slow
def test_two_compiled_processes_give_what_one_eager_one_gives(two_processes, monkeypatch):
    """DDP inside the compiled network, accumulation and penalties, through the loop itself."""
    options = {"penalties": ["r1", "r2"], "loss": "relativistic", "steps": 2}
    expected, _ = run_weights(**options)
    monkeypatch.setenv("ACCELERATE_DYNAMO_BACKEND", "AOT_EAGER")

    def compiled():
        result, run = run_weights(gradient_accumulation_steps=2, batch_size=2, **options)
        for player in (run.generator, run.discriminator):
            assert type(player.model).__name__ == "OptimizedModule"
            assert type(player.model._orig_mod).__name__ == "DistributedDataParallel"
            assert player.model._orig_mod.module is player.raw
        return result

    first, second = two_processes(compiled)
    assert torch.equal(first, second)
    torch.testing.assert_close(first, expected, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_the_option_compile_trains_as_without_it():
    options = {"penalties": ["r1"], "steps": 2}
    expected, _ = run_weights(**options)
    reset_accelerate()
    mine, run = run_weights(compile=True, **options)
    assert type(run.generator.model).__name__ == "OptimizedModule"
    torch.testing.assert_close(mine, expected, rtol=0, atol=1e-5)
