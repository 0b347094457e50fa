"""What can go wrong for a person. Everything here is one clear sentence on stderr and exit code 2.

    GanError
    ├── ConfigError       an option, or a combination of options, that cannot be
    ├── DataError         a data source that cannot be used
    ├── CheckpointError   a run, checkpoint or exported generator that cannot be used
    └── DivergenceError   training left the finite numbers

A message names the flag or file, its value, what is allowed and what to do.
"""

from collections.abc import Sequence


class GanError(Exception):
    """A mistake that the person at the keyboard can mend."""


class ConfigError(GanError):
    """One or more options that cannot be, all reported at once.

    Args:
        problems: one sentence each: the option, its value, what is allowed.
    """

    def __init__(self, problems: str | Sequence[str]) -> None:
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        super().__init__("\n".join(self.problems))


class DataError(GanError):
    """A data source that cannot be opened, read or used."""


class CheckpointError(GanError):
    """A run, checkpoint or exported generator that is missing, damaged or of another kind."""


class DivergenceError(GanError):
    """A loss, penalty, gradient or weight stopped being finite."""
