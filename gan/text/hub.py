"""The Hugging Face hub, when it is there, and one clear sentence at once when it is not."""

from __future__ import annotations

import importlib
import os
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from gan.errors import DataError, GanError
from gan.text.table import Table

OFFLINE = (
    "what needs no hub: --model small, or the folder of a model; --train_file, or --dataset "
    "python-docs; and, with HF_HUB_OFFLINE=1, what an earlier run has left in the hub's cache"
)


def need_hub(option: str) -> None:
    """Ask for the hub once, instead of waiting for a minute of retries.

    Args:
        option: what needs it, with its value.

    Raises:
        GanError: it cannot be reached; names what works without it.
    """
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    if _offline():
        raise GanError(f"{option} is not in the hub's cache, and HF_HUB_OFFLINE is set; {OFFLINE}")
    try:
        request = urllib.request.Request(endpoint, method="HEAD")
        urllib.request.urlopen(request, timeout=5).close()
    except urllib.error.HTTPError:
        return  # it answers
    except OSError as error:
        reason = getattr(error, "reason", error)
        if not isinstance(reason, ssl.SSLError):  # the hub's own client may know more certificates
            raise GanError(f"{option} needs {endpoint}, but: {reason}; {OFFLINE}") from None


def _offline() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}


def hub_tables(name: str) -> tuple[Table, dict[str, Table]]:
    """A data set of the hub.

    Args:
        name: such as imdb, glue/mrpc (a part of one), owner/name, owner/name/part; or a folder.

    Returns:
        Its training part; its validation and test parts where it has them.

    Raises:
        GanError: the package `datasets` is missing, or the hub cannot be reached.
        DataError: there is no such data set, or it has no training part.
    """
    option = f"dataset: {name}"
    try:
        datasets = importlib.import_module("datasets")
    except ImportError:
        raise GanError(
            f"{option} needs the package datasets: pip install 'gan-toolkit[hub]'; {OFFLINE}"
        ) from None
    if not Path(name).is_dir() and not _offline():
        need_hub(option)
    head, _, part = name.rpartition("/")
    problem: Exception | None = None
    for path, config in (
        ((name, None), (head, part)) if head and not Path(name).is_dir() else ((name, None),)
    ):
        try:
            found = datasets.load_dataset(path, config)
        except (OSError, ValueError) as error:
            problem = problem or error
        else:
            return _tables(name, found)
    raise DataError(f"{option}: {problem}; {OFFLINE}")


def _tables(name: str, found: Any) -> tuple[Table, dict[str, Table]]:
    splits = {
        "validation": ("validation", "validation_matched", "dev"),
        "test": ("test", "test_matched"),
    }
    tables = {
        ours: _table(f"{name}, {split}", found[split])
        for ours, theirs in splits.items()
        for split in theirs[::-1]
        if split in found
    }
    if "train" not in found:
        raise DataError(f"dataset: {name}: has no part called train; it has {', '.join(found)}")
    return _table(f"{name}, train", found["train"]), tables


def _table(source: str, part: Any) -> Table:
    """Rows with the names of the classes in place of their numbers; -1 is no class."""
    names = {
        column: feature.names
        for column, feature in part.features.items()
        if hasattr(feature, "names")
    }
    rows = [
        {
            column: cell if column not in names else names[column][cell] if cell >= 0 else None
            for column, cell in row.items()
        }
        for row in part
    ]
    return Table(source, tuple(part.column_names), rows, [f"row {i}" for i in range(len(rows))])
