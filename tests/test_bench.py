from __future__ import annotations

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gan.cli import main
from gan.speed import data


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    speed = data._speed
    monkeypatch.setattr(data, "_speed", lambda batches, size: speed(batches, size, seconds=0.05))
    monkeypatch.setattr(data, "_dcgan64", lambda: 10.0)


def test_a_folder_is_measured_against_pillow_and_image_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GAN_CACHE", str(tmp_path / "cache"))
    for i in range(40):
        pixels = np.full((12, 16, 3), i, np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{i}.png")
    words = ["bench", "data", str(tmp_path), "--json", "--rounds", "2", "--batch_size", "8"]
    assert main([*words, "--resolution", "8"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert (rows["images"], rows["shape"]) == (40, [3, 8, 8])
    for name in ("preparation / bare Pillow loop", "stream / ImageFolder with 2 workers"):
        median, low, high = map(float, re.findall(r"[\d.]+", rows[name]))
        assert 0 < low <= median <= high
    assert rows["stream / DCGAN at 64x64"] == round(rows["stream, images per second"] / 10, 1)
    assert os.environ["GAN_CACHE"] == str(tmp_path / "cache")
    assert not (tmp_path / "cache").exists()  # the user's own cache is left alone


def test_a_million_images_are_mapped_and_not_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "million.npy"  # 3 GB, but a file of holes takes no room
    np.lib.format.open_memmap(path, "w+", np.uint8, shape=(1_000_000, 32, 32, 3))
    assert main(["bench", "data", str(path), "--json", "--rounds", "1"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows["images"] == 1_000_000
    assert rows["memory beyond the map of the images, MiB"] < 200


def test_what_has_no_files_is_measured_without_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "data", "digits", "--rounds", "1"]) == 0
    out = capsys.readouterr().out
    assert out.count("no files here") == 2
    assert re.search(r"^images +1797$", out, re.MULTILINE)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (
            ["speed"],
            "gan bench: 'speed' cannot be measured; there is: data SOURCE, or a preset: digits, "
            "fashion-mnist, ",
        ),
        (
            ["digit"],
            "gan bench: 'digit' cannot be measured; did you mean digits? there is: data SOURCE, ",
        ),
        ([], "gan bench: name a preset, or data and a source, as in gan bench digits"),
        (["data"], "gan bench data: name a source, as in gan bench data path/to/images"),
        (["digits", "--rounds", "0"], "--rounds: 0 is below 1"),
        (["digits", "--seconds", "0"], "--seconds: 0 is not above 0"),
        (["digits", "--batch_size", "0"], "batch_size: 0 is below 1"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    words: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *words]) == 2
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert line.startswith(f"gan: error: {error}")


def test_several_processes_are_not_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["bench", "digits"]) == 2
    assert "gan bench measures one process" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        (["--help"], ["--rounds", "--seconds", "--json", "--steps", "--generator.lr"]),
        (["digits", "--help"], ["--rounds", "--seconds", "--json", "--discriminator.width"]),
        (["data", "--help"], ["--rounds", "--batch_size", "--json", "--resolution"]),
    ],
)
def test_the_help_lists_the_flags(
    words: list[str], flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as done:
        main(["bench", *words])
    assert done.value.code == 0
    out = capsys.readouterr().out
    assert [flag for flag in flags if flag not in out] == []
