"""The toolkit's own loop, as `gan train` runs it."""

from __future__ import annotations

import dataclasses
import os
from contextlib import AbstractContextManager, ExitStack, redirect_stderr
from pathlib import Path

from torch import Tensor

from gan.config import Config
from gan.guard import Guard
from gan.loop import start, train_step
from gan.report import Reporter
from gan.run import Run, build


class Toolkit(AbstractContextManager["Toolkit"]):
    """A real run in a folder of its own, a step at a time.

    A step is what `gan.loop.fit` does in one: the step itself, with data and average, the check of
    its numbers, the progress bar. `log` writes a point of every curve. Grids of samples and
    checkpoints are not part of either.

    Attributes:
        run: the run.
        reporter: shows it, on a bar that nobody sees.
    """

    def __init__(self, config: Config, folder: Path) -> None:
        """Build the run.

        Args:
            config: what to train.
            folder: where its run folder goes.

        Raises:
            ConfigError: as `gan.run.build`.
            DataError: likewise.
        """
        here = dataclasses.replace(config, runs_dir=folder, name="run", evaluate_every=None)
        self.run: Run = build(here)
        self._stack = ExitStack()

    def __enter__(self) -> Toolkit:
        """Start the run, with its curves and its progress bar."""
        start(self.run)
        nowhere = self._stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
        with redirect_stderr(nowhere):
            self.reporter = self._stack.enter_context(Reporter(self.run))
        self._guard = Guard(self.run)
        return self

    def __exit__(self, *error: object) -> None:
        """Close its curves and its bar."""
        self._stack.close()

    def step(self) -> None:
        """One step of `gan.loop.fit` between two points of the curves."""
        scalars = train_step(self.run)
        self.run.latest |= scalars
        self.watch(scalars)

    def watch(self, scalars: dict[str, Tensor]) -> None:
        """What `fit` does after each step.

        Args:
            scalars: of the step.
        """
        self._guard.after_step(scalars, stop=0)
        self.reporter.progress()

    def log(self) -> None:
        """Write a point of every curve."""
        self.reporter.scalars()
