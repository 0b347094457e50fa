"""Data sets with a name, through torchvision's own classes; and Fashion-MNIST from Debian."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gan.data.cache import cache_folder
from gan.data.items import ArrayItems, FileItems
from gan.data.sources import Source, fingerprint_of
from gan.data.sources_idx import idx_source, is_idx
from gan.data.sources_lsun import lsun
from gan.errors import DataError

DEBIAN_FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")
_GARMENTS = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
_DIGITS = tuple(str(digit) for digit in range(10))

# Name: torchvision's class, the class names where torchvision has none or odd ones, and what the
# class calls its splits.
_BOOLEAN = {"train": {"train": True}, "test": {"train": False}}
_SPLITS = {"train": {"split": "train"}, "test": {"split": "test"}}
_CLASSES: dict[str, tuple[str, tuple[str, ...] | None, dict[str, dict[str, Any]]]] = {
    "mnist": ("MNIST", _DIGITS, _BOOLEAN),
    "fashion-mnist": ("FashionMNIST", _GARMENTS, _BOOLEAN),
    "kmnist": ("KMNIST", None, _BOOLEAN),
    "cifar10": ("CIFAR10", None, _BOOLEAN),
    "cifar100": ("CIFAR100", None, _BOOLEAN),
    "svhn": ("SVHN", _DIGITS, _SPLITS),
    "stl10": ("STL10", None, _SPLITS),
    "celeba": ("CelebA", (), _SPLITS),
}


def named(name: str, root: Path | None, split: str) -> Source:
    """Open one of torchvision's data sets, downloading it only where it is missing.

    Args:
        name: a key of the table above, or "lsun".
        root: the folder of torchvision's data sets; None: one in the user's cache folder.
        split: "train" or "test".

    Raises:
        DataError: if it is not there and cannot be downloaded.
    """
    folder = root if root is not None else cache_folder() / "torchvision"
    if name == "lsun":
        return lsun(folder, split)
    mine = (folder / "FashionMNIST" / "raw").is_dir()
    if name == "fashion-mnist" and not mine and is_idx(DEBIAN_FASHION_MNIST):
        return replace(idx_source(DEBIAN_FASHION_MNIST, split, _GARMENTS), name=name)
    kind, names, splits = _CLASSES[name]
    data = _opened(name, kind, folder, splits[split])
    if name == "celeba":
        return _celeba(data)
    pixels = _channels_first(np.asarray(data.data))
    labels = np.asarray(data.labels if hasattr(data, "labels") else data.targets, np.int64)
    class_names = names if names is not None else tuple(data.classes)
    identity = fingerprint_of(pixels)
    return Source(name, ArrayItems(pixels), identity, labels, class_names)


def _channels_first(pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    if pixels.ndim == 3:
        return pixels[:, None]
    return pixels if pixels.shape[1] == 3 else pixels.transpose(0, 3, 1, 2)


def _opened(name: str, kind: str, folder: Path, options: dict[str, Any]) -> Any:
    import torchvision  # slow, and needed by these few names only

    build: Callable[..., Any] = getattr(torchvision.datasets, kind)
    try:
        return build(folder, **options, download=False)
    except (RuntimeError, OSError):
        pass  # missing or incomplete: torchvision says which by the same exception
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return build(folder, **options, download=True)
    except (RuntimeError, OSError, ImportError) as error:
        if is_new:  # nothing half-made is left
            shutil.rmtree(folder, ignore_errors=True)
        reason = str(error).strip().splitlines()[-1] if str(error).strip() else repr(error)
        raise DataError(
            f"data: {name!r} is not in {folder} and could not be downloaded: {reason}. "
            f"Run once where the network is reachable, or put the files that "
            f"torchvision.datasets.{kind} expects there, or name their folder with data_root. "
            f"Without a download: digits, fake:COUNT, or a folder of images."
        ) from error


def _celeba(data: Any) -> Source:
    # Forty yes-or-no attributes are no classes: unlabelled.
    root = str(Path(data.root, data.base_folder, "img_align_celeba"))
    names = list(data.filename)
    return Source("celeba", FileItems(root, names), fingerprint_of("celeba", names))
