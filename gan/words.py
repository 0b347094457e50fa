"""The words of a command line, held against a command's flags: every mistake in one sentence."""

from __future__ import annotations

import dataclasses
import difflib
import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gan import serial

_KINDS = {int: "a whole number", float: "a number", Path: "a path", str: "a text"}


@dataclass(frozen=True)
class Flag:
    """What a flag takes.

    Attributes:
        hint: type of the field behind it.
    """

    hint: Any

    @property
    def switch(self) -> bool:
        """Whether it takes no value."""
        return self.hint is bool

    @property
    def several(self) -> bool:
        """Whether it takes any number of values."""
        return typing.get_origin(_certain(self.hint)) is tuple


@dataclass
class Given:
    """A flag as it was written.

    Attributes:
        name: without the dashes, in underscores.
        values: the words that belong to it.
        word: itself, as far as an equals sign.
    """

    name: str
    values: list[str]
    word: str


def flags_of(kind: type, prefix: str = "") -> dict[str, Flag]:
    """The flags that the fields of a dataclass make.

    Args:
        kind: the dataclass; a field annotated with a `name` of nothing lends its own fields.
        prefix: put before each name.

    Returns:
        By name, as in "generator.lr".
    """
    found: dict[str, Flag] = {}
    for name, annotated in typing.get_type_hints(kind, include_extras=True).items():
        notes = getattr(annotated, "__metadata__", ())
        hint = annotated.__origin__ if notes else annotated
        if dataclasses.is_dataclass(hint) and not hasattr(hint, "parse"):
            nameless = any(getattr(note, "name", None) == "" for note in notes)
            inner = prefix if nameless else f"{prefix}{name}."
            found |= flags_of(typing.cast("type", hint), inner)
        else:
            found[prefix + name] = Flag(hint)
    return found


def sort_words(
    words: Sequence[str], flags: Mapping[str, Flag]
) -> tuple[list[Given], list[tuple[str, str]]]:
    """Deal the words of a command line out to its flags.

    Args:
        words: of the command line.
        flags: as `flags_of` gives them.

    Returns:
        The flags that were given, known or not; and the words that belong to none, each with
        the flag before it, if any.
    """
    given: list[Given] = []
    strays: list[tuple[str, str]] = []
    room = 0.0
    for word in words:
        if _is_flag(word):
            word, equals, value = word.partition("=")
            name = _known(word.lstrip("-").replace("-", "_"), flags)
            given.append(Given(name, [value] if equals else [], word))
            flag = flags.get(name)
            # What follows an unknown flag is most likely its value.
            room = 1 if flag is None else float("inf") if flag.several else float(not flag.switch)
            room -= bool(equals)
        elif room > 0:
            given[-1].values.append(word)
            room -= 1
        else:
            strays.append((word, given[-1].name if given else ""))
    return given, strays


def problems(words: Sequence[str], flags: Mapping[str, Flag], command: str) -> Iterator[str]:
    """Look for everything that is wrong with a command line.

    Args:
        words: of the command line.
        flags: as `flags_of` gives them.
        command: whose flags they are, for a hint.

    Yields:
        A sentence for each: the flag, the word, what is allowed.
    """
    given, strays = sort_words(words, flags)
    before: dict[str, Given] = {}
    for each in given:
        flag = flags.get(each.name)
        if flag is None:
            near = difflib.get_close_matches(each.name, flags, n=1, cutoff=0.7)
            near = near or [name for name in flags if name.rpartition(".")[2] == each.name]
            hint = f"did you mean --{near[0]}?" if near else f"{command} --help lists them"
            yield f"{each.word}: there is no such flag; {hint}"
        elif each.name in before:
            both = " and ".join(" ".join(one.values) for one in (before[each.name], each))
            once = "give all its values after one" if flag.several else "give it once"
            yield f"--{each.name}: it is there twice{'' if flag.switch else f', {both}'}; {once}"
        elif not each.values and not flag.switch and not flag.several:
            yield f"--{each.name}: its value is missing; give {_allowed(flag.hint)}"
        else:
            yield from (f"--{each.name}: {why}" for why in _wrong(each.values, flag))
        before[each.name] = each
    for word, name in strays:
        switch = name in flags and flags[name].switch
        hint = f"--{name} takes no value" if switch else "write --FLAG VALUE"
        hint = f"--{name} takes one value" if name in flags and not switch else hint
        yield f"{word!r} belongs to no flag; {hint}"


def late_words(words: Sequence[str], flags: Mapping[str, Flag]) -> list[str]:
    """Words that may have been meant to stand before the flags.

    Args:
        words: of the command line.
        flags: as `flags_of` gives them.

    Returns:
        Those that belong to no flag, or to one that takes any number of them.
    """
    given, strays = sort_words(words, flags)
    several = [each.values for each in given if each.name in flags and flags[each.name].several]
    return [word for word, _ in strays] + [word for values in several for word in values]


def _is_flag(word: str) -> bool:
    return word.startswith("-") and re.match(r"-(\d|\.\d|inf|nan|$)", word) is None


def _known(name: str, flags: Mapping[str, Flag]) -> str:
    """A switch may be turned off with no_ before its name."""
    positive = name.removeprefix("no_")
    return positive if name not in flags and _is_switch(positive, flags) else name


def _is_switch(name: str, flags: Mapping[str, Flag]) -> bool:
    return name in flags and flags[name].switch


def _certain(hint: Any) -> Any:
    """A type without its None."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return next(arg for arg in typing.get_args(hint) if arg is not type(None))
    return hint


def _wrong(values: Sequence[str], flag: Flag) -> Iterator[str]:
    hint = _certain(flag.hint)
    optional = hint is not flag.hint
    if optional and list(values) == ["None"]:
        return
    each = typing.get_args(hint)[0] if flag.several else hint
    for value in values:
        try:
            if each in (int, float):
                serial.convert(each(value.strip()), each)
            elif each not in (str, Path):
                serial.convert(value, each)
        except (TypeError, ValueError) as error:
            known = each in (int, float) and "finite" not in str(error)
            yield f"{value!r} is not {_allowed(flag.hint)}" if known else str(error)


def _allowed(hint: Any) -> str:
    certain = _certain(hint)
    if typing.get_origin(certain) is Literal:
        what = f"one of {', '.join(map(str, typing.get_args(certain)))}"
    else:
        each = typing.get_args(certain)[0] if typing.get_origin(certain) is tuple else certain
        what = _KINDS.get(each, f"a {getattr(each, '__name__', 'value').lower()}")
    return what if certain is hint else f"{what}, or None"
