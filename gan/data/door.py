"""`open_data`: from what a person wrote after --data to the images that training reads."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from gan.data.archive import ARCHIVE_SUFFIXES, is_archive
from gan.data.cache import parse_size
from gan.data.dataset import ImageData
from gan.data.items import PairItems
from gan.data.prepare import Prepared, Wanted, check_readable, kept_rows, prepare
from gan.data.sources import NAMED, Source, fingerprint_of, unknown
from gan.data.sources_archive import archive_tree
from gan.data.sources_array import array_source, is_array
from gan.data.sources_folder import folder_tree
from gan.data.sources_hub import PREFIX, hub_source, is_saved
from gan.data.sources_idx import idx_source, is_idx
from gan.data.tree import is_image
from gan.errors import DataError

Fit = Literal["crop", "pad", "stretch"]
Pairs = Literal["none", "folders", "side-by-side"]
_LARGEST = 8192  # pixels; a single image of that size takes 200 MB
_CHOICES: dict[str, tuple[object, ...]] = {
    "split": ("train", "test"),
    "channels": (None, 1, 3, 4),
    "fit": ("crop", "pad", "stretch"),
    "pairs": ("none", "folders", "side-by-side"),
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a source is opened: the keyword arguments of `open_data`, which explains them."""

    root: Path | None = None
    split: str = "train"
    resolution: tuple[int, int] | None = None
    channels: int | None = None
    fit: Fit = "crop"
    background: tuple[int, int, int] = (255, 255, 255)
    labels: str = "auto"
    pairs: Pairs = "none"
    image_column: str | None = None
    label_column: str | None = None
    skip_unreadable: bool = False
    no_cache: bool = False
    cache_limit: int | str = "50GB"

    def check(self) -> None:
        """Refuse what cannot be.

        Raises:
            DataError: names the option, its value and what is allowed.
        """
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                words = ", ".join(repr(choice) for choice in allowed)
                raise DataError(f"{name}: {getattr(self, name)!r} is not one of {words}.")
        if self.resolution is not None and min(self.resolution) < 1:
            raise DataError(f"resolution: {self.resolution} is no height and width in pixels.")
        if self.resolution is not None and max(self.resolution) > _LARGEST:
            raise DataError(
                f"resolution: {self.resolution} is more than {_LARGEST} pixels a side. "
                f"Ask for less."
            )
        if len(self.background) != 3 or not all(0 <= value <= 255 for value in self.background):
            raise DataError(f"background: {self.background} is not three values from 0 to 255.")
        parse_size(self.cache_limit)


def open_data(
    source: str,
    *,
    root: Path | None = None,
    split: str = "train",
    resolution: tuple[int, int] | None = None,
    channels: int | None = None,
    fit: Fit = "crop",
    background: tuple[int, int, int] = (255, 255, 255),
    labels: str = "auto",
    pairs: Pairs = "none",
    image_column: str | None = None,
    label_column: str | None = None,
    skip_unreadable: bool = False,
    no_cache: bool = False,
    cache_limit: int | str = "50GB",
) -> ImageData:
    """Open images of any kind.

    Values that are no bytes are scaled by the range that all of a source's lie in: 0 to 1, -1 to 1,
    0 to 255 or 0 to 65535, except that floats just outside of one are refused; see
    `gan.data.ranges`.

    Args:
        source: a name (digits, mnist, fashion-mnist, kmnist, cifar10, cifar100, svhn, stl10,
            celeba, lsun, ring, grid), "fake:COUNT", the path of a folder, zip or tar of images, of
            an .npy or .npz array, of a folder of idx files, or of one that `datasets` saved, or
            "hf:OWNER/NAME".
        root: where torchvision's data sets are kept and downloaded to; None: a folder in the
            user's cache folder.
        split: "train", or "test" where the source has one.
        resolution: height and width in pixels; None: the data's own up to 1,024, or where images
            differ or are larger, a power of two up to 256 that at least half of them reach.
        channels: 1 (grey), 3 (colour) or 4 (with opacity); None: the data's own, without opacity.
        fit: how an image of other proportions is brought to the resolution: "crop" cuts the
            longer side off evenly, "pad" adds the background, "stretch" changes the proportions.
        background: RGB from 0 to 255, shows through transparency where opacity is not kept.
        labels: "auto" takes what the source has, "none" ignores it, "folders" insists on one
            folder a class; or a file: StyleGAN's dataset.json, a CSV of file and label, or an
            .npy of one number an image.
        pairs: for image-to-image. "folders" matches the images of folders A and B by name,
            "side-by-side" takes the halves of each image; an example has the channels of both.
        image_column: of a Hugging Face data set; None: the one that holds images.
        label_column: of a Hugging Face data set; None: the one that holds classes.
        skip_unreadable: leave damaged images out instead of refusing the source.
        no_cache: do not keep the prepared images in the user's cache folder.
        cache_limit: most bytes of all prepared images there, as a number or as in "50GB"; what
            was used longest ago is removed first.

    Returns:
        The images, all of one shape, as uint8; or the points of ring and grid, as float32.

    Raises:
        DataError: if the source does not exist, is empty, is damaged, or lacks what is asked.
    """
    options = Options(**{name: value for name, value in locals().items() if name != "source"})
    options.check()
    if source in ("ring", "grid"):
        from gan.data.sources_made import points

        return points(source, split)
    found = find(source, options)
    prepared = look_at(found, options)
    notes = check_readable(found, prepared.outcome, skip_unreadable=skip_unreadable)
    return as_data(found, prepared, notes)


def find(source: str, options: Options) -> Source:
    """Find the pictures that a source means, without decoding them.

    Args:
        source: as for `open_data`.
        options: likewise.

    Raises:
        DataError: if there is no such source, or it lacks what is asked.
    """
    found = _find(source, options)
    if options.labels not in ("auto", "none") and not found.takes_labels:
        raise DataError(
            f"labels: {options.labels!r} cannot be used with {source!r}. Use labels auto or none."
        )
    if options.pairs == "side-by-side":
        found.items = PairItems(found.items, None)
    elif options.pairs == "folders" and not isinstance(found.items, PairItems):
        raise DataError(f"pairs: {source!r} has no folders A and B. Use pairs side-by-side.")
    if options.labels == "none":
        found.labels, found.class_names = None, ()
    return found


def look_at(source: Source, options: Options) -> Prepared:
    """Decode what was found, or find it decoded.

    Args:
        source: the pictures.
        options: what to make of them.
    """
    wanted = Wanted(options.resolution, options.channels, options.fit, options.background)
    limit = parse_size(options.cache_limit)
    return prepare(source, wanted, cache_limit=limit, no_cache=options.no_cache)


def as_data(source: Source, prepared: Prepared, notes: list[str]) -> ImageData:
    """Put pixels and labels together.

    Args:
        source: where they come from.
        prepared: the pixels of those that could be read.
        notes: about those that could not.
    """
    failed = [index for index, _ in prepared.outcome.failures]
    labels = source.labels
    if labels is not None:
        labels = labels[kept_rows(len(source.items), prepared.outcome)]
    return ImageData(
        source.name,
        prepared.images,
        fingerprint_of(source.fingerprint, prepared.target, source.items.parts, labels, failed),
        labels=None if labels is None else torch.from_numpy(labels),
        class_names=source.class_names,
        notes=(*source.notes, *_conversions(prepared), *notes, *prepared.notes),
        stored=prepared.stored,
    )


def _conversions(prepared: Prepared) -> list[str]:
    """Say what happened to images that were not as they are now."""
    modes, sizes, target = prepared.outcome.modes, prepared.outcome.sizes, prepared.target
    total = sum(modes.values())
    grey = sum(modes[mode] for mode in modes if mode[0] in "1LIF" and not mode.startswith("LAB"))
    clear = sum(modes[mode] for mode in modes if mode.endswith("+"))
    other = total - sizes[f"{target.width}x{target.height}"]
    notes = [
        f"values of mode {mode} are taken to lie between {found[0]} and {found[1]} in all images"
        for mode, found in target.ranges.items()
        if found is not None
    ]
    if target.channels > 1 and grey:
        notes.append(f"{grey} of {total} images are grey and were given {target.channels} channels")
    if target.channels == 1 and total - grey:
        notes.append(f"{total - grey} of {total} images have colours and were made grey")
    if target.channels < 4 and clear:
        notes.append(f"{clear} of {total} images have opacity and were put on the background")
    if converted := prepared.outcome.profiles["converted"]:
        notes.append(f"{converted} of {total} images had other colours and were brought to sRGB")
    if ignored := prepared.outcome.profiles["ignored"]:
        notes.append(f"{ignored} of {total} images have a colour profile that cannot be used")
    if other:
        notes.append(
            f"{other} of {total} images were brought to {target.height}x{target.width} pixels "
            f"(height x width) by {target.fit}"
        )
    return notes


def _find(source: str, options: Options) -> Source:
    name = source.lower()
    if name in NAMED and name != "digits":
        from gan.data.sources_named import named

        return named(name, options.root, options.split)
    if name == "digits" or name.partition(":")[0] == "fake":
        from gan.data.sources_made import made

        return made(name, options.split, options.resolution, options.channels)
    path = Path(source).expanduser()
    if name.startswith(PREFIX) or is_saved(path):
        place = source if name.startswith(PREFIX) else str(path)
        columns = options.image_column, options.label_column
        return hub_source(place, options.split, options.labels, *columns)
    if not path.exists():
        raise unknown(source)
    if path.is_file() and not os.access(path, os.R_OK):
        raise DataError(
            f"data: {source!r} may not be read by you. Change its permissions (chmod u+r), or copy "
            f"it with the help of its owner."
        )
    if is_array(path):
        return array_source(path, options.split, options.labels)
    if path.is_dir() and is_idx(path):
        return idx_source(path, options.split)
    if not path.is_dir() and not is_archive(path):
        what = "no whole archive" if path.suffix in ARCHIVE_SUFFIXES else "a file of no known kind"
        what = "a single image" if is_image(path.name) else what
        raise DataError(
            f"data: {source!r} is {what}. Give a folder, zip or tar of images, or an .npy or .npz "
            f"array."
        )
    tree = folder_tree(path) if path.is_dir() else archive_tree(path)
    return tree.source(options.split, options.labels, pairs=options.pairs)
