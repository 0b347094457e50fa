"""A folder of images: flat, nested, or one folder a class."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from gan.data.items import FileItems, printable
from gan.data.sources import Identity
from gan.data.tree import Tree, is_image, is_junk
from gan.errors import DataError


def folder_tree(path: Path) -> Tree:
    """Find the images below a folder; nothing in it is opened, and nothing ever written.

    Links to folders and files are followed, except where they lead back to a folder above.

    Args:
        path: the folder.

    Raises:
        DataError: if a folder cannot be read, or a link loops.
    """
    walk = _Walk(str(path))
    walk.visit("", frozenset())
    items = FileItems(str(path), walk.images, frozenset(walk.strange))
    name = printable(path.resolve().name or str(path))
    return Tree(
        name,
        f"the folder {path}",
        items,
        walk.images,
        walk.identity,
        walk.others,
        read=lambda other: (path / other).read_bytes(),
    )


class _Walk:
    """What is found below a folder, in the order of the names."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.images: list[str] = []
        self.others: list[str] = []
        self.strange: list[str] = []
        self.identity = Identity()

    def visit(self, below: str, above: frozenset[tuple[int, int]]) -> None:
        here = os.path.join(self.root, below)
        try:
            status = os.stat(here)
            with os.scandir(here) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError as error:
            raise DataError(
                f"data: the folder {here} cannot be read: {error.strerror}. "
                f"Change its permissions, or move it away."
            ) from error
        identity = (status.st_dev, status.st_ino)
        if identity in above:
            raise DataError(
                f"data: {here} is a link that leads back to a folder above it. Remove the link."
            )
        for entry in entries:
            if is_junk(entry.name):
                continue
            name = f"{below}/{entry.name}" if below else entry.name
            if _is_folder(entry):
                self.visit(name, above | {identity})
            elif is_image(name):
                self._take(entry, name)
            else:
                self.others.append(name)

    def _take(self, entry: os.DirEntry[str], name: str) -> None:
        self.images.append(name)
        try:
            status = entry.stat()
        except OSError:  # a link to nowhere is found unreadable when it is decoded
            self.identity.add(name)
            return
        self.identity.add(name, status.st_size, status.st_mtime_ns)
        if not stat.S_ISREG(status.st_mode):
            self.strange.append(name)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False
