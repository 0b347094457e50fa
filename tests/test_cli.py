from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from PIL import Image

from gan.checkpoint import newest_checkpoint
from gan.cli import COMMANDS, main
from gan.presets import PRESETS


def tiny_words(steps: int = 6, sample_every: int | None = 3) -> list[str]:
    """Flags of a run of a second or less."""
    words = f"--steps {steps} --sample_every {sample_every} --batch_size 16 --log_every 2 "
    words += "--save_every 2 --sample_num 4 --generator.hidden 16 --discriminator.hidden 16 "
    # Constants, so that a run does not depend on how long it is meant to be.
    for role in ("generator", "discriminator"):
        words += f"--{role}.lr 1e-3 --{role}.beta2 0.99 "
    return words.split()


TINY = tiny_words()
LONG = tiny_words(100_000, None)


def run(*words: str | int | Path) -> int:
    """Exit code of a command; tyro leaves by SystemExit."""
    try:
        return main([str(word) for word in words])
    except SystemExit as error:
        return int(error.code or 0)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    checkpoint = newest_checkpoint(folder / "checkpoints")
    assert checkpoint is not None
    return checkpoint.weights("generator") | checkpoint.weights("ema")


def test_help_names_every_command_and_preset(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["--help"], ["-h"]):
        assert run(*words) == 0
        out = capsys.readouterr().out
        assert all(f"\n  {name} " in out for name in (*COMMANDS, *PRESETS))


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        ("train", ["--config", "--dry_run", "--steps", "--generator.lr", "--discriminator.width"]),
        ("resume", ["--steps", "--generator.lr"]),
        ("data", ["--resolution", "--fit", "--skip_unreadable", "--no_cache", "--split", "--out"]),
        (
            "sample",
            ["--num", "--seed", "--seeds", "--labels", "--truncation", "--nearest", "--out"],
        ),
        ("interpolate", ["--seeds", "--frames", "--label", "--truncation", "--fps", "--out"]),
        ("evaluate", ["--data", "--features", "--num", "--metrics", "--weights", "--checkpoint"]),
        ("export", ["--format", "--out"]),
        ("push", ["--public"]),
        ("runs", ["--help"]),
        ("compare", ["--out"]),
    ],
)
def test_the_help_of_a_command_lists_its_flags(
    command: str, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command, "--help") == 0
    out = capsys.readouterr().out
    assert [flag for flag in flags if flag not in out] == []


def test_train_says_what_will_happen_and_where_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("train", "digits", *TINY, "--runs_dir", tmp_path) == 0
    captured = capsys.readouterr()
    first, *last = captured.out.splitlines()
    assert first.startswith(f"{tmp_path}/digits-001: 1,797 1x8x8 from digits, 10 classes; mlp gen")
    assert first.endswith(
        "relativistic (0.693 at chance) + r1/4 + r2/4; 6 steps of 16 images on 1 x cpu, fp32"
    )
    assert last == [
        f"samples:     {tmp_path}/digits-001/samples/step-000006.png",
        f"generator:   {tmp_path}/digits-001/generator",
        f"watch it:    tensorboard --logdir {tmp_path}",
    ]
    assert "6/6" in captured.err
    assert "D=" in captured.err
    assert "images_per_s=" in captured.err


def test_the_flags_and_the_runs_own_file_give_the_same_weights(tmp_path: Path) -> None:
    flags = ["--generator.clip_norm", "0.1", "--loss", "hinge"]
    assert run("train", "digits", *TINY, *flags, "--runs_dir", tmp_path) == 0
    file = tmp_path / "digits-001" / "config.yaml"
    assert run("train", "--config", file) == 0
    assert run("train", f"--config={file}", "--generator.lr", "2e-4") == 0
    first, again, other = (weights(tmp_path / f"digits-00{i}") for i in (1, 2, 3))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)  # the flag wins


def test_dry_run_prints_the_plan_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("train", "digits", *TINY, "--dry_run", "--runs_dir", "there") == 0
    out = capsys.readouterr().out
    assert "loss: relativistic" in out
    for line in ("data:", "generator:", "discriminator:", "machine:", "steps:", "time:", "folder:"):
        assert f"\n{line}" in out
    assert list(tmp_path.iterdir()) == []


def test_sample_writes_the_picture_it_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("train", "digits", *TINY, "--runs_dir", tmp_path, "--name", "one")
    for source in (tmp_path / "one", tmp_path / "one" / "generator"):
        out = tmp_path / f"{source.name}.png"
        assert run("sample", source, "--num", "10", "--seed", "5", "--out", out) == 0
        assert capsys.readouterr().out.splitlines()[-1] == str(out)
    with (
        Image.open(tmp_path / "one.png") as first,
        Image.open(tmp_path / "generator.png") as second,
    ):
        assert first.size == (4 * 66 + 2, 3 * 66 + 2)
        assert first.tobytes() == second.tobytes()


MISTAKES = [
    (["tarin"], "'tarin' is no command; commands: train, resume, data, sample, "),
    (["train"], "preset: none given; presets: digits, "),
    (["train", "digitz"], "preset: 'digitz' is unknown; did you mean digits? presets: digits, "),
    (["train", "--data", "x", "--pairs", "folders"], "--pairs: gan train makes images out of noth"),
    (["train", "--steps", "3", "ring"], "preset: ring comes before the flags; write: gan train ri"),
    (["train", "--penalties", "r1", "ring"], "write: gan train ring --penalties r1"),
    (["train", "--preset", "ring"], "--preset: write the preset first: gan train ring ..."),
    (["train", "digits", "--preset=ring"], "--preset: write the preset first: gan train ring ..."),
    (["train", "digits", "--stepz", "3"], "--stepz: there is no such flag; did you mean --steps?"),
    (["train", "digits", "--steps", "three"], "--steps: 'three' is not a whole number"),
    (["train", "digits", "--steps", "3", "--steps", "5"], "--steps: it is there twice, 3 and 5; g"),
    (["train", "digits", "--loss", "mse"], "--loss: 'mse' is not one of minimax, non-saturating, "),
    (["train", "digits", "--gamma", "big"], "--gamma: 'big' is no schedule; write a number, or S"),
    (["train", "digits", "--gamma", "nan"], "--gamma: nan is not finite"),
    (["train", "digits", "--generator.lr", "1..inf"], "--generator.lr: 1..inf is not finite"),
    (["train", "digits", "--generator.lr", "-1"], "generator.lr: -1 is not above 0"),
    (["train", "digits", "--generator.weight_decay", "nan"], "generator.weight_decay: nan is not"),
    (["train", "digits", "--generator.weight_decay", "-1"], "generator.weight_decay: -1 is outsid"),
    (["train", "digits", "--generator.family", "dcgam"],
     "generator.family: 'dcgam' is unknown; did you mean dcgan? families: dcgan, mlp, resnet, r3g"),
    (["train", "digits", "stray"], "'stray' belongs to no flag; write --FLAG VALUE"),
    (["train", "digits", "--config", "x.yaml"], "--config: give a preset (digits) or a file"),
    (["train", "--config", "x.yaml"], "--config: cannot read x.yaml: No such file"),
    (["train", "--config"], "--config: "),
    (["train", "digits", "--data", "nothing"], "data: 'nothing' is neither a path that exists"),
    (["train", "digits", "--batch_size", "5000"], "batch_size: 5000 x 1 micro-batches"),
    (["train", "digits", "--resolution", "0"], "resolution: '0' is no size in pixels"),
    (["train", "fashion-mnist", "--data", "fake:99", "--no_conditional", "--resolution", "7"],
     "resolution: dcgan: "),
    (["train", "digits", "--runs_dir", "/proc/nowhere"], "--runs_dir: cannot make a folder"),
    (["resume"], "gan resume: name the run folder, as in gan resume runs/digits-001"),
    (["resume", "nowhere"], "nowhere is no run folder (no config.yaml in it); there is no run in"),
    (["sample", "nowhere"], "nowhere is no run folder"),
    (["sample", "nowhere", "--num", "0"], "--num: 0 is below 1"),
    (["sample", "nowhere", "--seed", "-1"], "--seed: -1 is negative"),
    (["sample", "nowhere", "--seeds", "1-", "--out", "x.png"], "--seeds: '1-' is no list of num"),
    (["sample", "nowhere", "--seeds", "9-1"], "--seeds: 9-1 runs backwards; write 1-9"),
    (["sample", "nowhere", "--seeds", "1", "--num", "3"], "--seeds: give either --seeds, or --num"),
    (["sample", "nowhere", "--labels", "a"], "--labels: 'a' is no list of numbers; write 0-63"),
    (["sample", "nowhere", "--resolution", "64"], "--resolution: there is no such flag; gan sa"),
    (["sample", "nowhere", "--nearest", "yes"], "'yes' belongs to no flag; --nearest takes no va"),
    (["sample", "nowhere", "--num"], "--num: its value is missing; give a whole number"),
    (["evaluate", ".", "--metrics"], "--data: . is no run"),
    (["sample", "nowhere", "--seeds", "0-1000000"], "--seeds: 0-1000000 are more than 1,000,000 "),
    (["sample", "nowhere", "--out", "x.foo"], "x.foo: .foo is no kind of picture; use .png"),
    (["sample", "nowhere", "--out", "/dev/null/x.png"], "cannot be: /dev/null is no folder"),
    (["sample", "nowhere", "--data", "digits"], "--data: digits is used with --nearest only"),
    (["sample", "nowhere", "--nearest", "--out", "x.zip"], "--nearest: gives a picture, but --out"),
    (["interpolate", "nowhere", "--frames", "0"], "--frames: 0 is below 1"),
    (["interpolate", "nowhere", "--fps", "0"], "--fps: 0 is outside 1 to 100"),
    (["interpolate", "nowhere", "--out", "x.avi"], "--out: x.avi does not end in .png, .gif, "),
    (["interpolate", "nowhere"], "nowhere is no run folder"),
    (["data"], "gan data: name a source, as in gan data path/to/images"),
    (["data", "digits", "--data", "mnist"], "--data: 'mnist', but the source is 'digits'; leave"),
    (["data", "nothing"], "data: 'nothing' is neither a path that exists"),
    (["data", "digits", "--cache_limit", "much"], "cache_limit: 'much' is no size"),
    (["evaluate"], "gan evaluate: name a run, a folder or an npz, as in gan evaluate runs/digits"),
    (["evaluate", "nowhere", "--data", "digits"], "nowhere does not exist; give a run, a folder"),
    (["evaluate", "."], "--data: . is no run; say which real images to compare it with"),
    (["export", "nowhere"], "nowhere is no run folder"),
    (["export", "nowhere", "--out", "x.pt"], "--out: x.pt does not end in .onnx, as onnx does"),
    (["push", "nowhere"], "gan push: name the run and its place, as in gan push runs/digits-001"),
    (["push", "nowhere", "me/x"], "nowhere does not exist"),
    (["runs"], "runs is no folder; name the one that holds the runs"),
    (["runs", "."], "there is no run in ."),
    (["compare", "nowhere"], "gan compare: name two runs or more"),
    (["export", "nowhere", "--out", "/dev/null/x.onnx"], "cannot be: /dev/null is no folder"),
    (["compare", "nowhere", "there"], "nowhere is no run folder"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "message"), MISTAKES, ids=[" ".join(w) for w, _ in MISTAKES])
def test_a_mistake_is_one_clear_error(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("gan: error: ")
    assert message in line
    assert list(tmp_path.iterdir()) == []


def test_an_empty_folder_is_no_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pictures").mkdir()
    words = ("--data", tmp_path / "pictures", "--runs_dir", tmp_path / "runs")
    assert run("train", "dcgan64", *words) == 2
    assert f"{tmp_path / 'pictures'}" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "gan", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def wait_for_checkpoint(folder: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while not list(folder.glob("checkpoints/step-*")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "no checkpoint in two minutes"
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_resume_goes_on_from_there(tmp_path: Path, number: int) -> None:
    words = ["train", "digits", *LONG, "--runs_dir", str(tmp_path)]
    process = start(*words, "--name", "stopped")
    folder = tmp_path / "stopped"
    wait_for_checkpoint(folder, process)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "Traceback" not in err
    checkpoint = newest_checkpoint(folder / "checkpoints")
    assert checkpoint is not None
    assert out.splitlines()[-1] == (
        f"stopped at step {checkpoint.step}, all saved; go on with: gan resume {folder}"
    )
    end = checkpoint.step + 3
    assert run("resume", folder, "--steps", end) == 0
    words = ["train", "digits", *tiny_words(end), "--runs_dir", str(tmp_path)]
    assert run(*words, "--name", "whole") == 0
    stopped, whole = weights(folder), weights(tmp_path / "whole")
    assert all(torch.equal(stopped[name], whole[name]) for name in whole)


def test_resuming_a_finished_run_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("train", "digits", *TINY, "--runs_dir", tmp_path)
    capsys.readouterr()
    assert run("resume", tmp_path / "digits-001") == 0
    assert capsys.readouterr().out == (
        f"{tmp_path}/digits-001 is finished: 6 of 6 steps; --steps goes on\n"
    )


def test_resuming_records_only_what_was_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("train", "digits", *TINY, "--runs_dir", tmp_path)
    folder = tmp_path / "digits-001"
    recorded = (folder / "config.yaml").read_text()
    capsys.readouterr()
    assert run("resume", folder, "--seed", 77) == 0  # it is finished
    for flag, value in (("--name", "other"), ("--runs_dir", tmp_path / "elsewhere")):
        assert run("resume", folder, "--steps", 8, flag, value) == 2
        assert f"but a run goes on in its own folder, {folder}; lea" in capsys.readouterr().err
    assert (folder / "config.yaml").read_text() == recorded
    own = ("--name", "digits-001", "--runs_dir", tmp_path / "elsewhere" / "..")
    assert run("resume", folder, "--steps", 8, *own) == 0
    assert "steps: 8" in (folder / "config.yaml").read_text()


def test_both_launchers_train_with_every_process(tmp_path: Path) -> None:
    words = ["-m", "gan", "train", "digits", *TINY, "--runs_dir", str(tmp_path)]
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node",
        "2",
    ]
    # With --cpu, accelerate launch starts two processes only through MPI.
    launch = [
        sys.executable,
        "-m",
        "accelerate.commands.launch",
        "--multi_gpu",
        "--num_processes",
        "2",
    ]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        launch += ["--main_process_port", str(free.getsockname()[1])]
    launch += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    for command in (torchrun, launch):
        done = subprocess.run(
            [*command, *words], capture_output=True, text=True, timeout=240, env=environment
        )
        assert done.returncode == 0, done.stderr
    for folder in sorted(tmp_path.iterdir()):
        checkpoint = newest_checkpoint(folder / "checkpoints")
        assert checkpoint is not None
        processes = checkpoint.manifest["num_processes"]
        assert processes == 2, f"{folder.name}: {processes}"
        assert checkpoint.manifest["images_seen"] == 6 * 16 * 2
    assert len(list(tmp_path.iterdir())) == 2


def test_a_run_that_is_being_trained_is_not_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "digits", *LONG, "--runs_dir", str(tmp_path)]
    process = start(*words, "--name", "live")
    wait_for_checkpoint(tmp_path / "live", process)
    try:
        assert run("resume", tmp_path / "live") == 2
        assert (
            "live is being trained by another process; stop that first" in capsys.readouterr().err
        )
    finally:
        process.kill()
        process.communicate()
    assert run("resume", tmp_path / "live", "--steps", "1") == 2  # it is further than that
    assert "steps: 1, but the run is at step" in capsys.readouterr().err


def test_a_failed_write_of_the_options_loses_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    run("train", "digits", *TINY, "--runs_dir", tmp_path)
    folder = tmp_path / "digits-001"
    before = (folder / "config.yaml").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr("gan.config.os.fsync", full)
        assert run("resume", folder, "--steps", "9") == 2
        assert "config.yaml: No space left on device" in capsys.readouterr().err
        assert run("train", "digits", *TINY, "--runs_dir", tmp_path / "new") == 2
        assert "No space left on device; free some space" in capsys.readouterr().err
    assert (folder / "config.yaml").read_bytes() == before
    assert [path.name for path in folder.iterdir() if path.name.endswith(".tmp")] == []
    assert list((tmp_path / "new").iterdir()) == []
    assert run("resume", folder, "--steps", "9") == 0


def test_what_the_system_refuses_is_one_clear_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for error, message in (
        (PermissionError(13, "Permission denied", "there"), "there: Permission denied"),
        (MemoryError("no room"), "out of memory: no room; ask for less at once"),
    ):

        def fail(_: list[str], error: BaseException = error) -> int:
            raise error

        monkeypatch.setattr("gan.commands.training.train", fail)
        assert run("train", "digits") == 2
        assert capsys.readouterr().err == f"gan: error: {message}\n"


def test_control_c_before_the_training_ends_the_process_at_once() -> None:
    process = start("train", "digits", "--dry_run")
    time.sleep(0.7)  # in the middle of the imports
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode in (130, -signal.SIGINT)
    assert "Traceback" not in err


def test_control_c_after_the_work_is_done_ends_without_a_word() -> None:
    probe = (
        "import signal, sys, time\n"
        "sys.argv = ['gan', '--version']\n"
        "from gan.cli import main\n"
        "main()\n"
        "time.sleep(20)  # as long as threads of torch may take to end\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", probe], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=10)[1] == ""
    assert process.returncode == -signal.SIGINT


def test_whoever_stops_reading_gets_no_complaint() -> None:
    words = f"{shlex.quote(sys.executable)} -m gan train --help | head -1"
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True)
    assert done.stdout.startswith("usage: gan train")
    assert done.stderr == ""
