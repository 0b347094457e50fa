"""Prepared images on the disk: made once, whole or not at all, used by many processes, bounded."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from gan.errors import DataError

PIXELS = "pixels.bin"
_META = "meta.json"
_PARTIAL = ".partial"
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12,
          "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}  # fmt: skip


def cache_folder() -> Path:
    """Return where prepared and downloaded data is kept: GAN_CACHE, or the platform's place."""
    chosen = os.environ.get("GAN_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "gan-toolkit"


def parse_size(text: str | int) -> int:
    """Return the bytes that a size means: 500MB, 20GiB, or a number.

    Raises:
        DataError: if it is none.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]I?|)B?", str(text).strip().upper())
    if found is None:
        raise DataError(f"cache_limit: {text!r} is no size. Write it as 500MB or 20GiB.")
    return int(float(found[1]) * _UNITS[found[2]])


def size_words(count: int) -> str:
    """Return bytes in a unit that fits, as in 3.8 kB or 50 GB.

    Args:
        count: how many.
    """
    unit = next((unit for unit in ("T", "G", "M", "K") if count >= _UNITS[unit]), "")
    value = f"{count / _UNITS[unit]:.1f}".removesuffix(".0")
    return f"{value} {unit.replace('K', 'k')}B"


@dataclass(frozen=True)
class Entry:
    """A set of prepared images.

    Attributes:
        folder: holds the pixels, and what is known of them.
    """

    folder: Path

    @property
    def pixels(self) -> Path:
        """The file of pixels, one example after the other."""
        return self.folder / PIXELS

    def meta(self, size_of: Any) -> dict[str, Any] | None:
        """Return what is known of the pixels; None where there is no whole entry.

        Args:
            size_of: gives the bytes that the pixels must have, from what is known of them.
        """
        try:
            known: dict[str, Any] = json.loads((self.folder / _META).read_text())
            if self.pixels.stat().st_size != size_of(known):
                return None
            os.utime(self.folder / _META)  # the last use, for `make_room`
        except (OSError, ValueError, KeyError):
            return None
        return known

    def discard(self) -> None:
        """Remove it, as far as the system lets go of it."""
        shutil.rmtree(self.folder, ignore_errors=True)


class Cache:
    """The folder of prepared images.

    Args:
        limit: most bytes that all of them may take.
    """

    def __init__(self, limit: int) -> None:
        self.folder = cache_folder() / "images"
        self.limit = limit

    @contextmanager
    def locked(self, key: str) -> Iterator[Entry]:
        """Hold the only right to make or look up one entry; others wait.

        Args:
            key: of the entry.

        Raises:
            OSError: if the cache folder cannot be written.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / f"{key}.lock"):
            yield Entry(self.folder / key)

    def make_room(self, size: int) -> str:
        """Remove the entries used longest ago until so many bytes fit in, if ever they do.

        Args:
            size: how many.

        Returns:
            Why they do not fit in; "" where they do.
        """
        if size > self.limit:
            return f"more than cache_limit ({size_words(self.limit)}) allows"
        self._remove_unfinished()
        used = []
        for meta in self.folder.glob(f"*/{_META}"):
            try:
                used.append((meta.stat().st_mtime, (meta.parent / PIXELS).stat().st_size, meta))
            except OSError:  # another process removes it at this moment
                continue
        total = sum(bytes_ for _, bytes_, _ in used)
        for _, bytes_, meta in sorted(used):
            if total + size <= self.limit:
                break
            Entry(meta.parent).discard()
            total -= bytes_
        free = shutil.disk_usage(self.folder).free
        return "" if free > size else f"more than the {size_words(free)} free in {self.folder}"

    def _remove_unfinished(self) -> None:
        for partial in self.folder.glob(f"*{_PARTIAL}"):
            with suppress(Timeout), FileLock(partial.with_suffix(".lock"), timeout=0):
                Entry(partial).discard()  # nobody makes it any more

    @contextmanager
    def making(self, entry: Entry) -> Iterator[Entry]:
        """Make an entry beside its place; it takes its place when all went well.

        Args:
            entry: the place, locked.
        """
        partial = Entry(entry.folder.with_suffix(_PARTIAL))
        partial.discard()
        entry.discard()
        partial.folder.mkdir()
        try:
            yield partial
            os.replace(partial.folder, entry.folder)
        finally:
            partial.discard()

    @staticmethod
    def finish(entry: Entry, known: dict[str, Any]) -> None:
        """Write what is known of the pixels, after they are safely on the disk."""
        with open(entry.pixels, "rb") as file:
            os.fsync(file.fileno())
        (entry.folder / _META).write_text(json.dumps(known))
