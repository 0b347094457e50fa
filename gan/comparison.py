"""Runs side by side in one picture: the newest grid of each, and their curves in one plot a tag."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from PIL import Image, ImageDraw, ImageFont

from gan.errors import GanError
from gan.sampling import save_picture

TAGS = (
    "loss/generator",
    "loss/discriminator",
    "accuracy/real",
    "accuracy/fake",
    "grad_norm/generator",
    "samples/variety",
    "metrics/fid",
    "time/images_per_second",
)
"""The curves that are shown, as far as a run has them."""
COLOURS = (
    "#1f6fb4",
    "#e0661c",
    "#2a9249",
    "#b0303a",
    "#7a55b5",
    "#7d5a46",
    "#d46aae",
    "#5f6b73",
)
"""One for each run: told apart also by people who see fewer colours, by lightness."""
_COLUMN, _PLOT_HEIGHT, _MARGIN, _TEXT = 420, 200, 16, 14

Curve = Sequence[tuple[int, float]]


def compare_runs(folders: Sequence[Path], out: Path) -> None:
    """Draw runs side by side.

    Args:
        folders: run folders.
        out: the picture to write.

    Raises:
        GanError: the picture cannot be written, or there is nothing to show.
    """
    grids = [_newest_grid(folder) for folder in folders]
    curves = [read_curves(folder) for folder in folders]
    tags = [tag for tag in TAGS if any(tag in each for each in curves)]
    if not tags and not any(grids):
        raise GanError("these runs have neither samples nor curves yet")
    names = [folder.resolve().name for folder in folders]
    across = max(len(folders), 2)
    width = across * (_COLUMN + _MARGIN) + _MARGIN
    top = 2 * _MARGIN + _TEXT + max((grid.height for grid in grids if grid), default=0)
    rows = math.ceil(len(tags) / across)
    canvas = Image.new("RGB", (width, top + _MARGIN + rows * (_PLOT_HEIGHT + _MARGIN)), "white")
    draw = ImageDraw.Draw(canvas)
    for i, (name, grid) in enumerate(zip(names, grids, strict=True)):
        left = _MARGIN + i * (_COLUMN + _MARGIN)
        _text(draw, (left, _MARGIN), name, COLOURS[i])
        if grid:
            canvas.paste(grid, (left, 2 * _MARGIN + _TEXT))
    for i, tag in enumerate(tags):
        left = _MARGIN + i % across * (_COLUMN + _MARGIN)
        place = left, top + _MARGIN + i // across * (_PLOT_HEIGHT + _MARGIN)
        plot(draw, place, tag, [each.get(tag, ()) for each in curves])
    pixels = torch.frombuffer(bytearray(canvas.tobytes()), dtype=torch.uint8)
    save_picture(out, pixels.view(canvas.height, canvas.width, 3).permute(2, 0, 1))


def read_curves(folder: Path) -> Mapping[str, Curve]:
    """Curves of a run, from its event files.

    Args:
        folder: the run folder.

    Returns:
        By tag, (step, value) in order of steps; values that are not finite are left out.
    """
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    if not any(folder.glob("events.out.tfevents.*")):
        return {}
    events = EventAccumulator(str(folder), {"scalars": 0})
    events.Reload()
    return {
        tag: [
            (point.step, point.value) for point in events.Scalars(tag) if math.isfinite(point.value)
        ]
        for tag in events.Tags()["scalars"]
    }


def _newest_grid(folder: Path) -> Image.Image | None:
    found = sorted(folder.glob("samples/step-*.png"))
    if not found:
        return None
    try:
        with Image.open(found[-1]) as image:
            grid = image.convert("RGB")
    except OSError as error:
        raise GanError(f"cannot read {found[-1]}: {error}") from None
    grid.thumbnail((_COLUMN, 2 * _COLUMN))
    return grid


def plot(
    draw: ImageDraw.ImageDraw, place: tuple[int, int], title: str, curves: Sequence[Curve]
) -> None:
    """Draw curves into one frame, with the ends of both axes written beside it.

    Args:
        draw: where.
        place: left and top, in pixels.
        title: above the frame.
        curves: one a run, in the runs' colours; may be empty.
    """
    left, top = place[0], place[1] + _TEXT + 6
    right, bottom = place[0] + _COLUMN, place[1] + _PLOT_HEIGHT - _TEXT - 4
    _text(draw, place, title)
    draw.rectangle((left, top, right, bottom), outline="#c8c8c8")
    points = [point for curve in curves for point in curve]
    if not points:
        return
    last = max(max(step for step, _ in points), 1)
    low, high = _range([value for _, value in points])
    for colour, curve in zip(COLOURS, curves, strict=False):
        line = [
            (
                left + step / last * (right - left),
                bottom - (min(max(value, low), high) - low) / (high - low) * (bottom - top),
            )
            for step, value in curve
        ]
        if len(line) == 1:
            (x, y), r = line[0], 2
            draw.ellipse((x - r, y - r, x + r, y + r), fill=colour)
        draw.line(line, fill=colour, width=2)
    _text(draw, (left + 3, top + 1), f"{high:.3g}", "#707070")
    _text(draw, (left + 3, bottom - _TEXT - 2), f"{low:.3g}", "#707070")
    _text(draw, (left, bottom + 2), "0", "#707070")
    label = f"step {last:,}"
    _text(draw, (right - round(_font().getlength(label)), bottom + 2), label, "#707070")


def _range(values: Sequence[float]) -> tuple[float, float]:
    """Ends of an axis that a few outliers do not decide."""
    ordered = sorted(values)
    cut = len(ordered) // 100
    low, high = ordered[cut], ordered[-1 - cut]
    room = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
    return low - room, high + room


def _font() -> ImageFont.ImageFont | ImageFont.FreeTypeFont:
    return ImageFont.load_default(_TEXT)


def _text(
    draw: ImageDraw.ImageDraw, place: tuple[int, int], text: str, colour: str = "black"
) -> None:
    draw.text(place, text, fill=colour, font=_font())
