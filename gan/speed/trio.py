"""The three loops that are compared, built for one configuration."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from gan.config import Config
from gan.speed.expert import ExpertLoop
from gan.speed.loops import PlainLoop
from gan.speed.timing import Loop
from gan.speed.toolkit import Toolkit

LOOPS = ("toolkit", "plain", "expert")


class Trio(AbstractContextManager["Trio"]):
    """All three, from the same initial weights, ready to train.

    Attributes:
        toolkit: this package's.
        plain: see `PlainLoop`.
        expert: see `ExpertLoop`.
        loops: all of them by name.
        device: where they train.
    """

    def __init__(self, config: Config, folder: Path) -> None:
        """Build them.

        Args:
            config: what to train.
            folder: where the toolkit's run folder goes.

        Raises:
            ConfigError: as `gan.run.build`.
            DataError: likewise.
        """
        self.toolkit = Toolkit(config, folder)
        run = self.toolkit.run
        self.device = run.accelerator.device
        self.plain = PlainLoop(run.config, run.data, self.device)
        self.expert = ExpertLoop(run.config, run.data, self.device)
        self.loops: dict[str, Loop] = dict(
            zip(LOOPS, (self.toolkit, self.plain, self.expert), strict=True)
        )

    def __enter__(self) -> Trio:
        """Start the toolkit's run."""
        self.toolkit.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        """End it."""
        self.toolkit.__exit__(*error)
