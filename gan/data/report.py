"""What `gan data SOURCE` says: what is in a source, what training would see, what fits."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from gan.data.cache import size_words
from gan.data.dataset import ImageData, LazyImages
from gan.data.door import Options, as_data, find, look_at, open_data
from gan.data.items import Items, printable
from gan.data.prepare import kept_rows
from gan.errors import DataError, GanError
from gan.networks import check_shape
from gan.presets import PRESETS, preset_config

_BARS = " ▁▂▃▄▅▆▇█"
_PIXELS_SEEN = 200 << 20


@dataclass
class Report:
    """What is in a source.

    Attributes:
        source: what the person wrote.
        total: images found.
        data: those that training would see; None where there are none.
        sizes: how many images have each size, "WIDTHxHEIGHT", as they are in the source.
        modes: how many have each mode, Pillow's or "RGB 16-bit", "+" where something shows through.
        classes: how many images each class has; empty where unlabelled.
        unreadable: name of each damaged image, and the reason.
        duplicates: names of images that are the same once decoded, a group each.
        histogram: how many values of 0 to 255 there are, shape (256,).
        presets: those whose networks can be trained on it.
        problem: why training could not start; None where it could.
    """

    source: str
    total: int
    data: ImageData | None
    sizes: Counter[str] = field(default_factory=Counter)
    modes: Counter[str] = field(default_factory=Counter)
    classes: dict[str, int] = field(default_factory=dict)
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    duplicates: list[list[str]] = field(default_factory=list)
    histogram: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(256, np.int64))
    presets: list[str] = field(default_factory=list)
    problem: str | None = None

    def text(self) -> str:
        """Return all of it in words."""
        pairs = self.data is not None and is_pair(self.data)
        points = self.data is not None and len(self.data.shape) == 1
        kind = "points" if points else "pairs of images" if pairs else "images"
        lines = [f"{self.source}: {self.total:,} {kind}"]
        lines += _listed("sizes (width x height)", self.sizes)
        lines += _listed("modes", self.modes)
        lines += _listed(f"classes ({len(self.classes)})", Counter(self.classes))
        if self.data is not None and not self.classes and not pairs:
            lines.append("  classes: none, so training is unconditional")
        lines.append(f"  unreadable: {len(self.unreadable) or 'none'}")
        lines += [f"    {name}: {reason}" for name, reason in self.unreadable[:10]]
        if len(self.unreadable) > 10:
            lines.append(f"    and {len(self.unreadable) - 10} more")
        copies = sum(len(group) - 1 for group in self.duplicates)
        lines.append(f"  exact duplicates: {copies or 'none'}")
        lines += [f"    {' = '.join(group[:4])}" for group in self.duplicates[:5]]
        if self.histogram.any():
            lines.append(
                f"  values from 0 to 255: |{_bars(self.histogram)}| {_words(self.histogram)}"
            )
        if self.data is not None:
            lines.append(f"  training would see: {_shape_words(self.data)}")
            lines += [f"    {note}" for note in self.data.notes if not note.startswith("left out")]
        if pairs:
            start = "examples/image_to_image.py could start; gan train learns no pairs"
        else:
            lines.append(f"  presets that fit: {', '.join(self.presets) or 'none'}")
            start = "training could start"
        lines.append(f"  {self.problem or start}")
        return "\n".join(map(printable, lines))


def describe(source: str, **options: Any) -> Report:
    """Find out what is in a source; damaged images are reported, not refused.

    Args:
        source: as for `open_data`.
        options: likewise.

    Returns:
        The report; its `problem` is None where training could start.

    Raises:
        DataError: if there is no such source, or it lacks what is asked.
    """
    chosen = Options(**options)
    chosen.check()
    if source in ("ring", "grid"):
        points = open_data(source, split=chosen.split)
        return Report(source, len(points), points, presets=fitting_presets(points))
    found = find(source, chosen)
    prepared = look_at(found, chosen)
    outcome, items = prepared.outcome, found.items
    report = Report(source, len(items), None, outcome.sizes, outcome.modes)
    report.unreadable = [(items.name(index), reason) for index, reason in outcome.failures]
    if len(report.unreadable) == report.total:
        report.problem = "training could not start: no image can be read"
        return report
    if report.unreadable and not chosen.skip_unreadable:
        report.problem = (
            "training could not start: repair or remove the unreadable images, or leave them out "
            "with skip_unreadable"
        )
    data = report.data = as_data(found, prepared, [])
    counts = torch.bincount(data.labels, minlength=data.num_classes).tolist()
    report.classes = dict(zip(data.class_names, counts, strict=False))
    report.histogram = _histogram(data)
    report.duplicates = _duplicates(data, items, kept_rows(len(items), outcome))
    report.presets = [] if is_pair(data) else fitting_presets(data)
    return report


def fitting_presets(data: ImageData) -> list[str]:
    """Return the presets whose networks can be trained on the data, as they are.

    Args:
        data: what they would see.
    """
    fitting = []
    for name in PRESETS:
        config = preset_config(name)
        shape = data.shape
        if config.resolution is not None and len(shape) == 3:
            shape = (shape[0], *(config.size or shape[1:]))
        toy = preset_config(name).data in ("ring", "grid")
        if toy != (len(shape) == 1) or (config.conditional and not data.num_classes):
            continue
        try:
            check_shape(config.generator.family, shape)
        except GanError:
            continue
        fitting.append(name)
    return fitting


# --- words ---------------------------------------------------------------------------------------


def _listed(title: str, counts: Counter[str]) -> list[str]:
    if not counts:
        return []
    most = ", ".join(f"{name} {count:,}" for name, count in counts.most_common(10))
    rest = f", and {len(counts) - 10} others" if len(counts) > 10 else ""
    return [f"  {title}: {most}{rest}"]


def _shape_words(data: ImageData) -> str:
    if len(data.shape) == 1:
        return f"{len(data):,} points in the plane"
    channels, height, width = data.shape
    kind = "pairs, each image" if is_pair(data) else "images"
    channels = channels // 2 if is_pair(data) else channels
    return (
        f"{len(data):,} {kind} of {channels}x{height}x{width} (channels x height x width), "
        f"{size_words(int(np.prod(data.shape)) * len(data))}"
    )


def _bars(histogram: npt.NDArray[np.int64], bins: int = 32) -> str:
    heights = histogram.reshape(bins, -1).sum(1)
    return "".join(_BARS[-(-int(height) * 8 // int(heights.max()))] for height in heights)


def _words(histogram: npt.NDArray[np.int64]) -> str:
    shares = histogram / histogram.sum()
    mean = float(shares @ np.arange(256))
    return f"mean {mean:.0f}, {shares[0]:.0%} are 0, {shares[255]:.0%} are 255"


# --- pixels --------------------------------------------------------------------------------------


def _histogram(data: ImageData) -> npt.NDArray[np.int64]:
    """Count values, of an even sample where there are very many."""
    count = max(1, min(len(data), _PIXELS_SEEN // int(np.prod(data.shape))))
    rows = np.linspace(0, len(data) - 1, count).round().astype(int)
    totals = np.zeros(256, np.int64)
    for part in np.array_split(rows, -(-count // 1024)):
        images, _ = data.__getitems__(part.tolist())
        totals += np.bincount(images.numpy().ravel(), minlength=256)
    return totals


def _duplicates(data: ImageData, items: Items, rows: npt.NDArray[np.int64]) -> list[list[str]]:
    if isinstance(data.images, LazyImages):  # it would take as long as the preparation
        return []
    groups: dict[bytes, list[int]] = {}
    for start in range(0, len(data), 1024):
        part = np.ascontiguousarray(data.images[start : start + 1024].numpy())
        for index, image in enumerate(part):
            digest = hashlib.blake2b(image.data, digest_size=16).digest()
            groups.setdefault(digest, []).append(start + index)
    return [
        [items.name(int(rows[i])) for i in group] for group in groups.values() if len(group) > 1
    ]


def contact_sheet(data: ImageData, path: Path, *, count: int = 64, columns: int = 8) -> None:
    """Write a picture of what training would see.

    Args:
        data: images, of which an even sample is shown, pairs side by side; or points.
        path: the PNG to write.
        count: most images shown.
        columns: images in a row.

    Raises:
        DataError: if the picture cannot be written.
    """
    rows = np.linspace(0, len(data) - 1, min(count, len(data))).round().astype(int)
    if len(data.shape) == 1:
        sheet = _plotted(data)
    else:
        images = data.__getitems__(rows.tolist())[0].numpy()
        sheet = _tiled([_shown(image) for image in images], columns)
    try:
        Image.fromarray(sheet).save(path, "PNG")
    except OSError as error:
        raise DataError(f"the contact sheet cannot be written to {path}: {error}") from error


def is_pair(data: ImageData) -> bool:
    """Whether an example is two images, whose channels are stacked."""
    return len(data.shape) == 3 and data.shape[0] in (2, 6, 8)


def _shown(image: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Return an image as RGBA of shape (height, width, 4), small ones enlarged to be seen."""
    parts = np.split(image, 2) if len(image) in (2, 6, 8) else [image]
    pictures = [part[0] if len(part) == 1 else part.transpose(1, 2, 0) for part in parts]
    both = np.concatenate(
        [np.asarray(Image.fromarray(np.ascontiguousarray(p)).convert("RGBA")) for p in pictures], 1
    )
    scale = max(1, 64 // both.shape[0])
    return both.repeat(scale, 0).repeat(scale, 1)


def _tiled(tiles: list[npt.NDArray[np.uint8]], columns: int, gap: int = 2) -> Any:
    height, width, channels = tiles[0].shape
    lines = -(-len(tiles) // columns)
    columns = min(columns, len(tiles))
    sheet = np.full((lines * (height + gap) + gap, columns * (width + gap) + gap, channels), 128)
    sheet[..., 3] = 255
    for index, tile in enumerate(tiles):
        top = index // columns * (height + gap) + gap
        left = index % columns * (width + gap) + gap
        sheet[top : top + height, left : left + width] = tile
    return sheet.astype(np.uint8)


def _plotted(data: ImageData, size: int = 256) -> Any:
    points = data.__getitems__(range(len(data)))[0].numpy()
    counts, _, _ = np.histogram2d(-points[:, 1], points[:, 0], size, [[-1, 1], [-1, 1]])
    return np.where(counts > 0, 0, 255).astype(np.uint8)
