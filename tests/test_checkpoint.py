from __future__ import annotations

import json
import os
import pickle
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from torch import nn

from gan.checkpoint import newest_checkpoint, open_checkpoint, save_checkpoint
from gan.errors import CheckpointError


def save(accelerator: Accelerator, root: Path, step: int, keep: int | None = None) -> Path:
    module = nn.Linear(2, 3)
    nn.init.constant_(module.weight, step)
    return save_checkpoint(
        accelerator,
        root,
        step,
        modules={"generator": module},
        states={"generator": {"step": step, "moment": torch.full((5,), float(step))}},
        manifest={"images_seen": step * 10},
        keep=keep,
    )


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def test_it_gives_back_what_it_was_given(cpu_accelerator: Accelerator, tmp_path: Path) -> None:
    save(cpu_accelerator, tmp_path, 7)
    checkpoint = newest_checkpoint(tmp_path)
    assert checkpoint is not None
    assert (checkpoint.step, checkpoint.manifest["images_seen"]) == (7, 70)
    module = nn.Linear(2, 3)
    checkpoint.load_weights("generator", module)
    assert (module.weight == 7).all()
    state = checkpoint.states()["generator"]
    assert state["step"] == 7
    assert torch.equal(state["moment"], torch.full((5,), 7.0))


def test_it_puts_back_every_random_generator(cpu_accelerator: Accelerator, tmp_path: Path) -> None:
    def draw() -> tuple[float, float, float]:
        return float(torch.rand(())), float(np.random.rand()), random.random()  # noqa: NPY002

    draw()
    save(cpu_accelerator, tmp_path, 1)
    expected = draw()
    checkpoint = newest_checkpoint(tmp_path)
    assert checkpoint is not None
    checkpoint.restore_random_state(0)
    assert draw() == expected


def test_the_newest_are_kept_by_number_and_not_by_text(
    cpu_accelerator: Accelerator, tmp_path: Path
) -> None:
    (tmp_path / "step-99999998.txt").touch()  # a stranger is left alone
    for step in (8, 9, 10, 11, 100_000_001):
        save(cpu_accelerator, tmp_path, step, keep=3)
    assert names(tmp_path) == [
        "step-00000010",
        "step-00000011",
        "step-100000001",
        "step-99999998.txt",
    ]
    checkpoint = newest_checkpoint(tmp_path)
    assert checkpoint is not None
    assert checkpoint.step == 100_000_001


def test_the_same_step_again_replaces_the_old_one(
    cpu_accelerator: Accelerator, tmp_path: Path
) -> None:
    save(cpu_accelerator, tmp_path, 3)
    save(cpu_accelerator, tmp_path, 3)
    assert names(tmp_path) == ["step-00000003"]
    open_checkpoint(tmp_path / "step-00000003")


@pytest.mark.parametrize("file", ["generator.safetensors", "state.pt", "random-0.pt"])
@pytest.mark.parametrize("damage", ["cut", "gone", "changed"])
def test_a_damaged_newest_one_is_passed_over(
    cpu_accelerator: Accelerator,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    file: str,
    damage: str,
) -> None:
    save(cpu_accelerator, tmp_path, 1)
    path = save(cpu_accelerator, tmp_path, 2) / file
    content = bytearray(path.read_bytes())
    path.unlink()
    if damage == "cut":
        path.write_bytes(content[:-1])
    elif damage == "changed":
        content[-1] ^= 1
        path.write_bytes(content)
    checkpoint = newest_checkpoint(tmp_path)
    assert checkpoint is not None
    assert checkpoint.step == 1
    assert f"{file} is missing or not what was saved; going back to the one before" in caplog.text
    shutil.rmtree(tmp_path / "step-00000001")
    with pytest.raises(CheckpointError, match="every checkpoint is damaged"):
        newest_checkpoint(tmp_path)


def test_nothing_there_is_nothing(tmp_path: Path) -> None:
    assert newest_checkpoint(tmp_path / "nowhere") is None


def test_other_kinds_and_newer_versions_are_refused(
    cpu_accelerator: Accelerator, tmp_path: Path
) -> None:
    folder = save(cpu_accelerator, tmp_path, 1)
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    for change, message in (
        ({"kind": "else"}, "is no training"),
        ({"version": 99}, "has version 99"),
    ):
        (folder / "manifest.json").write_text(json.dumps(manifest | change), encoding="utf-8")
        with pytest.raises(CheckpointError, match=message):
            open_checkpoint(folder)


def test_no_code_in_a_checkpoint_is_run(cpu_accelerator: Accelerator, tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
            return os.system, (f"touch {tmp_path / 'ran'}",)

    folder = save(cpu_accelerator, tmp_path / "root", 1)
    checkpoint = open_checkpoint(folder)
    (folder / "state.pt").write_bytes(pickle.dumps({"generator": Evil()}, 2))
    with pytest.raises(CheckpointError, match=r"state.pt is damaged or holds more than tensors"):
        checkpoint.states()
    torch.save({"generator": Evil()}, folder / "state.pt")
    with pytest.raises(CheckpointError, match=r"state.pt is damaged or holds more than tensors"):
        checkpoint.states()
    assert not (tmp_path / "ran").exists()


def test_roles_go_by_name_and_never_by_position(
    cpu_accelerator: Accelerator, tmp_path: Path
) -> None:
    one, other = nn.Linear(2, 2), nn.Linear(2, 2)
    save_checkpoint(
        cpu_accelerator,
        tmp_path,
        1,
        modules={"generator": one, "discriminator": other},
        states={},
        manifest={},
    )
    checkpoint = newest_checkpoint(tmp_path)
    assert checkpoint is not None
    fresh = {"discriminator": nn.Linear(2, 2), "generator": nn.Linear(2, 2)}
    for role, module in fresh.items():
        checkpoint.load_weights(role, module)
    assert torch.equal(fresh["generator"].weight, one.weight)
    assert torch.equal(fresh["discriminator"].weight, other.weight)
    with pytest.raises(CheckpointError, match="holds no ema; it holds generator, discriminator"):
        checkpoint.load_weights("ema", nn.Linear(2, 2))


def test_a_network_that_does_not_fit_is_named(cpu_accelerator: Accelerator, tmp_path: Path) -> None:
    save(cpu_accelerator, tmp_path, 1)
    checkpoint = newest_checkpoint(tmp_path)
    assert checkpoint is not None
    with pytest.raises(CheckpointError, match=r"2 tensors differ\): weight: \(3, 2\) there, "):
        checkpoint.load_weights("generator", nn.Linear(2, 4))


@pytest.mark.parametrize("where", ["models", "state", "rename"])
def test_a_failed_write_leaves_the_older_ones_whole(
    cpu_accelerator: Accelerator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    save(cpu_accelerator, tmp_path, 1)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        if where == "models":
            patch.setattr("gan.checkpoint.save_file", full)
        elif where == "state":
            patch.setattr("gan.checkpoint.torch.save", full)
        else:
            patch.setattr(Path, "rename", full)
        with pytest.raises(CheckpointError) as error:
            save(cpu_accelerator, tmp_path, 2, keep=1)
    assert "step-00000002: [Errno 28] No space left on device; older checkpoints are" in str(
        error.value
    )
    assert names(tmp_path) == ["step-00000001"]
    assert open_checkpoint(tmp_path / "step-00000001").step == 1
    save(cpu_accelerator, tmp_path, 2, keep=1)
    assert names(tmp_path) == ["step-00000002"]


def test_free_space_is_looked_at_first(
    cpu_accelerator: Accelerator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(CheckpointError, match=r"it needs 1.0 MiB and 0.0 MiB are free"):
        save(cpu_accelerator, tmp_path, 1)
    assert names(tmp_path) == []


def test_leftovers_of_a_killed_process_go_with_the_next_save(
    cpu_accelerator: Accelerator, tmp_path: Path
) -> None:
    for stray in (".tmp-step-00000001", ".old-step-00000002"):
        (tmp_path / stray).mkdir()
        (tmp_path / stray / "state.pt").touch()
    assert newest_checkpoint(tmp_path) is None
    save(cpu_accelerator, tmp_path, 3)
    assert names(tmp_path) == ["step-00000003"]


def test_two_processes_write_one_checkpoint(two_processes: Any, tmp_path: Path) -> None:
    def rank() -> str:
        accelerator = Accelerator(cpu=True)
        return save(accelerator, tmp_path, 4).name

    assert two_processes(rank) == ["step-00000004"] * 2
    checkpoint = newest_checkpoint(tmp_path)
    assert checkpoint is not None
    assert sorted(checkpoint.manifest["files"]) == [
        "generator.safetensors",
        "random-0.pt",
        "random-1.pt",
        "state.pt",
    ]


def test_a_failure_on_one_process_is_told_to_all(two_processes: Any, tmp_path: Path) -> None:
    def rank() -> str:
        accelerator = Accelerator(cpu=True)
        if not accelerator.is_main_process:
            torch.save = lambda *_, **__: (_ for _ in ()).throw(OSError(28, "No space left"))
        with pytest.raises(CheckpointError) as error:
            save(accelerator, tmp_path, 4)
        return str(error.value)

    first, second = two_processes(rank)
    assert "another process failed" in first
    assert "No space left" in second
    assert names(tmp_path) == []
