"""A number that changes over training: how it is written, and its value at each moment.

One idea serves learning rates, Adam's beta2, gamma, the average's half-life and the strength of
augmentation. The clock is images seen, so another batch size is not another experiment.
"""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass
from typing import Any, Literal

_SPAN = re.compile(r"(\d+(?:\.\d*)?(?:[eE]\d+)?)\s*(%|k|M)?")


@functools.lru_cache(maxsize=256)  # asked for many times a step, and a pattern takes its time
def span(text: str, total_images: float) -> float:
    """Position in training, in images seen.

    Args:
        text: a number of images (`20000`, `500k`, `20M`) or a share of the run (`60%`).
        total_images: images that the whole run shows to the discriminator.

    Returns:
        Number of images.

    Raises:
        ValueError: `text` is neither.
    """
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise ValueError(
            f"{text!r} is neither a number of images (20000, 500k, 20M) nor a share (60%)"
        )
    unit = {"%": total_images / 100, "k": 1e3, "M": 1e6, None: 1.0}[match[2]]
    return float(match[1]) * unit


@dataclass(frozen=True)
class Schedule:
    """A number that may change over training, measured in images seen.

    Written `START`, or `START..END[,linear|cosine][,from=SPAN][,to=SPAN][,warmup=SPAN]`, where a
    SPAN is a number of images (`20000`, `500k`, `20M`) or a share of the run (`60%`).
    `0.002..0.0002,from=60%` holds 0.002 for 60 % of the run, then falls in a line to a tenth.

    Attributes:
        start: value until `begin`.
        end: value from `finish` on; None: constant.
        shape: of the way between, `linear` or half a `cosine`.
        begin: SPAN at which it leaves `start`, written `from=`.
        finish: SPAN at which it reaches `end`, written `to=`.
        warmup: SPAN over which the value rises from 0 to what it would be without.
    """

    start: float
    end: float | None = None
    shape: Literal["linear", "cosine"] = "linear"
    begin: str = "0%"
    finish: str = "100%"
    warmup: str = "0%"

    def __post_init__(self) -> None:
        """Refuse what no computation survives."""
        if not all(map(math.isfinite, self.values)):
            raise ValueError(f"{self} is not finite")
        same_unit = self.begin.endswith("%") == self.finish.endswith("%")
        if same_unit and span(self.begin, 1e9) > span(self.finish, 1e9):
            raise ValueError(f"{self} ends before it begins")

    @classmethod
    def parse(cls, text: str | float | Schedule) -> Schedule:
        """Read a schedule from its written form.

        Args:
            text: see the class; a number is a constant.

        Returns:
            The schedule.

        Raises:
            ValueError: `text` does not have the written form.
        """
        if isinstance(text, Schedule):
            return text
        head, *options = str(text).replace(" ", "").split(",")
        start, _, end = head.partition("..")
        try:
            values: dict[str, Any] = {
                "start": float(start),
                "end": float(end) if end else None,
            }
            for option in options:
                key, _, value = option.partition("=")
                if option in ("linear", "cosine"):
                    values["shape"] = option
                else:
                    span(value, 1.0)
                    values[{"from": "begin", "to": "finish", "warmup": "warmup"}[key]] = value
        except (ValueError, KeyError):
            raise ValueError(
                f"{text!r} is no schedule; write a number, or START..END with any of "
                "linear, cosine, from=, to=, warmup= after commas, as in 0.3..0.03,cosine,to=80%"
            ) from None
        return cls(**values)

    def __str__(self) -> str:
        """Give the written form back."""
        parts = ["..".join(repr(value).removesuffix(".0") for value in self.values)]
        parts += [self.shape] if self.end is not None and self.shape != "linear" else []
        for name, value, default in (
            ("from", self.begin, "0%"),
            ("to", self.finish, "100%"),
            ("warmup", self.warmup, "0%"),
        ):
            parts += [f"{name}={value}"] if value != default else []
        return ",".join(parts)

    @property
    def values(self) -> tuple[float, ...]:
        """The numbers it moves between."""
        return (self.start,) if self.end is None else (self.start, self.end)

    def at(self, images_seen: float, total_images: float) -> float:
        """Value at a moment of the run.

        Args:
            images_seen: real images shown to the discriminator so far, on all processes.
            total_images: images that the whole run shows.

        Returns:
            The value; before `from` the start, after `to` the end, during the warm-up less.
        """
        begin, finish = span(self.begin, total_images), span(self.finish, total_images)
        warmup = span(self.warmup, total_images)
        value = self.start
        if self.end is not None:
            share = min(max((images_seen - begin) / max(finish - begin, 1e-12), 0.0), 1.0)
            if self.shape == "cosine":
                share = (1 - math.cos(math.pi * share)) / 2
            value = (1 - share) * self.start + share * self.end  # exact at both ends
        return value * min(images_seen / warmup, 1.0) if warmup > 0 else value
