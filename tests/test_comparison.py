"""Runs side by side in one picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from PIL import Image, ImageColor

from gan.comparison import COLOURS, TAGS, compare_runs, read_curves
from gan.errors import GanError
from gan.sampling import save_picture
from gan.tracking import Tracker


def make_run(folder: Path, accelerator: Accelerator, shade: int | None, slope: float) -> Path:
    """A run with one curve, and a grid of one shade."""
    folder.mkdir()
    tracker = Tracker(accelerator, folder)
    for step in range(1, 11):
        tracker.scalars({"loss/generator": slope * step, "other": 0.0}, step)
    tracker.scalars({"loss/generator": float("nan")}, 11)
    tracker.close()
    if shade is not None:
        for step in (5, 10):
            pixels = torch.zeros(3, 40, 60, dtype=torch.uint8)
            pixels[0] = shade if step == 10 else 0  # red, which no letter is
            save_picture(folder / "samples" / f"step-{step:06d}.png", pixels)
    return folder


def shades(path: Path) -> set[tuple[int, ...]]:
    with Image.open(path) as image:
        return {tuple(pixel) for pixel in np.asarray(image).reshape(-1, 3)}


def test_the_newest_grid_and_the_curves_of_each_run_are_there(
    tmp_path: Path, cpu_accelerator: Accelerator
) -> None:
    one = make_run(tmp_path / "one", cpu_accelerator, 77, 1.0)
    other = make_run(tmp_path / "other", cpu_accelerator, 99, -1.0)
    compare_runs([one, other], tmp_path / "compare.png")
    with Image.open(tmp_path / "compare.png") as image:
        pixels = np.asarray(image)
    assert (pixels == (77, 0, 0)).all(2).sum() == 40 * 60
    assert (pixels == (99, 0, 0)).all(2).sum() == 40 * 60
    left, right = np.split(pixels, 2, axis=1)
    assert (left == (77, 0, 0)).all(2).any()
    assert not (right == (77, 0, 0)).all(2).any()
    for colour in COLOURS[:2]:
        drawn = (pixels == ImageColor.getrgb(colour)).all(2).nonzero()[0]
        assert np.ptp(drawn) > 80  # a curve from the top to the bottom of its frame, or back
    assert ImageColor.getrgb(COLOURS[2]) not in shades(tmp_path / "compare.png")


def test_a_run_without_grid_or_without_curves_leaves_its_place_empty(
    tmp_path: Path, cpu_accelerator: Accelerator
) -> None:
    one = make_run(tmp_path / "one", cpu_accelerator, None, 1.0)
    (tmp_path / "empty").mkdir()
    compare_runs([one, tmp_path / "empty"], tmp_path / "compare.png")
    assert ImageColor.getrgb(COLOURS[0]) in shades(tmp_path / "compare.png")
    with pytest.raises(GanError, match=r"^these runs have neither samples nor curves yet$"):
        compare_runs([tmp_path / "empty"], tmp_path / "compare.png")


def test_curves_are_read_without_what_is_not_finite(
    tmp_path: Path, cpu_accelerator: Accelerator
) -> None:
    curves = read_curves(make_run(tmp_path / "one", cpu_accelerator, None, 0.5))
    assert curves["loss/generator"] == [(step, 0.5 * step) for step in range(1, 11)]
    assert set(curves) == {"loss/generator", "other"}
    assert "other" not in TAGS
