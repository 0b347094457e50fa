"""A folder of images: flat, nested, or one folder a class."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from gan.data.items import FileItems
from gan.data.sources import Source, class_labels, fingerprint_of
from gan.errors import DataError

IMAGE_SUFFIXES = (
    *(".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".webp", ".bmp", ".dib", ".gif", ".tif", ".tiff"),
    *(".pgm", ".ppm", ".pbm", ".pnm", ".tga", ".ico", ".pcx", ".qoi", ".avif", ".jp2"),
    *(".heic", ".heif", ".jxl"),
)
"""Files taken for images, the last three only to say that they cannot be read."""
_JUNK = ("thumbs.db", "desktop.ini", "__macosx", "$recycle.bin")


def is_junk(name: str) -> bool:
    """Whether a file or folder of this name is left behind by a system, not put by a person."""
    return name.startswith(".") or name.lower() in _JUNK


@dataclass
class _Walk:
    """What was found below a folder."""

    root: str
    names: list[str] = field(default_factory=list)
    identity: list[tuple[str, int, int]] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)

    def visit(self, below: str, above: frozenset[tuple[int, int]]) -> None:
        here = os.path.join(self.root, below)
        try:
            entries = sorted(os.scandir(here), key=lambda entry: entry.name)
            this = os.stat(here)
        except OSError as error:
            raise DataError(
                f"data: the folder {here} cannot be read: {error.strerror}. "
                f"Change its permissions, or move it away."
            ) from error
        identity = (this.st_dev, this.st_ino)
        if identity in above:
            raise DataError(
                f"data: {here} is a link that leads back to a folder above it. Remove the link."
            )
        for entry in entries:
            if not is_junk(entry.name):
                name = f"{below}/{entry.name}" if below else entry.name
                self._take(entry, name, above | {identity})

    def _take(self, entry: os.DirEntry[str], name: str, above: frozenset[tuple[int, int]]) -> None:
        try:
            if entry.is_dir():
                return self.visit(name, above)
            status = entry.stat()
        except OSError:  # a link to nowhere: found unreadable when it is decoded
            status = entry.stat(follow_symlinks=False)
        if os.path.splitext(name)[1].lower() not in IMAGE_SUFFIXES:
            self.ignored.append(name)
            return None
        self.names.append(name)
        regular = stat.S_ISREG(status.st_mode)
        self.identity.append((name, status.st_size if regular else -1, status.st_mtime_ns))
        return None


def folder(path: Path, labels: str) -> Source:
    """Find the images below a folder; nothing in it is opened yet.

    Args:
        path: the folder.
        labels: "auto" makes a class of each sub-folder where all images lie in two or more of
            them, "folders" insists on it, "none" never does.

    Raises:
        DataError: if there are no images, no classes where they are asked for, or a folder cannot
            be read.
    """
    walk = _Walk(str(path))
    walk.visit("", frozenset())
    if not walk.names:
        raise DataError(_nothing(path, walk.ignored))
    notes = []
    if walk.ignored:
        notes.append(f"{len(walk.ignored)} other files ignored, such as {walk.ignored[0]}")
    classes = list(_classes(walk.names))
    source = Source(path.name, FileItems(path, walk.names), fingerprint_of(walk.identity))
    source.notes = tuple(notes)
    if labels == "none" or (labels == "auto" and ("" in classes or len(set(classes)) < 2)):
        return source
    if "" in classes:
        loose = walk.names[classes.index("")]
        raise DataError(
            f"labels: 'folders' makes a class of each folder, but {path} holds images outside of "
            f"any, such as {loose}. Put each image in the folder of its class, or use labels none."
        )
    source.labels, source.class_names = class_labels(classes)
    return source


def _classes(names: list[str]) -> Iterator[str]:
    for name in names:
        first, slash, _ = name.partition("/")
        yield first if slash else ""


def _nothing(path: Path, ignored: list[str]) -> str:
    if not ignored:
        return f"data: the folder {path} is empty. Put images in it."
    return (
        f"data: the folder {path} holds {len(ignored)} files but no images, such as {ignored[0]}. "
        f"Files count as images by their ending: {' '.join(IMAGE_SUFFIXES)}."
    )
