"""`gan runs` and `gan compare`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from gan.commands.console import asks_for_help, leading, place_for, say, size
from gan.config import Config
from gan.errors import ConfigError, GanError

_TITLES = ("run", "preset", "step", "status", "metrics", "size")


def runs(words: list[str]) -> int:
    """List runs.

    Args:
        words: after `gan runs`.

    Returns:
        The exit code.
    """
    folders = leading(words)
    from gan.flags import Runs, parse

    parse(Runs, words, "gan runs [RUNS_DIR]", Runs())
    if len(folders) > 1:
        raise ConfigError(f"gan runs: give one folder of runs, not {len(folders)}")
    place = Path(folders[0] if folders else "runs")
    if not place.is_dir():
        raise ConfigError(f"{place} is no folder; name the one that holds the runs")
    found = sorted(path.parent for path in place.glob("*/config.yaml"))
    if not found:
        raise ConfigError(f"there is no run in {place}")
    rows = [_TITLES, *map(_row, found)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_TITLES))]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        say("  ".join(cells).rstrip())
    return 0


def _row(folder: Path) -> tuple[str, ...]:
    from gan.results import evaluations, is_running

    taken = size(sum(path.stat().st_size for path in _files(folder)))
    try:
        config = Config.load(folder / "config.yaml")
    except GanError:
        return folder.name, "?", "?", "config.yaml is no run's", "", taken
    step = newest_step(folder)
    ended = "finished" if step >= config.steps else "stopped"
    status = "running" if is_running(folder) else ended
    entries = evaluations(folder)
    metrics = _in_short(entries[-1]) if entries else ""
    return folder.name, config.preset, f"{step:,} of {config.steps:,}", status, metrics, taken


def newest_step(folder: Path) -> int:
    """Step of the newest checkpoint of a run, read from its manifest only.

    Args:
        folder: the run folder.

    Returns:
        Completed steps; 0 where there is no checkpoint.
    """
    names = (path.parent.name for path in folder.glob("checkpoints/step-*/manifest.json"))
    steps = (int(found[1]) for name in names if (found := re.fullmatch(r"step-(\d+)", name)))
    return max(steps, default=0)


def _in_short(entry: dict[str, Any]) -> str:
    values = entry["values"]
    names = [name for name in ("fid", "precision", "recall") if name in values] or list(values)
    shown = [f"{name} {values[name]:.4g}" for name in names]
    step = "" if entry.get("step") is None else f" at step {entry['step']:,}"
    return f"{', '.join(shown)} ({entry.get('features')}, {entry.get('fakes')} fakes{step})"


def _files(folder: Path) -> list[Path]:
    """Every file of a run once, however often it is linked."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return list({(path.stat().st_dev, path.stat().st_ino): path for path in files}.values())


def compare(words: list[str]) -> int:
    """Draw grids and curves of runs side by side.

    Args:
        words: after `gan compare`.

    Returns:
        The exit code.
    """
    folders = [Path(word) for word in leading(words)]
    from gan.flags import Compare, parse

    arguments = parse(Compare, words, "gan compare RUN RUN ...", Compare())
    if len(folders) < 2 and not asks_for_help(words):
        raise ConfigError("gan compare: name two runs or more")
    if len(folders) > 8:
        raise ConfigError(f"gan compare: {len(folders)} runs; a picture has room for 8")
    from gan.comparison import compare_runs
    from gan.sampling import check_picture_name
    from gan.state import saved_config

    for folder in folders:
        saved_config(folder)
    place_for(arguments.out)
    check_picture_name(arguments.out)
    compare_runs(folders, arguments.out)
    say(str(arguments.out))
    return 0
