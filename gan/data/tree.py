"""Pictures that have paths, in a folder or an archive: which are used, and their classes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gan.data import labels as label_tables
from gan.data.items import Items, PairItems, pick, printable
from gan.data.sources import Identity, Source, class_labels, fingerprint_of
from gan.errors import DataError

IMAGE_SUFFIXES = (
    *(".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".webp", ".bmp", ".dib", ".gif", ".tif", ".tiff"),
    *(".pgm", ".ppm", ".pbm", ".pnm", ".tga", ".ico", ".pcx", ".qoi", ".avif", ".jp2"),
    *(".heic", ".heif", ".jxl"),
)
"""Files that are taken for images; the last three, to say that they cannot be read."""
_IMAGE_SUFFIXES = frozenset(IMAGE_SUFFIXES)
_JUNK = ("thumbs.db", "desktop.ini", "__macosx", "$recycle.bin")
_SPLITS = {"train": ("train", "training"), "test": ("test", "val", "valid", "validation")}
_OWN_LABELS = "dataset.json"
_SIDES = ("A", "B")


def is_junk(name: str) -> bool:
    """Whether a file or folder of this name is left behind by a system, not put by a person."""
    return name.startswith(".") or name.lower() in _JUNK


def is_image(name: str) -> bool:
    """Whether a file counts as an image, by the ending of its name."""
    return name[name.rfind(".") :].lower() in _IMAGE_SUFFIXES


@dataclass
class Tree:
    """Files that were found below a folder or in an archive.

    Attributes:
        name: of the source.
        where: what to call it in a message: "the folder x".
        items: the images.
        paths: of the images, with forward slashes.
        identity: what the fingerprint is made from.
        others: files that are no images.
        read: gives the bytes of one of the others.
    """

    name: str
    where: str
    items: Items
    paths: Sequence[str]
    identity: Identity
    others: Sequence[str]
    read: Callable[[str], bytes]

    def source(self, split: str, labels: str, *, pairs: str) -> Source:
        """Choose what is used.

        Args:
            split: "train" or "test": folders of these names at the top are splits, not classes.
            labels: "auto", "none", "folders" or a file.
            pairs: "none"; "folders" to match the images of folders A and B by name; or
                "side-by-side".

        Raises:
            DataError: if there are no images, or not the labels, pairs or split asked for.
        """
        if not self.paths:
            raise DataError(self._nothing())
        notes = []
        ignored = [name for name in self.others if name != _OWN_LABELS]
        if ignored:
            notes.append(f"{len(ignored)} other files ignored, such as {printable(ignored[0])}")
        source = Source(self.name, self.items, fingerprint_of(self.identity, split))
        keep, base, also = self._split(split, notes)
        if pairs == "folders":
            source.items = self._pairs(keep, base)
        else:
            source.takes_labels = True
            source.items = self.items if len(keep) == len(self.paths) else self.items.take(keep)
            self._label(source, pick(self.paths, keep), base, also, labels)
            if (pairs, labels, source.class_names) == ("none", "auto", _SIDES):
                self._refuse_pairs(pick(self.paths, keep), base)
        source.notes = tuple(notes)
        return source

    def _nothing(self) -> str:
        if not self.others:
            return f"data: {self.where} is empty. Put images in it."
        return (
            f"data: {self.where} holds {len(self.others)} files but no images, such as "
            f"{printable(self.others[0])}. Files count as images by their ending: "
            f"{' '.join(IMAGE_SUFFIXES)}."
        )

    def _split(self, split: str, notes: list[str]) -> tuple[Sequence[int], str, set[str]]:
        """Return which images belong to the split, the folder around them, and all classes."""
        everything = range(len(self.paths))
        base = _common_folder(self.paths)
        tops = {path[len(base) :].partition("/")[0] for path in self.paths}
        train, test = (sorted(tops & set(_SPLITS[part])) for part in ("train", "test"))
        if not train or tops - set(_SPLITS["train"]) - set(_SPLITS["test"]):
            if split == "train":
                return everything, base, set()
            raise DataError(
                f"split: {self.where} has no test split, which is a folder named test beside one "
                f"named train. Use split train."
            )
        chosen = train if split == "train" else test
        if not chosen:
            raise DataError(f"split: {self.where} has a folder {train[0]} but none named test.")
        prefix = f"{base}{chosen[0]}/"
        keep = [index for index, path in enumerate(self.paths) if path.startswith(prefix)]
        notes.append(f"the {split} split is the {len(keep)} images in {prefix}")
        # The folders below are read as in the training split, which has every class.
        first = f"{base}{train[0]}/"
        inner = _common_folder([path for path in self.paths if path.startswith(first)])[
            len(first) :
        ]
        bases = tuple(f"{base}{name}/{inner}" for name in (train[0], chosen[0]))
        also = {_folder_in(path, top) for path in self.paths for top in bases} - {""}
        return keep, f"{prefix}{inner}", also

    def _label(
        self, source: Source, paths: Sequence[str], base: str, also: set[str], labels: str
    ) -> None:
        if labels == "none":
            return
        if labels not in ("auto", "folders"):
            table = Path(labels).expanduser()
            if not table.is_file():
                raise DataError(
                    f"labels: {labels!r} is not one of auto, none, folders, nor a file that exists."
                )
            found = label_tables.from_file(table, paths, base, self._unused(paths))
            source.labels, source.class_names = found
        elif labels == "auto" and _OWN_LABELS in self.others:
            where = f"{_OWN_LABELS} in {self.where}"
            text = label_tables.read_text(where, lambda: self.read(_OWN_LABELS))
            table_here = label_tables.from_json(text, where)
            if table_here is not None:
                unused = self._unused(paths)
                found = label_tables.matched(table_here, paths, where, base, unused)
                source.labels, source.class_names = found
        else:
            self._label_by_folder(source, paths, base, also, insist=labels == "folders")

    def _unused(self, paths: Sequence[str]) -> list[str]:
        used = set(paths)
        return [path for path in self.paths if path not in used]

    def _label_by_folder(
        self, source: Source, paths: Sequence[str], base: str, also: set[str], *, insist: bool
    ) -> None:
        classes = []
        for path in paths:
            folder = _folder_in(path, base)
            if not folder:
                break
            classes.append(sys.intern(folder))
        if not classes and base and insist:  # all images lie in one folder: a single class
            classes = [base.split("/")[-2]] * len(paths)
        if len(classes) == len(paths):
            source.labels, source.class_names = class_labels(classes, also)
        elif insist:
            raise DataError(
                f"labels: 'folders' makes a class of each folder, but {self.where} holds images "
                f"outside of any, such as {printable(paths[len(classes)])}. Put each image in the "
                f"folder of its class, or use labels none."
            )

    def _refuse_pairs(self, paths: Sequence[str], base: str) -> None:
        stems = [os.path.splitext(path[len(base) :])[0].partition("/") for path in paths]
        first, second = ({rest for folder, _, rest in stems if folder == side} for side in _SIDES)
        if first == second:
            raise DataError(
                f"data: {self.where} holds pairs: every image in A has one of the same name in B. "
                f"To learn to turn A into B, use examples/image_to_image.py (here: pairs folders); "
                f"to learn to draw them all, use labels none, or labels folders for two classes."
            )

    def _pairs(self, keep: Sequence[int], base: str) -> PairItems:
        sides: dict[str, dict[str, int]] = {side: {} for side in _SIDES}
        for index in keep:
            folder, _, rest = self.paths[index][len(base) :].partition("/")
            if folder in sides and rest:
                sides[folder][os.path.splitext(rest)[0]] = index
        alone = sorted(sides["A"].keys() ^ sides["B"].keys())
        if alone:
            raise DataError(
                f"pairs: {self.where} has {len(alone)} images in A or B without one of the same "
                f"name in the other, such as {', '.join(map(printable, alone[:3]))}."
            )
        if not sides["A"]:
            raise DataError(
                f"pairs: 'folders' matches the images of two folders, A and B, by name, but "
                f"{self.where} has no such folders."
            )
        names = sorted(sides["A"])
        left, right = ([sides[side][name] for name in names] for side in _SIDES)
        return PairItems(self.items.take(left), self.items.take(right))


def _folder_in(path: str, base: str) -> str:
    """Return the first folder of a path below a base, or ""."""
    folder, slash, _ = path[len(base) :].partition("/")
    return folder if slash and path.startswith(base) else ""


def _common_folder(paths: Sequence[str]) -> str:
    """Return the folder that holds all of the paths, with a slash at its end, or ""."""
    shared: list[str] = []
    for first, last in zip(min(paths).split("/")[:-1], max(paths).split("/")[:-1], strict=False):
        if first != last:
            break
        shared.append(f"{first}/")
    return "".join(shared)
