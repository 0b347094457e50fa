"""What a person sees of a run: a real TensorBoard in a real browser.

`python tests/test_tensorboard.py RUNS_DIR FOLDER` takes the pictures of the README.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
from browser import Browser, find_chromium, tensorboard
from PIL import Image
from tiny import tiny

import gan

CURVES = "scalars&tagFilter=loss%7Cfid"
COLUMNS = """
(() => {
  const chosen = ["metrics/fid", "metrics/precision", "metrics/recall"];
  const left_out = ["ada_speed", "ada_target", "augment", "augment_strength", "background"];
  const walk = (node) => {
    if (node.tagName === "PAPER-CHECKBOX") {
      const name = node.textContent.trim();
      const curve = /^[a-z0-9_]+[/][a-z0-9_]+$/.test(name) && !chosen.includes(name);
      if (node.checked ? curve || left_out.includes(name) : chosen.includes(name)) node.click();
    }
    if (node.shadowRoot) walk(node.shadowRoot);
    node.childNodes.forEach(walk);
  };
  walk(document);
})()
"""
"""On the HParams page: show these columns instead of those."""


def test_the_curves_and_the_grids_of_a_run_are_on_the_page(tmp_path: Path) -> None:
    find_chromium()
    folder = gan.train(tiny(tmp_path / "runs"))
    with tensorboard(tmp_path / "runs") as address, Browser(tmp_path / "profile") as browser:
        browser.open(f"{address}#{CURVES}")
        text = browser.wait_for("loss/generator", "loss/discriminator", folder.name, lines=2)
        assert "grad_norm/generator" not in text  # the filter works, so the words mean something

        browser.open(f"{address}#images")
        tags = ("samples/ema", "samples/real", "samples/interpolation", "samples/nearest")
        browser.wait_for(*tags, folder.name, pictures=4)
        browser.screenshot(tmp_path / "images.png")
        with Image.open(tmp_path / "images.png") as image:
            assert np.asarray(image.convert("L")).std() > 20  # grids, not a blank page

        browser.open(f"{address}#hparams")
        text = browser.wait_for(folder.name, "generator.lr", "batch_size", "loss/generator")
        assert "runs_dir" not in text

        browser.open(f"{address}#text")
        browser.wait_for("config", "data: digits")
    # One run shows as one run.
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [folder.name]


def take_pictures(runs: Path, folder: Path) -> None:
    """Write the pictures of TensorBoard that the README shows, small ones."""
    with tempfile.TemporaryDirectory() as profile, tensorboard(runs) as address:  # noqa: SIM117
        with Browser(Path(profile), 1200, 700) as browser:
            for name, page, lines, pictures in (
                ("scalars", "scalars&tagFilter=loss%7Cfid%7Caccuracy", 4, 0),
                ("images", "images&tagFilter=ema%7Creal", 0, 4),
                ("hparams", "hparams", 0, 0),
            ):
                browser.open(f"{address}#{page}")
                browser.wait_for(
                    *(run.name for run in runs.iterdir()), lines=lines, pictures=pictures
                )
                browser.evaluate(COLUMNS)
                browser.evaluate("new Promise(r => setTimeout(r, 1500))")
                path = folder / f"tensorboard-{name}.png"
                browser.screenshot(path)
                with Image.open(path) as image:
                    image.convert("RGB").quantize(96).save(path, optimize=True)


if __name__ == "__main__":
    take_pictures(Path(sys.argv[1]), Path(sys.argv[2]))
