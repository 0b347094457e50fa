"""A signal as a request to stop, which a loop answers between two steps."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass
class Received:
    """The first signal that asked the run to stop.

    Attributes:
        number: of the signal; 0 while there is none.
    """

    number: int = 0


@contextmanager
def stop_signals() -> Iterator[Received]:
    """Turn the first SIGINT or SIGTERM into a request; the second one acts at once.

    Yields:
        Where the request shows. Outside the main thread signals are left alone.
    """
    received = Received()
    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def ask(number: int, frame: FrameType | None) -> None:
        received.number = number
        restore()

    for number in before:
        signal.signal(number, ask)
    try:
        yield received
    finally:
        restore()
