"""Where a run lives, and what TensorBoard sees of it.

One run is one folder and shows as one run: no time-stamped sub-folders, no run of its own for the
hyper-parameters, and after a resume one clean curve. TensorBoard is imported when the first
Tracker opens.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from accelerate import Accelerator
from accelerate.tracking import TensorBoardTracker
from torch import Tensor

from gan.errors import GanError

Number = int | float | np.number[Any] | Tensor


def create_run_dir(runs_dir: Path, preset: str, name: str | None = None) -> Path:
    """Make the folder of a new run. Runs that start at the same moment get different ones.

    Args:
        runs_dir: holds the run folders; made if missing.
        preset: the folder is called `<preset>-<number>`, one above the highest number there.
        name: of the folder instead.

    Returns:
        The folder, which is empty.

    Raises:
        GanError: `name` is taken, or the folder cannot be made. Nothing is left behind then.
    """
    new = [folder for folder in (runs_dir, *runs_dir.parents) if not folder.exists()]
    try:
        runs_dir.mkdir(parents=True, exist_ok=True)
        return _numbered(runs_dir, preset) if name is None else _named(runs_dir / name)
    except OSError as error:
        for folder in new:
            with suppress(OSError):
                folder.rmdir()
        raise GanError(
            f"--runs_dir: cannot make a folder in {runs_dir}: {error.strerror}; "
            "choose one that you may write to"
        ) from None


def _numbered(runs_dir: Path, preset: str) -> Path:
    pattern = re.compile(re.escape(preset) + r"-(\d+)")
    taken = [
        int(match[1]) for path in runs_dir.iterdir() if (match := pattern.fullmatch(path.name))
    ]
    number = max(taken, default=0) + 1
    while True:
        folder = runs_dir / f"{preset}-{number:03d}"
        try:
            folder.mkdir()
        except FileExistsError:  # another process was faster
            number += 1
        else:
            return folder


def _named(folder: Path) -> Path:
    try:
        folder.mkdir()
    except FileExistsError:
        if not folder.is_dir() or any(folder.iterdir()):
            raise GanError(
                f"--name: {folder} exists; choose another name, "
                f"or continue that run with: gan resume {folder}"
            ) from None
    return folder


class Tracker:
    """TensorBoard through Accelerate's own tracker: on the main process only, elsewhere nothing.

    While it is open, `accelerator.log` reaches it too.
    """

    def __init__(self, accelerator: Accelerator, run_dir: Path, *, start_step: int = 0) -> None:
        """Open an event file.

        Args:
            accelerator: the run's Accelerator.
            run_dir: the run's folder.
            start_step: completed steps; what an earlier event file in the folder shows of later
                ones, from a part of the run that was lost, disappears from the curves.
        """
        self._accelerator = accelerator
        self._tracker: TensorBoardTracker | None = None
        if accelerator.is_main_process:
            purge = start_step + 1 if start_step else None
            _wait_for_a_later_name(run_dir)
            self._tracker = _OneEvent("", run_dir, purge_step=purge)
            if hasattr(self._tracker, "start"):  # before Accelerate 1.9 the constructor opens it
                self._tracker.start()
            accelerator.trackers.append(self._tracker)

    def scalars(self, values: Mapping[str, Number], step: int) -> None:
        """Write one point of each curve.

        Args:
            values: by tag: Python or numpy numbers, or tensors without dimensions. NaN is shown.
            step: completed steps.

        Raises:
            TypeError: a value is no single number; nothing is written. (Accelerate would drop it
                without a word.)
        """
        numbers = {tag: _number(tag, value) for tag, value in values.items()}
        if self._tracker is not None:
            self._accelerator.log(numbers, step=step)

    def image(self, tag: str, picture: Tensor, step: int) -> None:
        """Show a picture.

        Args:
            tag: one for each kind of picture; a second picture of a step would hide the first.
            picture: uint8 of shape (1 or 3 or 4, height, width).
            step: completed steps.
        """
        if self._tracker is not None:
            self._tracker.writer.add_image(tag, picture, step)
            self._tracker.writer.flush()

    def text(self, tag: str, text: str, step: int = 0) -> None:
        """Show a text.

        Args:
            tag: its name.
            text: Markdown.
            step: completed steps.
        """
        if self._tracker is not None:
            self._tracker.writer.add_text(tag, text, step)
            self._tracker.writer.flush()

    def hparams(self, values: Mapping[str, Any]) -> None:
        """Show the hyper-parameters, so that the HParams tab compares runs. Once for each run.

        Every curve of the run becomes a metric there, by its last value.

        Args:
            values: by name; numbers stay numbers, everything else is shown as text.
        """
        if self._tracker is None:
            return
        from torch.utils.tensorboard.summary import hparams

        plain = {name: value if _is_plain(value) else str(value) for name, value in values.items()}
        # The first of the three fixes the columns for all runs, so it is left to TensorBoard.
        _, session, _ = hparams(plain, {})
        self._tracker.writer.file_writer.add_summary(session)
        self._tracker.writer.flush()

    def close(self) -> None:
        """Write what is left and close the event file."""
        if self._tracker is not None:
            self._accelerator.trackers.remove(self._tracker)
            self._tracker.finish()
            self._tracker = None


class _OneEvent(TensorBoardTracker):  # type: ignore[misc]  # untyped
    """Accelerate's tracker, but the numbers of a point go into the file as one event.

    One event for each of them wakes the thread that writes as often: eight times as slow.
    """

    def log(self, values: Mapping[str, Any], step: int | None = None, **options: Any) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        numbers = {tag: value for tag, value in values.items() if isinstance(value, int | float)}
        if options or not numbers:  # options are add_scalar's
            super().log(values, step, **options)
            return
        point = [Summary.Value(tag=tag, simple_value=float(n)) for tag, n in numbers.items()]
        self.writer.file_writer.add_summary(Summary(value=point), step)
        rest = {tag: value for tag, value in values.items() if tag not in numbers}
        super().log(rest, step)  # flushes, too


def _wait_for_a_later_name(run_dir: Path) -> None:
    """Event files are read in the order of their names, which count whole seconds."""
    pattern = re.compile(r"events\.out\.tfevents\.(\d+)\.")
    names = (pattern.match(path.name) for path in run_dir.glob("events.out.tfevents.*"))
    newest = max((int(found[1]) for found in names if found), default=0)
    wait = newest + 1 - time.time()
    if 0 < wait <= 1:
        time.sleep(wait)


def _number(tag: str, value: Any) -> float:
    if isinstance(value, Tensor):
        value = value.detach()
        single = value.ndim == 0 and not value.is_complex()
    elif isinstance(value, np.ndarray | np.generic):
        single = value.ndim == 0 and value.dtype.kind in "biuf"
    else:
        single = isinstance(value, int | float)
    if not single:
        shape = f" of shape {tuple(value.shape)}" if hasattr(value, "shape") else ""
        raise TypeError(f"{tag}: a curve takes one number, not a {type(value).__name__}{shape}")
    return float(value)


def _is_plain(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
