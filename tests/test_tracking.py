"""Run folders, and what TensorBoard reads back."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from PIL import Image

from gan.errors import GanError
from gan.tracking import Tracker, create_run_dir


def read(run_dir: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(run_dir)).Reload()


# --- run folders ---------------------------------------------------------------------------------


def test_runs_are_numbered(tmp_path: Path) -> None:
    runs = tmp_path / "new" / "runs"
    names = [create_run_dir(runs, preset).name for preset in ("digits", "digits", "ring", "digits")]
    assert names == ["digits-001", "digits-002", "ring-001", "digits-003"]


def test_a_number_is_never_used_again_while_a_later_run_exists(tmp_path: Path) -> None:
    for name in ("digits-002", "digits-1234", "digits-x", "my-digits-9999", "digits-007-old"):
        (tmp_path / name).mkdir()
    assert create_run_dir(tmp_path, "digits").name == "digits-1235"


def test_runs_that_start_together_get_different_folders(tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as pool:
        folders = list(pool.map(lambda _: create_run_dir(tmp_path, "digits"), range(64)))
    assert sorted(folder.name for folder in folders) == [f"digits-{i:03d}" for i in range(1, 65)]


def test_a_run_may_have_a_name(tmp_path: Path) -> None:
    assert create_run_dir(tmp_path, "digits", "mine") == tmp_path / "mine"
    assert create_run_dir(tmp_path, "digits", "mine") == tmp_path / "mine"  # it is still empty


@pytest.mark.parametrize("taken_by", ["run", "file"])
def test_a_name_that_is_taken(tmp_path: Path, taken_by: str) -> None:
    folder = tmp_path / "mine"
    if taken_by == "run":
        folder.mkdir()
        (folder / "config.yaml").touch()
    else:
        folder.touch()
    with pytest.raises(GanError) as caught:
        create_run_dir(tmp_path, "digits", "mine")
    assert str(caught.value) == (
        f"--name: {folder} exists; choose another name, "
        f"or continue that run with: gan resume {folder}"
    )


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(GanError) as caught:
        create_run_dir(tmp_path / "file" / "runs", "digits")
    assert str(caught.value) == (
        f"--runs_dir: cannot make a folder in {tmp_path}/file/runs: Not a directory; "
        "choose one that you may write to"
    )


def test_nothing_half_made_is_left(tmp_path: Path) -> None:
    with pytest.raises(GanError, match="File name too long"):
        create_run_dir(tmp_path / "new" / "runs", "digits", "x" * 300)
    assert list(tmp_path.iterdir()) == []


# --- TensorBoard ---------------------------------------------------------------------------------


def test_one_run_is_one_event_file_in_its_folder(
    tmp_path: Path, cpu_accelerator: Accelerator
) -> None:
    tracker = Tracker(cpu_accelerator, tmp_path)
    tracker.scalars({"loss/generator": 1.0}, 1)
    tracker.text("config", "```yaml\nsteps: 3\n```")
    tracker.hparams({"steps": 3})
    tracker.image("samples/ema", torch.zeros(1, 4, 4, dtype=torch.uint8), 1)
    tracker.close()
    (path,) = tmp_path.rglob("*")
    assert path.name.startswith("events.out.tfevents.")


def test_every_kind_of_number_arrives(tmp_path: Path, cpu_accelerator: Accelerator) -> None:
    values = {
        "python": 0.5,
        "int": 2,
        "bool": True,
        "tensor": torch.tensor(0.25, requires_grad=True),
        "bfloat16": torch.tensor(3.0, dtype=torch.bfloat16),
        "float32": np.float32(1.5),
        "float64": np.float64(2.5),
        "int64": np.int64(7),
        "array": np.array(8.0),
        "nan": math.nan,
    }
    tracker = Tracker(cpu_accelerator, tmp_path)
    tracker.scalars(values, 3)
    tracker.close()
    events = read(tmp_path)
    assert sorted(events.Tags()["scalars"]) == sorted(values)
    for tag, value in values.items():
        (point,) = events.Scalars(tag)
        assert point.step == 3
        number = value.item() if isinstance(value, torch.Tensor) else float(value)
        assert point.value == pytest.approx(number, nan_ok=True)


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (torch.zeros(2), "Tensor of shape (2,)"),
        (torch.zeros(1), "Tensor of shape (1,)"),
        (np.zeros(2), "ndarray of shape (2,)"),
        (None, "NoneType"),
        ("0.5", "str"),
        ([1.0], "list"),
        ({"a": 1.0}, "dict"),
        (1j, "complex"),
        (torch.tensor(1j), "Tensor of shape ()"),
    ],
)
def test_what_is_no_single_number(
    tmp_path: Path, cpu_accelerator: Accelerator, value: Any, what: str
) -> None:
    tracker = Tracker(cpu_accelerator, tmp_path)
    with pytest.raises(TypeError) as caught:
        tracker.scalars({"good": 1.0, "bad": value}, 1)
    tracker.close()
    assert str(caught.value) == f"bad: a curve takes one number, not a {what}"
    assert read(tmp_path).Tags()["scalars"] == []


def test_a_resumed_run_is_one_clean_curve(tmp_path: Path, cpu_accelerator: Accelerator) -> None:
    tracker = Tracker(cpu_accelerator, tmp_path)
    for step in range(1, 6):
        tracker.scalars({"loss/generator": float(step)}, step)
    tracker.close()
    tracker = Tracker(cpu_accelerator, tmp_path, start_step=3)
    for step in range(4, 8):
        tracker.scalars({"loss/generator": step + 0.5}, step)
    tracker.close()
    points = [(point.step, point.value) for point in read(tmp_path).Scalars("loss/generator")]
    assert points == [(1, 1), (2, 2), (3, 3), (4, 4.5), (5, 5.5), (6, 6.5), (7, 7.5)]


@pytest.mark.parametrize(("channels", "mode"), [(1, "RGB"), (3, "RGB"), (4, "RGBA")])
def test_a_picture_arrives_byte_for_byte(
    tmp_path: Path, cpu_accelerator: Accelerator, channels: int, mode: str
) -> None:
    picture = torch.randint(0, 256, (channels, 5, 7), dtype=torch.uint8)
    tracker = Tracker(cpu_accelerator, tmp_path)
    tracker.image("samples/ema", picture, 10)
    tracker.image("samples/real", 255 - picture, 10)
    tracker.close()
    events = read(tmp_path)
    for tag, expected in {"samples/ema": picture, "samples/real": 255 - picture}.items():
        (event,) = events.Images(tag)
        assert event.step == 10
        with Image.open(BytesIO(event.encoded_image_string)) as image:
            assert image.mode == mode
            pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)
        assert torch.equal(pixels, expected.expand_as(pixels))


def test_a_text_arrives(tmp_path: Path, cpu_accelerator: Accelerator) -> None:
    tracker = Tracker(cpu_accelerator, tmp_path)
    tracker.text("config", "```yaml\nsteps: 3\n```")
    tracker.close()
    (event,) = read(tmp_path).Tensors("config/text_summary")
    assert event.tensor_proto.string_val == [b"```yaml\nsteps: 3\n```"]


def test_hyper_parameters_compare_across_runs(tmp_path: Path, cpu_accelerator: Accelerator) -> None:
    from tensorboard.plugins.hparams import api_pb2
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    values = {"lr": 0.1, "steps": 5, "path": Path("a"), "list": [1, 2], "none": None, "flag": True}
    tracker = Tracker(cpu_accelerator, tmp_path)
    tracker.hparams(values)
    tracker.close()
    metadata = read(tmp_path).SummaryMetadata("_hparams_/session_start_info")
    assert metadata.plugin_data.plugin_name == "hparams"
    data = HParamsPluginData.FromString(metadata.plugin_data.content)
    shown = {
        name: value.number_value if value.HasField("number_value") else value.string_value
        for name, value in data.session_start_info.hparams.items()
    }
    expected = {
        "lr": 0.1,
        "steps": 5,
        "path": "a",
        "list": "[1, 2]",
        "none": "None",
        "flag": "True",
    }
    assert shown == expected
    assert api_pb2.Experiment() == data.experiment  # TensorBoard makes it, of all runs


def test_accelerators_own_log_reaches_it_while_it_is_open(
    tmp_path: Path, cpu_accelerator: Accelerator
) -> None:
    tracker = Tracker(cpu_accelerator, tmp_path)
    values = {"mine": 1.0, "tensor": torch.tensor(3.0), "text": "a word", "pair": {"a": 4.0}}
    cpu_accelerator.log(values, step=1)
    cpu_accelerator.log({"then": 5}, step=1, log_kwargs={"tensorboard": {"walltime": 6.0}})
    tracker.close()
    cpu_accelerator.log({"mine": 2.0}, step=2)
    tracker.close()
    events = read(tmp_path)
    assert [point.value for point in events.Scalars("mine")] == [1]
    assert [point.value for point in events.Scalars("tensor")] == [3]
    assert [point.wall_time for point in events.Scalars("then")] == [6]
    assert "text/text_summary" in events.Tags()["tensors"]
    assert [point.value for point in read(tmp_path / "pair_a").Scalars("pair")] == [4]


def test_a_point_of_all_curves_is_one_event(tmp_path: Path, cpu_accelerator: Accelerator) -> None:
    tracker = Tracker(cpu_accelerator, tmp_path)
    tracker.scalars({"loss/generator": 1.0, "loss/discriminator": 2.0, "lr/generator": 3.0}, 1)
    tracker.close()
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    (path,) = tmp_path.iterdir()
    events = [event for event in EventFileLoader(str(path)).Load() if event.HasField("summary")]
    assert [len(event.summary.value) for event in events] == [3]


def test_only_the_main_process_writes(
    tmp_path: Path, two_processes: Callable[..., list[Any]]
) -> None:
    def log() -> int:
        accelerator = Accelerator(cpu=True)
        tracker = Tracker(accelerator, tmp_path)
        tracker.scalars({"rank": accelerator.process_index}, 1)
        tracker.image("image", torch.zeros(1, 4, 4, dtype=torch.uint8), 1)
        tracker.text("text", "text")
        tracker.hparams({"a": 1})
        with pytest.raises(TypeError):
            tracker.scalars({"rank": None}, 1)
        tracker.close()
        return len(accelerator.trackers)

    assert two_processes(log) == [0, 0]
    assert [point.value for point in read(tmp_path).Scalars("rank")] == [0]


def test_importing_tracking_leaves_tensorboard_alone() -> None:
    code = "import sys, gan.tracking; print('tensorboard' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_later_event_file_is_read_later(cpu_accelerator: Accelerator, tmp_path: Path) -> None:
    # Within one second their names differ by a counter, and 10 sorts before 9.
    for step in range(3):
        tracker = Tracker(cpu_accelerator, tmp_path, start_step=step)
        tracker.scalars({"x": step}, step + 1)
        tracker.close()
    seconds = [int(path.name.split(".")[3]) for path in tmp_path.glob("events.out.*")]
    assert len(set(seconds)) == 3
