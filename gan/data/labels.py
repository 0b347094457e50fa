"""Classes of pictures: from the folders that they lie in, or from a file that lists them."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from gan.data.decode import UnreadableError
from gan.data.items import printable
from gan.data.sources import Labels, class_labels
from gan.errors import DataError

FILE_COLUMNS = ("file", "filename", "file_name", "image", "path", "name", "id")
LABEL_COLUMNS = ("label", "class", "category", "target")


def from_file(
    path: Path, names: Sequence[str], base: str = "", unused: Sequence[str] = ()
) -> tuple[Labels, tuple[str, ...]]:
    """Read the class of each picture from StyleGAN's dataset.json or from a CSV.

    Args:
        path: ends in .json, or is comma-, semicolon- or tab-separated with a column of files and
            one of labels.
        names: the pictures, as paths below the folder or archive.
        base: the folder that all pictures lie in, with a slash at its end.
        unused: pictures that may have a class without needing it, such as those of another split.

    Returns:
        The number of each picture's class, and the names of the classes.

    Raises:
        DataError: if it cannot be read, or does not give each picture exactly one class.
    """
    text = read_text(str(path), path.read_bytes)
    if path.suffix.lower() == ".json":
        table = from_json(text, str(path))
        if table is None:
            raise DataError(f"labels: {path} holds no labels. Use labels none.")
    else:
        table = _from_csv(text, str(path), names)
    return matched(table, names, str(path), base, unused)


def read_text(where: str, read: Callable[[], bytes]) -> str:
    """Read a file of labels.

    Args:
        where: what to call it.
        read: gives its bytes.

    Raises:
        DataError: if it cannot be read, or is no text in UTF-8.
    """
    try:
        return read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"labels: {where} is no text in UTF-8 (at byte {error.start}). Save it as UTF-8, or "
            f"use labels none."
        ) from error
    except (OSError, UnreadableError) as error:
        raise DataError(
            f"labels: {where} cannot be read: {error}. Mend it, or use labels none."
        ) from error


def from_json(text: str, where: str) -> dict[str, str] | None:
    """Read StyleGAN's dataset.json: {"labels": [[file, number], ...]}.

    Args:
        text: its content.
        where: what to call it.

    Returns:
        The class of each file; None where it says that there are no labels.

    Raises:
        DataError: if it is something else, or its labels are not whole numbers from 0 on.
    """
    try:
        labels = json.loads(text)["labels"]
        if labels is None:
            return None
        rows = [(str(file).replace("\\", "/"), label) for file, label in labels]
    except (ValueError, KeyError, TypeError) as error:
        reason = f" ({error})" if isinstance(error, json.JSONDecodeError) else ""
        raise DataError(
            f'labels: {where} is not of the form {{"labels": [["file", number], ...]}}{reason}. '
            f"Mend it, or use labels none."
        ) from error
    for file, label in rows:
        if isinstance(label, bool) or not isinstance(label, int) or label < 0:
            raise DataError(
                f"labels: {where}: the label of {printable(file)} is {label!r}; only whole numbers "
                f"from 0 on, one a file, can be used. Use labels none."
            )
    return _one_each(((file, str(label)) for file, label in rows), where)


def _from_csv(text: str, where: str, names: Sequence[str]) -> dict[str, str]:
    lines = text.splitlines()
    first = next((line for line in lines if line.strip()), "")
    separator = max(",;\t", key=first.count)
    reader = csv.reader(lines, delimiter=separator)
    try:
        rows = [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise DataError(f"labels: {where}, line {reader.line_num}: {error}. Mend it.") from error
    if not rows or len(rows[0][1]) < 2:
        raise DataError(f"labels: {where} needs a column of files and one of labels in every row.")
    file, label = 0, 1
    if not _holds_a_file(rows[0][1], names):
        file, label = _columns(rows[0][1], where)
        rows = rows[1:]
    for number, row in rows:
        if len(row) <= max(file, label) or not row[file].strip() or not row[label].strip():
            raise DataError(
                f"labels: {where}, line {number}: {separator.join(row)!r} lacks a file or a label. "
                f"Every row needs both; complete or remove it."
            )
    classes = _classes([row[label].strip() for _, row in rows], where)
    return _one_each(zip((_normal(row[file]) for _, row in rows), classes, strict=True), where)


def _holds_a_file(row: Sequence[str], names: Sequence[str]) -> bool:
    """Whether a row is no header: some cell has a file's ending, or is a picture without it."""
    parts = [os.path.splitext(os.path.basename(_normal(cell))) for cell in row]
    stems = {os.path.splitext(os.path.basename(name))[0] for name in names}
    return any(ending or stem in stems for stem, ending in parts)


def _columns(row: Sequence[str], where: str) -> tuple[int, int]:
    """Return which columns are of files and of labels; of two, one that is known is enough."""
    head = [cell.strip().lower() for cell in row]
    file = next((head.index(column) for column in FILE_COLUMNS if column in head), None)
    label = next((head.index(column) for column in LABEL_COLUMNS if column in head), None)
    if len(head) == 2:
        file = 1 - label if file is None and label is not None else file
        label = 1 - file if label is None and file is not None else label
    if file is None or label is None:
        raise DataError(
            f"labels: {where} has the columns {', '.join(map(printable, row))}. It needs one of "
            f"files, named {' or '.join(FILE_COLUMNS)}, and one of labels, named "
            f"{' or '.join(LABEL_COLUMNS)}. Name them so."
        )
    return file, label


def _classes(labels: list[str], where: str) -> list[str]:
    """Return labels as they are; where all are whole numbers, 1.0 as 1."""
    if not all(re.fullmatch(r"-?\d+(\.0*)?", label, re.ASCII) for label in labels):
        return labels
    numbers = [label.partition(".")[0] for label in labels]
    below = [number for number in numbers if int(number) < 0]
    if below:
        raise DataError(
            f"labels: {where} has {len(below)} labels below 0, such as {below[0]}. Number the "
            f"classes from 0 on, or use labels none."
        )
    return numbers


def _one_each(rows: Iterable[tuple[str, str]], where: str) -> dict[str, str]:
    table: dict[str, str] = {}
    for file, label in rows:
        if table.setdefault(file, label) != label:
            raise DataError(
                f"labels: {where} gives {printable(file)} two classes, {printable(table[file])} "
                f"and {printable(label)}. Keep one."
            )
    return table


def _normal(file: str) -> str:
    return file.strip().replace("\\", "/").removeprefix("./")


def matched(
    table: dict[str, str],
    names: Sequence[str],
    where: str,
    base: str = "",
    unused: Sequence[str] = (),
) -> tuple[Labels, tuple[str, ...]]:
    """Give each picture its class.

    Args:
        table: class of each file, by its path below the source or below `base`, with or without
            the ending of its name.
        names: the pictures.
        where: what to call the table.
        base: the folder that all pictures lie in, with a slash at its end.
        unused: pictures that may have a class without needing it.

    Returns:
        The number of each picture's class, and the names of the classes.

    Raises:
        DataError: if a picture has no class, or a class no picture.
    """
    keys = [_key(table, name, base) for name in names]
    missing = [name for name, key in zip(names, keys, strict=True) if key is None]
    if missing:
        raise DataError(
            f"labels: {where} says nothing of {len(missing)} of {len(names)} images, such as "
            f"{', '.join(map(printable, missing[:3]))}. Add them to it, remove them, or use "
            f"labels none."
        )
    lost = table.keys() - set(keys) - {_key(table, name, base) for name in unused}
    if lost:
        raise DataError(
            f"labels: {where} names {len(lost)} files that are not there, such as "
            f"{', '.join(map(printable, sorted(lost)[:3]))}. Put them back, or remove them from it."
        )
    return class_labels([table[key] for key in keys if key is not None], set(table.values()))


def _key(table: dict[str, str], name: str, base: str) -> str | None:
    below = name[len(base) :]
    ways = (name, os.path.splitext(name)[0], below, os.path.splitext(below)[0])
    return next((way for way in ways if way in table), None)
