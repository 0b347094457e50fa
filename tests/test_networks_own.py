"""Networks of one's own: called like a family, checked before they train, and their options."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiny import tiny
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

import gan
from gan.errors import GanError
from gan.loop import train_step
from gan.network_config import Option
from gan.networks import build_discriminator, build_generator, check_shape, read_options
from gan.optimizers import build_optimizer

SOURCE = """
import torch
from torch import nn

class Generator(nn.Module):
    def __init__(self, shape, *, z_dim, num_classes, width: int = 8, plain=1, **rest):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(z_dim + num_classes, width), nn.ReLU(),
            nn.Linear(width, torch.Size(shape).numel()), nn.Tanh(), nn.Unflatten(1, shape),
        )
        self.classes, self.plain = num_classes, plain

    def forward(self, z, labels=None):
        if labels is not None:
            z = torch.cat([z, nn.functional.one_hot(labels, self.classes)], 1)
        return self.net(z)

class Discriminator(nn.Module):
    def __init__(self, shape, *, num_classes):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.LazyLinear(8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, x, labels=None):
        return self.net(x).squeeze(1)

class Headed(Discriminator):  # uses one of its heads where it is told to
    def __init__(self, shape, *, num_classes):
        super().__init__(shape, num_classes=num_classes)
        self.head, self.on = nn.Linear(8, 1), True

    def forward(self, x, labels=None):
        seen = self.net[:-1](x)
        return (self.net[-1](seen) + (self.head(seen) if self.on else 0)).squeeze(1)

class Column(Discriminator):
    def forward(self, x, labels=None):
        return self.net(x)

class Unconditional(Discriminator):
    def forward(self, x):
        return self.net(x).squeeze(1)

def function(shape): ...
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module in the working directory, which is not on sys.path."""
    name = f"own_{abs(hash(tmp_path)):x}"
    (tmp_path / f"{name}.py").write_text(SOURCE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return name


@pytest.mark.parametrize("num_classes", [0, 3])
def test_two_modules_of_ones_own_are_built_like_a_family(module: str, num_classes: int) -> None:
    generator = build_generator(f"{module}:Generator", (1, 8, 8), z_dim=5, num_classes=num_classes)
    assert (generator.shape, generator.z_dim, generator.num_classes) == ((1, 8, 8), 5, num_classes)
    assert generator.training
    discriminator = build_discriminator(
        f"{module}:Discriminator", (1, 8, 8), num_classes=num_classes
    )
    labels = torch.zeros(4, dtype=torch.int64) if num_classes else None
    assert discriminator(generator(torch.randn(4, 5), labels), labels).shape == (4,)
    check_shape(f"{module}:Generator", (1, 7, 9))


def test_a_run_with_networks_of_ones_own_trains_resumes_and_samples(
    module: str, tmp_path: Path
) -> None:
    own = {"hidden": None, "norm": None}
    options = {"module": f"{module}:Generator", "options": ["plain=6"], **own}
    folder = gan.train(
        tiny(
            tmp_path / "runs",
            steps=4,
            generator=options,
            discriminator={"module": f"{module}:Discriminator", **own},
        )
    )
    about = json.loads((folder / "generator/config.json").read_text(encoding="utf-8"))
    assert about["family"] == f"{module}:Generator"
    assert about["options"] == {"z_dim": 32, "num_classes": 10, "plain": 6}
    assert gan.sample(gan.load_generator(folder / "generator"), range(3)).shape == (3, 1, 8, 8)
    changed = gan.Config.from_dict({"steps": 6}, gan.state.saved_config(folder))
    run = gan.resume(folder, changed)
    gan.fit(run)
    assert run.step == 6


@pytest.mark.parametrize("loss", ["relativistic", "hinge"])
def test_a_network_of_ones_own_may_leave_weights_unused_in_two_processes(
    loss: str, module: str, tmp_path: Path, two_processes: Callable[..., list[Tensor]]
) -> None:
    options = {
        "loss": loss,
        "find_unused_parameters": True,
        "generator": {"norm": "none"},
        "discriminator": {"hidden": None, "norm": None, "module": f"{module}:Headed"},
    }

    def trained(processes: int) -> Tensor:
        run = gan.build(tiny(tmp_path, batch_size=16 // processes, **options))
        for step in range(6):
            run.discriminator.raw.on = step % 2 == 0
            train_step(run)
        return parameters_to_vector(run.discriminator.raw.parameters()).detach()

    alone = trained(1)
    for mine in two_processes(trained, 2):
        assert (mine - alone).abs().max() <= 1e-6


def test_an_export_says_what_it_needs(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"z_dim": 4, "num_classes": 0}
    name = f"{module}:Generator"
    generator = build_generator(name, (1, 4, 4), **options)
    gan.save_generator(tmp_path / "g", generator, family=name, shape=(1, 4, 4), options=options)
    monkeypatch.delitem(__import__("sys").modules, module)
    with pytest.raises(GanError, match=rf"g needs {name}, .* import {module} before"):
        gan.load_generator(tmp_path / "g")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "no_such_package:X",
            "cannot import no_such_package: ModuleNotFoundError: No module named",
        ),
        ("{}:Nothing", "it has no such name"),
        ("{}:function", "that is no class of torch.nn.Module"),
        (
            "{}:Column",
            r"makes \(2, 1\) of .* \(2, 1, 8, 8\).*; expected \(2,\); end it with .squeeze",
        ),
        (
            "{}:Generator",
            r"\(\(1, 8, 8\), num_classes=3\) fails: TypeError: .*'z_dim'; see gan.netw",
        ),
        (
            "{}:Unconditional",
            r"fails on inputs of shape \(2, 1, 8, 8\) and labels \(2,\): TypeError",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_before_the_training(
    module: str, name: str, message: str
) -> None:
    with pytest.raises(GanError, match=rf"^discriminator\.module: .*{message}"):
        build_discriminator(name.format(module), (1, 8, 8), num_classes=3)


# --- options without a flag of their own ---------------------------------------------------------


def test_options_are_read_as_what_the_family_takes() -> None:
    assert read_options("generator", "resnet", {"attention": "16"}) == {"attention": 16}
    assert read_options("generator", "resnet", {"attention": "none"}) == {"attention": None}
    assert read_options("generator", "stylegan2", {"style_mixing": "0"}) == {"style_mixing": 0.0}
    assert read_options("discriminator", "dcgan", {"init": "default"}) == {"init": "default"}
    with pytest.raises(GanError) as error:
        read_options("discriminator", "stylegan2", {"group_size": "four"})
    assert str(error.value) == "discriminator.options: group_size: expected int, got 'four'"


def test_options_of_a_class_of_ones_own_are_read_as_it_says_or_as_python_does(module: str) -> None:
    words = {"width": "4", "plain": "(1, 2)", "text": "some", "flag": "true"}
    assert read_options("generator", f"{module}:Generator", words) == {
        "width": 4,
        "plain": (1, 2),
        "text": "some",
        "flag": True,
    }


def test_options_reach_the_networks_and_the_optimizers(tmp_path: Path) -> None:
    config = tiny(
        tmp_path,
        data="fake:32",
        resolution="16",
        conditional=False,
        generator={
            "family": "resnet",
            "hidden": None,
            "width": 4,
            "options": ["attention=8"],
            "optimizer_options": ["eps=1e-5", "amsgrad=true"],
        },
        discriminator={"family": "dcgan", "width": 4, "hidden": None, "options": ["init=default"]},
    )
    run = gan.build(config)
    assert any(type(module).__name__ == "_SelfAttention" for module in run.generator.raw.modules())
    assert run.generator_options["attention"] == 8
    group = run.generator.optimizer.param_groups[0]
    assert (group["eps"], group["amsgrad"]) == (1e-5, True)
    config.save(tmp_path / "config.yaml")
    assert gan.Config.load(tmp_path / "config.yaml") == config
    with pytest.raises(GanError, match=r"^discriminator.attention: the family dcgan takes no such"):
        gan.build(gan.Config.from_dict({"discriminator": {"options": ["attention=8"]}}, config))


def test_optimizer_options_that_do_not_exist_or_cannot_be() -> None:
    def message(**extra: str) -> str:
        with pytest.raises(GanError) as error:
            build_optimizer(
                "SGD",
                nn.Linear(1, 1).parameters(),
                lr=0.1,
                betas=(0.0, 0.9),
                extra=extra,
                field="generator.optimizer",
            )
        return str(error.value)

    assert message(eps="1").startswith(
        "generator.optimizer_options: SGD takes no eps; it takes mom"
    )
    assert message(momentum="much") == (
        "generator.optimizer_options: momentum: expected float, got 'much'"
    )
    assert message(nesterov="true").startswith("generator.optimizer: SGD refuses: Nesterov")


def test_problems_of_options_are_named() -> None:
    config = gan.Config.from_dict(
        {
            "generator": {
                "module": "networks.py",
                "options": ["width=4", "a=1", "a=2"],
                "optimizer_options": ["lr=1"],
            },
            "discriminator": {"clip_weights": -1},
        }
    )
    with pytest.raises(GanError) as error:
        config.check()
    assert str(error.value).splitlines() == [
        "generator.module: 'networks.py' is not PACKAGE:CLASS, as in my_package:MyNetwork",
        "generator.options: width is no extra option; use --generator.width",
        "generator.optimizer_options: lr has flags of its own, --generator.lr, ...",
        "generator.options: width a a names one of them twice",
        "discriminator.clip_weights: -1 is not above 0; None turns it off",
    ]
    assert str(Option.parse(" a = b ")) == "a=b"
    for text in ("a", "=3", "a=", "a b=3"):
        with pytest.raises(ValueError, match="is no option; write NAME=VALUE"):
            Option.parse(text)
