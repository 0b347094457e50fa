"""The commands that look at data, draw, measure, share and list."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny import tiny

import gan
from gan import sampling
from gan.cli import main
from gan.commands.console import numbers
from gan.results import mark_as_running


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setattr("gan.metrics.judge._UPDATES", 10)
    monkeypatch.setenv("GAN_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the digits, which no test may change."""
    # Without a ramp-up, the average is another generator also after a few steps.
    return gan.train(tiny(tmp_path_factory.mktemp("runs"), ema_rampup=None))


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(finished, tmp_path / "runs" / finished.name))


def call(*words: str | Path) -> int:
    try:
        return main([str(word) for word in words])
    except SystemExit as error:
        return int(error.code or 0)


def pixels(path: Path) -> np.ndarray[Any, Any]:
    with Image.open(path) as image:
        return np.asarray(image)


def needs_fidelity() -> None:
    pytest.importorskip("torch_fidelity", reason="needs: torch-fidelity ('gan-toolkit[metrics]')")


# --- data ----------------------------------------------------------------------------------------


def test_data_reports_in_words_and_in_a_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "sheet.png"
    assert call("data", "digits", "--out", out) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "digits: 1,797 images"
    assert said[-2:] == ["  training could start", f"  contact sheet: {out}"]
    assert pixels(out).shape == (8 * 66 + 2, 8 * 66 + 2, 4)


def test_data_exits_with_2_where_training_could_not_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for i in range(3):
        Image.new("RGB", (8, 8), (i, 0, 0)).save(folder / f"{i}.png")
    whole = (folder / "0.png").read_bytes()
    (folder / "broken.png").write_bytes(whole[:40])
    out = tmp_path / "sheet.png"
    assert call("data", folder, "--out", out) == 2
    said = capsys.readouterr().out
    assert "unreadable: 1\n    broken.png: " in said
    assert "leave them out with skip_unreadable" in said
    assert call("data", folder, "--out", out, "--skip_unreadable", "--no_cache") == 0
    assert "training could start" in capsys.readouterr().out


# --- pictures ------------------------------------------------------------------------------------


def test_the_same_seed_is_the_same_image_in_every_command(run: Path, tmp_path: Path) -> None:
    generator = gan.load_generator(run)
    seeds = [3, 4, 5, 20]
    expected = sampling.to_bytes(gan.sample(generator, seeds))
    words = ("sample", run, "--seeds", "3-5,20", "--out")
    for out in ("grid.png", "folder", "some.zip", "some.npz"):
        assert call(*words, tmp_path / out) == 0
    with np.load(tmp_path / "some.npz") as arrays:
        assert arrays["seeds"].tolist() == seeds
        assert arrays["labels"].tolist() == [3, 4, 5, 0]
        assert np.array_equal(arrays["images"], expected.permute(0, 2, 3, 1))
    names = [f"seed-{seed:06d}.png" for seed in seeds]
    for name, image in zip(names, expected, strict=True):
        assert np.array_equal(pixels(tmp_path / "folder" / name), image[0])
    with zipfile.ZipFile(tmp_path / "some.zip") as archive:
        assert sorted(archive.namelist()) == ["dataset.json", *sorted(names)]
    grid = sampling.picture(gan.sample(generator, seeds), sampling.grid_columns(4, 10))
    assert np.array_equal(pixels(tmp_path / "grid.png"), grid[0])
    # A strip begins each row with the image of a seed.
    strip = ("interpolate", run, "--seeds", "3,4", "--frames", "4", "--out", tmp_path / "s.png")
    assert call(*strip) == 0
    assert np.array_equal(pixels(tmp_path / "s.png")[2:66, 2:66], grid[0, 2:66, 2:66])


def test_labels_are_taken_in_turn(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "some.npz"
    assert call("sample", run, "--num", "5", "--seed", "7", "--labels", "1,8", "--out", out) == 0
    with np.load(out) as arrays:
        assert arrays["labels"].tolist() == [1, 8, 1, 8, 1]
        assert arrays["seeds"].tolist() == [7, 8, 9, 10, 11]


def test_a_class_that_was_not_trained_is_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for out in ("x.png", "x", "x.npz"):
        assert call("sample", run, "--labels", "10", "--out", tmp_path / out) == 2
        # Nothing else: not even the bar of a drawing that began.
        words = "gan: error: labels: 10 is no class; this generator has 0 to 9\n"
        assert capsys.readouterr().err == words
    assert call("sample", run, "--truncation", "0", "--out", tmp_path / "x.png") == 2
    words = "gan: error: truncation: 0 is not above 0; 1 is strong, 2 weak\n"
    assert capsys.readouterr().err == words
    assert call("interpolate", run, "--label", "10", "--out", tmp_path / "x.png") == 2
    assert "label: 10 is no class; this generator has 0 to 9" in capsys.readouterr().err
    assert not (tmp_path / "x.png").exists()


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_drawn(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gan.commands.console.os.access", lambda *_: False)  # root may everything
    monkeypatch.setattr("gan.results.chosen_generator", None)
    for command, name in (("sample", "x.png"), ("interpolate", "x.gif"), ("export", "x.onnx")):
        out = tmp_path / "new" / name
        assert call(command, run, "--out", out) == 2
        expected = f"gan: error: --out: {out} cannot be written: {tmp_path} is read-only to you\n"
        assert capsys.readouterr().err == expected


def test_nearest_shows_a_copy_beside_its_original(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "near.png"
    assert call("sample", run, "--num", "2", "--nearest", "--out", out) == 0
    # Each sample, three neighbours and a gap, one sample a row.
    assert pixels(out).shape == (2 * 66 + 2, 5 * 66 + 2)
    images = sampling.to_bytes(gan.sample(gan.load_generator(run), range(2)))
    np.savez(tmp_path / "copies.npz", images=images.permute(0, 2, 3, 1).repeat(3, 1, 1, 1).numpy())
    words = ("--nearest", "--data", tmp_path / "copies.npz", "--out", out)
    assert call("sample", run / "generator", "--num", "1", *words) == 0
    shown = pixels(out).astype(int)
    assert abs(shown[2:66, 2:66] - shown[2:66, 68:132]).max() <= 1  # the copy is rounded to bytes


def test_nearest_needs_to_know_the_training_images(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("sample", run / "generator", "--nearest", "--out", tmp_path / "x.png") == 2
    assert "generator is no run; say which images it was trained on" in capsys.readouterr().err


def test_an_animation_goes_round(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.gif"
    words = ("--seeds", "0-1", "--frames", "3", "--fps", "10", "--out", out)
    assert call("interpolate", run, *words) == 0
    with Image.open(out) as image:
        assert image.n_frames == 6
        assert image.info["duration"] == 100


def test_an_animation_of_points_shows_one_that_walks(tmp_path: Path) -> None:
    folder = gan.train(tiny(tmp_path / "runs", "ring", penalties=[]))
    out = tmp_path / "a.gif"
    assert call("interpolate", folder, "--seeds", "0-1", "--frames", "3", "--out", out) == 0
    with Image.open(out) as image:
        assert image.n_frames == 6


def test_an_animation_becomes_a_film_where_ffmpeg_is(run: Path, tmp_path: Path) -> None:
    if shutil.which("ffmpeg") is None:
        pytest.skip("needs: ffmpeg (apt-get install ffmpeg)")
    assert call("interpolate", run, "--seeds", "0-1", "--out", tmp_path / "a.mp4") == 0
    assert (tmp_path / "a.mp4").read_bytes()[4:8] == b"ftyp"


# --- measuring -----------------------------------------------------------------------------------


def test_evaluating_twice_gives_the_same_numbers_and_notes_them(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    needs_fidelity()
    words = ("evaluate", run, "--num", "150", "--metrics", "fid", "precision")
    assert call(*words) == 0
    assert capsys.readouterr().out.endswith(f"noted in {run / 'metrics.json'}\n")
    (one,) = json.loads((run / "metrics.json").read_text(encoding="utf-8"))
    assert call(*words) == 0
    (other,) = json.loads((run / "metrics.json").read_text(encoding="utf-8"))
    assert {**one, "time": ""} == {**other, "time": ""}
    assert set(one["values"]) == {"fid", "precision"}
    assert (one["weights"], one["step"], one["fakes"], one["split"]) == ("ema", 6, 150, "train")
    said = capsys.readouterr().out
    assert f"fid{one['values']['fid']:>37.4g}{one['floor']['fid']:>16.4g}\n" in said
    for line in ("its hash:", "resize filter:", "number of fakes:", "their fingerprint:"):
        assert f"  {line}" in said
    assert said.endswith(f"{run / 'metrics.json'}, in place of the same evaluation before\n")
    # The digits have no test split, so the floor is made of halves, and says so.
    assert "  floor:                         one half of the real images (898) against the" in said
    assert one["floor"]["fid"] > 0
    assert "| fid |" in (run / "generator/README.md").read_text(encoding="utf-8")
    events = EventAccumulator(str(run))
    events.Reload()
    assert [point.step for point in events.Scalars("evaluation/fid_self_150")] == [6, 6]
    assert len(events.Scalars("loss/generator")) == 3  # the run's own curves are still there


def test_the_event_files_of_a_running_run_are_left_alone(run: Path) -> None:
    needs_fidelity()
    before = sorted(run.glob("events.*"))
    mark_as_running(run)
    assert call("evaluate", run, "--num", "150", "--metrics", "fid") == 0
    assert sorted(run.glob("events.*")) == before
    assert (run / "metrics.json").exists()


def test_raw_weights_give_other_numbers_than_averaged_ones(run: Path) -> None:
    needs_fidelity()
    for weights in ("ema", "generator"):
        words = ("--num", "150", "--metrics", "fid", "--weights", weights)
        assert call("evaluate", run, *words) == 0
    averaged, raw = json.loads((run / "metrics.json").read_text(encoding="utf-8"))
    assert (averaged["weights"], raw["weights"]) == ("ema", "raw")
    assert averaged["values"] != raw["values"]


def test_images_are_evaluated_as_the_generator_that_made_them(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    needs_fidelity()
    real = gan.open_data("digits")
    for name, images in (
        ("copies.npz", real.images[:200]),
        ("noise.npz", torch.randint(0, 256, (200, 1, 8, 8), dtype=torch.uint8)),
    ):
        np.savez(tmp_path / name, images=images.permute(0, 2, 3, 1).numpy())
        words = ("--data", "digits", "--metrics", "fid", "precision")
        assert call("evaluate", tmp_path / name, *words) == 0
    copies, noise = (
        json.loads((tmp_path / f"{name}.npz.metrics.json").read_text(encoding="utf-8"))[0]
        for name in ("copies", "noise")
    )
    assert copies["values"]["fid"] < noise["values"]["fid"] / 3
    assert copies["values"]["precision"] > 0.95
    assert (copies["images"], copies["fakes"]) == (str(tmp_path / "copies.npz"), 200)
    capsys.readouterr()
    assert call("evaluate", tmp_path / "noise.npz", "--data", "digits", "--weights", "ema") == 2
    assert "kid needs at least 1000 fakes " in capsys.readouterr().err
    assert call("evaluate", tmp_path / "noise.npz", "--data", "digits", "--seed", "3") == 2
    assert "--seed: " in capsys.readouterr().err
    assert call("evaluate", run / "generator", "--metrics", "fid") == 2
    assert "--data: " in capsys.readouterr().err


def test_a_test_split_gives_the_floor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    needs_fidelity()
    digits = gan.open_data("digits").images.permute(0, 2, 3, 1).numpy()
    np.savez(tmp_path / "both.npz", images=digits[:1000], images_test=digits[1000:1300])
    np.savez(tmp_path / "made.npz", images=255 - digits[1300:1600])
    words = ("--data", tmp_path / "both.npz", "--metrics", "fid")
    assert call("evaluate", tmp_path / "made.npz", *words) == 0
    (entry,) = json.loads((tmp_path / "made.npz.metrics.json").read_text(encoding="utf-8"))
    assert entry["floor"]["fid"] < entry["values"]["fid"] / 3
    assert entry["nearest"] > 1
    said = capsys.readouterr().out
    assert said.startswith(f"{'value':>40}{'floor':>16}\n")
    assert "  floor:                         300 unseen real images\n" in said
    assert "distance to nearest real" in said


# --- sharing -------------------------------------------------------------------------------------


def test_a_generator_is_exported_beside_the_others(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("export", run, "--format", "torchscript") == 0
    out = run / "generator" / "generator.pt"
    assert capsys.readouterr().out.startswith(f"{out}: its pictures differ by at most ")
    assert out.is_file()


def test_a_generator_is_exported_as_onnx(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="needs: onnxruntime ('gan-toolkit[export]')")
    pytest.importorskip("onnxscript", reason="needs: onnxscript ('gan-toolkit[export]')")
    assert call("export", run, "--out", tmp_path / "g.onnx") == 0
    assert (tmp_path / "g.onnx").is_file()


def test_a_push_takes_the_page_with_the_name_on_the_hub(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pushed = []

    def push(folder: Path, name: str, files: Any, *, private: bool) -> str:
        pushed.append((name, private, (folder / "README.md").read_text(encoding="utf-8")))
        return f"there/{name}"

    monkeypatch.setattr("gan.hub.push", push)
    assert call("push", run, "me/digits") == 0
    assert call("push", run / "generator", "me/other", "--public") == 0
    assert capsys.readouterr().out == "there/me/digits\nthere/me/other\n"
    (name, private, page), (_, other_private, _) = pushed
    assert (name, private, other_private) == ("me/digits", True, False)
    assert "gan.load_generator('me/digits')" in page


# --- overview ------------------------------------------------------------------------------------


def test_runs_are_listed_with_their_status(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stopped = Path(shutil.copytree(run, run.parent / "stopped"))
    shutil.rmtree(stopped / "checkpoints/step-00000006")
    running = Path(shutil.copytree(run, run.parent / "running"))
    mark_as_running(running)
    (running / "metrics.json").write_text(
        json.dumps([{"values": {"fid": 12.345}, "features": "self", "fakes": 50, "step": 4}]),
        encoding="utf-8",
    )
    (run.parent / "broken").mkdir()
    (run.parent / "broken/config.yaml").write_text("nothing: 1", encoding="utf-8")
    (run.parent / "stray").mkdir()
    assert call("runs", run.parent) == 0
    title, *rows = capsys.readouterr().out.splitlines()
    assert title.split() == ["run", "preset", "step", "status", "metrics", "size"]
    assert [row.split()[0] for row in rows] == ["broken", "digits-001", "running", "stopped"]
    assert "config.yaml is no run's" in rows[0]
    assert rows[1].split()[1:6] == ["digits", "6", "of", "6", "finished"]
    assert rows[2].split()[5] == "running"
    assert "  fid 12.35 (self, 50 fakes at step 4)  " in rows[2]
    assert rows[3].split()[1:6] == ["digits", "4", "of", "6", "stopped"]
    assert all(row.endswith(("KiB", "MiB", " B")) for row in rows)


def test_runs_are_compared_in_one_picture(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = Path(shutil.copytree(run, run.parent / "other"))
    out = tmp_path / "compare.png"
    assert call("compare", run, other, "--out", out) == 0
    assert capsys.readouterr().out == f"{out}\n"
    assert pixels(out).shape[1] == 2 * 436 + 16


@pytest.mark.parametrize(
    ("text", "expected"), [("3", [3]), ("0-3", [0, 1, 2, 3]), ("1,5,8-9", [1, 5, 8, 9])]
)
def test_lists_of_numbers(text: str, expected: list[int]) -> None:
    assert numbers("--seeds", text) == expected
