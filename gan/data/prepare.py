"""From pictures that were found to pixels that can be read by index: decoded once, then kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil
import torch
from torch import Tensor

from gan.data.cache import Cache, Entry, size_words
from gan.data.dataset import LazyImages, Stored
from gan.data.decode import Target, UnreadableError, range_of_all, strictly
from gan.data.items import ArrayItems, Items
from gan.data.pool import decode_all
from gan.data.sources import Source, fingerprint_of
from gan.data.worker import Outcome
from gan.errors import DataError

_VERSION = 5  # of the pixels in the cache: one more wherever the same settings give other values
_SAMPLE = 256
_SMALL = 64 << 20
_LARGEST_GUESS = 256
_LARGEST_OWN = 1024


@dataclass(frozen=True)
class Wanted:
    """What images are to become; None: what the data suggests."""

    resolution: tuple[int, int] | None = None
    channels: int | None = None
    fit: str = "crop"
    background: tuple[int, int, int] = (255, 255, 255)


@dataclass
class Prepared:
    """Pixels that can be read.

    Attributes:
        images: the examples that could be read.
        stored: where they are mapped from; None: they are in memory.
        target: what they were turned into.
        outcome: what was met on the way.
        notes: what a person should know, a sentence each.
    """

    images: Tensor | LazyImages
    stored: Stored | None
    target: Target
    outcome: Outcome
    notes: list[str] = field(default_factory=list)


def prepare(source: Source, wanted: Wanted, *, cache_limit: int, no_cache: bool) -> Prepared:
    """Decode a source, or find it decoded.

    Args:
        source: the pictures.
        wanted: what to make of them.
        cache_limit: most bytes of all prepared images on the disk.
        no_cache: keep the pixels in memory where they fit, and decode at each use where not.
    """
    items = source.items
    if isinstance(items, ArrayItems) and items.is_plain and _fits(items, wanted):
        return _as_it_is(items, wanted)
    small = isinstance(items, ArrayItems) and items.pixels.nbytes <= _SMALL
    if no_cache or small:
        return _without_cache(items, _target(items, wanted))
    key = fingerprint_of(_VERSION, source.fingerprint, items.layout, wanted)
    cache = Cache(cache_limit)
    try:
        with cache.locked(key) as entry:
            return _found(entry, items) or _made(cache, entry, source, wanted)
    except OSError as error:
        made = _without_cache(items, _target(items, wanted))
        made.notes.append(f"not kept for the next time: {cache.folder} cannot be used ({error})")
        return made


def _fits(items: ArrayItems, wanted: Wanted) -> bool:
    same_size = wanted.resolution in (None, items.shape[1:])
    return same_size and wanted.channels in (None, items.shape[0])


def _as_it_is(items: ArrayItems, wanted: Wanted) -> Prepared:
    target = Target(*items.shape, wanted.fit, wanted.background)
    stored = Stored.of(items.pixels)
    images = stored.open() if stored else torch.from_numpy(np.ascontiguousarray(items.pixels))
    outcome = Outcome(sizes=Counter({f"{target.width}x{target.height}": len(items)}))
    outcome.modes[{1: "L", 3: "RGB", 4: "RGBA"}[target.channels]] = len(items)
    return Prepared(images, stored, target, outcome)


def _decoded(
    items: Items, target: Target, out: Path | npt.NDArray[np.uint8] | None
) -> tuple[Outcome, Target]:
    """Decode all; again where the range of values had to be found, which is one for all of them."""
    outcome = decode_all(items, target, out)
    if outcome.extremes:
        ranges = {mode: range_of_all(mode, met) for mode, met in outcome.extremes.items()}
        target = replace(target, ranges=ranges)
        outcome = decode_all(items, target, out)
    return outcome, target


# --- with the cache ------------------------------------------------------------------------------


def _size_of(known: dict[str, Any]) -> int:
    return int(np.prod(known["shape"], dtype=np.int64))


def _found(entry: Entry, items: Items) -> Prepared | None:
    known = entry.meta(_size_of)
    if known is None:
        return None
    failures = [(int(index), str(reason)) for index, reason in known["failures"]]
    target = Target(**{**known["target"], "background": tuple(known["target"]["background"])})
    with strictly():
        for index, reason in failures:  # what was lacking may have been a permission only
            try:
                items.planes(index, target)
            except UnreadableError as error:
                if str(error) == reason:
                    continue
            return None
    modes, sizes, profiles = (Counter(known[kind]) for kind in ("modes", "sizes", "profiles"))
    outcome = Outcome(failures, modes, sizes, profiles)
    return _mapped(entry, tuple(known["shape"]), target, outcome)


def _mapped(entry: Entry, shape: tuple[int, ...], target: Target, outcome: Outcome) -> Prepared:
    stored = Stored(entry.pixels, shape) if shape[0] else None
    images = stored.open() if stored else torch.empty(shape, dtype=torch.uint8)
    return Prepared(images, stored, target, outcome)


def _made(cache: Cache, entry: Entry, source: Source, wanted: Wanted) -> Prepared:
    items = source.items
    target = _target(items, wanted)
    shape = (len(items), items.parts * target.channels, target.height, target.width)
    size = int(np.prod(shape, dtype=np.int64))
    if no_room := cache.make_room(size):
        made = _without_cache(items, target)
        made.notes.append(f"not kept for the next time: {size_words(size)} are {no_room}")
        return made
    with cache.making(entry) as partial:
        with open(partial.pixels, "wb") as file:
            file.truncate(size)
        outcome, target = _decoded(items, target, partial.pixels)
        shape = (_close_gaps(partial.pixels, shape, outcome), *shape[1:])
        known = {
            **{"shape": shape, "target": vars(target), "source": source.name},
            **vars(outcome),
        }
        cache.finish(partial, known)
    return _mapped(entry, shape, target, outcome)


def _close_gaps(path: Path, shape: tuple[int, ...], outcome: Outcome) -> int:
    """Move the examples behind one that could not be read forward; return how many there are."""
    if not outcome.failures:
        return shape[0]
    keep = kept_rows(shape[0], outcome)
    rows = np.memmap(path, np.uint8, "r+", shape=(shape[0], int(np.prod(shape[1:]))))
    first = outcome.failures[0][0]
    for start in range(first, len(keep), 1024):
        moved = keep[start : start + 1024]
        rows[start : start + len(moved)] = rows[moved]
    rows.flush()
    del rows
    with open(path, "r+b") as file:
        file.truncate(len(keep) * int(np.prod(shape[1:])))
    return len(keep)


def kept_rows(count: int, outcome: Outcome) -> Any:
    """Return the numbers of the examples that could be read."""
    return np.delete(np.arange(count), [index for index, _ in outcome.failures])


# --- without the cache ---------------------------------------------------------------------------


def _without_cache(items: Items, target: Target) -> Prepared:
    shape = (len(items), items.parts * target.channels, target.height, target.width)
    if np.prod(shape, dtype=np.int64) <= psutil.virtual_memory().available // 2:
        pixels = np.empty(shape, np.uint8)
        outcome, target = _decoded(items, target, pixels)
        if outcome.failures:
            pixels = pixels[kept_rows(len(items), outcome)]
        return Prepared(torch.from_numpy(pixels), None, target, outcome)
    outcome, target = _decoded(items, target, None)
    if outcome.failures:
        items = items.take(kept_rows(len(items), outcome).tolist())
    note = "decoded anew at each use, which is slow: too large for memory, and not in the cache"
    return Prepared(LazyImages(items, target), None, target, outcome, [note])


# --- what the data suggests ----------------------------------------------------------------------


def _target(items: Items, wanted: Wanted) -> Target:
    channels, resolution = wanted.channels, wanted.resolution
    if channels is None or resolution is None:
        if isinstance(items, ArrayItems):
            own_channels, *own_size = items.shape
            own = own_channels, (own_size[0], own_size[1])
        else:
            own = _suggested(items)
        channels, resolution = channels or own[0], resolution or own[1]
    return Target(channels, *resolution, wanted.fit, wanted.background)


def _suggested(items: Items) -> tuple[int, tuple[int, int]]:
    """Return channels, and height and width, by a sample from all over the source."""
    sizes: list[tuple[int, int]] = []
    grey = True
    with strictly():
        for index in _sample(len(items)):
            try:
                (width, height), is_grey = items.glance(index)
            except UnreadableError:  # reported with all others, when all are decoded
                continue
            sizes.append((height, width))
            grey = grey and is_grey
    if not sizes:
        return 1, (8, 8)
    return 1 if grey else 3, _common_size(sizes)


def _sample(count: int) -> Sequence[int]:
    return sorted({round(place) for place in np.linspace(0, count - 1, _SAMPLE)})


def _common_size(sizes: list[tuple[int, int]]) -> tuple[int, int]:
    """Return the size of all, if it is no camera's, or a power of two that half of them reach."""
    if len(set(sizes)) == 1 and max(sizes[0]) <= _LARGEST_OWN:
        return sizes[0]
    short = int(np.median([min(size) for size in sizes]))
    side = min(_LARGEST_GUESS, 1 << max(3, short.bit_length() - 1))
    return side, side


def check_readable(source: Source, outcome: Outcome, *, skip_unreadable: bool) -> list[str]:
    """Say what could not be read.

    Args:
        source: all of the pictures.
        outcome: what was met.
        skip_unreadable: leave them out, if any others are left.

    Returns:
        A note about those left out, if there are any.

    Raises:
        DataError: if there are some, and they are not to be skipped; lists the first ten.
    """
    failures, items = outcome.failures, source.items
    if not failures:
        return []
    listed = "\n".join(f"  {items.name(index)}: {reason}" for index, reason in failures[:10])
    more = f"\n  and {len(failures) - 10} more" if len(failures) > 10 else ""
    some = f"{len(failures)} of {len(items)} images of {source.name}"
    what = f"{some} cannot be read:\n{listed}{more}"
    if len(failures) == len(items):
        raise DataError(f"data: {what}\nNothing is left to train on.")
    if not skip_unreadable:
        raise DataError(
            f"data: {what}\nRepair or remove them, or leave them out with skip_unreadable."
        )
    return [f"left out, {what}"]
