"""Hugging Face data sets: from the hub, or a folder that `datasets` saved."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gan.data.decode import UnreadableError
from gan.data.items import BytesItems, EncodedItems, Items
from gan.data.sources import Labels, Source, class_labels, fingerprint_of
from gan.errors import DataError

PREFIX = "hf:"
_TEST = ("test", "validation", "valid", "val")
_LABEL_NAMES = ("label", "labels", "class", "fine_label")
_MARKS = ("dataset_dict.json", "state.json")


@dataclass
class HubItems(EncodedItems):
    """Pictures in a column of a `datasets.Dataset`.

    Attributes:
        table: the data set, whose column gives encoded pictures.
        column: its name.
    """

    table: Any
    column: str

    def __len__(self) -> int:
        return len(self.table)

    def take(self, chosen: slice | Sequence[int]) -> HubItems:
        """Return some of the rows."""
        rows = range(*chosen.indices(len(self))) if isinstance(chosen, slice) else chosen
        return HubItems(self.table.select(rows), self.column)

    def portable(self, start: int, stop: int) -> Items:
        """Return the bytes of a part, since another process would need to import `datasets`."""
        cells = self.table[start:stop][self.column]
        names = [self.name(start + row) for row in range(len(cells))]
        return BytesItems(names, [_bytes_of(cell) for cell in cells])

    def name(self, index: int) -> str:
        """Return its row."""
        return f"row {index}"

    def read(self, index: int) -> bytes:
        """Return the encoded picture of one row."""
        data = _bytes_of(self.table[index][self.column])
        if isinstance(data, str):
            raise UnreadableError(data)
        return data


def _bytes_of(cell: dict[str, Any] | None) -> bytes | str:
    """Return the encoded picture, or why there is none."""
    if cell is None:
        return "no picture in this row"
    if cell["bytes"] is not None:
        return bytes(cell["bytes"])
    try:
        return Path(cell["path"]).read_bytes()
    except OSError as error:
        return f"{cell['path']}: {error.strerror}"


def is_saved(folder: Path) -> bool:
    """Whether `datasets` saved this folder."""
    return any(os.path.isfile(folder / mark) for mark in _MARKS)  # False without permission


def hub_source(
    source: str, split: str, labels: str, image_column: str | None, label_column: str | None
) -> Source:
    """Open a data set of the Hugging Face hub, or one saved to a folder.

    Args:
        source: "hf:OWNER/NAME", "hf:OWNER/NAME:CONFIGURATION", or a folder.
        split: "train", or "test", which a split named validation may stand for.
        labels: "none" to ignore the labels.
        image_column: None: the only one that holds images.
        label_column: None: the one that holds classes, if any does.

    Raises:
        DataError: if `datasets` is not installed, there is no such data set or it cannot be
            reached, or a column is missing or in doubt.
    """
    try:
        datasets: Any = importlib.import_module("datasets")
    except ImportError as error:
        raise DataError(
            f"data: {source!r} needs the package datasets. Install it with "
            f"pip install 'gan-toolkit[hub]'."
        ) from error
    loaded = _loaded(datasets, source)
    table = _split(source, loaded, split)
    column = _image_column(datasets, source, table, image_column)
    encoded = HubItems(table.cast_column(column, datasets.Image(decode=False)), column)
    identity = fingerprint_of(table._fingerprint, len(table), column, split)
    found = Source(source.removeprefix(PREFIX), encoded, identity)
    if labels != "none":
        every = loaded.values() if hasattr(loaded, "values") else [loaded]
        numbers = _labels(datasets, source, table, label_column, list(every))
        if numbers is not None:
            found.labels, found.class_names = numbers
    return found


def _loaded(datasets: Any, source: str) -> Any:
    try:
        if not source.startswith(PREFIX):
            return datasets.load_from_disk(source)
        name, _, configuration = source.removeprefix(PREFIX).partition(":")
        return datasets.load_dataset(name, configuration or None)
    except Exception as error:  # of any class: it may be the network's, the hub's or Arrow's
        reason = str(error).strip().splitlines()
        raise DataError(
            f"data: {source!r} cannot be loaded: {reason[0] if reason else repr(error)}. Check the "
            f"name; run once where the hub can be reached; or save it there with "
            f"datasets.Dataset.save_to_disk and give the folder."
        ) from error


def _split(source: str, loaded: Any, split: str) -> Any:
    if not hasattr(loaded, "keys"):
        if split == "train":
            return loaded
        raise DataError(f"split: {source!r} has no test split. Use split train.")
    wanted = ("train",) if split == "train" else _TEST
    for name in wanted:
        if name in loaded:
            return loaded[name]
    raise DataError(f"split: {source!r} has no {split} split, only {', '.join(loaded)}.")


def _image_column(datasets: Any, source: str, table: Any, named: str | None) -> str:
    images = [n for n, kind in table.features.items() if isinstance(kind, datasets.Image)]
    if named is None and len(images) == 1:
        return str(images[0])
    if named is not None and named in images:
        return named
    what = f"no column {named!r} of images" if named is not None else (
        "several columns of images" if images else "no column of images")  # fmt: skip
    has = ", ".join(images or table.column_names)
    raise DataError(f"image_column: {source!r} has {what}. Choose with image_column from: {has}.")


def _labels(
    datasets: Any, source: str, table: Any, named: str | None, every: list[Any]
) -> tuple[Labels, tuple[str, ...]] | None:
    classes = [n for n, kind in table.features.items() if isinstance(kind, datasets.ClassLabel)]
    if named is None:
        usual = [name for name in _LABEL_NAMES if name in (classes or table.column_names)]
        if not classes and not usual:
            return None
        if len(classes) > 1 and not usual:
            raise DataError(
                f"label_column: {source!r} has several columns of classes. Choose with "
                f"label_column from: {', '.join(classes)}; or use labels none."
            )
        named = str((usual or classes)[0])
    elif named not in table.column_names:
        raise DataError(
            f"label_column: {source!r} has no column {named!r}. Choose from: "
            f"{', '.join(table.column_names)}; or use labels none."
        )
    values = table[named][:]
    kind = table.features[named]
    if isinstance(kind, datasets.ClassLabel):
        return _numbered(source, named, values, tuple(kind.names))
    if not all(isinstance(value, (int, str)) for value in values):
        raise DataError(
            f"label_column: {named!r} of {source!r} holds {kind}, not one class an image. Choose "
            f"another, or use labels none."
        )
    also = {
        str(value) for other in every if named in other.column_names for value in other[named][:]
    }
    return class_labels([str(value) for value in values], also)


def _numbered(
    source: str, column: str, values: list[int | None], names: tuple[str, ...]
) -> tuple[Labels, tuple[str, ...]] | None:
    numbers = np.array([-1 if value is None else value for value in values], np.int64)
    missing = int((numbers < 0).sum())
    if missing == len(numbers):
        return None
    if missing:
        raise DataError(
            f"label_column: {missing} of {len(numbers)} rows of {source!r} have no {column!r}. "
            f"Use labels none."
        )
    return numbers, names
