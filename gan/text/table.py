"""Files of texts as tables: CSV, TSV, JSON lines, folders of classes, in whatever state."""

from __future__ import annotations

import codecs
import csv
import io
import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gan.errors import ConfigError, DataError

KINDS = ".csv, .tsv, .jsonl, or a folder with one folder of .txt files for each class"
_BOMS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Table:
    """Rows of a file.

    Attributes:
        source: what to call it in a message.
        columns: their names.
        rows: cells by column; a cell is None where the row has none.
        places: where each row begins, as "line 7" or a file's name.
        has_header: whether the names are the file's own first row, and so may be no names at all.
    """

    source: str
    columns: tuple[str, ...]
    rows: list[dict[str, Any]]
    places: list[str]
    has_header: bool = False

    def column(self, name: str) -> list[Any]:
        """All cells of a column.

        Args:
            name: one of `columns`.

        Returns:
            A cell for each row.
        """
        return [row.get(name) for row in self.rows]


def read_table(path: Path, encoding: str | None = None) -> Table:
    """Read a file, or a folder of classes.

    Args:
        path: see `KINDS`.
        encoding: of the text; None: UTF-8 (UTF-16 where it says so), or else Windows-1252.

    Returns:
        Its rows. Rows that repeat the header or have more cells than it are left out, and said.

    Raises:
        DataError: it is missing, of another kind, not text, or damaged.
        ConfigError: there is no such encoding.
    """
    if path.is_dir():
        return _folders(path, encoding)
    readers = {".csv": _delimited, ".tsv": _delimited, ".jsonl": _json_lines, ".json": _json_lines}
    if not path.is_file():
        raise DataError(f"{path}: there is no such file or folder")
    if path.suffix.lower() not in readers:
        raise DataError(f"{path}: {path.suffix or 'no suffix'} is none of the kinds {KINDS}")
    table = readers[path.suffix.lower()](path, _decode(path, encoding))
    if not table.rows:
        raise DataError(f"{path}: it holds no rows")
    return table


def some(places: Sequence[str]) -> str:
    """The first few places, for a message.

    Args:
        places: as in `Table.places`.

    Returns:
        Such as "line 3, line 9, line 12 and 4 more".
    """
    more = f" and {len(places) - 3} more" if len(places) > 3 else ""
    return ", ".join(places[:3]) + more


def say_left_out(source: str, which: str, places: Sequence[str]) -> None:
    """Log what is not used, if there is any.

    Args:
        source: file.
        which: what is wrong with the rows.
        places: where they are.
    """
    if places:
        _log.warning("%s: rows %s, left out: %d (%s)", source, which, len(places), some(places))


def _decode(path: Path, encoding: str | None) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    bom = next((name for mark, name in _BOMS.items() if data.startswith(mark)), None)
    try:
        text = data.decode(encoding or bom or "utf-8")
    except LookupError:
        raise ConfigError(
            f"encoding: {encoding!r} is unknown; utf-8, cp1252 and utf-16 are three"
        ) from None
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        if encoding is not None or bom is not None:
            raise DataError(
                f"{path}: line {line} is not {encoding or bom}; "
                "give the file's encoding, as in --encoding cp1252"
            ) from None
        # Windows-1252 leaves five bytes undefined; Latin-1 has them as control characters.
        text = (
            data.decode("cp1252", errors="ignore")
            if _fits(data, "cp1252")
            else data.decode("latin-1")
        )
        _log.warning(
            "%s: line %d is not UTF-8; read as Windows-1252 (--encoding decides)", path, line
        )
    if "\0" in text:
        raise DataError(f"{path}: holds bytes that no text has; is it a text file?")
    return text.removeprefix("\ufeff")


def _fits(data: bytes, encoding: str) -> bool:
    try:
        data.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


# --- CSV and TSV ---------------------------------------------------------------------------------


def _delimited(path: Path, text: str) -> Table:
    csv.field_size_limit(2**31 - 1)
    rows = list(_parse(path, text))
    if not rows:
        raise DataError(f"{path}: it is empty")
    (_, header), *body = rows
    used = [
        any(len(cells) > i and cells[i].strip() for _, cells in body) for i in range(len(header))
    ]
    names = [
        name.strip() or (f"column {i + 1}" if used[i] else "") for i, name in enumerate(header)
    ]
    twice = sorted({name for name in names if name and names.count(name) > 1})
    if twice:
        raise DataError(f"{path}: more than one column is called {', '.join(twice)}")
    repeated = [f"line {line}" for line, cells in body if cells == header]
    ragged = [
        f"line {line}" for line, cells in body if any(cell.strip() for cell in cells[len(header) :])
    ]
    say_left_out(str(path), "that repeat the header", repeated)
    say_left_out(str(path), "with more cells than the header", ragged)
    left_out = {*repeated, *ragged}
    kept = [(f"line {line}", cells) for line, cells in body if f"line {line}" not in left_out]
    return Table(
        str(path),
        tuple(filter(None, names)),
        [
            {name: cell for name, cell in zip(names, cells, strict=False) if name}
            for _, cells in kept
        ],
        [place for place, _ in kept],
        has_header=True,
    )


def _parse(path: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    """Rows with the line on which each begins."""
    lines = [line.rstrip("\n") for line in io.StringIO(text, newline=None)]
    head = lines[0] if lines else ""
    delimiter = "\t" if path.suffix.lower() == ".tsv" else max(",;\t|", key=head.count)
    if delimiter == "\t" and len({line.count("\t") for line in lines if line}) == 1:
        # No cell goes over several lines, so a quote that opens a cell is only a quote.
        yield from (
            (i, [_unquote(c) for c in line.split("\t")]) for i, line in enumerate(lines, 1) if line
        )
        return
    mark = "end of the file"
    reader = csv.reader(io.StringIO(f"{text}\n{mark}", newline=""), delimiter=delimiter)
    first = begin = 1
    try:
        for cells in reader:
            if cells == [mark]:
                return
            if cells and not cells[-1].endswith(mark):
                yield begin, cells
            first, begin = begin, reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{path}: line {reader.line_num} is no row: {error}") from None
    raise DataError(f"{path}: the quote that opens on line {first} is never closed")


def _unquote(cell: str) -> str:
    quoted = (
        len(cell) > 1 and cell[0] == cell[-1] == '"' and '"' not in cell[1:-1].replace('""', "")
    )
    return cell[1:-1].replace('""', '"') if quoted else cell


# --- JSON lines and folders ----------------------------------------------------------------------


def _json_lines(path: Path, text: str) -> Table:
    places: list[str] = []
    rows: list[Any] = []
    if text.lstrip().startswith("["):
        places, rows = _json_list(path, text)
    for number, line in enumerate(io.StringIO("" if rows else text, newline=None), 1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except ValueError as error:
                raise DataError(f"{path}: line {number} is no JSON: {error}") from None
            places.append(f"line {number}")
    for place, row in zip(places, rows, strict=True):
        if not isinstance(row, dict):
            raise DataError(f'{path}: {place} is no object such as {{"text": ..., "label": ...}}')
    return Table(
        str(path), tuple(dict.fromkeys(name for row in rows for name in row)), rows, places
    )


def _json_list(path: Path, text: str) -> tuple[list[str], list[Any]]:
    try:
        rows = json.loads(text)
    except ValueError as error:
        raise DataError(f"{path}: is no JSON: {error}") from None
    return [f"entry {i}" for i in range(1, len(rows) + 1)], rows


def _folders(path: Path, encoding: str | None) -> Table:
    files = [file for file in sorted(path.glob("*/*.txt")) if not file.parent.name.startswith(".")]
    if not files:
        raise DataError(
            f"{path}: holds no .txt files in folders; expected {path / 'CLASS' / 'NAME.txt'}"
        )
    rows = [{"text": _decode(file, encoding), "label": file.parent.name} for file in files]
    return Table(
        str(path), ("text", "label"), rows, [str(file.relative_to(path)) for file in files]
    )
