"""Where pictures come from: which source a name or a path means, and what a source is."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gan.data.items import Items, printable
from gan.errors import DataError

Labels = npt.NDArray[np.int64]

NAMED = (
    *("digits", "mnist", "fashion-mnist", "kmnist", "cifar10", "cifar100"),
    *("svhn", "stl10", "celeba", "lsun", "ring", "grid"),
)
"""Data sets that have a name. `fake:COUNT` is one more, and so is any path."""


@dataclass
class Source:
    """Pictures that were found, not yet decoded.

    Attributes:
        name: what the person called it.
        items: the pictures.
        fingerprint: hash of the identity of the content.
        labels: class of each picture; None: unlabelled.
        class_names: one name a class.
        notes: what a person should know, a sentence each.
        takes_labels: whether the labels that were asked for by name were found.
    """

    name: str
    items: Items
    fingerprint: str
    labels: Labels | None = None
    class_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    takes_labels: bool = False


def fingerprint_of(*parts: Any) -> str:
    """Hash of arrays by their bytes, and of everything else by how it is written."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(repr((part.shape, part.dtype.str)).encode())
            digest.update(np.ascontiguousarray(part).data)
        else:
            digest.update(repr(part).encode())
        digest.update(b"\0")
    return digest.hexdigest()


class Identity:
    """Fingerprint of very many things, taken one by one."""

    def __init__(self) -> None:
        self._digest = hashlib.blake2b(digest_size=16)

    def add(self, *parts: str | int) -> None:
        """Take one more."""
        self._digest.update(repr(parts).encode())

    def __repr__(self) -> str:
        return self._digest.hexdigest()


def class_labels(
    classes: Sequence[str], also: Collection[str] = ()
) -> tuple[Labels, tuple[str, ...]]:
    """Number classes in the order of their names, numbers in the order of their values.

    Args:
        classes: class of each picture.
        also: more classes, so that one without pictures in this split keeps its number.

    Returns:
        The number of each picture's class, and the names.
    """
    found = {*classes, *also}
    numeric = all(name.isascii() and name.isdigit() for name in found)
    names = sorted(found, key=int) if numeric else sorted(found)
    number = {name: index for index, name in enumerate(names)}
    labels = np.array([number[name] for name in classes], np.int64)
    return labels, tuple(map(printable, names))


def unknown(source: str) -> DataError:
    """Return what to say where a source is neither a name nor a path."""
    if any(mark in source for mark in "/\\~") or Path(source).suffix:
        return DataError(
            f"data: {source!r} does not exist. Give the path of a folder or file, or one of "
            f"{', '.join(NAMED)}, fake:COUNT."
        )
    near = difflib.get_close_matches(source.lower(), [*NAMED, "fake"], n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return DataError(
        f"data: {source!r} is neither a path that exists nor a known name.{hint} "
        f"Known names: {', '.join(NAMED)}, fake:COUNT."
    )
