"""What deep and float values mean: the range that they are kept in, one for all of a source."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Range = tuple[int, int]

FLOATS: tuple[Range, ...] = ((0, 1), (-1, 1), (0, 255), (0, 65535))
INTEGERS: tuple[Range, ...] = ((0, 255), (0, 65535))

_ROUNDED = 0.49 / 255  # of a range: what lies so far outside still rounds to its black or white


def value_range(low: float, high: float, ranges: tuple[Range, ...], *, whole: bool) -> Range | None:
    """Return the first range that values are in, if it is clear that they are meant to be.

    It is where they lie within 0 to 1, are whole numbers, or reach beyond half of the range's end
    (of its beginning for -1 to 1). So 0 to 1.01 is none, instead of black of 0 to 255; -0.01 to 1
    is none, instead of grey of -1 to 1. What arithmetic with floats adds, as in 1.0000001, does not
    count.

    Args:
        low: the smallest value of all.
        high: the largest value of all.
        ranges: those that may be, in the order to try.
        whole: all values are whole numbers.
    """
    for bottom, top in ranges:
        clear = whole or (bottom, top) == (0, 1) or 2 * max(-low if bottom else high, 0) > top
        beyond = 0 if whole else _ROUNDED * (top - bottom)
        if bottom - beyond <= low and high <= top + beyond and clear:  # never true of NaN
            return bottom, top
    return None


def why_none(low: float, high: float, ranges: tuple[Range, ...]) -> str:
    """Say what is taken, where no range was found.

    Args:
        low: the smallest value.
        high: the largest value.
        ranges: those that could have been.
    """
    words = ", ".join(f"{bottom} to {top}" for bottom, top in ranges)
    rule = " (but for 0 to 1, they must be whole numbers, or reach beyond half of it)"
    return f"{low:g} to {high:g} are in none of the ranges {words}{rule * (ranges == FLOATS)}"


def are_whole(values: npt.NDArray[Any]) -> bool:
    """Whether all values are whole numbers."""
    return values.dtype.kind in "iub" or bool((values == np.rint(values)).all())


def not_finite(values: npt.NDArray[Any]) -> str:
    """Return "NaN" or "infinity" where some value is, else ""."""
    if values.dtype.kind != "f" or np.isfinite(values).all():
        return ""
    return "NaN" if np.isnan(values).any() else "infinity"
