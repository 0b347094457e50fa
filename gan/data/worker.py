"""Decoding a stretch of pictures: here, or in a process of its own that never imports torch."""

from __future__ import annotations

import pickle
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np

from gan.data.colours import profile_effect
from gan.data.decode import (
    Bytes,
    Target,
    UnreadableError,
    convert,
    extremes,
    has_opacity,
    mode_name,
    strictly,
)
from gan.data.items import Items

_BUFFER = 1 << 20  # bytes of pixels that are written at once


@dataclass
class Outcome:
    """What was met on the way.

    Attributes:
        failures: number of the example, and why it cannot be read.
        modes: how many pictures have each mode, Pillow's or "RGB 16-bit", "+" where something
            shows through.
        sizes: how many pictures have each size, "WIDTHxHEIGHT".
        profiles: how many pictures have a colour profile that was "converted", or "ignored"
            because it cannot be used.
        extremes: of all pictures of mode F and I, the smallest and the largest value, and whether
            all are whole.
    """

    failures: list[tuple[int, str]] = field(default_factory=list)
    modes: Counter[str] = field(default_factory=Counter)
    sizes: Counter[str] = field(default_factory=Counter)
    profiles: Counter[str] = field(default_factory=Counter)
    extremes: dict[str, tuple[float, float, bool]] = field(default_factory=dict)

    def add(self, other: Outcome) -> None:
        """Take in what was met elsewhere."""
        self.failures += other.failures
        self.modes.update(other.modes)
        self.sizes.update(other.sizes)
        self.profiles.update(other.profiles)
        for mode, met in other.extremes.items():
            self.widen(mode, met)

    def widen(self, mode: str, met: tuple[float, float, bool]) -> None:
        """Take in the extremes of one more picture."""
        low, high, whole = self.extremes.get(mode, met)
        self.extremes[mode] = min(low, met[0]), max(high, met[1]), whole and met[2]


def decode_stretch(
    items: Items, first: int, target: Target, write: Callable[[Bytes], object]
) -> Outcome:
    """Decode every one of the items.

    Args:
        items: the pictures.
        first: number of the first of them.
        target: what to make of them.
        write: takes the examples in order, (channels, height, width) each; zeros where one
            cannot be read.
    """
    outcome = Outcome()
    met: Counter[tuple[str, bool, tuple[int, int], str]] = Counter()
    nothing = np.zeros((items.parts * target.channels, target.height, target.width), np.uint8)
    for index in range(len(items)):
        try:
            pictures = items.pictures(index)
            for picture in pictures:
                if (values := extremes(picture)) is not None:
                    outcome.widen(picture.mode, values)
            planes = [convert(picture, target) for picture in pictures]
        except UnreadableError as error:
            outcome.failures.append((first + index, str(error)))
            write(nothing)
            continue
        for picture in pictures:
            met[
                mode_name(picture), has_opacity(picture), picture.size, profile_effect(picture)
            ] += 1
        write(planes[0] if len(planes) == 1 else np.concatenate(planes))
    for (mode, opacity, (width, height), effect), count in met.items():
        outcome.modes[mode + "+" * opacity] += count
        outcome.sizes[f"{width}x{height}"] += count
        if effect:
            outcome.profiles[effect] += count
    return outcome


@dataclass
class Order:
    """What a decoding process is told first.

    Attributes:
        target: what to make of each picture.
        path: the file to write into, at each example's place; None: send the pixels back.
    """

    target: Target
    path: Path | None


def serve(orders: BinaryIO, answers: BinaryIO) -> None:
    """Decode what comes in until there is no more.

    Args:
        orders: an `Order`, then pairs of (number of the first, items), pickled.
        answers: takes pairs of (`Outcome` or the text of an error, pixels or None).
    """
    order: Order = pickle.load(orders)
    with strictly(), ExitStack() as stack:
        file = stack.enter_context(open(order.path, "r+b", _BUFFER)) if order.path else None
        while True:
            try:
                first, items = pickle.load(orders)
            except EOFError:
                return
            pickle.dump(_answer(order.target, file, first, items), answers, protocol=5)
            answers.flush()


def _answer(
    target: Target, file: BinaryIO | None, first: int, items: Items
) -> tuple[Outcome | str, Bytes | None]:
    if file is None:
        pixels: list[Bytes] = []
        return decode_stretch(items, first, target, pixels.append), np.stack(pixels)
    try:
        file.seek(first * items.parts * target.channels * target.height * target.width)
        outcome = decode_stretch(items, first, target, lambda planes: file.write(planes.data))
        file.flush()
    except OSError as error:
        return str(error), None
    return outcome, None


def main() -> None:
    """Serve on the standard streams; whatever a library prints goes to stderr."""
    answers, sys.stdout = sys.stdout.buffer, sys.stderr
    serve(sys.stdin.buffer, answers)
