"""The one path from a generator to images, and from images to a picture.

Training grids, files, metrics and commands all come through here. A seed stands for one latent
vector and, if the generator knows classes, one class; so a seed is one image, in every command, at
every batch size and whatever else is sampled beside it.
"""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
import torch.nn.functional as F
from accelerate.utils import extract_model_from_parallel
from PIL import Image
from torch import Tensor, nn

from gan.chance import generator_for
from gan.errors import GanError
from gan.progress import progress_bar

POINTS_EXTENT = 1.8
"""A picture of points shows [-POINTS_EXTENT, POINTS_EXTENT] on both axes."""
_TILE_PX = 64  # small images are enlarged to about this size
_PICTURE_PX = 2048  # and a picture stays about this small
_GAP_PX = 2

# --- latents and labels --------------------------------------------------------------------------


def latents(seeds: Sequence[int] | Tensor, z_dim: int, truncation: float | None = None) -> Tensor:
    """Latent vectors, each decided by its seed alone.

    Args:
        seeds: one integer for each vector.
        z_dim: length of a vector.
        truncation: bring every number into [-truncation, truncation] with the truncated normal
            distribution: fewer surprises, less variety. A monotone map of the untruncated
            vector, so a seed keeps its character. None: off.

    Returns:
        z ~ N(0, 1), shape (len(seeds), z_dim), on the CPU.

    Raises:
        GanError: `truncation` is not above 0.

    Reference: truncation as in Brock et al. 2019, arXiv 1809.11096, section 3.1. Unlike the
        paper, by the inverse distribution function instead of by drawing again.
    """
    rows = [torch.randn(z_dim, generator=generator_for("sample", int(seed))) for seed in seeds]
    z = torch.stack(rows) if rows else torch.empty(0, z_dim)
    return z if truncation is None else _truncated(z, truncation)


def _truncated(z: Tensor, truncation: float) -> Tensor:
    if not truncation > 0:
        raise GanError(f"truncation: {truncation:g} is not above 0; 1 is strong, 2 weak")
    low = torch.special.ndtr(torch.tensor(-truncation, dtype=torch.float64))
    inside: Tensor = torch.special.ndtri(low + torch.special.ndtr(z.double()) * (1 - 2 * low))
    return inside.float().clamp(-truncation, truncation)


def labels_for(seeds: Sequence[int] | Tensor, num_classes: int) -> Tensor:
    """The class of each seed, int64 of shape (len(seeds),): seed modulo the number of classes.

    So consecutive seeds go through the classes in turn, and a grid with `grid_columns` columns
    shows one class in each column.
    """
    return torch.tensor([int(seed) % num_classes for seed in seeds], dtype=torch.int64)


def grid_columns(n: int, num_classes: int = 0) -> int:
    """Columns of a grid of `n` samples: a square; or a multiple of the classes if near one."""
    side = math.ceil(math.sqrt(max(n, 1)))
    if 0 < num_classes <= 2 * side:
        return num_classes * max(1, round(side / num_classes))
    return side


# --- generator to images -------------------------------------------------------------------------


def sample(
    generator: nn.Module,
    seeds: Sequence[int] | Tensor,
    labels: Sequence[int] | Tensor | int | None = None,
    *,
    batch_size: int = 256,
    truncation: float | None = None,
    progress: bool = False,
) -> Tensor:
    """Images of seeds, all at once in memory.

    Args:
        generator: see `generate`.
        seeds: one integer for each image.
        labels: class of each image, or one class for all; None: `labels_for`.
        batch_size: images between two marks of the progress bar; changes no image.
        truncation: see `generate`.
        progress: show a bar.

    Returns:
        Images in [-1, 1], or points: float32, shape (len(seeds), *shape), on the CPU.

    Raises:
        GanError: labels that the generator does not have, or a truncation that cannot be.
        TypeError: `generator` is no generator.
    """
    size = batch_size if progress else max(len(seeds), 1)
    pieces = sample_batches(generator, seeds, labels, batch_size=size, truncation=truncation)
    if not progress:
        return next(pieces)
    images = torch.empty(len(seeds), *unwrap(generator).shape)  # type: ignore[misc]
    start = 0
    with progress_bar(total=len(seeds), unit="image") as bar:
        for piece in pieces:
            images[start : start + len(piece)] = piece
            start += len(piece)
            bar.update(len(piece))
    return images


def sample_batches(
    generator: nn.Module,
    seeds: Sequence[int] | Tensor,
    labels: Sequence[int] | Tensor | int | None = None,
    *,
    batch_size: int = 256,
    truncation: float | None = None,
) -> Iterator[Tensor]:
    """Images of seeds, piece by piece, for more than memory holds.

    Takes and raises what `sample` does, and raises it now, not when the first piece is drawn.

    Returns:
        Images as `sample` gives them; at least one piece, which may be empty.
    """
    raw = unwrap(generator) if isinstance(generator, nn.Module) else None
    if raw is None or not hasattr(raw, "z_dim"):
        kind = type(generator).__name__
        raise TypeError(f"generator: a {kind} is none; gan.load_generator(FOLDER) gives one")
    chosen = _checked_labels(raw, seeds, labels)
    _check_truncation(raw, truncation)

    def pieces() -> Iterator[Tensor]:
        for start in range(0, max(len(seeds), 1), batch_size):
            piece = slice(start, start + batch_size)
            z = latents(seeds[piece], int(raw.z_dim))  # type: ignore[arg-type]
            part = None if chosen is None else chosen[piece]
            yield generate(raw, z, part, truncation=truncation)

    return pieces()


def generate(
    generator: nn.Module,
    z: Tensor,
    labels: Tensor | None = None,
    *,
    truncation: float | None = None,
) -> Tensor:
    """Images of latent vectors, leaving no trace.

    In eval mode, without wrappers, gradients or autocast. Modes, buffers and torch's global random
    state are afterwards as before. The generator is always called with batches of one size that
    depends on the shape of an image only, the last one filled up: matrix products of another size
    round differently.

    Args:
        generator: with attributes `z_dim`, `num_classes` and `shape`; wrapped or not.
        z: shape (n, z_dim).
        labels: int64 of shape (n,), for a class-conditional generator.
        truncation: as in `latents`; or, for a generator whose forward takes `truncation`, how far
            from the average style to go. None: off.

    Returns:
        float32 of shape (n, *shape), on the CPU.

    Raises:
        GanError: `truncation` is too small.
    """
    raw = unwrap(generator)
    options = {}
    if _check_truncation(raw, truncation):
        options["truncation"] = truncation
    elif truncation is not None:
        z = _truncated(z, truncation)
    parameter = next(raw.parameters())
    forward = getattr(raw, "_original_forward", raw)  # Accelerate's other one would autocast
    size = _batch_size(raw.shape)  # type: ignore[arg-type]
    images = torch.empty(len(z), *raw.shape)  # type: ignore[misc]
    with _left_alone(raw, parameter.device):
        for start in range(0, len(z), size):
            part = z[start : start + size]
            filling = size - len(part)
            inputs = [F.pad(part, (0, 0, 0, filling)).to(parameter.device, parameter.dtype)]
            if labels is not None:
                chosen = F.pad(labels[start : start + size], (0, filling))
                inputs.append(chosen.to(parameter.device))
            images[start : start + size] = forward(*inputs, **options)[: len(part)]
    return images


def unwrap(generator: nn.Module) -> nn.Module:
    """The network inside what Accelerate, DDP and torch.compile put around it.

    Args:
        generator: wrapped or not; it stays as it is.

    Returns:
        The raw network.
    """
    raw = extract_model_from_parallel(generator, keep_torch_compile=False)
    while hasattr(raw, "_orig_mod"):  # compiled before it was wrapped
        raw = raw._orig_mod
    return raw  # type: ignore[no-any-return]


def _batch_size(shape: tuple[int, ...]) -> int:
    # Below four rows matrix products change their order of summation with the row.
    return max(4, min(64, 2**22 // math.prod(shape)))


@contextmanager
def _left_alone(network: nn.Module, device: torch.device) -> Iterator[None]:
    modes = [(module, module.training) for module in network.modules()]
    buffers = {name: buffer.clone() for name, buffer in network.named_buffers()}
    on_cuda = [device] if device.type == "cuda" else []
    with (
        torch.random.fork_rng(on_cuda),
        torch.autocast(device.type, enabled=False),
        torch.no_grad(),
    ):
        torch.default_generator.manual_seed(0)  # for a generator with noise of its own
        for _ in on_cuda:
            torch.cuda.manual_seed(0)
        network.eval()
        try:
            yield
        finally:
            for module, mode in modes:
                module.training = mode
            for name, buffer in network.named_buffers():
                buffer.copy_(buffers[name])


def _check_truncation(network: nn.Module, truncation: float | None) -> bool:
    """Whether the generator truncates itself, on the way from its average style."""
    if truncation is None:
        return False
    if "truncation" not in inspect.signature(type(network).forward).parameters:
        _truncated(torch.zeros(0), truncation)
        return False
    if not 0 <= truncation < math.inf:
        raise GanError(f"truncation: {truncation:g} is below 0; 0.5 is strong, 1 is off")
    return True


def _checked_labels(
    network: nn.Module, seeds: Sequence[int] | Tensor, labels: Sequence[int] | Tensor | int | None
) -> Tensor | None:
    num_classes = int(getattr(network, "num_classes", 0))
    if num_classes == 0:
        if labels is not None:
            raise GanError("labels: this generator was trained without classes; leave them out")
        return None
    if labels is None:
        return labels_for(seeds, num_classes)
    chosen = torch.as_tensor(labels, dtype=torch.int64).cpu()
    if chosen.ndim == 0:
        chosen = chosen.expand(len(seeds))
    if len(chosen) != len(seeds):
        raise GanError(f"labels: {len(chosen)} of them for {len(seeds)} seeds; give one for each")
    wrong = chosen[(chosen < 0) | (chosen >= num_classes)]
    if len(wrong):
        last = num_classes - 1
        raise GanError(f"labels: {int(wrong[0])} is no class; this generator has 0 to {last}")
    return chosen


# --- images to a picture -------------------------------------------------------------------------


def to_bytes(images: Tensor) -> Tensor:
    """Images as bytes; the one conversion, with a fixed range, and the inverse of the data's.

    Args:
        images: in [-1, 1], any shape; what is outside is clamped, NaN becomes the middle.

    Returns:
        uint8 in 0..255, of the same shape.
    """
    return ((images.float().nan_to_num(0.0) + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)


def picture(samples: Tensor, columns: int | None = None, real: Tensor | None = None) -> Tensor:
    """One picture of many samples.

    Images become a grid with thin white lines. Small ones are enlarged smoothly, by a whole number,
    and large ones averaged down, so that a tile has about 64 pixels and the picture at most about
    2048 on a side. Points become a plot with fixed axes, darker where they are denser; what lies
    outside is shown on the edge.

    Args:
        samples: images in [-1, 1], shape (n, 1 or 3 or 4, height, width), or points (n, 2).
        columns: of the grid; None: `grid_columns(n)`.
        real: points to show beside the samples, in orange.

    Returns:
        uint8 of shape (channels, height, width).

    Raises:
        ValueError: neither images nor points, or nothing to show.
    """
    if len(samples) == 0:
        raise ValueError("there are no samples to make a picture of")
    if samples.ndim == 2 and samples.shape[1] == 2:
        return _plot(samples, real)
    if samples.ndim != 4 or samples.shape[1] not in (1, 3, 4):
        raise ValueError(f"samples of shape {tuple(samples.shape)} are neither images nor points")
    columns = columns or grid_columns(len(samples))
    rows = math.ceil(len(samples) / columns)
    tiles = _resized(samples, columns, rows)
    count, channels, height, _ = tiles.shape
    tiles = F.pad(tiles, (0, _GAP_PX, 0, _GAP_PX), value=255)
    missing = tiles.new_full((rows * columns - count, *tiles.shape[1:]), 255)
    grid = torch.cat([tiles, missing]).view(rows, columns, *tiles.shape[1:])
    grid = grid.permute(2, 0, 3, 1, 4).reshape(channels, rows * (height + _GAP_PX), -1)
    return F.pad(grid, (_GAP_PX, 0, _GAP_PX, 0), value=255)


def _resized(samples: Tensor, columns: int, rows: int) -> Tensor:
    height, width = samples.shape[2:]
    room = min(_PICTURE_PX / (columns * width), _PICTURE_PX / (rows * height))
    if room >= 1:
        factor = max(1, min(int(room), _TILE_PX // min(height, width)))
        size = factor * height, factor * width
        # Smooth: the eye cannot read an 8x8 digit made of square blocks.
        mode = "bicubic" if factor > 1 else "nearest"
        within = samples.float().nan_to_num(0.0).clamp(-1, 1)  # an outlier must not spread
        return to_bytes(F.interpolate(within, size, mode=mode))
    size = max(1, int(height * room)), max(1, int(width * room))
    return to_bytes(F.interpolate(samples.float(), size, mode="area"))


def _plot(points: Tensor, real: Tensor | None, size: int = 256) -> Tensor:
    canvas = torch.ones(3, size, size)
    layers = [] if real is None else [(real, (0.95, 0.55, 0.15), 7)]
    for cloud, colour, brush in [*layers, (points, (0.1, 0.25, 0.75), 3)]:
        place = (cloud.detach().cpu().double().nan_to_num(0.0) / POINTS_EXTENT + 1) / 2 * size
        x, y = place.long().clamp(0, size - 1).unbind(1)
        counts = torch.bincount((size - 1 - y) * size + x, minlength=size * size).float()
        # Each point covers brush x brush pixels by half.
        dots = brush**2 * F.avg_pool2d(counts.view(1, size, size), brush, 1, brush // 2)
        canvas = canvas.lerp(torch.tensor(colour).view(3, 1, 1), 1 - 0.5**dots)
    canvas = canvas.repeat_interleave(2, 1).repeat_interleave(2, 2)
    return to_bytes(canvas * 2 - 1)


def check_picture_name(path: Path) -> None:
    """Refuse a file whose ending names no format, before there is a picture to write."""
    kind = Image.registered_extensions().get(path.suffix.lower())
    if kind not in Image.SAVE:
        raise GanError(f"{path}: {path.suffix or 'no ending'} is no kind of picture; use .png")


def save_picture(path: Path | str, picture: Tensor) -> None:
    """Write a picture; whole or not at all.

    Args:
        path: the file; its ending decides the format. Its folder is made.
        picture: uint8 of shape (1 or 3 or 4, height, width).

    Raises:
        GanError: the file cannot be written, or its ending names no format for this picture.
    """
    path = Path(path)
    check_picture_name(path)
    pixels = picture.cpu().permute(1, 2, 0).contiguous().numpy()
    image = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
    temporary = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(temporary)
        os.replace(temporary, path)
    except OSError as error:
        raise GanError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        with suppress(OSError):
            temporary.unlink()
