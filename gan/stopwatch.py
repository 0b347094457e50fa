"""Seconds of each phase of a step, without making an accelerator wait."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


class Stopwatch:
    """Adds up what each phase takes, by name.

    An accelerator works behind the program's back, so there the device's own clock is asked, and
    only in `read`.
    """

    def __init__(self, device: torch.device) -> None:
        """Start at zero.

        Args:
            device: where the phases run.
        """
        self._cuda = device.type == "cuda"
        self._seconds: dict[str, float] = defaultdict(float)
        self._events: list[tuple[str, Any, Any]] = []

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time what happens inside.

        Args:
            name: what its seconds are added to.
        """
        begin = self._now()
        yield
        if self._cuda:
            self._events.append((name, begin, self._now()))
        else:
            self._seconds[name] += time.perf_counter() - begin

    def _now(self) -> Any:
        if not self._cuda:
            return time.perf_counter()
        event: Any = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def read(self) -> dict[str, float]:
        """Seconds of each phase since the last time, and start again. Waits for the device.

        Returns:
            By name.
        """
        if self._events:
            self._events[-1][2].synchronize()
        for name, begin, end in self._events:
            self._seconds[name] += begin.elapsed_time(end) / 1000
        seconds, self._seconds, self._events = dict(self._seconds), defaultdict(float), []
        return seconds
