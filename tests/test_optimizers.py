"""Optimizers by name, and schedules of their settings."""

import re
import sys

import pytest
import torch
from torch import nn

from gan.errors import ConfigError
from gan.optimizers import build_optimizer, optimizer_class, schedule_lr, set_beta2
from gan.schedules import Schedule


def build(name="Adam", **options):
    parameters = nn.Linear(2, 2).parameters()
    return build_optimizer(name, parameters, **{"lr": 0.1, "betas": (0.1, 0.2), **options})


def message(function, *args, **options):
    with pytest.raises(ConfigError) as error:
        function(*args, **options)
    return str(error.value)


@pytest.mark.parametrize("name", ["Adam", "adam", "ADAM"])
def test_names_in_any_case(name):
    assert optimizer_class(name) is torch.optim.Adam


def test_an_unknown_name_gives_the_nearest_and_all():
    text = message(optimizer_class, "Admw", "generator.optimizer")
    assert text.startswith(
        "generator.optimizer: 'Admw' is unknown; did you mean AdamW? torch.optim has "
    )
    names = text.partition("torch.optim has ")[2].split(", ")
    assert {"SGD", "Adam", "AdamW", "RMSprop", "Adagrad"} < set(names)
    assert not {"LBFGS", "SparseAdam", "Optimizer"} & set(names)


@pytest.mark.parametrize("name", ["LBFGS", "SparseAdam", "Optimizer", "lr_scheduler", "xyz"])
def test_what_cannot_drive_a_window_is_refused(name):
    expected = "cannot be used here" if name in ("LBFGS", "SparseAdam") else "is unknown"
    assert re.search(f"optimizer: '?{name}'? {expected}", message(optimizer_class, name))


def test_another_implementation_than_the_fused_one_may_be_asked_for():
    assert build("Adam").param_groups[0]["fused"]
    asked = build("Adam", extra={"foreach": "true"}).param_groups[0]
    assert (asked["fused"], asked["foreach"]) == (None, True)


def test_betas_and_weight_decay_reach_those_that_have_them():
    adam = build("AdamW", weight_decay=0.3).param_groups[0]
    assert (adam["lr"], adam["betas"], adam["weight_decay"]) == (0.1, (0.1, 0.2), 0.3)
    sgd = build("SGD", weight_decay=0.3).param_groups[0]
    assert "betas" not in sgd
    assert (sgd["lr"], sgd["weight_decay"]) == (0.1, 0.3)
    assert build("AdamW").param_groups[0]["weight_decay"] == 0  # torch's own default is 0.01


def test_fused_where_there_is_a_fused_kind():
    assert build("Adam").defaults["fused"]
    assert not build("RMSprop").defaults.get("fused")


def test_a_refusal_of_torch_becomes_a_sentence():
    assert message(build, "Adam", lr=-1.0, field="generator.optimizer") == (
        "generator.optimizer: Adam refuses: Invalid learning rate: -1.0"
    )


def test_weight_decay_that_does_not_exist(monkeypatch):
    class Bare(torch.optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr})

    monkeypatch.setattr(torch.optim, "Bare", Bare, raising=False)
    assert build("bare").defaults == {"lr": 0.1}
    assert message(build, "bare", weight_decay=0.5, field="x.optimizer") == (
        "x.optimizer: Bare has no weight decay, but 0.5 is asked for"
    )


@pytest.mark.parametrize(
    "name",
    [
        "Adadelta",
        "Adagrad",
        "Adam",
        "AdamW",
        "Adamax",
        "ASGD",
        "NAdam",
        "RAdam",
        "RMSprop",
        "Rprop",
        "SGD",
    ],
)
def test_each_makes_a_step(name):
    layer = nn.Linear(2, 2)
    before = layer.weight.clone()
    optimizer = build_optimizer(name, layer.parameters(), lr=0.1, betas=(0.0, 0.9))
    layer(torch.randn(3, 2)).square().sum().backward()
    optimizer.step()
    assert not torch.equal(layer.weight, before)


def test_the_learning_rate_is_the_schedules_in_updates():
    schedule, total = Schedule.parse("0.4..0.1,from=25%,warmup=100"), 1000
    optimizer = build("SGD")
    scheduler = schedule_lr(optimizer, schedule, images_per_update=50, total_images=total)
    for update in range(20):
        expected = schedule.at(50 * update, total)
        assert optimizer.param_groups[0]["lr"] == pytest.approx(expected, rel=1e-12)
        optimizer.step()
        scheduler.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1, rel=1e-12)


def test_a_rising_learning_rate():
    optimizer = build("SGD")
    scheduler = schedule_lr(
        optimizer, Schedule.parse("0..0.2"), images_per_update=1, total_images=4
    )
    seen = []
    for _ in range(5):
        seen.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert seen == pytest.approx([0, 0.05, 0.1, 0.15, 0.2])


def test_beta2_changes_where_there_is_one():
    adam, sgd = build("Adam"), build("SGD")
    for optimizer in (adam, sgd):
        set_beta2(optimizer, 0.77)
    assert adam.param_groups[0]["betas"] == (0.1, 0.77)
    assert "betas" not in sgd.param_groups[0]


@pytest.mark.parametrize("name", ["adam8bit", "AdamW8bit"])
def test_eight_bit_adam(name):
    pytest.importorskip("bitsandbytes", reason="needs: pip install bitsandbytes")
    layer = nn.Linear(128, 64)  # 4096 weights or more are kept in 8 bits
    optimizer = build_optimizer(name, layer.parameters(), lr=0.01, betas=(0.9, 0.99))
    x = torch.randn(8, 128)
    losses = []
    for _ in range(20):
        loss = layer(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2
    assert optimizer.state[layer.weight]["state1"].dtype == torch.uint8


def test_eight_bit_adam_needs_a_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(
        ConfigError, match="optimizer: adam8bit needs the package bitsandbytes: pip"
    ):
        optimizer_class("adam8bit")
