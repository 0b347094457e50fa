"""What people see of a text classifier's training: progress and curves."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import yaml
from torch import Tensor

from gan.errors import DivergenceError
from gan.progress import progress_bar
from gan.text.scores import Scores
from gan.text_run import TextRun
from gan.tracking import Tracker

_log = logging.getLogger(__name__)


class TextReporter:
    """Progress bar and TensorBoard of a run; on the main process only."""

    def __init__(self, run: TextRun) -> None:
        """Prepare to show a run.

        Args:
            run: a run with a folder.
        """
        self._run = run

    def __enter__(self) -> TextReporter:
        """Open the event file and the progress bar; a new run shows its options."""
        run = self._run
        assert run.folder is not None, "the run has no folder yet"
        self._tracker = Tracker(run.accelerator, run.folder, start_step=run.step)
        self._bar = progress_bar(
            total=run.steps,
            initial=run.step,
            unit="step",
            disable=not run.accelerator.is_main_process,
        )
        self._clock, self._seen = time.perf_counter(), 0
        if run.step == 0:
            options = yaml.safe_dump(run.config.to_dict(), sort_keys=False)
            self._tracker.text("config", f"```yaml\n{options}```")
        return self

    def __exit__(self, *error: object) -> None:
        """Close both."""
        self._bar.close()
        self._tracker.close()

    def progress(self) -> None:
        """Move the bar by one update."""
        run = self._run
        self._bar.update()
        self._seen += sum(run.order.counts((run.step - 1) % run.order.windows))

    def scalars(self, scalars: dict[str, Tensor]) -> None:
        """Write a point of every curve of the training; all processes take part in the averages.

        Args:
            scalars: what the update gave.

        Raises:
            DivergenceError: one of them is not finite.
        """
        run = self._run
        means = run.accelerator.reduce(
            torch.stack([value.double() for value in scalars.values()]), "mean"
        )
        values = dict(zip(scalars, means.tolist(), strict=True))
        if not all(map(math.isfinite, values.values())):
            raise DivergenceError(
                f"step {run.step}: the classifier's loss is {values['loss/classifier']}, the norm "
                f"of its gradient {values['grad_norm/classifier']}; try a smaller lr, or clip_norm"
            )
        seconds = time.perf_counter() - self._clock
        values["lr/classifier"] = run.classifier.lr
        values["time/texts_per_second"] = self._seen / max(seconds, 1e-9)
        values["time/epoch"] = run.step / run.order.windows
        self._bar.set_postfix(loss=f"{values['loss/classifier']:.3f}", refresh=False)
        self._tracker.scalars(values, run.step)
        self._run.seconds += seconds
        self._clock, self._seen = time.perf_counter(), 0

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave what is done inside out of the training's speed.

        Yields:
            Nothing.
        """
        begin = time.perf_counter()
        yield
        self._clock += time.perf_counter() - begin

    def evaluation(self, scores: Scores) -> None:
        """Write a point of every curve of the evaluation.

        Args:
            scores: on the validation texts.
        """
        run, numbers = self._run, scores.numbers()
        self._tracker.scalars(
            {f"validation/{name}": value for name, value in numbers.items()}, run.step
        )
        text = ", ".join(f"{name} {value:.3f}" for name, value in numbers.items())
        _log.info("step %d of %d: %s", run.step, run.steps, text)
