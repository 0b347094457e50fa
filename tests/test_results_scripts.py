"""The scripts of the ledger run, and print rows of its tables."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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
