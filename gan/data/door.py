"""`open_data`: from what a person wrote after --data to the images that training reads."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from gan.data.dataset import ImageData
from gan.data.decode import Target, UnreadableError, convert, is_grey
from gan.data.items import ArrayItems, Items
from gan.data.sources import NAMED, Source, fingerprint_of, unknown
from gan.errors import DataError

Fit = Literal["crop", "pad", "stretch"]


def open_data(
    source: str,
    *,
    root: Path | None = None,
    split: str = "train",
    resolution: tuple[int, int] | None = None,
    channels: int | None = None,
    fit: Fit = "crop",
    labels: str = "auto",
) -> ImageData:
    """Open images of any kind.

    Args:
        source: a name (digits, mnist, fashion-mnist, kmnist, cifar10, cifar100, svhn, stl10,
            celeba, ring, grid), "fake:COUNT", or the path of a folder of images.
        root: where torchvision's data sets are kept and downloaded to; None: a folder in the
            user's cache folder.
        split: "train", or "test" where the source has one.
        resolution: height and width in pixels; None: the data's own.
        channels: 1 (grey), 3 (colour) or 4 (with opacity); None: the data's own, without opacity.
        fit: how an image of other proportions is brought to the resolution: "crop" cuts the
            longer side off evenly, "pad" adds the background, "stretch" changes the proportions.
        labels: "auto" takes what the source has, "none" ignores it, "folders" insists on one
            folder a class.

    Returns:
        The images, all of one shape, as uint8; or the points of ring and grid, as float32.

    Raises:
        DataError: if the source does not exist, is empty, cannot be read, or lacks what is asked.
    """
    if split not in ("train", "test"):
        raise DataError(f"split: {split!r} is not one of 'train', 'test'.")
    if source in ("ring", "grid"):
        from gan.data.sources_made import points

        return points(source, split)
    found = _find(source, root, split, resolution, channels, labels)
    if labels == "none":
        found.labels, found.class_names = None, ()
    elif labels != "auto" and found.labels is None:
        raise DataError(
            f"labels: {labels!r} was asked for, but {source!r} has no labels. Use labels none."
        )
    return _prepare(found, resolution, channels, fit)


def _find(
    source: str,
    root: Path | None,
    split: str,
    resolution: tuple[int, int] | None,
    channels: int | None,
    labels: str,
) -> Source:
    name = source.lower()
    if name in NAMED and name != "digits":
        from gan.data.sources_named import named

        return named(name, root, split)
    if split == "test":
        raise DataError(f"split: {source!r} has no test split. Use split train.")
    if name == "digits":
        from gan.data.sources_made import digits

        return digits()
    if name == "fake" or name.startswith("fake:"):
        from gan.data.sources_made import fake

        return fake(name, resolution, channels)
    path = Path(source).expanduser()
    if not path.exists():
        raise unknown(source)
    if path.is_dir():
        from gan.data.sources_folder import folder

        return folder(path, labels)
    raise DataError(f"data: {source!r} is a file of no known kind. Give a folder of images.")


def _prepare(
    source: Source, resolution: tuple[int, int] | None, channels: int | None, fit: Fit
) -> ImageData:
    items = source.items
    height, width = resolution or _resolution(items)
    target = Target(channels or _channels(items), height, width, fit)
    wanted = (target.channels, height, width)
    if isinstance(items, ArrayItems) and items.pixels.shape[1:] == wanted:
        images = items.pixels
    else:
        images = np.empty((len(items), *wanted), np.uint8)
        for index in range(len(items)):
            try:
                images[index] = convert(items.picture(index), target)
            except UnreadableError as error:
                raise DataError(f"data: {items.name(index)}: {error}") from error
    return ImageData(
        source.name,
        torch.from_numpy(np.ascontiguousarray(images)),
        fingerprint_of(source.fingerprint, target),
        labels=None if source.labels is None else torch.from_numpy(source.labels),
        class_names=source.class_names,
        notes=source.notes,
    )


def _sample(items: Items, most: int = 256) -> list[int]:
    return sorted(set(np.linspace(0, len(items) - 1, most).astype(int).tolist()))


def _resolution(items: Items) -> tuple[int, int]:
    if isinstance(items, ArrayItems):
        return items.pixels.shape[2], items.pixels.shape[3]
    sizes = Counter(items.picture(index).size for index in _sample(items))
    width, height = sizes.most_common(1)[0][0]
    return height, width


def _channels(items: Items) -> int:
    if isinstance(items, ArrayItems):
        return items.pixels.shape[1]
    return 1 if all(is_grey(items.picture(index)) for index in _sample(items)) else 3
