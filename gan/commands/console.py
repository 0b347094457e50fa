"""What all commands share: speaking to a person once, and reading the words before the flags."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gan.errors import ConfigError, GanError

_MOST = 1_000_000
"""Numbers in a list: more are a slip of the pen."""


def say(text: str) -> None:
    """Print on the main process.

    Args:
        text: one or more lines.
    """
    if is_main_process():
        print(text, flush=True)


def complain(error: GanError) -> None:
    """Print an error on stderr, a line for each problem, on the main process.

    Args:
        error: what went wrong.
    """
    if is_main_process():
        for line in str(error).splitlines():
            print(f"gan: error: {line}", file=sys.stderr)


def is_main_process() -> bool:
    """Whether this is the first of the launched processes, as the launcher says."""
    return os.environ.get("RANK", "0") == "0"


def log_to_stderr() -> None:
    """Show messages of the library above the progress bar, from the main process only."""

    class Console(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            from tqdm import tqdm

            tqdm.write(self.format(record), file=sys.stderr)

    logger = logging.getLogger("gan")
    logger.handlers = [Console()] if is_main_process() else [logging.NullHandler()]
    logger.setLevel(logging.INFO)
    logger.propagate = False


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C end the process at once, where an import in progress could swallow it.

    Once training runs, it is a request to stop and save; see `gan.signals.stop_signals`.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        os.write(2, b"\nstopped\n")
        os._exit(128 + signal.SIGINT)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def leading(words: list[str]) -> list[str]:
    """Take the words before the first flag away.

    Args:
        words: of the command line after the command; loses them.

    Returns:
        Those words.
    """
    count = next((i for i, word in enumerate(words) if word.startswith("-")), len(words))
    taken, words[:] = words[:count], words[count:]
    return taken


def one_argument(command: str, what: str, example: str, words: list[str]) -> str:
    """Take the one word before the first flag away.

    Args:
        command: the command's name.
        what: that the word is; "the run folder".
        example: of it.
        words: of the command line after the command; loses the word.

    Returns:
        The word; a placeholder where help is asked for.

    Raises:
        ConfigError: there is none; says what to write.
    """
    if words and not words[0].startswith("-"):
        return words.pop(0)
    if asks_for_help(words):
        return "-"
    raise ConfigError(f"gan {command}: name {what}, as in gan {command} {example}")


def run_argument(command: str, words: list[str], rest: str = "") -> Path:
    """Take the folder of a run away; see `one_argument`."""
    return Path(one_argument(command, "the run folder", f"runs/digits-001{rest}", words))


def asks_for_help(words: list[str]) -> bool:
    """Whether a flag asks for the command's help.

    Args:
        words: of the command line.
    """
    return bool({"-h", "--help"} & set(words))


def numbers(flag: str, text: str) -> list[int]:
    """Whole numbers written as a list with ranges.

    Args:
        flag: for the message.
        text: such as "3", "0-63" or "1,5,8-11".

    Returns:
        The numbers, in the order written.

    Raises:
        ConfigError: it is no such list, a range runs backwards, or there are too many.
    """
    found: list[int] = []
    for part in text.replace(" ", "").split(","):
        first, _, last = part.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal() or part.endswith("-"):
            raise ConfigError(f"{flag}: {text!r} is no list of numbers; write 0-63 or 1,5,8-11")
        if int(last or first) < int(first):
            raise ConfigError(f"{flag}: {part} runs backwards; write {last}-{first}")
        if int(last or first) - int(first) + len(found) >= _MOST:
            raise ConfigError(f"{flag}: {text} are more than {_MOST:,} numbers")
        found += range(int(first), int(last or first) + 1)
    return found


def duration(seconds: float) -> str:
    """A time for a person.

    Args:
        seconds: at least 0.

    Returns:
        Such as 40 s, 25 min or 3.5 h.
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def size(count: float) -> str:
    """Bytes for a person.

    Args:
        count: how many.

    Returns:
        Such as 12 B, 3.4 MiB or 1.5 GiB.
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError


def place_for(out: Path) -> None:
    """Find out, before the work is done, whether there is a place for what comes of it.

    Args:
        out: what is to be written, as --out says it.

    Raises:
        ConfigError: what would be its folder is none, or may not be written to.
    """
    folder = next(path for path in out.absolute().parents if path.exists())
    if not folder.is_dir():
        raise ConfigError(f"--out: {out} cannot be: {folder} is no folder")
    if not os.access(folder, os.W_OK):
        raise ConfigError(f"--out: {out} cannot be written: {folder} is read-only to you")
