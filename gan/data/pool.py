"""Decoding with every core: a row of items in, their pixels in a file or an array out."""

from __future__ import annotations

import logging
import math
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeAlias

from tqdm import tqdm

from gan.data.decode import Bytes, Target, formats, strictly
from gan.data.items import Items
from gan.data.worker import Order, Outcome, decode_stretch
from gan.errors import DataError

logger = logging.getLogger(__name__)

Bar: TypeAlias = "tqdm[NoReturn]"

_ALONE_SECONDS = 1.0  # less work than this is done sooner than other processes are started
_STRETCH, _LONGEST_STRETCH = 64, 512  # pictures; until it is known how long one takes; at most
_STRETCH_SECONDS = 0.05  # so that the bar moves, but few messages are sent
_FLUSH_SECONDS = 1.0

# The paths first: a folder of the person's may hold a module of the same name as one of ours.
_PROGRAM = "import sys; sys.path[:] = {path!r}; from gan.data.worker import main; main()"


def cores() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def decode_all(items: Items, target: Target, out: Path | Bytes | None) -> Outcome:
    """Decode every picture, with a progress bar where a person sees it.

    Args:
        items: the pictures.
        target: what to make of them.
        out: a file to write the examples into one after the other, which has its size already;
            or an array; None: only see what can be read.

    Returns:
        What was met; examples that cannot be read are left as they are, or zero.

    Raises:
        DataError: if a decoding process dies, or the file cannot be written.
    """
    run = _Run(items, target, out)
    processes = cores() if sys.executable else 1
    alone = _ALONE_SECONDS if processes > 1 else math.inf
    bar = tqdm(total=len(items), desc="Preparing images", unit="image", disable=None, leave=False)
    try:
        with bar:
            run.alone(bar, alone)
            if run.done < len(items):
                with _flushing(out) if isinstance(out, Path) else nullcontext():
                    run.together(bar, processes)
    except KeyboardInterrupt:
        logger.warning("Preparing images was stopped; nothing was kept.")
        raise
    run.outcome.failures.sort()
    return run.outcome


@contextmanager
def _flushing(path: Path) -> Iterator[None]:
    """Bring what is written to the disk meanwhile, so that the end need not wait for all of it."""
    done = threading.Event()

    def flush() -> None:
        with open(path, "r+b") as file:
            while not done.wait(_FLUSH_SECONDS):
                os.fsync(file.fileno())

    with ThreadPoolExecutor(1) as thread:
        flushing = thread.submit(flush)
        try:
            yield
        finally:
            done.set()
        try:
            flushing.result()
        except OSError as error:
            raise _no_room(path, error) from error


@dataclass
class _Process:
    """One decoding process and its way of talking."""

    process: subprocess.Popen[bytes]
    complaints: tempfile._TemporaryFileWrapper[bytes]

    @classmethod
    def start(cls, order: Order) -> _Process:
        complaints = tempfile.NamedTemporaryFile(prefix="gan-decode-")  # noqa: SIM115
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM.format(path=[str(path) for path in sys.path])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            env=environment,
            start_new_session=True,  # Ctrl-C is for this process to hear
        )
        started = cls(process, complaints)
        started.send(order)
        return started

    def send(self, message: object) -> None:
        assert self.process.stdin is not None
        pickle.dump(message, self.process.stdin, protocol=5)
        self.process.stdin.flush()

    def answer(self) -> tuple[Outcome | str, Bytes | None]:
        assert self.process.stdout is not None
        answer: tuple[Outcome | str, Bytes | None] = pickle.load(self.process.stdout)
        return answer

    def why(self) -> str:
        code = self.process.wait()
        self.complaints.seek(0)
        lines = self.complaints.read().decode(errors="replace").strip().splitlines()
        return f"exit code {code}" + (f": {lines[-1]}" if lines else "")

    def end(self) -> None:
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with suppress(OSError):  # a process that died leaves a message half sent
                    stream.close()
        self.process.terminate()
        self.process.wait()
        self.complaints.close()


class _Run:
    """One pass over the items: the first stretches alone, the rest by as many as there are."""

    def __init__(self, items: Items, target: Target, out: Path | Bytes | None) -> None:
        self.items, self.target, self.out = items, target, out
        self.outcome, self.done, self.stretch = Outcome(), 0, _STRETCH
        self._lock = threading.Lock()

    def alone(self, bar: Bar, seconds: float) -> None:
        """Decode here until so much is done that the rest can be seen to take longer."""
        formats()  # loads Pillow's plugins, which would count as work otherwise
        began, left = time.monotonic(), 0.0
        while self.done < len(self.items) and left < seconds:
            part = self.items.take(slice(self.done, self.done + 16))
            pixels: list[Bytes] = []
            with strictly():
                outcome = decode_stretch(part, self.done, self.target, pixels.append)
            if isinstance(self.out, Path):
                try:
                    with open(self.out, "r+b") as file:
                        file.seek(self.done * pixels[0].nbytes)
                        file.writelines(planes.data for planes in pixels)
                except OSError as error:
                    raise _no_room(self.out, error) from error
            self._keep(self.done, pixels, outcome, bar)
            self.done += len(part)
            each = (time.monotonic() - began) / self.done
            left = each * (len(self.items) - self.done)
            self.stretch = max(1, min(_LONGEST_STRETCH, round(_STRETCH_SECONDS / each)))

    def together(self, bar: Bar, processes: int) -> None:
        stretches = self._stretches()
        processes = min(processes, -(-(len(self.items) - self.done) // self.stretch))
        stop = threading.Event()
        with ThreadPoolExecutor(processes) as threads:
            futures = [threads.submit(self._serve, stretches, bar, stop) for _ in range(processes)]
            try:
                for future in futures:
                    future.result()
            finally:
                stop.set()

    def _stretches(self) -> Iterator[tuple[int, Items]]:
        for start in range(self.done, len(self.items), self.stretch):
            yield start, self.items.portable(start, start + self.stretch)

    def _serve(
        self, stretches: Iterator[tuple[int, Items]], bar: Bar, stop: threading.Event
    ) -> None:
        path = self.out if isinstance(self.out, Path) else None
        process = _Process.start(Order(self.target, path))
        try:
            while not stop.is_set():
                with self._lock:
                    start, part = next(stretches, (0, None))
                if part is None:
                    return
                outcome, pixels = self._asked(process, start, part)
                with self._lock:
                    self._keep(start, pixels, outcome, bar)
        except BaseException:
            stop.set()
            raise
        finally:
            process.end()

    def _asked(self, process: _Process, start: int, part: Items) -> tuple[Outcome, Sequence[Bytes]]:
        try:
            process.send((start, part))
            outcome, pixels = process.answer()
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            first, last = self.items.name(start), self.items.name(start + len(part) - 1)
            raise DataError(
                f"data: a decoding process died ({process.why()}) between {first} and {last}. "
                f"One of these may be damaged in a way that Pillow does not survive, or memory "
                f"ran out."
            ) from error
        if isinstance(outcome, str):
            raise _no_room(self.out, outcome)
        return outcome, [] if pixels is None else list(pixels)

    def _keep(self, start: int, pixels: Sequence[Bytes], outcome: Outcome, bar: Bar) -> None:
        self.outcome.add(outcome)
        bar.update(sum(outcome.modes.values()) // self.items.parts + len(outcome.failures))
        if self.out is not None and not isinstance(self.out, Path):
            for index, planes in enumerate(pixels):
                self.out[start + index] = planes


def _no_room(out: object, error: object) -> DataError:
    return DataError(
        f"data: the prepared images cannot be written to {out}: {error}. Make room there, choose "
        f"another cache folder by the environment variable GAN_CACHE, or use no_cache."
    )
