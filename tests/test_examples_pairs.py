"""The example that learns from pairs: own pairs, one's own folders, and what it says."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

SCRIPT = Path(__file__).parents[1] / "examples" / "image_to_image.py"
REPORT = r"step +(\d+): discriminator \d\.\d+, generator \d\.\d+, L1 (\d\.\d+), .* (\d\.\d+)\n"


@pytest.fixture
def main(monkeypatch, tmp_path):
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setenv("GAN_CACHE", str(tmp_path / "cache"))
    spec = importlib.util.spec_from_file_location("image_to_image", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return lambda *words: module.main([str(word) for word in ("--width", 8, *words)])


def write_pairs(folder, count=12):
    """A: a dark or a bright square; B: the same, red or blue."""
    for index in range(count):
        for side, colour in ("A", [(60,) * 3, (200,) * 3]), ("B", [(255, 0, 0), (0, 0, 255)]):
            (folder / side).mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (24, 16), colour[index % 2]).save(folder / side / f"{index}.png")


def test_it_colours_photographs(main, tmp_path, capsys):
    assert len(SCRIPT.read_text().splitlines()) < 190
    main("--steps", 40, "--show_every", 20, "--out", tmp_path / "out")
    head, rest = capsys.readouterr().out.split("\n", 1)
    assert head == "1288 pairs of 3x32x32"
    (first, trained, unseen), (second, trained_later, unseen_later) = re.findall(REPORT, rest)
    assert (first, second) == ("20", "40")
    assert float(trained_later) < float(trained)
    assert float(unseen_later) < float(unseen)
    assert not (tmp_path / "cache").exists()
    assert [path.name for path in sorted((tmp_path / "out").iterdir())] == [
        "step-000020.png",
        "step-000040.png",
    ]
    grid = np.asarray(Image.open(tmp_path / "out" / "step-000040.png")).astype(int)
    assert grid.shape == (4 * 66 + 2, 12 * 66 + 2, 3)
    source, made, target = (grid[2:66, 66 * i + 2 : 66 * i + 66] for i in range(3))
    assert (np.ptp(source, axis=2) == 0).all()  # a grey photograph
    luma = target @ (0.299, 0.587, 0.114)
    assert np.abs(source[..., 0] - luma).mean() < 3  # of the target
    assert (made != target).any()


@pytest.mark.parametrize("kind", ["folders", "side-by-side"])
def test_it_learns_from_ones_own_pairs(kind, main, tmp_path, capsys):
    folder = tmp_path / "pairs"
    write_pairs(folder)
    if kind == "side-by-side":
        for path in sorted((folder / "A").iterdir()):
            both = [np.asarray(Image.open(folder / side / path.name)) for side in "AB"]
            Image.fromarray(np.concatenate(both, 1)).save(folder / path.name)
            (folder / "A" / path.name).unlink()
            (folder / "B" / path.name).unlink()
    main("--data", folder, "--pairs", kind, "--steps", 60, "--batch_size", 4, "--gamma", 1,
         "--out", tmp_path / "out")  # fmt: skip
    head, rest = capsys.readouterr().out.split("\n", 1)
    assert head == "12 pairs of 3x16x24"
    ((_, _, unseen),) = re.findall(REPORT, rest)
    assert float(unseen) < 0.4  # what is fed in is 0.94 away
    grid = np.asarray(Image.open(tmp_path / "out" / "step-000060.png")).astype(int)
    tiles = [grid[34, 98 * i + 50] for i in range(3)]
    assert np.abs(tiles[0] - 60).max() <= 1
    assert np.abs(tiles[2] - (255, 0, 0)).max() <= 1
    assert np.abs(tiles[1] - tiles[2]).mean() < 52 < np.abs(tiles[0] - tiles[2]).mean()


def test_mistakes_are_one_line(main, tmp_path, capsys):
    write_pairs(tmp_path / "pairs", 2)
    for words, message in (
        (("--data", tmp_path / "pairs", "--resolution", 20, 24), "--resolution: (20, 24) are no"),
        (("--data", tmp_path / "pairs" / "A"), "error: pairs: 'folders' matches the images of"),
        (("--data", tmp_path / "nowhere"), "nowhere' does not exist. Give the path"),
    ):
        with pytest.raises(SystemExit) as caught:
            main(*words)
        assert caught.value.code == 2
        assert message in capsys.readouterr().err
