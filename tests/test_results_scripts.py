"""The scripts of the ledger run, and print rows of its tables."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).parents[1]


def output(script: str, *words: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "results" / script, *words],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_a_measurement_is_a_row_of_the_ledger(tmp_path: Path) -> None:
    if importlib.util.find_spec("torch_fidelity") is None:
        pytest.skip("needs: torch-fidelity (pip install 'gan-toolkit[metrics]')")
    words = ("--minutes", "0.01", "--seeds", "3", "--samples", "200", "--threads", "1")
    folders = ("--cache", str(tmp_path / "cache"), "--pictures", str(tmp_path))
    (row,) = output("measure.py", "ring", *words, *folders)
    ledger = (ROOT / "examples/results/README.md").read_text(encoding="utf-8")
    head = next(line for line in ledger.splitlines() if line.startswith("| preset | seed |"))
    found = dict(zip(cells(head), cells(row), strict=True))
    assert (found["preset"], found["seed"]) == ("ring", "3")
    assert float(found["FD"]) > float(found["floor"]) > 0
    assert float(found["ratio"]) > 1
    assert (tmp_path / "ring-0min-seed3.png").is_file()


def test_the_table_of_losses_and_regularisers() -> None:
    head, _, row = output(
        "losses.py", "--steps", "2", "--losses", "hinge", "--regularisers", "r1 r2", "lecam"
    )
    assert cells(head) == ["loss", "r1 r2", "lecam"]
    assert cells(row)[0] == "hinge"
    assert cells(row)[1].endswith("%")


def test_the_cost_of_a_step_grows_with_size() -> None:
    head, _, *rows = output("speed.py", "growth", "--rounds", "1", "--seconds", "0.05")
    found = [dict(zip(cells(head), cells(row), strict=True)) for row in rows]
    size = {tuple(row[name] for name in ("resolution", "batch", "width")): row for row in found}
    assert len(size) == 7
    assert size["32", "32", "32"]["against the middle"].startswith("1.00 (")
    assert float(size["64", "32", "32"]["against the middle"].split()[0]) > 1.5


def test_two_processes_are_measured_against_one() -> None:
    words = ("--presets", "ring", "--rounds", "1", "--steps", "20")
    head, _, row = output("speed.py", "processes", *words)
    found = dict(zip(cells(head), cells(row), strict=True))
    assert (found["preset"], found["images a step"]) == ("ring", "256")
    assert 0.01 < float(found["two processes / one"].split()[0]) < 100


def test_icons_are_transparent_and_the_same_each_time(tmp_path: Path) -> None:
    for name in ("one", "other"):
        output("icons.py", str(tmp_path / name), "--count", "5")
    one, other = (sorted((tmp_path / name).iterdir()) for name in ("one", "other"))
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in other]
    with Image.open(one[0]) as image:
        assert (image.mode, image.size) == ("RGBA", (64, 64))
        assert image.getchannel("A").getextrema() == (0, 255)
