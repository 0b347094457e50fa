"""Pictures inside a zip or tar, read in place: nothing is ever unpacked to a disk."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import stat
import struct
import tarfile
import threading
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from gan.data.decode import UnreadableError
from gan.data.items import BytesItems, EncodedItems, Items, pick, printable
from gan.errors import DataError

MOST_BYTES = 1 << 30
"""No picture is larger, encoded; a member that says it is may be meant to fill the memory."""
ARCHIVE_SUFFIXES = (".zip", ".tar", ".tgz", ".gz", ".bz2", ".xz")
_OPENERS: dict[str, Any] = {"gz": gzip.open, "bz2": bz2.open, "xz": lzma.open}
_MARKS = {"gz": b"\x1f\x8b", "bz2": b"BZh", "xz": b"\xfd7zXZ\x00"}
_ENCRYPTED = 0x1
_MOST_OPEN = 4
_WHOLE = -1


@dataclass
class ArchiveItems(EncodedItems):
    """Members of a zip, or of a tar.

    Attributes:
        path: the archive.
        names: of the members.
        spans: int64 of shape (count, 5): where it begins, how many bytes it has there, how many
            it is to have, its checksum, and zip's number of how it is packed; the last two are
            -1 in a tar.
        stamp: when the archive was last changed.
        packing: of the whole tar: "", "gz", "bz2" or "xz".
    """

    path: Path
    names: Sequence[str]
    spans: npt.NDArray[np.int64]
    stamp: int = 0
    packing: str = ""

    def __len__(self) -> int:
        return len(self.names)

    def take(self, chosen: slice | Sequence[int]) -> ArchiveItems:
        """Return some of the members."""
        names, spans = pick(self.names, chosen), self.spans[chosen]
        return ArchiveItems(self.path, names, spans, self.stamp, self.packing)

    def portable(self, start: int, stop: int) -> Items:
        """Return a part; of a packed tar the bytes, since it can only be read from its start."""
        part = self.take(slice(start, stop))
        if not self.packing:
            return part
        return BytesItems(part.names, [part._bytes_or_reason(index) for index in range(len(part))])

    def name(self, index: int) -> str:
        """Return the member's path in the archive."""
        return printable(self.names[index])

    def _bytes_or_reason(self, index: int) -> bytes | str:
        try:
            return self.read(index)
        except UnreadableError as error:
            return str(error)

    def read(self, index: int) -> bytes:
        """Return the bytes of one member.

        Raises:
            UnreadableError: if it is damaged, encrypted, too large, or packed in a way unknown.
        """
        start, packed, size, checksum, method = self.spans[index].tolist()
        if size > MOST_BYTES or packed > MOST_BYTES:
            raise UnreadableError(f"its {size:,} bytes are more than {MOST_BYTES:,}")
        try:
            with _reading:
                file = _opened(self.path, self.stamp, self.packing, os.getpid())
                file.seek(start)
                if method != _WHOLE:
                    _skip_local_header(file)
                data = file.read(packed)
            data = _unpacked(data, packed, size, method)
        except (OSError, EOFError, zlib.error, lzma.LZMAError, struct.error) as error:
            raise UnreadableError(f"damaged in the archive: {error}") from error
        if checksum != _WHOLE and zlib.crc32(data) != checksum:
            raise UnreadableError("damaged in the archive: its checksum differs")
        return data


_reading = threading.Lock()


# By process, since two that share an open file would move its position under each other.
_files: dict[tuple[Path, int, str, int], IO[bytes]] = {}


def _opened(path: Path, stamp: int, packing: str, process: int) -> IO[bytes]:
    key = path, stamp, packing, process
    if key not in _files:
        while len(_files) >= _MOST_OPEN:
            _files.pop(next(iter(_files))).close()
        _files[key] = (_OPENERS[packing] if packing else open)(path, "rb")
    return _files[key]


def _skip_local_header(file: IO[bytes]) -> None:
    # Reference: PKWARE APPNOTE.TXT 6.3.10, section 4.3.7.
    mark, flags, name, extra = struct.unpack("<4s2xH18xHH", file.read(30))
    if mark != b"PK\x03\x04":
        raise UnreadableError("damaged in the archive: its header is missing")
    if flags & _ENCRYPTED:
        raise UnreadableError("encrypted; unpack it with its password, and give the folder")
    file.seek(name + extra, os.SEEK_CUR)


def _unpacked(data: bytes, packed: int, size: int, method: int) -> bytes:
    if len(data) != packed:
        raise UnreadableError("the archive ends before it does")
    if method == zipfile.ZIP_DEFLATED:
        data = zlib.decompressobj(-15).decompress(data, size + 1)
    elif method == zipfile.ZIP_BZIP2:
        data = bz2.BZ2Decompressor().decompress(data, size + 1)
    elif method not in (zipfile.ZIP_STORED, _WHOLE):
        raise UnreadableError(f"packed by method {method}, which is not supported; pack it again")
    if len(data) != size:
        raise UnreadableError(f"damaged in the archive: {len(data)} of {size} bytes")
    return data


# --- what is inside ------------------------------------------------------------------------------


@dataclass
class Members:
    """What was found in an archive.

    Attributes:
        items: every plain file.
        identity: name, size and checksum or time of each.
        ignored: the other members but folders, each with the reason.
    """

    items: ArchiveItems
    identity: list[tuple[str, int, int]]
    ignored: list[str]


def is_archive(path: Path) -> bool:
    """Whether a file is a zip or a tar, by its content."""
    return zipfile.is_zipfile(path) or tarfile.is_tarfile(path)


def members_of(path: Path) -> Members:
    """List an archive.

    Args:
        path: a zip, or a tar, which may be packed with gzip, bzip2 or xz.

    Raises:
        DataError: if it is damaged, or a member would land outside of it when unpacked.
    """
    try:
        return _zip(path) if zipfile.is_zipfile(path) else _tar(path)
    except (OSError, EOFError, tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError,
            NotImplementedError) as error:  # fmt: skip
        raise DataError(
            f"data: the archive {path} cannot be read: {error}. Download or pack it again."
        ) from error


def _zip(path: Path) -> Members:
    found, ignored = _Found(), []
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            _check_inside(path, info.filename)
            if stat.S_ISLNK(info.external_attr >> 16):
                ignored.append(f"{info.filename} (a link)")
            elif not info.is_dir():
                place = (info.header_offset, info.compress_size, info.file_size)
                span = (*place, info.CRC, info.compress_type)
                found.add(info.filename, span, (info.filename, info.file_size, info.CRC))
    return found.members(path, ignored)


def _tar(path: Path) -> Members:
    found, ignored = _Found(), []
    with tarfile.open(path) as archive:
        for info in archive:
            _check_inside(path, info.name)
            name, target = info.name.removeprefix("./"), info.linkname.removeprefix("./")
            if info.issym() or info.islnk():
                base = f"{os.path.dirname(info.name)}/" if info.issym() else ""
                _check_inside(path, info.name, base.lstrip("/") + info.linkname, info.linkname)
            if info.islnk() and target in found.spans:
                found.add(name, found.spans[target], (info.name, *found.identity[target][1:]))
            elif info.issym() or info.islnk():
                ignored.append(f"{name} (a link)")
            elif info.isreg() and not info.issparse():
                span = (info.offset_data, info.size, info.size, _WHOLE, _WHOLE)
                found.add(name, span, (info.name, info.size, int(info.mtime)))
            elif not info.isdir():
                ignored.append(f"{name} (no plain file)")
    with open(path, "rb") as file:
        head = file.read(6)
    packing = next((name for name, mark in _MARKS.items() if head.startswith(mark)), "")
    return found.members(path, ignored, packing)


class _Found:
    """Plain files by name; of several with one name the last, as if they were unpacked."""

    def __init__(self) -> None:
        self.spans: dict[str, tuple[int, ...]] = {}
        self.identity: dict[str, tuple[str, int, int]] = {}
        self.replaced: list[str] = []

    def add(self, name: str, span: tuple[int, ...], identity: tuple[str, int, int]) -> None:
        if name in self.spans:
            self.replaced.append(f"{name} (a later one has its name)")
        self.spans[name], self.identity[name] = span, identity

    def members(self, path: Path, ignored: list[str], packing: str = "") -> Members:
        table = np.array(list(self.spans.values()), np.int64).reshape(-1, 5)
        items = ArchiveItems(path, list(self.spans), table, path.stat().st_mtime_ns, packing)
        return Members(items, list(self.identity.values()), [*self.replaced, *ignored])


def _check_inside(archive: Path, name: str, target: str | None = None, link: str = "") -> None:
    place = name if target is None else target
    depth = lowest = 0
    for part in PureWindowsPath(place).parts:  # splits at both kinds of slash
        depth += -1 if part == ".." else 1
        lowest = min(lowest, depth)
    absolute = [PurePosixPath(path).is_absolute() or PureWindowsPath(path).anchor
                for path in (place, link)]  # fmt: skip
    if lowest < 0 or any(absolute):
        via = f", a link to {link!r}," if link else ""
        raise DataError(
            f"data: the archive {archive} is refused: its member {name!r}{via} points outside of "
            f"it. Make the archive again from a folder of images."
        )
