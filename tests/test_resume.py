"""A stopped run goes on as if nothing had been: bitwise, at any step, however it was stopped."""

from __future__ import annotations

import dataclasses
import logging
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny import tiny

import gan
from gan.checkpoint import newest_checkpoint, open_checkpoint
from gan.config import Config
from gan.errors import CheckpointError, ConfigError, DivergenceError, GanError
from gan.guard import Guard
from gan.loop import train_step
from gan.report import Reporter
from gan.run import Run
from gan.state import save

COMMON: dict[str, Any] = {"log_every": 1, "sample_every": 4, "save_every": None, "keep": 9}

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "lazy penalties": {"penalties": ["r1/3", "r2/4"]},
    "critic and micro-batches": {"n_critic": 2, "gradient_accumulation_steps": 2, "batch_size": 8},
    "later epoch": {"batch_size": 600},
    "mirrored": {"horizontal_flip": True},
    "workers": {"num_workers": 2},
    "bf16": {"mixed_precision": "bf16"},
    "resnet with attention": {
        "data": "fake:64",
        "conditional": False,
        "resolution": "16",
        "generator": {
            "family": "resnet",
            "hidden": None,
            "width": 4,
            "options": ["attention=8"],
            "optimizer_options": ["eps=1e-6"],
        },
        "discriminator": {"family": "resnet", "hidden": None, "width": 4, "norm": "spectral"},
    },
    "r3gan": {
        "data": "fake:64",
        "conditional": False,
        "resolution": "8",
        "mixed_precision": "bf16",
        "generator": {"family": "r3gan", "hidden": None, "width": 8, "depth": 1},
        "discriminator": {"family": "r3gan", "hidden": None, "width": 8, "depth": 1},
    },
    "adaptive augmentation": {
        "data": "fake:64",
        "conditional": False,
        "resolution": "8",
        "augment": "ada",
        "ada_target": -0.5,
        "ada_speed": 100,
    },
    "terms that remember": {
        "penalties": ["lecam", "r1/3"],
        "generator_penalties": ["path-length/2", "feature-matching"],
        "gradient_accumulation_steps": 2,
        "batch_size": 8,
        "discriminator": {"clip_weights": 0.05},
    },
    "averages of several widths": {"ema_widths": [0.05, 0.2]},
    "wgan-gp": {"loss": "wasserstein", "penalties": ["wgan-gp/2"]},
    "schedules": {"generator": {"lr": "1e-3..1e-5,cosine,warmup=20%"}, "gamma": "1..0.1"},
    "dcgan": {
        "data": "fake:64",
        "channels_last": True,
        "conditional": False,
        "resolution": "16",
        "generator": {"family": "dcgan", "hidden": [], "width": 4, "norm": "batch"},
        "discriminator": {"family": "dcgan", "hidden": [], "width": 4, "norm": "spectral"},
    },
    "stylegan2, whose noise is the global generator's": {
        "data": "fake:64",
        "conditional": False,
        "resolution": "8",
        "batch_size": 8,
        "generator": {"family": "stylegan2", "hidden": None, "width": 4, "z_dim": 8},
        "discriminator": {"family": "stylegan2", "hidden": None, "width": 4},
    },
}


def stop_at(run: Run, step: int) -> None:
    """Train a new run until a signal comes in the middle of a step."""

    class Received:
        @property
        def number(self) -> int:
            return signal.SIGTERM if run.step >= step else 0

    gan.start(run)
    with mock.patch("gan.loop.stop_signals", return_value=nullcontext(Received())):
        assert gan.fit(run) == signal.SIGTERM
    assert run.step == step


def state(folder: Path) -> dict[str, Any]:
    """Everything in the newest checkpoint, flat."""
    checkpoint = newest_checkpoint(folder / "checkpoints")
    assert checkpoint is not None
    found: dict[str, Any] = {"images_seen": checkpoint.manifest["images_seen"]}
    for role in checkpoint.manifest["roles"]:
        found |= {f"{role}/{name}": value for name, value in checkpoint.weights(role).items()}

    def walk(name: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                walk(f"{name}/{key}", item)
        elif isinstance(value, list | tuple):
            for i, item in enumerate(value):
                walk(f"{name}/{i}", item)
        else:
            found[name] = value

    walk("state", checkpoint.states())
    for path in sorted(checkpoint.path.glob("random-*.pt")):
        walk(path.name, torch.load(path, weights_only=True))
    return found


def assert_same_state(one: Path, other: Path) -> None:
    mine, theirs = state(one), state(other)
    assert mine.keys() == theirs.keys()
    differ = [
        name
        for name in mine
        if not (
            torch.equal(mine[name], theirs[name])
            if isinstance(mine[name], torch.Tensor)
            else mine[name] == theirs[name]
        )
    ]
    assert not differ


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    accumulator.Reload()
    return {
        tag: [(event.step, event.value) for event in accumulator.Scalars(tag)]
        for tag in accumulator.Tags()["scalars"]
        if not tag.startswith(("time/", "memory/"))  # the machine's, not the run's
    }


def assert_same_run(one: Path, other: Path) -> None:
    assert_same_state(one, other)
    assert curves(one) == curves(other)
    last = sorted((one / "samples").glob("step-*.png"))[-1].name
    with Image.open(one / "samples" / last) as mine, Image.open(other / "samples" / last) as theirs:
        assert np.array_equal(np.asarray(mine), np.asarray(theirs))


@pytest.mark.parametrize("name", VARIANTS)
def test_n_and_n_steps_are_2n_steps(tmp_path: Path, name: str) -> None:
    config = tiny(tmp_path, steps=8, **COMMON)
    config = Config.from_dict(VARIANTS[name], config)
    whole = gan.train(dataclasses.replace(config, name="whole"))
    run = gan.build(dataclasses.replace(config, name="parts"))
    stop_at(run, 5)
    random.seed(99)  # a new process knows nothing of the old one's random state
    torch.manual_seed(99)
    np.random.seed(99)  # noqa: NPY002
    resumed = gan.resume(tmp_path / "parts")
    assert resumed.step == 5
    gan.fit(resumed)
    assert_same_run(whole, tmp_path / "parts")


def test_every_step_is_a_place_to_stop(tmp_path: Path) -> None:
    config = tiny(tmp_path, steps=5, penalties=["r1/3"], n_critic=2, **COMMON)
    whole = gan.train(dataclasses.replace(config, name="whole"))
    run = gan.build(dataclasses.replace(config, name="parts"))
    stop_at(run, 1)
    for _ in range(2, 6):
        resumed = gan.resume(tmp_path / "parts")
        train_step_and_save(resumed)
    assert_same_state(whole, tmp_path / "parts")


def train_step_and_save(run: Run) -> None:
    run.latest |= train_step(run)
    save(run)


def test_tensorboard_shows_one_clean_curve(tmp_path: Path) -> None:
    # The process dies at step 7; the newest checkpoint is of step 4.
    config = tiny(tmp_path, steps=8, name="dies", **{**COMMON, "save_every": 4})
    run = gan.build(config)
    gan.start(run)
    scalars = Reporter.scalars

    def die(report: Any) -> None:
        scalars(report)
        if run.step == 7:
            raise RuntimeError("dies")

    with mock.patch("gan.loop.Reporter.scalars", die), pytest.raises(RuntimeError, match="dies"):
        gan.fit(run)
    gan.fit(gan.resume(tmp_path / "dies"))
    assert [step for step, _ in curves(tmp_path / "dies")["loss/generator"]] == list(range(1, 9))
    whole = gan.train(dataclasses.replace(config, name="whole"))
    assert curves(tmp_path / "dies") == curves(whole)


def _train_in_two(folder: Path, options: dict[str, Any], stop: int | None) -> int:
    logging.disable(logging.CRITICAL)
    if stop is None:
        run = gan.resume(folder)
    else:
        run = gan.build(Config.from_dict({**options, "name": folder.name}, tiny(folder.parent)))
        assert run.accelerator.num_processes == 2
        if stop < run.config.steps:
            stop_at(run, stop)
            return run.step
        gan.start(run)
    gan.fit(run)
    return run.step


def test_two_processes_resume_exactly(two_processes: Any, tmp_path: Path) -> None:
    options = {"steps": 6, **COMMON, "penalties": ["r1/2"], "n_critic": 2}
    two_processes(_train_in_two, tmp_path / "whole", options, 6)
    assert two_processes(_train_in_two, tmp_path / "parts", options, 3) == [3, 3]
    assert two_processes(_train_in_two, tmp_path / "parts", options, None) == [6, 6]
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


def test_another_number_of_processes_goes_on_within_rounding(
    two_processes: Any, tmp_path: Path
) -> None:
    # Without batch norm, whose statistics are each process's own.
    network = {"norm": "none"}
    options = {"steps": 6, **COMMON, "batch_size": 8, "generator": network}
    two_processes(_train_in_two, tmp_path / "parts", options, 3)
    changed = dataclasses.replace(gan.state.saved_config(tmp_path / "parts"), batch_size=16)
    gan.fit(gan.resume(tmp_path / "parts", changed))
    whole = gan.train(tiny(tmp_path, **{**options, "batch_size": 16, "name": "whole"}))
    mine, theirs = state(tmp_path / "parts"), state(whole)
    for name in theirs:
        if name.startswith(("generator/", "discriminator/", "ema/")):
            torch.testing.assert_close(mine[name], theirs[name], rtol=0, atol=2e-5)
    assert mine["state/run/images_read"] == theirs["state/run/images_read"]


def test_what_changed_is_said_and_what_cannot_change_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = gan.train(tiny(tmp_path))
    saved = gan.state.saved_config(folder)
    with pytest.raises(ConfigError) as error:
        gan.resume(
            folder,
            Config.from_dict(
                {"data": "mnist", "generator": {"hidden": [8], "z_dim": 3}, "conditional": False},
                saved,
            ),
        )
    assert error.value.problems == [
        "data: 'mnist', but the run was trained with 'digits'; it cannot change",
        "conditional: False, but the run was trained with True; it cannot change",
        "generator.hidden: [8], but the run was trained with [16]; it cannot change",
        "generator.z_dim: 3, but the run was trained with 32; it cannot change",
    ]
    caplog.set_level(logging.INFO)
    changes = {"steps": 8, "generator": {"lr": 1e-5, "beta1": 0.5, "weight_decay": 0.1}}
    run = gan.resume(folder, Config.from_dict(changes | {"name": "elsewhere"}, saved))
    assert run.config.name == folder.name
    lines = [line for line in caplog.messages if line.startswith("changed on resume")]
    assert lines == [
        "changed on resume: generator.lr: 1e-05, was '0.002..0.0001,cosine'",
        "changed on resume: generator.beta1: 0.5, was 0.0",
        "changed on resume: generator.weight_decay: 0.1, was 0.0",
        "changed on resume: steps: 8, was 6",
    ]
    group = run.generator.optimizer.param_groups[0]
    assert (group["lr"], group["betas"][0], group["weight_decay"]) == (1e-5, 0.5, 0.1)
    gan.fit(run)
    assert gan.state.saved_config(folder).generator.lr.start == 1e-5


def test_other_data_of_the_same_name_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = gan.train(tiny(tmp_path))
    other = gan.open_data("digits")
    other.fingerprint = "another"
    monkeypatch.setattr("gan.run.open_data", lambda *_, **__: other)
    with pytest.raises(ConfigError, match=r"data: digits is not what .* was trained on"):
        gan.resume(folder)


def test_copies_of_the_data_are_accepted_and_fewer_images_are_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    for i in range(20):
        Image.new("L", (8, 8), 10 * i).save(photos / f"{i}.png")
    options = {"data": str(photos), "conditional": False, "steps": 2}
    folder = gan.train(tiny(tmp_path / "runs", **options))
    for path in photos.iterdir():
        os.utime(path, (1, 1))  # as another machine would have them
    run = gan.resume(folder, dataclasses.replace(gan.state.saved_config(folder), steps=3))
    assert "as many images" in caplog.text
    assert run.step == 2
    (photos / "3.png").unlink()
    with pytest.raises(ConfigError, match=r"was trained on \(19 images here, 20 there\)"):
        gan.resume(folder)


def test_a_folder_without_a_complete_checkpoint_says_what_to_do(tmp_path: Path) -> None:
    run = gan.build(tiny(tmp_path))
    gan.start(run)
    with pytest.raises(CheckpointError, match=r"gan train --config .*config.yaml"):
        gan.resume(tmp_path / "digits-001")


# --- divergence ---


def poison(monkeypatch: pytest.MonkeyPatch, what: str, steps: list[int]) -> list[int]:
    """Make a quantity not finite when training reaches certain steps, each time it does."""
    visited = []

    def poisoned(run: Run) -> dict[str, torch.Tensor]:
        scalars = train_step(run)
        visited.append(run.step)
        if run.step in steps:
            if what == "weight":
                next(run.discriminator.raw.parameters()).data[0] = float("inf")
            else:
                scalars[what] = torch.tensor(float("nan"))
        return scalars

    monkeypatch.setattr("gan.loop.train_step", poisoned)
    return visited


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("loss/generator", "step 5: the generator's loss is nan"),
        ("loss/discriminator", "step 5: the discriminator's loss is nan"),
        ("penalty/r1", r"step 5: the discriminator's penalty \(r1\) is nan"),
        ("grad_norm/generator", "step 5: the generator's gradient is nan"),
        ("grad_norm/discriminator", "step 5: the discriminator's gradient is nan"),
        ("logits/fake", r"step 5: the discriminator's logits \(fake\) is nan"),
    ],
)
def test_divergence_stops_at_that_step_and_keeps_the_last_good_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, words: str
) -> None:
    visited = poison(monkeypatch, what, [5])
    with pytest.raises(DivergenceError, match=words) as error:
        gan.train(tiny(tmp_path, steps=9))
    assert visited == [1, 2, 3, 4, 5]
    kept = tmp_path / "digits-001/checkpoints/step-00000004"
    assert f"the last good checkpoint is {kept}" in str(error.value)
    assert open_checkpoint(kept).step == 4
    assert sorted(path.name for path in kept.parent.iterdir()) == ["step-00000002", "step-00000004"]


def test_a_bad_weight_is_never_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    poison(monkeypatch, "weight", [4])
    with pytest.raises(DivergenceError, match="step 4: a weight of the discriminator"):
        gan.train(tiny(tmp_path, steps=9))
    folder = tmp_path / "digits-001/checkpoints"
    assert [path.name for path in folder.iterdir()] == ["step-00000002"]


def test_a_real_divergence_is_found(tmp_path: Path) -> None:
    options = {"loss": "wasserstein", "penalties": [], "steps": 60}
    rates = {"generator": {"lr": 1e18}, "discriminator": {"lr": 1e18}}
    with pytest.raises(DivergenceError, match=r"step \d+: (a weight of )?the "):
        gan.train(tiny(tmp_path, **options, **rates))


def test_rollback_goes_back_with_fresh_latents_and_smaller_rates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    visited = poison(monkeypatch, "loss/generator", [5])
    config = tiny(tmp_path, steps=9, on_divergence="rollback", max_rollbacks=2)
    with pytest.raises(DivergenceError, match="after 2 rollbacks"):
        gan.train(config)
    assert visited == [1, 2, 3, 4, 5, 5, 5]
    assert (
        "back to step 4 with fresh latents and learning rates times 0.5 (rollback 1" in caplog.text
    )
    assert (
        "back to step 4 with fresh latents and learning rates times 0.25 (rollback 2" in caplog.text
    )


def test_a_rollback_that_helps_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad: list[int] = []
    visited = poison(monkeypatch, "loss/generator", bad)
    whole = gan.train(tiny(tmp_path, steps=9, log_every=1))
    del visited[:]

    original = gan.loop.roll_back

    def mend(run: Run, error: DivergenceError) -> None:
        original(run, error)
        bad.clear()

    bad.append(5)
    monkeypatch.setattr("gan.loop.roll_back", mend)
    folder = gan.train(tiny(tmp_path, steps=9, log_every=1, on_divergence="rollback"))
    assert visited == [1, 2, 3, 4, 5, 5, 6, 7, 8, 9]
    assert [step for step, _ in curves(folder)["loss/generator"]] == list(range(1, 10))
    rates, usual = (dict(curves(each)["lr/generator"]) for each in (folder, whole))
    assert rates[4] == usual[4]
    assert rates[8] == pytest.approx(usual[8] / 2)
    mine, theirs = state(folder), state(whole)
    assert mine["state/run/rollbacks"] == 1
    assert mine["state/generator/scheduler/base_lrs/0"] == 1e-3
    weights = [name for name in theirs if name.startswith("generator/")]
    assert not all(torch.equal(mine[name], theirs[name]) for name in weights)


def test_rolling_back_before_the_first_checkpoint_goes_to_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    visited = poison(monkeypatch, "loss/generator", [1])
    with pytest.raises(DivergenceError, match="after 1 rollbacks"):
        gan.train(tiny(tmp_path, on_divergence="rollback", max_rollbacks=1))
    assert visited == [1, 1]


def test_the_guard_reads_an_accelerators_answer_a_step_later(tmp_path: Path) -> None:
    guard = Guard(gan.build(tiny(tmp_path)))
    guard._lag = True
    good, bad = ({"loss/generator": torch.tensor(x)} for x in (1.0, float("inf")))
    guard._run.step = 1
    assert guard.after_step(good, stop=0) == 0
    guard._run.step = 2
    assert guard.after_step(bad, stop=15) == 0
    guard._run.step = 3
    with pytest.raises(DivergenceError, match="step 2: the generator's loss is inf"):
        guard.after_step(good, stop=0)
    guard.settle()
    guard.after_step(bad, stop=0)
    with pytest.raises(DivergenceError, match="step 3"):
        guard.settle()


def test_running_out_of_memory_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(run: Run) -> dict[str, torch.Tensor]:
        raise RuntimeError("CUDA out of memory. Tried to allocate 20 GiB.")

    monkeypatch.setattr("gan.loop.train_step", exhausted)
    with pytest.raises(GanError, match=r"step 1 with batch_size 16, images of \(1, 8, 8\)"):
        gan.train(tiny(tmp_path))


# --- kill -9 ---

SCRIPT = """
import sys, gan
from pathlib import Path
from gan.config import Config
folder = Path(sys.argv[1])
config = Config.from_dict({**eval(sys.argv[2]), "name": folder.name, "runs_dir": folder.parent})
if (folder / "checkpoints").is_dir() and list((folder / "checkpoints").glob("step-*")):
    run = gan.resume(folder)
else:
    import shutil
    shutil.rmtree(folder, ignore_errors=True)
    run = gan.build(config)
    gan.start(run)
gan.fit(run)
"""


def start(folder: Path, options: dict[str, Any]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(folder), repr(options)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def kill_often(folder: Path, options: dict[str, Any], kills: int, seed: int = 0) -> list[int]:
    """Kill a training process at random moments; returns the newest step after each kill."""
    chance, steps = random.Random(seed), []
    for _ in range(kills):
        process = start(folder, options)
        # Only what is in a checkpoint counts: wait for the next one, then any moment will do.
        before = set(folder.glob("checkpoints/step-*"))
        while process.poll() is None and not set(folder.glob("checkpoints/step-*")) - before:
            time.sleep(0.002)
        time.sleep(chance.uniform(0, 0.1))
        process.send_signal(signal.SIGKILL)
        process.wait()
        checkpoint = newest_checkpoint(folder / "checkpoints")
        assert checkpoint is not None
        steps.append(checkpoint.step)
    return steps


def survive(folder: Path, kills: int) -> list[int]:
    """Kill a run often, let it go on, and hold it against one that nobody touched."""
    options = {
        **tiny(folder, steps=100_000, penalties=["r1/3"]).to_dict(),
        **{"log_every": 5, "sample_every": None, "save_every": 1, "keep": 2},
        **{role: {"beta2": 0.99} for role in ("generator", "discriminator")},
    }
    steps = kill_often(folder / "killed", options, kills)
    assert steps == sorted(steps)
    last = steps[-1] + 3
    resumed = gan.resume(folder / "killed")
    assert [path.name for path in (folder / "killed/checkpoints").glob(".*")] == []
    while resumed.step < last:
        train_step_and_save(resumed)
    whole = gan.build(Config.from_dict({**options, "name": "whole", "runs_dir": folder}))
    gan.start(whole)
    while whole.step < last:
        train_step(whole)
    save_like(whole, resumed)
    assert_weights_equal(folder / "killed", folder / "whole")
    return steps


@pytest.mark.slow
def test_ten_kills_end_in_the_weights_of_an_uninterrupted_run(tmp_path: Path) -> None:
    assert len(survive(tmp_path, kills=10)) == 10


def save_like(run: Run, other: Run) -> None:
    run.latest = dict(other.latest)
    save(run)


def assert_weights_equal(one: Path, other: Path) -> None:
    mine, theirs = state(one), state(other)
    skip = ("random-", "state/run/latest")
    names = [name for name in theirs if not name.startswith(skip)]
    for name in names:
        if isinstance(theirs[name], torch.Tensor):
            assert torch.equal(mine[name], theirs[name]), name
        else:
            assert mine[name] == theirs[name], name


@pytest.mark.slow
def test_torchrun_restarts_a_killed_process_and_ends_the_same(tmp_path: Path) -> None:
    config = tiny(tmp_path, steps=40, save_every=4, log_every=4, sample_every=None)
    config.save(tmp_path / "config.yaml")
    command = [
        # --standalone: a port of its own, whatever else runs on the machine
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"),
        *("--max_restarts", "3", "-m", "gan", "train", "--config", str(tmp_path / "config.yaml")),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    process = subprocess.Popen(
        [*command, "--name", "killed"],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    folder = tmp_path / "killed"
    try:
        while not list(folder.glob("checkpoints/step-*")):
            assert process.poll() is None
            time.sleep(0.01)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        pid = int(children.read_text(encoding="utf-8").split()[-1])
        os.kill(pid, signal.SIGKILL)
        assert process.wait(timeout=300) == 0
    finally:
        process.terminate()
        process.wait()
    subprocess.run([*command, "--name", "whole"], env=environment, check=True, capture_output=True)
    checkpoint = newest_checkpoint(folder / "checkpoints")
    assert checkpoint is not None
    assert (checkpoint.step, checkpoint.manifest["num_processes"]) == (40, 2)
    assert_weights_equal(folder, tmp_path / "whole")


def test_two_processes_probe_the_same_number_of_steps(two_processes: Any, tmp_path: Path) -> None:
    def rank() -> int:
        run = gan.build(tiny(tmp_path))
        if run.accelerator.is_main_process:
            time.sleep(0.2)
        gan.loop.probe(run, seconds=0.2)
        return run.step

    first, second = two_processes(rank)
    assert first == second


def test_another_total_batch_on_resume_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = gan.train(tiny(tmp_path))
    gan.resume(folder, dataclasses.replace(gan.state.saved_config(folder), batch_size=8))
    assert "an update now sees 8 images, was 16: that is another training" in caplog.text
