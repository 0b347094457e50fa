"""Texts and their classes, from any source: which columns, which classes, what is held out."""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from gan.chance import generator_for
from gan.errors import ConfigError, DataError
from gan.text.config import EMBEDDED, TextConfig
from gan.text.docs import python_docs
from gan.text.hub import hub_tables
from gan.text.table import Table, read_table, say_left_out, some

_PAIRS = (("sentence1", "sentence2"), ("question1", "question2"), ("premise", "hypothesis"))
_TEXT_NAMES = ("text", "sentence", "content", "message", "review", "body", "tweet", "comment")
_LABEL_NAMES = ("label", "labels", "class", "category", "target", "sentiment")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Texts:
    """Texts in a fixed order.

    Attributes:
        texts: one or two strings each.
        labels: class of each, from 0; None: they have none.
    """

    texts: list[tuple[str, ...]]
    labels: list[int] | None

    def __len__(self) -> int:
        """How many there are."""
        return len(self.texts)

    def take(self, rows: Sequence[int]) -> Texts:
        """Some of them.

        Args:
            rows: which.

        Returns:
            Those, in that order.
        """
        labels = None if self.labels is None else [self.labels[row] for row in rows]
        return Texts([self.texts[row] for row in rows], labels)


@dataclass(frozen=True)
class TextData:
    """What a classifier learns from, and what it is judged by.

    Attributes:
        name: where it came from.
        class_names: by label.
        train: what it learns from.
        validation: what decides when it is best.
        test: what it never sees before the end; None: there is none.
    """

    name: str
    class_names: tuple[str, ...]
    train: Texts
    validation: Texts
    test: Texts | None = None

    def with_classes(self, class_names: Sequence[str]) -> TextData:
        """The same texts, with the classes in another order.

        Args:
            class_names: the same ones.

        Returns:
            The data, with every label changed accordingly.
        """
        new = [class_names.index(name) for name in self.class_names]

        def relabelled(texts: Texts) -> Texts:
            return Texts(texts.texts, texts.labels and [new[label] for label in texts.labels])

        return TextData(
            self.name,
            tuple(class_names),
            relabelled(self.train),
            relabelled(self.validation),
            self.test and relabelled(self.test),
        )

    @property
    def fingerprint(self) -> str:
        """Digest of all that decides the training."""
        parts = [[part.texts, part.labels] for part in (self.train, self.validation)]
        return hashlib.sha256(json.dumps([self.class_names, parts]).encode()).hexdigest()


def open_texts(config: TextConfig) -> TextData:
    """Open what the options name.

    Args:
        config: checked options.

    Returns:
        The texts. What was left out, split off or guessed is logged.

    Raises:
        DataError: a file, or what it holds, cannot be used.
        ConfigError: a column that is not there, or labels that are no classes.
    """
    if config.train_file is not None:
        files = {"validation": config.validation_file, "test": config.test_file}
        tables = {split: read_table(path, config.encoding) for split, path in files.items() if path}
        train, name = read_table(config.train_file, config.encoding), str(config.train_file)
    elif config.dataset == EMBEDDED:
        train, tables, name = python_docs(), {}, EMBEDDED
    else:
        assert config.dataset is not None
        train, tables = hub_tables(config.dataset)
        name = config.dataset
    return _data(name, train, tables, config)


def read_texts(path: Path, columns: Sequence[str] = (), encoding: str | None = None) -> Texts:
    """Texts of a file whose classes, if it has any, do not matter.

    Args:
        path: the file.
        columns: with text; none: found by name and content.
        encoding: of the file.

    Returns:
        All of them, without labels; no row is left out.

    Raises:
        DataError: the file cannot be used.
        ConfigError: there is no such column.
    """
    table = read_table(path, encoding)
    chosen = tuple(columns) or _guess_text(table, None)
    _need_columns(table, "text_columns", chosen)
    return _all_texts(table, chosen)


def _data(name: str, train: Table, others: Mapping[str, Table], config: TextConfig) -> TextData:
    label = config.label_column or _guess_label(train, config.text_columns)
    columns = config.text_columns or _guess_text(train, label)
    for table in (train, *others.values()):
        _need_columns(table, "text_columns", columns)
        if table is not others.get("test"):
            _need_columns(table, "label_column", (label,))
    if not config.label_column and _is_data(train, label):
        _log.warning("%s: has no header; its columns are called 1, 2, ...", name)
        return _data(name, _numbered(train), {k: _numbered(v) for k, v in others.items()}, config)
    if not (config.text_columns and config.label_column):
        _log.info("%s: the text is in %s, the class in %s", name, " and ".join(columns), label)

    rows = _labelled(train, columns, label)
    class_name = _naming(train.source, label, rows)
    class_names = _classes(train.source, label, [class_name(row.cell) for row in rows])
    numbers = {class_: number for number, class_ in enumerate(class_names)}

    def number(table: Table) -> Texts:
        labelled = rows if table is train else _labelled(table, columns, label)
        names = [class_name(row.cell) for row in labelled]
        unseen = [i for i, class_ in enumerate(names) if class_ not in numbers]
        if unseen:
            raise DataError(
                f"{table.source}: {label} {names[unseen[0]]!r} is not one of the training texts' "
                f"({', '.join(class_names)}): {some([labelled[i].place for i in unseen])}"
            )
        return Texts([row.text for row in labelled], [numbers[class_] for class_ in names])

    def test(table: Table) -> Texts:
        cells = table.column(label)
        unlabelled = all(map(_missing, cells)) or {str(cell) for cell in cells} == {"-1"}
        return _all_texts(table, columns) if unlabelled else number(table)

    learn = number(train)
    if "validation" in others:
        held_out = number(others["validation"])
    else:
        learn, held_out = _split(learn, _groups(train, rows), config.validation_share, config.seed)
        total = len(learn) + len(held_out)
        _log.info("%s: %d of %d texts are held out for validation", name, len(held_out), total)
    tested = test(others["test"]) if "test" in others else None
    return TextData(name, class_names, learn, held_out, tested)


# --- columns -------------------------------------------------------------------------------------


def _need_columns(table: Table, option: str, columns: Sequence[str]) -> None:
    for column in columns:
        if column not in table.columns:
            raise ConfigError(
                f"{option}: {column!r} is no column of {table.source}; "
                f"it has {', '.join(table.columns)}"
            )


def _guess_label(table: Table, text_columns: Sequence[str]) -> str:
    by_name = {column.lower(): column for column in table.columns if column not in text_columns}
    for name in _LABEL_NAMES:
        if name in by_name:
            return by_name[name]
    distinct = {
        column: len({str(cell) for cell in table.column(column) if not _missing(cell)})
        for column in by_name.values()
    }
    classes = {name: n for name, n in distinct.items() if 2 <= n <= max(2, len(table.rows) // 2)}
    if not classes:
        raise ConfigError(
            f"label_column: none of {table.source}'s columns looks like a class "
            f"({', '.join(table.columns)}); name it"
        )
    return min(classes, key=classes.__getitem__)


def _guess_text(table: Table, label: str | None) -> tuple[str, ...]:
    by_name = {column.lower(): column for column in table.columns if column != label}
    for names in (*_PAIRS, *((name,) for name in _TEXT_NAMES)):
        if all(name in by_name for name in names):
            return tuple(by_name[name] for name in names)
    total = {c: sum(len(str(cell)) for cell in table.column(c) if cell) for c in by_name.values()}
    if not total:
        raise ConfigError(f"text_columns: {table.source} has none ({', '.join(table.columns)})")
    return (max(total, key=total.__getitem__),)


def _is_data(table: Table, label: str) -> bool:
    """Whether the header is a row like the others: its label is one of the labels."""
    return table.has_header and label in map(str, table.column(label))


def _numbered(table: Table) -> Table:
    names = [str(i) for i in range(1, len(table.columns) + 1)]
    rows = [
        dict(zip(names, (row.get(c) for c in table.columns), strict=True)) for row in table.rows
    ]
    first = dict(zip(names, table.columns, strict=True))
    return Table(table.source, tuple(names), [first, *rows], ["line 1", *table.places])


# --- texts and classes ---------------------------------------------------------------------------


class _Row(NamedTuple):
    number: int
    place: str
    text: tuple[str, ...]
    cell: Any


def _missing(cell: Any) -> bool:
    return cell is None or cell != cell or (isinstance(cell, str) and not cell.strip())


def _text(table: Table, row: int, columns: Sequence[str]) -> tuple[str, ...]:
    cells = ["" if _missing(cell) else cell for cell in map(table.rows[row].get, columns)]
    if any(isinstance(cell, list | dict) for cell in cells):
        raise DataError(
            f"{table.source}: {table.places[row]} holds no text in {' or '.join(columns)}"
        )
    return tuple(str(cell).strip() for cell in cells)


def _all_texts(table: Table, columns: Sequence[str]) -> Texts:
    return Texts([_text(table, row, columns) for row in range(len(table.rows))], None)


def _labelled(table: Table, columns: Sequence[str], label: str) -> list[_Row]:
    rows, empty, unlabelled = [], [], []
    for number, place in enumerate(table.places):
        row = _Row(number, place, _text(table, number, columns), table.rows[number].get(label))
        if not all(row.text):
            empty.append(place)
        elif _missing(row.cell):
            unlabelled.append(place)
        else:
            rows.append(row)
    say_left_out(table.source, "without text", empty)
    say_left_out(table.source, f"without {label}", unlabelled)
    if not rows:
        raise DataError(f"{table.source}: no row has both a text and a {label}")
    return rows


def _naming(source: str, label: str, rows: Sequence[_Row]) -> Callable[[Any], str]:
    """How a cell becomes the name of a class: a whole number is one class however it is written."""
    numbers = [_number(row.cell) for row in rows]
    if any(number is None for number in numbers):
        return lambda cell: str(cell).strip()
    fractions = [
        row for row, number in zip(rows, numbers, strict=True) if number and not number.is_integer()
    ]
    if fractions:
        raise ConfigError(
            f"label_column: {label} of {source} holds fractions, such as {fractions[0].cell} "
            f"({some([row.place for row in fractions])}); a class is a name or a whole number"
        )

    def name(cell: Any) -> str:
        number = _number(cell)
        return str(cell).strip() if number is None else f"{number:.0f}"

    return name


def _number(cell: Any) -> float | None:
    try:
        number = float(cell)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) and not isinstance(cell, bool) else None


def _classes(source: str, label: str, names: Sequence[str]) -> tuple[str, ...]:
    classes = sorted(set(names))
    if all(_number(name) is not None for name in classes):
        classes.sort(key=float)
    if len(classes) < 2:
        raise DataError(
            f"{source}: {label} is always {classes[0]!r}; a classifier needs two classes or more"
        )
    if len(classes) > max(2, len(names) // 2):
        raise DataError(
            f"{source}: {label} has {len(classes)} classes in {len(names)} rows; is it the right "
            "column? --label_column names another"
        )
    return tuple(classes)


# --- what is held out ----------------------------------------------------------------------------


def _groups(table: Table, rows: Sequence[_Row]) -> list[str]:
    """What must not be torn apart: equal texts, or, where the table says so, texts of one group."""
    return [str(table.rows[row.number].get("group", row.text)) for row in rows]


def _split(texts: Texts, groups: Sequence[str], share: float, seed: int) -> tuple[Texts, Texts]:
    """Hold out a share of each class, whole groups only, the same for the same seed."""
    assert texts.labels is not None
    held: set[str] = set()
    for label in sorted(set(texts.labels)):
        sizes = Counter(
            group for group, other in zip(groups, texts.labels, strict=True) if other == label
        )
        order = torch.randperm(len(sizes), generator=generator_for(seed, "split", label)).tolist()
        names, room = [list(sizes)[i] for i in order], max(1, round(share * sizes.total()))
        for name in names[1:]:  # one group at least is learned from
            if sizes[name] <= room:
                held.add(name)
                room -= sizes[name]
    learn = [row for row, group in enumerate(groups) if group not in held]
    return texts.take(learn), texts.take([row for row, group in enumerate(groups) if group in held])
