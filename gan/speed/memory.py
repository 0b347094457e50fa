"""Peak memory of a loop, in a process of its own."""

from __future__ import annotations

import logging
import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import torch

from gan.config import Config

_LONGEST = 30.0
"""Seconds of training after which the peak is taken for reached."""


class Peak(NamedTuple):
    """Bytes that a process held.

    Attributes:
        base: before it trained, with all three loops built and the data in memory.
        peak: at most while one of them trained.
    """

    base: int
    peak: int

    @property
    def above(self) -> int:
        """What training took."""
        return self.peak - self.base


def peaks(config: Config, names: tuple[str, ...], tell: Callable[[str], None]) -> dict[str, Peak]:
    """Train with each loop in a fresh process and see how much memory it takes.

    Args:
        config: what to train.
        names: of the loops; see `gan.speed.trio.LOOPS`.
        tell: is told which one it is.

    Returns:
        By name: on a CPU the resident memory of the process, on a GPU what torch allocated there.
    """
    found = {}
    for name in names:
        tell(f"memory of {name}")
        # Not forked: a fork would begin with this process's memory.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, context) as pool:
            work = pool.submit(_peak, config.to_dict(), name, torch.get_num_threads())
            found[name] = work.result()
    return found


def _peak(options: dict[str, Any], name: str, threads: int) -> Peak:
    from gan.speed.loops import period
    from gan.speed.trio import Trio

    logging.disable()
    torch.set_num_threads(threads)
    config = Config.from_dict(options)
    with tempfile.TemporaryDirectory() as folder, Trio(config, Path(folder)) as trio:
        loop, gpu = trio.loops[name], trio.device.type == "cuda"
        base = torch.cuda.memory_allocated() if gpu else int(psutil.Process().memory_info().rss)
        _forget_peak(gpu)
        begin = time.perf_counter()
        for step in range(period(config) + 2):  # once more with the optimizers' state in memory
            loop.step()
            if step and time.perf_counter() - begin > _LONGEST:
                break
        loop.log()
        return Peak(base, torch.cuda.max_memory_allocated() if gpu else max(_resident_peak(), base))


def _forget_peak(gpu: bool) -> None:
    if gpu:
        torch.cuda.reset_peak_memory_stats()
    with suppress(OSError):  # Linux only; elsewhere building may have been the peak
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _resident_peak() -> int:
    with suppress(OSError):
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        for line in status.splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
