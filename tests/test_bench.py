from __future__ import annotations

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gan.cli import main
from gan.commands import bench


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    speed = bench._speed
    monkeypatch.setattr(bench, "_speed", lambda batches, size: speed(batches, size, seconds=0.05))
    monkeypatch.setattr(bench, "_dcgan64", lambda: 10.0)


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


def test_what_has_no_files_is_measured_without_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "data", "digits", "--rounds", "1"]) == 0
    out = capsys.readouterr().out
    assert out.count("no files here") == 2
    assert "images                               1797" in out


def test_what_cannot_be_measured_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "speed"]) == 2
    assert "'speed' cannot be measured; there is: data SOURCE" in capsys.readouterr().err
