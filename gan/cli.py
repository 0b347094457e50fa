"""The command line: finds the command, and decides the exit code."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import NamedTuple

import gan
from gan.commands.console import complain, log_to_stderr
from gan.errors import DivergenceError, GanError
from gan.presets import PRESETS


class Command(NamedTuple):
    """Where a command is, and its lines in the help: what to write, what it does."""

    module: str
    usage: tuple[tuple[str, str], ...]


COMMANDS = {
    "train": Command(
        "training",
        (
            ("PRESET [--flags]", "train from a preset; any option is a flag"),
            ("--config FILE [--flags]", "train from a run's config.yaml"),
        ),
    ),
    "resume": Command("training", (("RUN [--flags]", "go on from a run's newest checkpoint"),)),
    "data": Command(
        "data", (("SOURCE [--flags]", "what is in a data source, and what training would see"),)
    ),
    "sample": Command(
        "pictures", (("RUN [--flags]", "draw samples: a grid, a folder, a zip or an npz"),)
    ),
    "interpolate": Command(
        "pictures", (("RUN [--flags]", "from sample to sample: a strip, a GIF or an MP4"),)
    ),
    "evaluate": Command(
        "measuring", (("RUN [--flags]", "FID, KID, ... of a run, a folder or an npz"),)
    ),
    "bench": Command(
        "bench",
        (
            ("PRESET [--flags]", "how fast it trains, beside a plain loop and the best one"),
            ("data SOURCE [--flags]", "how fast data gets ready, and is delivered"),
        ),
    ),
    "export": Command("sharing", (("RUN [--flags]", "the generator as ONNX or TorchScript"),)),
    "push": Command("sharing", (("RUN OWNER/NAME", "the generator to the Hugging Face hub"),)),
    "runs": Command("overview", (("[RUNS_DIR]", "a list of runs: step, status, metrics, size"),)),
    "compare": Command(
        "overview", (("RUN RUN ... [--flags]", "grids and curves of runs in one picture"),)
    ),
}


def _help() -> str:
    commands = "\n".join(
        f"  {name + ' ' + words:<31} {text}"
        for name, command in COMMANDS.items()
        for words, text in command.usage
    )
    presets = "\n".join(f"  {name:<28}{preset.summary}" for name, preset in PRESETS.items())
    return f"""\
usage: gan COMMAND [ARGUMENTS]

Train two networks against each other on Hugging Face Accelerate.

commands:
{commands}

presets:
{presets}

gan COMMAND --help lists the flags; gan --version prints the version. Where it says RUN, the folder
of an exported generator will do for sample, interpolate, evaluate, export and push.
Several processes: accelerate launch -m gan train ...  or  torchrun --nproc_per_node 2 -m gan ...
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: the words after `gan`; None: the process's own.

    Returns:
        The exit code: 0 done, 2 a mistake that the message explains, 3 training diverged,
        130 stopped by Ctrl-C, 141 nobody reads what it prints, 143 stopped by SIGTERM.
    """
    if arguments is not None:
        return _run(list(arguments))
    try:
        return _run(sys.argv[1:])
    finally:
        # What Python still tears down, a second Ctrl-C ends without a word.
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(_help(), end="")
        return 0
    if words[0] == "--version":
        print(f"gan-toolkit {gan.__version__}")
        return 0
    log_to_stderr()
    name, *rest = words
    try:
        if name not in COMMANDS:
            raise GanError(f"{name!r} is no command; commands: {', '.join(COMMANDS)}")
        module = importlib.import_module(f"gan.commands.{COMMANDS[name].module}")
        return int(getattr(module, name)(rest))
    except GanError as error:
        complain(error)
        return 3 if isinstance(error, DivergenceError) else 2
    except BrokenPipeError:  # as in `gan train --help | head`: whoever read has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:  # a full disk, a folder that went away, a missing permission
        where = f"{error.filename}: " if error.filename else ""
        complain(GanError(f"{where}{error.strerror or error}"))
        return 2
    except MemoryError as error:
        complain(GanError(f"out of memory: {error}; ask for less at once"))
        return 2
    except KeyboardInterrupt:
        return 130
