"""Images in one array: .npy and .npz files, mapped instead of read wherever that can be."""

from __future__ import annotations

import re
import struct
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from gan.data.items import ArrayItems
from gan.data.ranges import FLOATS, INTEGERS, are_whole, not_finite, value_range, why_none
from gan.data.sources import Labels, Source, class_labels, fingerprint_of
from gan.errors import DataError

Array = npt.NDArray[Any]

_IMAGE_NAMES = ("image", "img", "x", "data", "arr_0")
_LABEL_NAMES = ("label", "y", "target", "class", "arr_1")
_SURELY_LABELS = ("label", "labels", "y", "target", "targets")
_CHANNELS = (1, 3, 4)


def array_source(path: Path, split: str, labels: str) -> Source:
    """Open images in an .npy or .npz file.

    Args:
        path: the file: images of shape (count, height, width), (count, height, width, channels)
            or (count, channels, height, width), and in an .npz possibly labels.
        split: "train" or "test"; in an .npz, arrays whose name has "test" or "val" are the latter.
        labels: "none", "auto", or an .npy of one whole number an image.

    Raises:
        DataError: if there are no such arrays, or their values have no known range.
    """
    try:
        found = _arrays(path)
        name, image_entry = _images(path, found, split)
        pixels, layout = _channels_first(path, name, image_entry.load())
        numbers = None
        takes_labels = labels.endswith(".npy")
        if takes_labels:
            numbers = _label_file(Path(labels).expanduser(), len(pixels))
        elif labels != "none":
            numbers = _labels(path, found, split, len(pixels))
    except (OSError, EOFError, ValueError, MemoryError, zipfile.BadZipFile, struct.error) as error:
        raise DataError(
            f"data: {path} cannot be read as an array of images: {error}. Save it again with "
            f"numpy.save or numpy.savez."
        ) from error
    low, high, notes = _range(path, pixels)
    status = path.stat()
    identity = fingerprint_of(path.name, status.st_size, status.st_mtime_ns, name)
    source = Source(path.name, ArrayItems(pixels, low, high), identity, notes=layout + notes)
    source.takes_labels = takes_labels
    if numbers is not None:
        source.labels, source.class_names = numbers
    return source


# --- reading -------------------------------------------------------------------------------------


@dataclass
class _Entry:
    """An array in a file, not read yet."""

    path: Path
    member: str | None
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def load(self) -> Array:
        """Map it, or read it where it is compressed.

        Raises:
            ValueError: if it holds Python objects, whose loading could run a program.
        """
        if self.dtype.hasobject:
            what = self.member or "it"
            raise ValueError(f"{what} holds Python objects, which are never loaded")
        if self.member is None:
            mapped: Array = np.load(self.path, mmap_mode="r", allow_pickle=False)
            return mapped
        with zipfile.ZipFile(self.path) as archive, archive.open(self.member) as file:
            info = archive.getinfo(self.member)
            if info.compress_type != zipfile.ZIP_STORED:
                return np.lib.format.read_array(file, allow_pickle=False)
            shape, fortran, dtype = _header(file)
            start = _start_of(self.path, info) + file.tell()
        order = "F" if fortran else "C"
        return np.memmap(self.path, dtype, "r", start, shape, order)  # type: ignore[call-overload, no-any-return]


def _arrays(path: Path) -> dict[str, _Entry]:
    if not zipfile.is_zipfile(path):
        with open(path, "rb") as file:
            mark = file.read(len(np.lib.format.MAGIC_PREFIX))
            if mark.startswith(b"PK"):
                raise ValueError("it ends too early (an unfinished download?)")
            if mark != np.lib.format.MAGIC_PREFIX:
                raise ValueError("it is neither an .npy nor an .npz file")
            file.seek(0)
            shape, _, dtype = _header(file)
        return {"": _Entry(path, None, shape, dtype)}
    found = {}
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            with archive.open(member) as file:
                shape, _, dtype = _header(file)
            found[member.removesuffix(".npy")] = _Entry(path, member, shape, dtype)
    return found


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in read:
        raise ValueError(f"version {version} of the .npy format is not known")
    return read[version](file)


def _start_of(path: Path, info: zipfile.ZipInfo) -> int:
    with open(path, "rb") as file:
        file.seek(info.header_offset)
        name, extra = struct.unpack("<26xHH", file.read(30))
    return int(info.header_offset + 30 + name + extra)


def is_array(path: Path) -> bool:
    """Whether a file holds arrays, by the ending of its name."""
    return path.suffix.lower() in (".npy", ".npz")


# --- choosing ------------------------------------------------------------------------------------


def _called(found: dict[str, _Entry], *words: str) -> dict[str, _Entry]:
    """Return those arrays whose name has one of the words; single letters count as whole words."""
    return {
        name: entry
        for name, entry in found.items()
        if set(words) & set(re.split(r"[\W_]+", name.lower()))
        or any(len(word) > 2 and word in name.lower() for word in words)
    }


def _of_split(found: dict[str, _Entry], split: str) -> dict[str, _Entry]:
    held_out = _called(found, "test", "val")
    if split == "test":
        return _called(held_out, "test") or held_out
    return {name: entry for name, entry in found.items() if name not in held_out}


def _images(path: Path, found: dict[str, _Entry], split: str) -> tuple[str, _Entry]:
    here = {n: e for n, e in _of_split(found, split).items() if _may_be_images(e)}
    if len(here) > 1:
        here = _called(here, *_IMAGE_NAMES) or here
    if len(here) == 1:
        return next(iter(here.items()))
    listed = ", ".join(
        f"{name or 'the array'} {entry.shape}"
        + " of Python objects, which are never loaded" * entry.dtype.hasobject
        for name, entry in found.items()
    )
    if split == "test" and not here:
        raise DataError(f"split: {path} has no test split ({listed}). Use split train.")
    what = "several arrays that may be images" if here else "no array of images"
    raise DataError(
        f"data: {path} holds {what}: {listed or 'it is empty'}. Images have the shape "
        f"(count, height, width), (count, height, width, channels) or (count, channels, height, "
        f"width); save them alone, or under the name images."
    )


def _may_be_images(entry: _Entry) -> bool:
    shape = entry.shape
    if len(shape) == 3 and shape[2] in (3, 4) and shape[1] > 4:
        return False  # one image, (height, width, channels)
    return len(shape) in (3, 4) and not entry.dtype.hasobject


def _labels(
    path: Path, found: dict[str, _Entry], split: str, count: int
) -> tuple[Labels, tuple[str, ...]] | None:
    called = _called(found, *_LABEL_NAMES)
    kinds = {name: "iubU" if name in called else "iu" for name in found}
    whole = {
        n: e for n, e in found.items() if e.dtype.kind in kinds[n] and e.shape[1:] in ((), (1,))
    }
    fitting = {n: e for n, e in _of_split(whole, split).items() if e.shape[:1] == (count,)}
    if len(fitting) > 1:
        fitting = _called(fitting, *_LABEL_NAMES) or fitting
    if len(fitting) > 1:
        raise DataError(
            f"labels: {path} holds several arrays that may be labels: {', '.join(fitting)}. "
            f"Save one of them, under the name labels, or use labels none."
        )
    for entry in fitting.values():
        other_splits = [
            value for e in _called(whole, *_LABEL_NAMES).values() for value in _words(path, e)
        ]
        return class_labels(_words(path, entry), other_splits)
    for name, entry in _of_split(found, split).items():
        if set(_SURELY_LABELS) & set(re.split(r"[\W_]+", name.lower())):
            raise _unfit(f"{path}: {name}", entry, count)
    return None


def _words(where: Path, entry: _Entry) -> list[str]:
    values = entry.load().ravel()
    if values.dtype.kind == "i" and (values < 0).any():
        raise DataError(
            f"labels: {where} has {int((values < 0).sum())} labels below 0, such as "
            f"{values.min()}. Number the classes from 0 on, or use labels none."
        )
    if values.dtype.kind == "b":
        values = values.astype(np.uint8)
    return [str(value) for value in values.tolist()]


def _unfit(where: str, entry: _Entry, count: int) -> DataError:
    """Return what to say of labels that are no classes, or not one an image."""
    hint = ""
    if entry.dtype.kind in "iufb" and entry.shape[:1] == (count,):
        if len(entry.shape) == 2:
            hint = " Save one-hot labels as labels.argmax(1)."
        elif entry.dtype.kind == "f":
            hint = " Save them as labels.astype(int)."
    kind = "Python objects, which are never loaded," if entry.dtype.hasobject else entry.dtype
    return DataError(
        f"labels: {where} holds {kind} of shape {entry.shape}; it needs {count} whole numbers, "
        f"one an image.{hint} Or use labels none."
    )


def _label_file(path: Path, count: int) -> tuple[Labels, tuple[str, ...]]:
    try:
        (entry,) = _arrays(path).values()
        if entry.shape not in ((count,), (count, 1)) or entry.dtype.kind not in "iubU":
            raise _unfit(str(path), entry, count)
        return class_labels(_words(path, entry))
    except (OSError, EOFError, ValueError) as error:
        raise DataError(f"labels: {path} cannot be read as an array: {error}.") from error


# --- meaning -------------------------------------------------------------------------------------


def _channels_first(path: Path, name: str, array: Array) -> tuple[Array, tuple[str, ...]]:
    """Return the values as (count, channels, height, width), and a note if that was in doubt."""
    if 0 in array.shape:
        raise DataError(f"data: {path}: {name or 'the array'} of shape {array.shape} is empty.")
    if array.ndim == 3:
        return array[:, None], ()
    notes: tuple[str, ...] = ()
    first, last = array.shape[1] in _CHANNELS, array.shape[3] in _CHANNELS
    if first and last:  # only tiny images leave a doubt: take what is nearer to a square
        _, one, two, three = array.shape
        last = abs(one - two) <= abs(two - three)
        order = "height, width, channels" if last else "channels, height, width"
        notes = (f"the shape {array.shape} is taken to be (count, {order})",)
    elif not first and not last:
        raise DataError(
            f"data: {path}: {name or 'the array'} of shape {array.shape} has no axis of 1, 3 or 4 "
            f"channels, neither second nor last. "
            f"Save grey images, RGB, or RGBA."
        )
    return (array.transpose(0, 3, 1, 2) if last else array), notes


def _range(path: Path, pixels: Array) -> tuple[float, float, tuple[str, ...]]:
    """Return the values that mean black and white, and a note if they had to be found."""
    if pixels.dtype == np.uint8:
        return 0, 255, ()
    if pixels.dtype.kind == "b":
        return 0, 1, ()
    if pixels.dtype.kind not in "iuf":
        raise DataError(
            f"data: {path}: values of type {pixels.dtype} are no images. Save "
            f"bytes, whole numbers or floats: of complex ones, their abs()."
        )
    low, high = _extremes(path, pixels)
    ranges = FLOATS if pixels.dtype.kind == "f" else INTEGERS
    found = value_range(low, high, ranges, whole=False)
    if found is None and all(are_whole(part) for part in _parts(pixels)):
        found = value_range(low, high, ranges, whole=True)
    if found is None:
        raise DataError(
            f"data: {path}: values of type {pixels.dtype} from {why_none(low, high, ranges)}. "
            f"Scale or clip them, or save them as uint8."
        )
    note = f"values from {low:g} to {high:g} are taken to lie between {found[0]} and {found[1]}"
    return (*found, (note,))


def _parts(pixels: Array) -> Iterator[Array]:
    step = max(1, (16 << 20) // pixels[:1].nbytes)
    return (pixels[start : start + step] for start in range(0, len(pixels), step))


def _extremes(path: Path, pixels: Array) -> tuple[float, float]:
    low, high = np.inf, -np.inf
    first = 0
    for part in _parts(pixels):
        low, high = min(low, float(part.min())), max(high, float(part.max()))
        if strange := not_finite(part):
            bad = first + int(np.argmax([bool(not_finite(image)) for image in part]))
            raise DataError(
                f"data: {path}: image {bad} (counted from 0) holds {strange}. Mend it, or leave "
                f"it out."
            )
        first += len(part)
    return low, high
