"""Frozen dataclasses as plain nested values, for YAML and JSON, and back."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one mapping with dotted names.

    Args:
        values: nested mapping.
        prefix: put before each name.

    Returns:
        `{"generator.lr": 0.001, ...}`.
    """
    flat: dict[str, Any] = {}
    for key, value in values.items():
        name = prefix + key
        flat |= flatten(value, name + ".") if isinstance(value, dict) else {name: value}
    return flat


def to_plain(value: Any) -> Any:
    """A dataclass, and all that it holds, as plain values.

    Args:
        value: a dataclass, or anything that a field of one may hold. What has a written form
            (a classmethod `parse`) becomes its text, or a number if that says the same.

    Returns:
        Nested dictionaries and lists of str, int, float, bool and None.
    """
    if hasattr(type(value), "parse"):
        return float(text) if _is_number(text := str(value)) else text
    if isinstance(value, Path):
        return str(value)
    if dataclasses.is_dataclass(value):
        return {
            item.name: to_plain(getattr(value, item.name)) for item in dataclasses.fields(value)
        }
    if isinstance(value, tuple):
        return [to_plain(item) for item in value]
    return value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def overlay(base: Any, values: Mapping[str, Any], problems: list[str], prefix: str = "") -> Any:
    """Lay plain values over a dataclass.

    Args:
        base: the dataclass.
        values: nested mapping; what it lacks stays as in `base`.
        problems: one sentence is appended for each unknown name or wrong type.
        prefix: put before each name in a sentence.

    Returns:
        The changed dataclass; fields with a problem stay as in `base`.
    """
    hints = typing.get_type_hints(type(base))
    changes: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if key not in hints:
            near = difflib.get_close_matches(str(key), hints, n=1)
            hint = f"did you mean {prefix}{near[0]}?" if near else f"allowed: {', '.join(hints)}"
            problems.append(f"{name}: unknown option; {hint}")
        elif isinstance(value, Mapping) and _is_nested(getattr(base, key)):
            changes[key] = overlay(getattr(base, key), value, problems, f"{name}.")
        else:
            try:
                changes[key] = convert(value, hints[key])
            except (TypeError, ValueError) as error:
                problems.append(f"{name}: {error}")
    return dataclasses.replace(base, **changes)


def _is_nested(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not hasattr(type(value), "parse")


def convert(value: Any, hint: Any) -> Any:
    """Value as the type of a field; YAML reads 1e-4 as text, so text may be a number.

    Args:
        value: plain.
        hint: the type.

    Returns:
        The value in that type.

    Raises:
        TypeError: it is of another kind.
        ValueError: it is of the kind, but not allowed.
    """
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        return convert(value, next(arg for arg in args if arg is not type(None)))
    if origin is Literal:
        if value is False and "no" in args:  # YAML reads a bare `no` as false
            return "no"
        if value not in args:
            raise ValueError(f"{value!r} is not one of {', '.join(args)}")
        return value
    if origin is tuple:
        items = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        return tuple(convert(item, args[0]) for item in items)
    if hasattr(hint, "parse"):
        if isinstance(value, bool) or not isinstance(value, str | int | float | hint):
            raise TypeError(f"expected a {hint.__name__.lower()}, got {value!r}")
        return hint.parse(value)
    if hint is bool and isinstance(value, bool):
        return value
    if hint in (int, float) and not isinstance(value, bool) and _is_number(str(value)):
        number = float(value)
        if not math.isfinite(number):
            raise ValueError(f"{value} is not finite")
        if hint is float or number.is_integer():
            return hint(number)
    if hint is Path and isinstance(value, str | Path):
        return Path(value)
    if hint is str and isinstance(value, str | int) and not isinstance(value, bool):
        return str(value)
    raise TypeError(f"expected {getattr(hint, '__name__', hint)}, got {value!r}")


def from_text(text: str, hint: Any) -> Any:
    """Read the value of an option that was written as text.

    Args:
        text: as in 16, 0.9, true, none, 8,16.
        hint: what the value is to be; None or a type that is not plain: whatever Python reads.

    Returns:
        The value.

    Raises:
        TypeError: it is of another kind.
        ValueError: it is of the kind, but not allowed.
    """
    words = {"true": True, "false": False, "none": None}
    value: Any = words.get(text.lower(), text)
    args = [arg for arg in typing.get_args(hint) if arg is not type(None)]
    if hint not in _PLAIN and not (len(args) == 1 and args[0] in _PLAIN):
        try:
            return ast.literal_eval(text) if value is text else value
        except (ValueError, SyntaxError):
            return text
    return convert(value, hint)


_PLAIN = (int, float, str, bool)
