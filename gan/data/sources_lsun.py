"""LSUN: one lmdb database of encoded pictures for each category of scenes.

The folders are those that torchvision.datasets.LSUN reads. They are read here without that class,
because it pickles the keys of each database into the working folder, and the next time believes
whatever file of that name lies there.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from gan.data.decode import UnreadableError
from gan.data.items import EncodedItems, pick
from gan.data.sources import Identity, Source, fingerprint_of
from gan.errors import DataError

_ENDINGS = {"train": "_train_lmdb", "test": "_val_lmdb"}


@dataclass
class LsunItems(EncodedItems):
    """Pictures in databases.

    Attributes:
        folders: of the databases.
        keys: number of the folder, and key of the picture in it.
    """

    folders: tuple[str, ...]
    keys: Sequence[tuple[int, bytes]]

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, chosen: slice | Sequence[int]) -> LsunItems:
        """Return some of the pictures."""
        return LsunItems(self.folders, pick(self.keys, chosen))

    def name(self, index: int) -> str:
        """Return its folder and key."""
        folder, key = self.keys[index]
        return f"{os.path.basename(self.folders[folder])}/{key.decode(errors='backslashreplace')}"

    def read(self, index: int) -> bytes:
        """Return the encoded picture."""
        folder, key = self.keys[index]
        data = _database(self.folders[folder], os.getpid()).begin().get(key)
        if data is None:
            raise UnreadableError("no longer in its database")
        return bytes(data)


# By process, since an open database must not be used across a fork.
@lru_cache(maxsize=64)
def _database(folder: str, process: int) -> Any:
    lmdb: Any = importlib.import_module("lmdb")
    return lmdb.open(folder, readonly=True, lock=False, readahead=False, create=False)


def lsun(root: Path, split: str) -> Source:
    """Open every database of a split that lies in a folder; its categories are the classes.

    Args:
        root: holds folders such as bedroom_train_lmdb.
        split: "train", or "test" for LSUN's validation split.

    Raises:
        DataError: if the package lmdb is not installed, or no such folder is there or readable.

    Reference: Yu et al. 2015, arXiv 1506.03365.
    """
    try:
        lmdb: Any = importlib.import_module("lmdb")
    except ImportError as error:
        raise DataError(
            "data: 'lsun' needs the package lmdb. Install it with pip install 'gan-toolkit[lsun]'."
        ) from error
    ending = _ENDINGS[split]
    folders = sorted(path for path in root.glob(f"*{ending}") if path.is_dir())
    if not folders:
        raise DataError(
            f"data: 'lsun' needs a folder for each category in {root}, such as bedroom{ending} or "
            f"church_outdoor{ending}, with LSUN's data.mdb in it. Unpack the databases there, or "
            f"name the folder that holds them with data_root."
        )
    keys: list[tuple[int, bytes]] = []
    identity = Identity()
    for number, folder in enumerate(folders):
        try:
            with _database(str(folder), os.getpid()).begin() as view:
                keys += ((number, key) for key in view.cursor().iternext(values=False))
            status = (folder / "data.mdb").stat()
        except (OSError, lmdb.Error) as error:
            raise DataError(
                f"data: the database {folder} cannot be read: {error}. Unpack it again."
            ) from error
        identity.add(folder.name, status.st_size, status.st_mtime_ns)
    if not keys:
        raise DataError(f"data: the databases in {root} are empty. Unpack them again.")
    found = Source("lsun", LsunItems(tuple(map(str, folders)), keys), fingerprint_of(identity))
    if len(folders) > 1:
        found.labels = np.array([number for number, _ in keys], np.int64)
        found.class_names = tuple(folder.name.removesuffix(ending) for folder in folders)
    return found
