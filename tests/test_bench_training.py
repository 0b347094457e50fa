"""`gan bench PRESET`: what it measures, and how it says so."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import tiny
from toys import weights

import gan
from gan import preset_config
from gan.cli import main
from gan.config import Config
from gan.errors import DataError
from gan.run import build
from gan.speed import memory, timing, training
from gan.speed.expert import ExpertLoop
from gan.speed.memory import Peak
from gan.speed.operations import needed
from gan.speed.phases import PHASES, shares
from gan.speed.projection import estimate
from gan.speed.substitute import substitute
from gan.speed.timing import MatrixRate, Spread, in_turns, ratios, slice_of, warm_up
from gan.speed.toolkit import Toolkit

CPU = torch.device("cpu")
QUICK = ["--rounds", "2", "--seconds", "0.01", "--batch_size", "16", "--sample_num", "4"]
SMALL = ["--generator.hidden", "16", "--discriminator.hidden", "16"]


def silent(text: str) -> None:
    pass


# --- the command ---------------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of their own take seconds; one test has a real one. Nothing depends on time."""
    monkeypatch.setattr(training, "slice_of", lambda seconds, each, period: period)
    monkeypatch.setattr(
        memory,
        "peaks",
        lambda config, names, tell: {
            name: Peak(100, 100 + 10 * (i + 1)) for i, name in enumerate(names)
        },
    )
    warm = training.warm_up
    monkeypatch.setattr(training, "warm_up", lambda *words: warm(*words, seconds=0.01))


def numbers(value: Any) -> Iterator[float]:
    for part in value.values() if isinstance(value, dict) else [value]:
        if isinstance(part, dict):
            yield from numbers(part)
        elif isinstance(part, int | float):
            yield part


@pytest.mark.usefixtures("quick")
def test_everything_is_measured(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["bench", "digits", *QUICK, *SMALL, "--json"]) == 0
    captured = capsys.readouterr()
    rows = json.loads(captured.out)
    assert {"preset": "digits", "note": None, "shape": [1, 8, 8], "batch_size": 16}.items() <= (
        rows.items()
    )
    assert (rows["rounds"], rows["period_of_penalties"]) == (2, 4)
    assert rows["steps_of_a_slice"] == 4
    loops = {"toolkit", "plain", "expert"}
    for name in (
        *("seconds_per_step", "images_per_second", "seconds_per_1000_images"),
        *("memory_of_training", "achieved_of_possible"),
    ):
        assert set(rows[name]) == loops
    pairs = {"toolkit/plain", "toolkit/expert", "expert/plain"}
    for name in ("ratios", "memory_ratios", "memory_ratios_of_process"):
        assert set(rows[name]) == pairs
    assert rows["memory_ratios"]["toolkit/plain"] == 0.5
    for each in (*rows["ratios"].values(), *rows["achieved_of_possible"].values()):
        assert 0 < each["low"] <= each["median"] <= each["high"]
    for name in loops:
        seconds = rows["seconds_per_step"][name]
        assert rows["images_per_second"][name] == pytest.approx(16 / seconds)
        assert rows["seconds_per_1000_images"][name] == pytest.approx(1000 * seconds / 16)
    assert set(rows["phases"]) == set(PHASES)
    assert sum(rows["phases"].values()) == pytest.approx(1)
    assert all(share >= 0 for share in rows["phases"].values())
    plan = rows["projection"]
    assert plan["steps"] == 4000
    assert plan["seconds"] == pytest.approx(4000 * rows["seconds_per_step"]["toolkit"])
    del rows["phases"]
    assert all(number > 0 and math.isfinite(number) for number in numbers(rows))
    assert "round 2 of 2" in captured.err
    assert list(tmp_path.iterdir()) == []  # nothing is left


@pytest.mark.usefixtures("quick")
def test_a_person_reads_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "digits", *QUICK, *SMALL]) == 0
    out = capsys.readouterr().out
    spread = r"\d+\.\d\d \(\d+\.\d\d to \d+\.\d\d\)"
    for name, memory_ratio in (
        ("this toolkit / plain loop", "0.50"),
        ("this toolkit / best loop", "0.33"),
        ("best loop / plain loop", "1.50"),
    ):
        assert re.search(rf"^{name} +speed {spread}, memory {memory_ratio} ", out, re.M)
    assert out.startswith("digits: 1x8x8, batch 16, fp32, on cpu (")
    assert "with 1 threads; 2 rounds in turn of " in out
    assert re.search(r"^phases of a step of this toolkit: data \d+%, discriminator ", out, re.M)
    assert re.search(rf"achieved of that: {spread}$", out, re.M)
    assert re.search(r"^all 4,000 steps: about .*; on the disk about [\d.]+ [KM]iB$", out, re.M)


def test_a_slow_step_is_told_in_digits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half an image a second is not 0, and 2e+03 seconds are no words for a person."""
    loops = dict.fromkeys(("toolkit", "plain", "expert"), 32.137)
    ratio = {"median": 1.0, "low": 1.0, "high": 1.0}
    rows = {
        **{"preset": "r3gan-cifar10", "shape": [3, 32, 32], "batch_size": 16, "device": "cpu"},
        **{"mixed_precision": "bf16", "threads": 2, "rounds": 3, "steps_of_a_slice": 1},
        **{"period_of_penalties": 1, "note": "", "seconds_per_step": loops},
        "images_per_second": {name: 16 / each for name, each in loops.items()},
        "seconds_per_1000_images": {name: each * 62.5 for name, each in loops.items()},
        "memory_of_training": loops,
        "achieved_of_possible": dict.fromkeys(loops, ratio),
        **{"ratios": {}, "phases": {}},
        "operations_per_step": 9.76e12,
        "matrix_operations_per_second": {"median": 168.8e9, "low": 16.11e9, "high": 4e14},
        "projection": {
            **{"steps": 10, "seconds": 321.0, "seconds_of_grids": 1.0, "disk_bytes": 1},
            "seconds_of_checkpoints": None,
        },
    }
    monkeypatch.setattr(training, "measure", lambda *words, **options: rows)
    assert main(["bench", "r3gan-cifar10"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^this toolkit +0\.498 +2,009 +32,137 ", out, re.M)
    assert "a step needs 9,760 GFLOP; " in out
    assert " at 169 GFLOP/s (16.1 to 400,000); " in out


@pytest.mark.usefixtures("quick")
def test_a_preset_without_its_data_is_measured_on_random_images(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(training, "slice_of", lambda *_: 1)
    words = ["--generator.width", "4", "--discriminator.width", "4", "--conditional"]
    assert main(["bench", "few-shot", *QUICK, *SMALL, *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == (
        "penalties are due every 4 steps, longer than a slice: ratios hold, seconds depend on "
        "which steps were timed"
    )
    assert lines[2] == (
        "measured on 1024 random images of 3x64x64 in 10 classes: path/to/pictures cannot be "
        "opened on this machine"
    )


def test_data_that_somebody_asked_for_is_not_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "digits", "--data", "path/to/nowhere"]) == 2
    assert "gan: error: data: 'path/to/nowhere'" in capsys.readouterr().err


def test_the_plan_of_a_dry_run_has_the_same_time_and_disk(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gan.speed.projection.probe", lambda run: gan.train_step(run) and 0.25)
    assert main(["train", "digits", *SMALL, "--steps", "1000", "--dry_run"]) == 0
    out = capsys.readouterr().out
    assert "time:          about 4 min (250.0 ms a step, measured just now)\n" in out
    assert re.search(r"^disk:          about [\d.]+ MiB at the end, [\d.]+ KiB a ch", out, re.M)


@pytest.mark.parametrize("preset", ["r3gan-cifar10", "dcgan64", "stylegan2-64"])
def test_random_images_have_the_shape_and_the_classes(preset: str, tmp_path: Path) -> None:
    config = preset_config(preset)
    other, note = substitute(config, tmp_path, "why")
    opened = gan.open_data(other.data, **other.opening())
    size = {"r3gan-cifar10": 32}.get(preset, 64)
    assert opened.shape == (3, size, size)
    assert opened.num_classes == (10 if preset == "r3gan-cifar10" else 0)
    assert len(opened) == 1024
    assert note.endswith(": why")


# --- timing --------------------------------------------------------------------------------------


def test_a_spread_is_the_median_with_the_extremes() -> None:
    assert str(Spread.of([1.0, 3.0, 2.0])) == "2.00 (1.00 to 3.00)"
    assert ratios([2.0, 9.0], [1.0, 3.0]) == Spread(2.5, 2.0, 3.0)


@pytest.mark.parametrize(
    ("seconds", "each", "period", "steps"),
    [
        (0.5, 0.1, 1, 5),
        (0.5, 10.0, 1, 1),
        (0.5, 0.1, 4, 4),
        (0.5, 0.001, 4, 500),
        (0.5, 0.2, 16, 16),  # whole patterns, although they take longer
        (0.5, 0.3, 16, 2),  # unless much longer
    ],
)
def test_a_slice_has_whole_patterns_of_penalties(
    seconds: float, each: float, period: int, steps: int
) -> None:
    assert slice_of(seconds, each, period) == steps


class Clock:
    """Time that passes where it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


class Timed:
    """A loop whose steps and points of curves take known times."""

    def __init__(self, clock: Clock, step: float, log: float, name: str, order: list[str]) -> None:
        self._clock, self._step, self._log = clock, step, log
        self._name, self._order = name, order

    def step(self) -> None:
        self._clock.now += self._step
        self._order.append(self._name)

    def log(self) -> None:
        self._clock.now += self._log


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(timing, "time", made)
    return made


Measure = Callable[[float], float]


def turns(clock: Clock, rounds: int, patience: float) -> tuple[Any, list[str]]:
    order: list[str] = []
    loops = {
        "a": Timed(clock, 1.0, 5.0, "a", order),
        "b": Timed(clock, 2.0, 0.0, "b", order),
    }
    rate: Measure = lambda seconds: 7.0  # noqa: E731
    timed = in_turns(
        loops, rate, CPU, steps=1, rounds=rounds, patience=patience, log_every=10, tell=silent
    )
    return timed, order


def test_loops_take_turns_and_curves_count_as_their_share(clock: Clock) -> None:
    timed, order = turns(clock, rounds=4, patience=math.inf)
    assert "".join(order) == "abbaabba"
    assert timed.seconds == {"a": [1.5] * 4, "b": [2.0] * 4}
    assert timed.logging == {"a": [5.0] * 4, "b": [0.0] * 4}
    assert timed.matrix_rate == [7.0] * 4


def test_where_a_round_takes_long_there_are_three(clock: Clock) -> None:
    assert len(turns(clock, rounds=9, patience=1.0)[0].matrix_rate) == 3
    assert len(turns(clock, rounds=9, patience=33.0)[0].matrix_rate) == 5
    assert len(turns(clock, rounds=2, patience=1.0)[0].matrix_rate) == 2


@pytest.mark.parametrize(("step", "taken"), [(0.25, 6), (2.0, 3), (3.0, 2), (12.0, 1)])
def test_loops_warm_up_for_some_steps_unless_that_takes_long(
    clock: Clock, step: float, taken: int
) -> None:
    order: list[str] = []
    slow, quick = Timed(clock, step, 1.0, "s", order), Timed(clock, 0.25, 1.0, "q", order)
    told: list[str] = []
    loops = {"slow": slow, "quick": quick}
    assert warm_up(loops, 6, CPU, told.append) == step  # of the slowest
    assert told == ["warming up: slow", "warming up: quick"]
    assert (order.count("s"), order.count("q")) == (taken, 6)


def test_the_matrix_rate_counts_multiplications_and_additions(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def product(*_: Any, out: torch.Tensor) -> None:
        clock.now += 0.5

    monkeypatch.setattr(torch, "mm", product)
    rate = MatrixRate(CPU, torch.float32)
    assert rate.operations == 2 * 1024**3
    assert rate(1.7) == 2 * 2 * 1024**3


# --- operations ----------------------------------------------------------------------------------


def mlp(**options: Any) -> ExpertLoop:
    network = {"family": "mlp", "norm": "none"}
    base = {
        "data": "fake:32",
        "resolution": "4",
        "channels": 1,
        "batch_size": 8,
        "generator": {**network, "hidden": [6], "z_dim": 5},
        "discriminator": {**network, "hidden": [7]},
    }
    run = build(Config.from_dict({**base, **options}))
    return ExpertLoop(run.config, run.data, CPU)


def test_the_operations_of_two_fully_connected_networks() -> None:
    batch, z, hidden, pixels, judged = 8, 5, 6, 16, 7
    generator = z * hidden + hidden * pixels
    discriminator = pixels * judged + judged
    products = (
        # The discriminator's update: fakes, a forward of twice the images, a backward to all of
        # its weights, and from its second layer to its first.
        generator + 2 * discriminator + 2 * discriminator + 2 * judged
        # The generator's: forwards, a backward through the discriminator to the images, one to all
        # weights of the generator, and from its second layer to its first.
        + generator + discriminator + discriminator + generator + hidden * pixels
    )  # fmt: skip
    assert needed(mlp()) == 2 * batch * products
    # Fakes that serve twice are made once.
    assert needed(mlp(reuse_fakes=True)) == 2 * batch * (products - generator)


def test_lazy_penalties_count_as_often_as_they_are_due() -> None:
    never, always = needed(mlp()), needed(mlp(penalties=["r1", "r2"]))
    assert always > never
    assert needed(mlp(penalties=["r1/4", "r2/4"])) == (3 * never + always) / 4
    loop = mlp(penalties=["r1/4", "r2/4"])
    for _ in range(3):  # it need not start at a due update
        loop.step()
    assert needed(loop) == (3 * never + always) / 4


# --- the toolkit's own loop ----------------------------------------------------------------------


def test_the_toolkit_trains_as_gan_train_does(tmp_path: Path) -> None:
    config = tiny(tmp_path / "theirs", "digits")
    trained = gan.newest_checkpoint(gan.train(config) / "checkpoints")
    assert trained is not None
    with Toolkit(config, tmp_path / "mine") as toolkit:
        for _ in range(config.steps):
            toolkit.step()
        toolkit.log()
        mine = toolkit.run
    theirs = build(config)
    for role, module in (("generator", theirs.generator.raw), ("ema", theirs.ema.module)):
        trained.load_weights(role, module)
    assert torch.equal(weights(mine.generator.raw), weights(theirs.generator.raw))
    assert torch.equal(weights(mine.ema.module), weights(theirs.ema.module))
    assert len(list((tmp_path / "mine").rglob("events.out*"))) == 1


@pytest.mark.parametrize("penalised", [True, False])
def test_the_shares_of_a_step_leave_the_run_as_it_was(tmp_path: Path, penalised: bool) -> None:
    options = {} if penalised else {"penalties": []}
    with Toolkit(tiny(tmp_path, "digits", **options), tmp_path) as toolkit:
        run = toolkit.run
        before = run.config, vars(run.generator).keys(), vars(toolkit).keys()
        found = shares(toolkit, steps=4, rounds=1, logging=0.001)
        assert (run.config, vars(run.generator).keys(), vars(toolkit).keys()) == before
        assert run.step == (8 if penalised else 4)
    assert set(found) == set(PHASES)
    assert sum(found.values()) == pytest.approx(1)
    assert (found["penalties"] == 0) or penalised
    busy = ("data", "discriminator", "generator", "optimizers", "average", "logging")
    assert all(found[name] > 0 for name in busy)


# --- memory and projection -----------------------------------------------------------------------


def test_a_process_of_its_own_says_what_training_took(tmp_path: Path) -> None:
    told: list[str] = []
    network = {"hidden": [1024, 1024]}
    config = tiny(tmp_path, "digits", generator=network, discriminator=network)
    found = memory.peaks(config, ("plain",), told.append)["plain"]
    # At least two moments and a gradient for each of over a million weights of a network.
    assert 3 * 4 * 1024**2 < found.above < 2**29
    assert found.base > 2**26
    assert told == ["memory of plain"]


@pytest.mark.parametrize(
    ("preset", "options"),
    [
        ("digits", {"steps": 40, "log_every": 4, "sample_every": 10, "save_every": 10}),
        ("digits", {"generator": {"hidden": [512]}}),
        ("ring", {"steps": 20, "sample_num": 64, "keep": 3}),
    ],
)
def test_the_room_on_the_disk_is_about_what_a_run_takes(
    preset: str, options: dict[str, Any], tmp_path: Path
) -> None:
    config = tiny(tmp_path, preset, **options)
    folder = gan.train(config)
    files = [path for path in folder.rglob("*") if path.is_file()]
    run = build(config)
    gan.train_step(run)
    plan = estimate(run, seconds_per_step=2.0)
    assert (plan.seconds_per_step, plan.seconds) == (2.0, 2.0 * config.steps)
    assert plan.disk == pytest.approx(sum(path.stat().st_size for path in files), rel=0.25)
    newest = gan.newest_checkpoint(folder / "checkpoints")
    assert newest is not None
    written = sum(path.stat().st_size for path in newest.path.iterdir())
    assert plan.checkpoint == pytest.approx(written, rel=0.2)


def test_only_missing_data_is_replaced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = Config.from_dict({"data": "nowhere", "preset": "custom"})
    with pytest.raises(DataError, match="'nowhere'"):
        training.measure(config, rounds=1, seconds=0.1, tell=silent)
