"""What `gan data SOURCE` says."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from gan.cli import main
from gan.data import contact_sheet, describe, open_data
from gan.data.report import fitting_presets
from gan.errors import DataError


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("GAN_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    folder = tmp_path / "pets"
    for index, name in enumerate(["cat/a.png", "cat/b.png", "dog/a.png", "dog/copy.png"]):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (32, 24), (min(index, 2) * 50, 0, 0)).save(path)
    Image.new("RGBA", (64, 64), (9, 9, 9, 0)).save(folder / "dog" / "clear.png")
    return folder


def test_everything_is_counted(pets: Path) -> None:
    (pets / "dog" / "half.png").write_bytes(b"")
    (pets / "notes.txt").write_text("hello")
    report = describe(str(pets), resolution=(16, 16))
    assert report.total == 6
    assert report.sizes == {"32x24": 4, "64x64": 1}
    assert report.modes == {"RGB": 4, "RGBA+": 1}
    assert report.classes == {"cat": 2, "dog": 3}
    assert report.unreadable == [("dog/half.png", "the file is empty")]
    assert report.duplicates == [["dog/a.png", "dog/copy.png"]]
    assert report.histogram[[0, 50, 100, 255]].tolist() == [9 * 256, 256, 512, 3 * 256]
    assert report.histogram.sum() == 5 * 3 * 256
    assert report.problem is not None
    assert describe(str(pets), resolution=(16, 16), skip_unreadable=True).problem is None


def test_in_words(pets: Path) -> None:
    text = describe(str(pets), resolution=(16, 16)).text()
    lines = [line.strip() for line in text.replace(str(pets), "pets").splitlines()]
    assert lines == [
        "pets: 5 images",
        "sizes (width x height): 32x24 4, 64x64 1",
        "modes: RGB 4, RGBA+ 1",
        "classes (2): dog 3, cat 2",
        "unreadable: none",
        "exact duplicates: 1",
        "dog/a.png = dog/copy.png",
        "values from 0 to 255: |█     ▁     ▂                  ▃| mean 68, 60% are 0, 20% are 255",
        "training would see: 5 images of 3x16x16 (channels x height x width), 3.8 kB",
        "1 of 5 images have opacity and were put on the background",
        "5 of 5 images were brought to 16x16 pixels (height x width) by crop",
        f"presets that fit: {', '.join(describe(str(pets), resolution=(16, 16)).presets)}",
        "training could start",
    ]


def test_nothing_readable(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"")
    report = describe(str(tmp_path), skip_unreadable=True)
    assert report.problem == "training could not start: no image can be read"
    assert "a.png: the file is empty" in report.text()


def test_what_does_not_exist_is_an_error() -> None:
    with pytest.raises(DataError, match="Did you mean 'digits'"):
        describe("digit")


def test_presets_that_fit() -> None:
    digits, ring = fitting_presets(open_data("digits")), fitting_presets(open_data("ring"))
    assert "digits" in digits
    assert "ring" not in digits
    assert ring == ["ring"]
    assert "digits" not in fitting_presets(open_data("digits", labels="none"))
    odd = fitting_presets(open_data("fake:4", resolution=(7, 7)))
    assert "cifar10" not in odd
    assert "dcgan64" in odd  # brings its own resolution


def test_points() -> None:
    report = describe("ring")
    assert report.problem is None
    assert "ring: 50,000 points" in report.text()


def test_pairs_in_words(tmp_path: Path) -> None:
    for index in range(3):
        for side, value in ("A", 50 + index), ("B", 100):
            (tmp_path / side).mkdir(exist_ok=True)
            Image.new("L", (8, 8), value).save(tmp_path / side / f"{index}.png")
    report = describe(str(tmp_path), pairs="folders")
    assert (report.problem, report.presets, report.classes) == (None, [], {})
    text = report.text()
    assert f"{tmp_path}: 3 pairs of images" in text
    assert "training would see: 3 pairs, each image of 1x8x8 (channels x height x width)" in text
    assert text.endswith("  examples/image_to_image.py could start; gan train learns no pairs")
    assert "training could start" not in text
    assert "unconditional" not in text
    assert "presets" not in text


def test_names_in_no_known_encoding_can_be_printed(tmp_path: Path) -> None:
    try:
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.png")).touch()
    except OSError:
        pytest.skip("needs: a file system that takes any name")
    assert "\\udcff.png: the file is empty" in describe(str(tmp_path)).text().encode().decode()


def test_names_with_control_characters_are_escaped(tmp_path: Path) -> None:
    name = "two\nlines \x1b[31mred.png"
    Image.new("L", (8, 8)).save(tmp_path / "a.png")
    Image.new("L", (8, 8)).save(tmp_path / name)
    (tmp_path / f"{name}.txt").touch()
    (tmp_path / f"broken {name}").touch()
    shown = r"two\nlines \x1b[31mred.png"
    lines = describe(str(tmp_path)).text().splitlines()
    assert f"    broken {shown}: the file is empty" in lines
    assert f"    a.png = {shown}" in lines
    assert f"    1 other files ignored, such as {shown}.txt" in lines
    (tmp_path / "l.csv").write_text("a.png,1\n")
    for labels, skip in ("auto", False), (str(tmp_path / "l.csv"), True):
        with pytest.raises(DataError) as caught:
            open_data(str(tmp_path), labels=labels, skip_unreadable=skip)
        assert shown in str(caught.value)


@pytest.mark.parametrize("inside", [".", "new/.."])
def test_no_contact_sheet_among_the_images(
    inside: str, pets: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (pets / "new").mkdir()
    monkeypatch.chdir(pets)
    before = sorted(pets.rglob("*"))
    for source in ".", str(pets):
        assert main(["data", source, "--out", f"{inside}/s.png"]) == 2
        assert capsys.readouterr().err == (
            f"gan: error: --out: {Path(inside, 's.png')} would lie within {source}, and count as "
            f"one of its images; write it elsewhere, as in --out {pets.parent / 's.png'}\n"
        )
    assert main(["data", ".", "--out", "../nowhere/s.png"]) == 2
    error = f"--out: ../nowhere/s.png cannot be: there is no folder {pets}/../nowhere; make it"
    assert error in capsys.readouterr().err
    assert sorted(pets.rglob("*")) == before
    assert main(["data", ".", "--out", "../s.png"]) == 0


def test_contact_sheet_of_images(tmp_path: Path) -> None:
    data = open_data("fake:5", resolution=(8, 12))
    contact_sheet(data, tmp_path / "sheet.png", columns=3)
    sheet = np.asarray(Image.open(tmp_path / "sheet.png"))
    assert sheet.shape == (2 * 66 + 2, 3 * 98 + 2, 4)
    second = torch.from_numpy(sheet[2:66:8, 100:196:8, :3].transpose(2, 0, 1).copy())
    assert torch.equal(second, data.images[1])
    assert (sheet[..., 3] == 255).all()


def test_contact_sheet_of_pairs_and_points(tmp_path: Path) -> None:
    both = np.concatenate([np.full((64, 64), 10), np.full((64, 64), 200)], axis=1)
    Image.fromarray(both.astype(np.uint8)).save(tmp_path / "a.png")
    contact_sheet(open_data(str(tmp_path), pairs="side-by-side"), tmp_path / "out.png")
    sheet = np.asarray(Image.open(tmp_path / "out.png"))
    assert sheet.shape == (68, 132, 4)
    assert sheet[10, [10, 100], 0].tolist() == [10, 200]
    contact_sheet(open_data("ring"), tmp_path / "ring.png")
    ring = np.asarray(Image.open(tmp_path / "ring.png"))
    assert ring[128, 128 + int(0.8 * 128)] == 0
    assert ring[128, 128] == 255


def test_contact_sheet_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="the contact sheet cannot be written to"):
        contact_sheet(open_data("fake:2"), tmp_path / "file" / "sheet.png")
