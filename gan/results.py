"""What comes of a run: its evaluations, its best checkpoint, its generators and their page.

`metrics.json` holds every evaluation with all that makes its numbers comparable;
`checkpoints/best` is the checkpoint with the lowest fid, which is never removed.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import shutil
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
from accelerate.utils import broadcast_object_list
from torch import nn

from gan.card import save_card
from gan.checkpoint import Checkpoint, newest_checkpoint, open_checkpoint
from gan.config import Config
from gan.data import ImageData, open_data
from gan.data.cache import cache_folder
from gan.data_config import DataConfig
from gan.errors import CheckpointError, ConfigError, DataError, GanError
from gan.export import generator_config, load_generator
from gan.metrics import evaluate, length_of, open_features, record
from gan.networks import build_generator
from gan.run import Run
from gan.state import checkpoints, saved_config

_log = logging.getLogger(__name__)
METRICS = ("fid", "precision", "recall")
"""What an evaluation during training measures."""
CHOSEN_BY = "fid"
"""What decides the best checkpoint: lower is better."""


def metrics_cache() -> Path:
    """Folder of what depends on real data only: judges, and features of real images."""
    return cache_folder() / "metrics"


def evaluations(folder: Path) -> list[dict[str, Any]]:
    """Evaluations noted in a folder.

    Args:
        folder: of a run or of an exported generator.

    Returns:
        Oldest first; none where the file is missing or not readable as such a list.
    """
    try:
        found = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    entries = found if isinstance(found, list) else []
    return [each for each in entries if isinstance(each, dict) and each.get("values")]


def held_out(config: DataConfig, data: ImageData, split: str = "test") -> ImageData | None:
    """Images of the same source that training does not see.

    Args:
        config: how the data was opened.
        data: the data itself.
        split: which part to open.

    Returns:
        The images, of the same shape and classes; None where the source has no such part.
    """
    opening = config.opening()
    if len(data.shape) == 3:
        opening |= {"resolution": data.shape[1:], "channels": data.shape[0]}
    try:
        found = open_data(config.data, split=split, **opening)
    except DataError:
        return None
    same = (found.shape, found.num_classes) == (data.shape, data.num_classes)
    return found if same and found.fingerprint != data.fingerprint else None


def mark_as_running(folder: Path, running: bool = True) -> None:
    """Leave a mark that this process trains in a run folder, or remove it.

    Args:
        folder: the run folder.
        running: whether it does.
    """
    mark, me = folder / ".running", psutil.Process()
    with suppress(OSError):  # only `gan runs` looks at it
        if running:
            mark.write_text(f"{platform.node()} {me.pid} {me.create_time():.0f}", encoding="utf-8")
        else:
            mark.unlink()


def is_running(folder: Path) -> bool:
    """Whether a process trains in a run folder, as far as the disk can tell.

    Args:
        folder: the run folder.

    Returns:
        True where the process that left its mark lives, or belongs to another machine.
    """
    try:
        node, pid, created = (folder / ".running").read_text(encoding="utf-8").rsplit(" ", 2)
        return (
            node != platform.node()
            or abs(psutil.Process(int(pid)).create_time() - float(created)) < 2
        )
    except (OSError, ValueError, psutil.Error):
        return False


def check_evaluations(run: Run) -> None:
    """Refuse evaluations during training that cannot be, before anything is made.

    Args:
        run: a run, which may have no folder yet.

    Raises:
        ConfigError: there are too few images, or a package is missing.
    """
    config, count = run.config, len(run.data)
    if config.evaluate_every is None:
        return
    if find_spec("torch_fidelity") is None:
        raise ConfigError(
            "evaluate_every: evaluations need torch-fidelity: pip install 'gan-toolkit[metrics]'"
        )
    # More than numbers in a feature vector for fid, 50 for precision and recall.
    needed = max(50, 1 + (length_of(config.evaluate_features, run.data.shape) or 0))
    if min(config.evaluate_num, count) < needed:
        raise ConfigError(
            f"evaluate_num: an evaluation with features {config.evaluate_features} needs at least "
            f"{needed} samples and as many real images; there are {config.evaluate_num} and {count}"
        )


class Evaluations:
    """Evaluates the averaged generator of a run while it trains, always under the same conditions.

    Every process makes one, and calls it at the same steps. Nothing of the training changes.
    """

    def __init__(self, run: Run) -> None:
        """Open the feature network, training it where it is this data's own and not known yet.

        Args:
            run: a run with a folder.

        Raises:
            GanError: the feature network cannot be had.
        """
        config, accelerator = run.config, run.accelerator
        with accelerator.main_process_first():
            self._network = open_features(
                config.evaluate_features,
                run.data,
                cache=metrics_cache(),
                device=accelerator.device,
                progress=accelerator.is_main_process,
            )
        best: list[float] = [float("inf")]
        if accelerator.is_main_process:
            best = [_best_value(checkpoints(run.folder))]
        if accelerator.num_processes > 1:
            broadcast_object_list(best)
        self._best = best[0]

    def __call__(self, run: Run) -> tuple[dict[str, Any], bool]:
        """Evaluate, and note it in the run's `metrics.json`.

        What cannot be measured, of a generator that collapsed for example, or not be noted, is a
        warning: the training goes on.

        Args:
            run: the run.

        Returns:
            What `gan.metrics.evaluate` gives, without `values` where there are none, and whether
            no step before was better.
        """
        try:
            entry = evaluate(
                run.ema.module,
                run.data,
                features=self._network,
                num=run.config.evaluate_num,
                metrics=METRICS,
                floor=False,
                about={"weights": "ema", "step": run.step},
                cache=metrics_cache(),
                accelerator=run.accelerator,
            )
        except GanError as error:
            _log.warning("no evaluation of step %d, training goes on: %s", run.step, error)
            return {"values": {}}, False
        if run.accelerator.is_main_process:
            assert run.folder is not None
            _note(run.folder / "metrics.json", entry, run.step)
        value = entry["values"][CHOSEN_BY]
        better = bool(value < self._best)
        self._best = min(value, self._best) if better else self._best
        return entry, better


def _note(path: Path, entry: Mapping[str, Any], step: int) -> None:
    try:
        if record(path, entry):
            _log.info("%s: step %d has been evaluated before, and is replaced", path, step)
    except GanError as error:
        _log.warning("the evaluation of step %d is not noted, training goes on: %s", step, error)


# --- the best checkpoint -------------------------------------------------------------------------


def keep_best(run: Run, checkpoint: Path, entry: Mapping[str, Any]) -> None:
    """Keep a checkpoint as the best. Every process calls it.

    Args:
        run: the run.
        checkpoint: its newest one, complete.
        entry: the evaluation of it.

    Raises:
        CheckpointError: it could not be kept; the best one before it is whole.
    """
    problem = [""]
    if run.accelerator.is_main_process:
        try:
            about = {CHOSEN_BY: entry["values"][CHOSEN_BY], "features": entry["features"]}
            _replace_best(checkpoints(run.folder), checkpoint, about)
        except OSError as error:
            problem = [f"could not keep {checkpoint} as the best: {error.strerror or error}"]
    if run.accelerator.num_processes > 1:
        broadcast_object_list(problem)
    if problem[0]:
        raise CheckpointError(problem[0])


def best_checkpoint(root: Path) -> Checkpoint | None:
    """The best checkpoint of a run.

    Args:
        root: folder of the checkpoints.

    Returns:
        The checkpoint, or None where there is none.

    Raises:
        CheckpointError: it is damaged.
    """
    # The second is there only where a process was killed while it put the first in its place.
    found = [path for path in (root / "best", root / ".best-old") if path.is_dir()]
    return open_checkpoint(found[0]) if found else None


def chosen_generator(
    folder: Path, which: str = "newest", role: str = "ema"
) -> tuple[nn.Module, int | None]:
    """A generator of a run, finished or not, or an exported one.

    Args:
        folder: a run folder, or a folder that `save_generator` wrote.
        which: "newest" or "best" checkpoint.
        role: "ema", or "generator" for the raw weights.

    Returns:
        The generator, in eval mode, and its step as far as it is known.

    Raises:
        CheckpointError: the folder is neither, what it holds is damaged, or there is no such
            checkpoint.
    """
    is_run = (folder / "config.yaml").is_file()
    if not is_run and (folder / "config.json").is_file():
        if (which, role) != ("newest", "ema"):
            raise CheckpointError(
                f"{folder} is an exported generator: the average of one step; give the run folder "
                "for --checkpoint or --weights"
            )
        step = generator_config(folder).get("step")
        return load_generator(folder), step if isinstance(step, int) else None
    saved_config(folder)
    root = checkpoints(folder)
    checkpoint = best_checkpoint(root) if which == "best" else newest_checkpoint(root)
    if (
        checkpoint is None
        and (which, role) == ("newest", "ema")
        and (folder / "generator").is_dir()
    ):
        return chosen_generator(folder / "generator")
    if checkpoint is None:
        hint = "; --evaluate_every keeps it" if which == "best" else " yet"
        kind = "best" if which == "best" else "complete"
        raise CheckpointError(f"{folder} has no {kind} checkpoint{hint}")
    saved = checkpoint.manifest["generator"]
    generator = build_generator(saved["family"], saved["shape"], **saved["options"])
    checkpoint.load_weights(role, generator)
    return generator.eval(), checkpoint.step


def _best_value(root: Path) -> float:
    with suppress(CheckpointError, KeyError, TypeError, ValueError):
        best = best_checkpoint(root)
        if best is not None:
            return float(best.manifest["best"][CHOSEN_BY])
    return float("inf")


def _replace_best(root: Path, checkpoint: Path, about: Mapping[str, Any]) -> None:
    best, new, old = root / "best", root / ".best-new", root / ".best-old"
    if old.exists() and not best.exists():
        old.rename(best)
    for leftover in (new, old):
        shutil.rmtree(leftover, ignore_errors=True)
    new.mkdir()
    for path in checkpoint.iterdir():
        if path.name != "manifest.json":
            _link(path, new / path.name)
    manifest = json.loads((checkpoint / "manifest.json").read_text(encoding="utf-8"))
    with (new / "manifest.json").open("w", encoding="utf-8") as file:
        json.dump({**manifest, "best": dict(about)}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    if best.exists():
        best.rename(old)
    new.rename(best)
    shutil.rmtree(old, ignore_errors=True)


def _link(path: Path, target: Path) -> None:
    """The same file at two places: a checkpoint's files are never written again."""
    try:
        os.link(path, target)
    except OSError:  # a file system without links
        shutil.copyfile(path, target)


# --- the page of the exported generator ----------------------------------------------------------


def describe_generator(folder: Path, config: Config, name: str | None = None) -> None:
    """Write the page of a run's exported generator, with the newest evaluation of each kind.

    Args:
        folder: the run folder; nothing happens where it has no exported generator.
        config: of the run.
        name: the generator's on the hub; None: it is called as its run.

    Raises:
        GanError: the page cannot be written.
    """
    if not (folder / "generator" / "config.json").is_file():
        return
    newest = {(each.get("features"), each.get("fakes")): each for each in evaluations(folder)}
    try:
        save_card(
            folder / "generator",
            settings=config.to_dict(),
            measured=list(newest.values()),
            name=name or f"{folder.parent.name}/{folder.name}",
        )
    except OSError as error:
        raise GanError(f"cannot write {folder / 'generator'}: {error.strerror}") from None
