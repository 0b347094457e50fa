"""The averaged generator against closed forms, and every kind of network that it must copy."""

import dataclasses
import math
import threading

import pytest
import torch
from conftest import reset_accelerate
from torch import nn
from torch.nn.utils import parametrizations
from toys import accelerator, points_run, weights

from gan.ema import EMA
from gan.errors import ConfigError
from gan.loop import train_step
from gan.schedules import Schedule


def constant(value, inputs=2):
    """A network all of whose weights are one number."""
    network = nn.Linear(inputs, 2)
    for parameter in network.parameters():
        nn.init.constant_(parameter, value)
    return network


def test_half_life():
    """Half of a jump is there after one half-life of images, however they come in batches."""
    for batch in (1, 10, 50):
        ema = EMA(constant(0.0), half_life=100, rampup=None)
        for images in range(batch, 101, batch):
            ema.update(constant(1.0), images, 1000)
        torch.testing.assert_close(ema.module.weight, torch.full((2, 2), 0.5))


def test_closed_form_over_changing_weights():
    ema, total = EMA(constant(0.0), half_life=30, rampup=None), 0.0
    for step, value in enumerate((3.0, -1.0, 7.0), start=1):
        beta = 0.5 ** (10 / 30)
        total = beta * total + (1 - beta) * value
        ema.update(constant(value), 10 * step, 30)
    torch.testing.assert_close(ema.module.weight, torch.full((2, 2), total))


def test_rampup_bounds_the_half_life_by_a_share_of_the_images_seen():
    ema = EMA(constant(0.0), half_life=1000, rampup=0.05)
    assert [ema.half_life_at(images, 0) for images in (0, 100, 20_000, 40_000)] == [
        0,
        5,
        1000,
        1000,
    ]
    ema.update(constant(1.0), 100, 0)  # 100 images at a half-life of 5
    assert ema.module.weight[0, 0].item() == pytest.approx(1 - 0.5**20)
    ema.update(constant(0.0), 110, 0)
    expected = (1 - 0.5**20) * 0.5 ** (10 / (0.05 * 110))
    assert ema.module.weight[0, 0].item() == pytest.approx(expected)


def test_half_life_may_be_a_schedule():
    ema = EMA(constant(0.0), Schedule.parse("100..300"), None)
    assert [ema.half_life_at(images, 1000) for images in (0, 500, 1000)] == [100, 200, 300]
    assert EMA(constant(0.0), "5..1", None).half_life_at(10, 10) == 1


def test_without_a_half_life_the_average_is_the_network():
    ema = EMA(constant(0.0), half_life=0)
    ema.update(constant(4.0), 10, 100)
    assert torch.equal(weights(ema.module), weights(constant(4.0)))


def test_only_successful_updates_move_the_average():
    """An update that fp16 skipped leaves the network, so its images count at the next one."""
    run, steps = points_run(ema_half_life=20), []
    loss = run.loss
    overflowing = dataclasses.replace(loss, generator=lambda r, f: 1e36 * loss.generator(r, f))
    for step in range(1, 5):
        before = weights(run.ema.module)
        run.generator.scaler = torch.amp.GradScaler("cpu") if step == 2 else None
        run.loss = overflowing if step == 2 else loss
        train_step(run)
        steps.append((torch.equal(weights(run.ema.module), before), run.ema.images_seen))
    assert run.generator.skipped == 1
    assert steps == [(False, 8), (True, 8), (False, 24), (False, 32)]

    ema = EMA(constant(0.0), half_life=16, rampup=None)
    ema.update(constant(1.0), 8, 0)
    ema.update(constant(2.0), 24, 0)  # two steps' images
    expected = 0.5 * (1 - 0.5**0.5) + 0.5 * 2.0
    assert ema.module.weight[0, 0].item() == pytest.approx(expected)


def test_buffers_are_copied_and_the_module_is_still():
    network = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout())
    ema = EMA(network, half_life=100)
    assert not ema.module.training
    assert not any(p.requires_grad for p in ema.module.parameters())
    assert network.training
    network(5 + torch.randn(8, 2))
    ema.update(network, 8, 100)
    for name, buffer in network.named_buffers():
        assert torch.equal(ema.module.get_buffer(name), buffer), name
    network[1].running_mean.zero_()
    assert ema.module[1].running_mean.abs().min() > 0  # a copy


def test_state_goes_there_and_back():
    a = EMA(constant(1.0), half_life=50, rampup=None)
    a.update(constant(3.0), 20, 0)
    b = EMA(constant(9.0), half_life=50, rampup=None)
    b.module.load_state_dict(a.module.state_dict())
    b.load_state_dict(a.state_dict())
    for ema in (a, b):
        ema.update(constant(-5.0), 60, 0)
    assert torch.equal(weights(a.module), weights(b.module))


# --- what must be copied -------------------------------------------------------------------------

NORMS = {
    "hook-style spectral norm": torch.nn.utils.spectral_norm,
    "hook-style weight norm": torch.nn.utils.weight_norm,
    "spectral norm": parametrizations.spectral_norm,
    "weight norm": parametrizations.weight_norm,
}


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
@pytest.mark.parametrize("forwards", [0, 1])
@pytest.mark.parametrize("norm", NORMS)
def test_norms_of_every_kind_are_averaged(norm, forwards):
    network = nn.Sequential(NORMS[norm](nn.Linear(3, 4)), nn.ReLU(), NORMS[norm](nn.Linear(4, 2)))
    x = torch.randn(5, 3)
    for _ in range(forwards):
        network(x).sum().backward()
    ema = EMA(network, half_life=0)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.5)
    network(x).square().sum().backward()
    optimizer.step()
    network(x)  # moves the vectors of spectral norm
    stale = ema.module(x)
    ema.update(network, 8, 8)
    network.eval()
    expected = network(x)
    for _ in range(2):
        assert torch.equal(ema.module(x), expected)
    assert not torch.equal(stale, expected)
    assert not ema.module(x).requires_grad

    again = EMA(network, half_life=0).module  # an average of what is in eval mode already
    again.load_state_dict(ema.module.state_dict())
    assert torch.equal(again(x), expected)


class Locked(nn.Linear):
    """Holds what cannot be copied."""

    def __init__(self):
        super().__init__(2, 2)
        self.lock = threading.Lock()


def test_what_cannot_be_copied_is_named():
    network = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), Locked()))
    with pytest.raises(ConfigError) as error:
        EMA(network)
    assert str(error.value) == (
        "the average: 1.1 (Locked) cannot be copied, because of: "
        "cannot pickle '_thread.lock' object"
    )


def test_the_average_of_a_network_under_bf16_is_in_full_precision():
    reset_accelerate()
    acc = accelerator(mixed_precision="bf16")
    network = nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 2))
    plain, x = EMA(network).module, torch.randn(5, 3)
    prepared = acc.prepare(network)
    ema = EMA(acc.unwrap_model(prepared), half_life=0)
    assert torch.equal(ema.module(x), plain(x))
    assert not torch.equal(prepared(x), plain(x))
    network[0].weight.data.mul_(2)
    assert torch.equal(ema.module(x), plain(x))  # its forward is its own
    ema.update(network, 8, 8)
    assert torch.equal(ema.module[0].weight, network[0].weight)
    assert (ema.module(x) - plain(x)).abs().max() > 1e-3


def test_nothing_of_the_average_is_lost_when_the_half_life_is_long():
    """float32 keeps moves of 1e-5 of the way for a thousand updates."""
    ema = EMA(constant(0.0), half_life=64 * 50_000, rampup=None)
    one = constant(1.0)
    for step in range(1, 1001):
        ema.update(one, 64 * step, 0)
    expected = 1 - math.exp(-math.log(2) * 1000 / 50_000)
    assert ema.module.weight[0, 0].item() == pytest.approx(expected, rel=1e-4)
