"""`gan bench`: speeds as ratios, measured side by side in one run."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gan.commands.console import duration, interruptible, one_argument, say, size
from gan.config import Config
from gan.data_config import DataConfig
from gan.errors import ConfigError
from gan.presets import PRESETS, preset_config

_NAMES = {"toolkit": "this toolkit", "plain": "plain loop", "expert": "best loop"}


def bench(words: list[str]) -> int:
    """Measure how fast a preset trains, or how fast data gets ready and is delivered.

    Args:
        words: after `gan bench`; the first is a preset, or `data`.

    Returns:
        The exit code.
    """
    what = one_argument("bench", "a preset, or data and a source", "digits", words)
    if what == "data":
        return _bench_data(words)
    if what != "-" and what not in PRESETS:
        near = difflib.get_close_matches(what, ["data", *PRESETS], n=1, cutoff=0.4)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ConfigError(
            f"gan bench: {what!r} cannot be measured; {hint}there is: data SOURCE, or a preset: "
            f"{', '.join(PRESETS)}"
        )
    base = Config() if what == "-" else preset_config(what)
    from gan.flags import Bench, parse

    arguments = parse(Bench, words, "gan bench PRESET", Bench(base))
    _check(arguments.rounds, arguments.seconds)
    with interruptible():
        from gan.speed.training import measure

        with _progress() as tell:
            rows = measure(
                arguments.options, rounds=arguments.rounds, seconds=arguments.seconds, tell=tell
            )
    say(json.dumps(rows, indent=1) if arguments.json else _report(rows))
    return 0


def _bench_data(words: list[str]) -> int:
    source = one_argument("bench data", "a source", "path/to/images", words)
    from gan.flags import BenchData, parse

    arguments = parse(BenchData, words, "gan bench data SOURCE", BenchData(DataConfig(data=source)))
    from gan.speed.data import measure

    rows = measure(arguments.options, arguments.batch_size, arguments.rounds)
    say(json.dumps(rows, indent=1) if arguments.json else _table(rows))
    return 0


def _check(rounds: int | None, seconds: float) -> None:
    problems = []
    if rounds is not None and rounds < 1:
        problems.append(f"--rounds: {rounds} is below 1")
    if not 0 < seconds < float("inf"):
        problems.append(f"--seconds: {seconds:g} is not above 0")
    if os.environ.get("WORLD_SIZE", "1") != "1":
        problems.append("gan bench measures one process; start it without a launcher")
    if problems:
        raise ConfigError(problems)


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """One line on stderr that says what is being done, and for how long."""
    from gan.progress import progress_bar

    with progress_bar(bar_format="{desc} [{elapsed}]", leave=False) as bar:
        yield lambda text: bar.set_description_str(text)


def _table(rows: dict[str, Any]) -> str:
    width = max(map(len, rows))
    return "\n".join(
        f"{name:<{width}}  {'no files here' if value is None else value}"
        for name, value in rows.items()
    )


def _report(rows: dict[str, Any]) -> str:
    """What was measured, for a person."""
    shape = "x".join(map(str, rows["shape"]))
    lines = [
        f"{rows['preset']}: {shape}, batch {rows['batch_size']}, "
        f"{_precision(rows['mixed_precision'])}, on {rows['device']} with {rows['threads']} "
        f"threads; {_count(rows['rounds'], 'round')} in turn of "
        f"{_count(rows['steps_of_a_slice'], 'step')} each"
    ]
    if rows["steps_of_a_slice"] % rows["period_of_penalties"]:
        lines.append(
            f"penalties are due every {rows['period_of_penalties']} steps, longer than a slice: "
            "ratios hold, seconds depend on which steps were timed"
        )
    lines += [rows["note"]] if rows["note"] else []
    lines += ["", *_speeds(rows), "", *_ratios(rows), "", *_phases(rows), "", *_rest(rows)]
    return "\n".join(lines)


def _speeds(rows: dict[str, Any]) -> list[str]:
    titles = ("", "images/s", "s per 1000", "ms a step", "memory", "of possible")
    lines = [f"{titles[0]:<14}" + "".join(f"{title:>13}" for title in titles[1:])]
    for name, title in _NAMES.items():
        cells = (
            _digits(rows["images_per_second"][name]),
            _digits(rows["seconds_per_1000_images"][name]),
            _digits(1000 * rows["seconds_per_step"][name]),
            size(rows["memory_of_training"][name]),
            f"{rows['achieved_of_possible'][name]['median']:.0%}",
        )
        lines.append(f"{title:<14}" + "".join(f"{cell:>13}" for cell in cells))
    return lines


def _ratios(rows: dict[str, Any]) -> list[str]:
    lines = []
    for pair, ratio in rows["ratios"].items():
        one, other = (_NAMES[name] for name in pair.split("/"))
        memory = rows["memory_ratios"][pair], rows["memory_ratios_of_process"][pair]
        lines.append(
            f"{one + ' / ' + other:<26}speed {_spread(ratio)}, memory {memory[0]:.2f} "
            f"({memory[1]:.2f} of the whole process)"
        )
    return lines


def _phases(rows: dict[str, Any]) -> list[str]:
    shares = ", ".join(f"{name} {share:.0%}" for name, share in rows["phases"].items())
    return [f"phases of a step of this toolkit: {shares}"]


def _rest(rows: dict[str, Any]) -> list[str]:
    rate, possible = rows["matrix_operations_per_second"], rows["achieved_of_possible"]["toolkit"]
    plan = rows["projection"]
    written = plan["seconds_of_checkpoints"]
    saving = "not timed, too large" if written is None else f"about {duration(written)}"
    return [
        f"a step needs {_digits(rows['operations_per_step'] / 1e9)} GFLOP; the machine multiplies "
        f"matrices at {_digits(rate['median'] / 1e9)} GFLOP/s ({_digits(rate['low'] / 1e9)} to "
        f"{_digits(rate['high'] / 1e9)}); achieved of that: {_spread(possible)}",
        f"all {plan['steps']:,} steps: about {duration(plan['seconds'])}, besides grids of samples "
        f"(about {duration(plan['seconds_of_grids'])}) and checkpoints ({saving}); "
        f"on the disk about {size(plan['disk_bytes'])}",
    ]


def _digits(value: float) -> str:
    """Three digits at least, and never an exponent of ten."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _spread(ratio: dict[str, float]) -> str:
    return f"{ratio['median']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})"


def _precision(mixed_precision: str) -> str:
    return "fp32" if mixed_precision == "no" else mixed_precision


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + "s" * (number != 1)
