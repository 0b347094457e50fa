"""A folder of idx files, the format of MNIST and of the data sets made in its likeness."""

from __future__ import annotations

import gzip
import re
import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gan.data.items import ArrayItems
from gan.data.sources import Source, class_labels, fingerprint_of
from gan.errors import DataError

_IMAGES = re.compile(r"(.*(?:train|t10k|test))-images[-.]idx3-ubyte(?:\.gz)?")
_SPLITS = {"train": "train", "t10k": "test", "test": "test"}


def is_idx(folder: Path) -> bool:
    """Whether images lie in a folder as idx files, such as train-images-idx3-ubyte.gz.

    Args:
        folder: need not exist, nor be readable.
    """
    try:
        return bool(_parts(folder))
    except OSError:
        return False


def idx_source(folder: Path, split: str, class_names: tuple[str, ...] = ()) -> Source:
    """Open one split of a folder of idx files.

    Args:
        folder: holds PART-images-idx3-ubyte and, for classes, PART-labels-idx1-ubyte, both also
            with .gz; PART ends in train for the one split, in t10k or test for the other.
        split: "train" or "test".
        class_names: of the labels 0, 1, ...; none: the labels themselves.

    Returns:
        The images, with their classes where there are labels.

    Raises:
        DataError: the split is not there, is there twice, or a file is damaged.
    """
    parts = _parts(folder)
    chosen = [name for name in parts if _SPLITS[_split_of(name)] == split]
    if not chosen:
        raise DataError(f"data: the idx files in {folder} have no split {split}.")
    if len(chosen) > 1:
        raise DataError(
            f"data: the idx files in {folder} have more than one split {split}: "
            f"{', '.join(chosen)}. Move all but one away."
        )
    [part] = chosen
    pixels = read_idx(parts[part], 3)[:, None]
    source = Source(str(folder), ArrayItems(pixels), fingerprint_of(pixels))
    labels = {name: read_idx(path, 1) for name in parts if (path := _labels_of(folder, name))}
    if part not in labels:
        return source
    if len(labels[part]) != len(pixels):
        raise DataError(
            f"data: {folder} holds {len(labels[part])} labels for the {len(pixels)} images of "
            f"{parts[part].name}. Install them again."
        )
    if class_names:
        source.labels, source.class_names = labels[part].astype(np.int64), class_names
    else:
        every = {str(number) for numbers in labels.values() for number in np.unique(numbers)}
        source.labels, source.class_names = class_labels([*map(str, labels[part])], every)
    return source


def _parts(folder: Path) -> dict[str, Path]:
    """The files of images by what stands before their ending."""
    # Of a file and the same one with .gz the last one counts, which is that without.
    files = sorted(folder.iterdir(), key=lambda path: (path.suffix != ".gz", path.name))
    found = [(path, _IMAGES.fullmatch(path.name)) for path in files]
    return {match[1]: path for path, match in found if match}


def _split_of(part: str) -> str:
    return next(ending for ending in _SPLITS if part.endswith(ending))


def _labels_of(folder: Path, part: str) -> Path | None:
    names = (f"{part}-labels{mark}idx1-ubyte{end}" for end in ("", ".gz") for mark in "-.")
    return next((folder / name for name in names if (folder / name).is_file()), None)


def read_idx(path: Path, axes: int) -> npt.NDArray[np.uint8]:
    """Read an idx file of bytes.

    Args:
        path: the file, gzipped or not.
        axes: how many it must have.

    Returns:
        The array that it holds.

    Raises:
        DataError: if it is not one, or is cut short.

    Reference: Y. LeCun, C. Cortes, C. Burges, "The MNIST database", section on file formats.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            zero, kind, count = struct.unpack(">HBB", file.read(4))
            shape = struct.unpack(f">{count}I", file.read(4 * count))
            content = file.read()
    except (OSError, EOFError, struct.error) as error:
        raise DataError(f"data: {path} cannot be read as an idx file: {error}") from error
    if (zero, kind, count) != (0, 8, axes) or len(content) != int(np.prod(shape)):
        raise DataError(
            f"data: {path} is no complete idx file of bytes with {axes} axes. Install it again."
        )
    return np.frombuffer(content, np.uint8).reshape(shape).copy()
