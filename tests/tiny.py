"""A training run of a second or less, for the tests that need a whole one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gan import Config, preset_config

TINY: dict[str, Any] = {
    "steps": 6,
    "batch_size": 16,
    "log_every": 2,
    "sample_every": 3,
    "save_every": 2,
    "sample_num": 4,
    "generator": {"hidden": [16]},
    "discriminator": {"hidden": [16]},
}


def tiny(runs_dir: Path, preset: str = "digits", **options: Any) -> Config:
    """Options of a small run; nested options as dictionaries."""
    base = Config.from_dict({**TINY, "runs_dir": runs_dir}, preset_config(preset))
    return Config.from_dict(options, base)
