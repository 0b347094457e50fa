"""Samples as files: folders and archives, interpolations as animations, and nearest neighbours."""

from __future__ import annotations

import io
import json
import math
import os
import shutil
import subprocess
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from gan.errors import GanError
from gan.progress import progress_bar
from gan.sampling import generate, labels_for, latents, picture, sample_batches, to_bytes, unwrap

# --- many images ---------------------------------------------------------------------------------


def save_samples(
    out: Path,
    generator: nn.Module,
    seeds: Sequence[int],
    labels: Sequence[int] | Tensor | int | None = None,
    *,
    truncation: float | None = None,
    progress: bool = False,
) -> None:
    """Write the images of seeds, each on its own; all of them or nothing.

    - `NAME.npz`: arrays `images` (count, height, width, channels) of bytes (or points (count, 2)),
      `seeds`, and `labels` of a class-conditional generator;
    - `NAME.zip`, or a folder: `seed-000042.png` ..., and the labels in `dataset.json`, which
      `--data` and other tools read.

    Args:
        out: decides which by its ending.
        generator: as `gan.sampling.sample` takes it.
        seeds: one integer for each image, all different.
        labels: as `gan.sampling.sample` takes them.
        truncation: see `gan.sampling.generate`.
        progress: show a bar.

    Raises:
        GanError: the place is taken or cannot be written, another ending, or labels that cannot
            be.
    """
    if len(set(seeds)) < len(seeds):
        raise GanError("seeds: one of them comes twice, and would give the same image twice")
    raw = unwrap(generator)
    images = _with_progress(
        sample_batches(raw, seeds, labels, truncation=truncation), len(seeds), progress
    )
    classes = None
    num_classes = int(getattr(raw, "num_classes", 0))
    if num_classes:
        given = labels_for(seeds, num_classes) if labels is None else torch.as_tensor(labels)
        classes = given.expand(len(seeds)).tolist()
    kind = out.suffix.lower()
    if kind == ".npz":
        _save_npz(out, images, seeds, classes)
    elif len(raw.shape) != 3:  # type: ignore[arg-type]
        raise GanError(f"{out}: points are no images; write them to a file that ends in .npz")
    elif kind == ".zip":
        _save_zip(out, images, seeds, classes)
    elif kind == "":
        _save_folder(out, images, seeds, classes)
    else:
        raise GanError(f"{out}: give a folder, or a file that ends in .npz, .zip or .png")


def _with_progress(pieces: Iterator[Tensor], total: int, progress: bool) -> Iterator[Tensor]:
    with progress_bar(total=total, unit="image", disable=not progress) as bar:
        for piece in pieces:
            yield piece
            bar.update(len(piece))


def _save_npz(
    out: Path, pieces: Iterator[Tensor], seeds: Sequence[int], classes: list[int] | None
) -> None:
    with _whole_file(out) as temporary, temporary.open("wb") as file:
        images = [
            to_bytes(piece).permute(0, 2, 3, 1) if piece.ndim == 4 else piece for piece in pieces
        ]
        arrays = {"images": torch.cat(images).numpy(), "seeds": np.array(seeds, np.int64)}
        if classes is not None:
            arrays["labels"] = np.array(classes, np.int64)
        np.savez(file, **arrays)  # type: ignore[arg-type]


def _save_zip(
    out: Path, pieces: Iterator[Tensor], seeds: Sequence[int], classes: list[int] | None
) -> None:
    with _whole_file(out) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name, content in _files(pieces, seeds, classes):
            archive.writestr(name, content)


def _save_folder(
    out: Path, pieces: Iterator[Tensor], seeds: Sequence[int], classes: list[int] | None
) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise GanError(f"{out} exists and is not empty; choose another folder")
    temporary = out.with_name(f".{os.getpid()}-{out.name}")
    try:
        temporary.mkdir(parents=True)
        for name, content in _files(pieces, seeds, classes):
            (temporary / name).write_bytes(content)
        os.replace(temporary, out)
    except OSError as error:
        raise GanError(f"cannot write {out}: {error.strerror or error}") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _files(
    pieces: Iterator[Tensor], seeds: Sequence[int], classes: list[int] | None
) -> Iterator[tuple[str, bytes]]:
    names = [f"seed-{seed:06d}.png" for seed in seeds]
    images = (image for piece in pieces for image in to_bytes(piece))
    for name, image in zip(names, images, strict=True):
        buffer = io.BytesIO()
        _pil(image).save(buffer, "png", compress_level=1)
        yield name, buffer.getvalue()
    if classes is not None:
        table = [[name, label] for name, label in zip(names, classes, strict=True)]
        yield "dataset.json", json.dumps({"labels": table}).encode()


def _pil(pixels: Tensor) -> Image.Image:
    array = pixels.permute(1, 2, 0).contiguous().numpy()
    return Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)


@contextmanager
def _whole_file(path: Path) -> Iterator[Path]:
    """A temporary file beside `path`, which takes its place at the end if nothing went wrong."""
    temporary = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        raise GanError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        with suppress(OSError):
            temporary.unlink()


# --- between images ------------------------------------------------------------------------------


def slerp(a: Tensor, b: Tensor, t: float) -> Tensor:
    """A latent between two, on the arc instead of the chord, where the normal distribution lives.

    sin((1 - t) w) / sin(w) a + sin(t w) / sin(w) b, with the angle w between a and b.

    Args:
        a: where t = 0, shape (z_dim,).
        b: where t = 1, shape (z_dim,).
        t: between 0 and 1.

    Returns:
        Shape (z_dim,); exactly `a` at 0 and `b` at 1.

    Reference: Shoemake 1985, SIGGRAPH, for the formula; White 2016, arXiv 1609.04468, for latents.
    """
    if t in (0, 1):
        return b if t else a
    angle = torch.arccos(F.cosine_similarity(a.double(), b.double(), 0).clamp(-1, 1))
    if torch.sin(angle) < 1e-6:  # the same direction, or opposite ones, between which no arc is
        return torch.lerp(a, b, t)
    weights = torch.sin(torch.stack([(1 - t) * angle, t * angle])) / torch.sin(angle)
    return (weights[0] * a.double() + weights[1] * b.double()).to(a.dtype)


def interpolate(
    generator: nn.Module,
    seeds: Sequence[int],
    *,
    frames: int = 24,
    label: int | None = None,
    truncation: float | None = None,
    loop: bool = False,
) -> Tensor:
    """Images on the way from seed to seed.

    Args:
        generator: as `gan.sampling.generate` takes it.
        seeds: two or more.
        frames: images from one seed to the next, the first seed's included.
        label: class of all the images; None: that of the first seed.
        truncation: see `gan.sampling.generate`.
        loop: go back to the first seed at the end, for an animation without a jump.

    Returns:
        Images in [-1, 1], shape (frames * (len(seeds) - 1) + 1, *shape), or with `loop`
        (frames * len(seeds), *shape). The image of a seed is the one that `sample` gives.

    Raises:
        GanError: fewer than two seeds, no frames, or a label that the generator does not have.
    """
    if len(seeds) < 2:
        raise GanError(f"seeds: {len(seeds)} of them; an interpolation goes between two or more")
    if frames < 1:
        raise GanError(f"frames: {frames} is below 1")
    raw = unwrap(generator)
    stations = latents(seeds, int(raw.z_dim))  # type: ignore[arg-type]
    ends = [*stations[1:], stations[0]]
    legs = [
        slerp(a, b, i / frames)
        for a, b in zip(stations if loop else stations[:-1], ends, strict=False)
        for i in range(frames)
    ]
    z = torch.stack(legs if loop else [*legs, stations[-1]])
    num_classes = int(getattr(raw, "num_classes", 0))
    if label is not None and not 0 <= label < num_classes:
        allowed = (
            f"this generator has 0 to {num_classes - 1}" if num_classes else "it has no classes"
        )
        raise GanError(f"label: {label} is no class; {allowed}")
    if not num_classes:
        return generate(raw, z, truncation=truncation)
    chosen = seeds[0] % num_classes if label is None else label
    return generate(raw, z, torch.full((len(z),), chosen), truncation=truncation)


def save_animation(path: Path, images: Tensor, *, fps: int = 20) -> None:
    """Write images as an animation; whole or not at all.

    Args:
        path: ends in .gif, .webp or .png (animated), or .mp4, which needs ffmpeg.
        images: in [-1, 1], shape (frames, channels, height, width); or points (frames, n, 2).
        fps: images in a second.

    Raises:
        GanError: another ending, no ffmpeg, or the file cannot be written.
    """
    kind = path.suffix.lower()
    if kind not in (".gif", ".webp", ".png", ".mp4"):
        raise GanError(f"{path}: give a file that ends in .gif, .webp, .png or .mp4")
    frames = [_pil(picture(image[None] if image.ndim == 3 else image)) for image in images]
    with _whole_file(path) as temporary:
        if kind == ".mp4":
            _save_mp4(temporary, frames, fps)
            return
        frames[0].save(
            temporary,
            format="GIF" if kind == ".gif" else kind[1:],
            save_all=True,
            append_images=frames[1:],
            duration=round(1000 / fps),
            loop=0,
            **({"lossless": True} if kind == ".webp" else {}),
        )


def _save_mp4(path: Path, frames: list[Image.Image], fps: int) -> None:
    ffmpeg = shutil.which("ffmpeg")
    if ffmpeg is None:
        raise GanError("an .mp4 needs ffmpeg (apt-get install ffmpeg); a .gif needs nothing")
    width, height = frames[0].size
    command = (
        f"{ffmpeg} -y -loglevel error -f rawvideo -pix_fmt rgb24 -s {width}x{height} -r {fps} -i -"
    )
    even = "pad=ceil(iw/2)*2:ceil(ih/2)*2:color=white"  # the usual encoder takes even sizes only
    pixels = b"".join(frame.convert("RGB").tobytes() for frame in frames)
    done = subprocess.run(
        [*command.split(), "-vf", even, "-pix_fmt", "yuv420p", "-f", "mp4", str(path)],
        input=pixels,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise GanError(
            f"ffmpeg could not write {path.name}: {done.stderr.decode(errors='replace')}"
        )


# --- beside images -------------------------------------------------------------------------------


class _Images(Protocol):
    def __len__(self) -> int: ...

    def __getitems__(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]: ...


def nearest(
    samples: Tensor,
    reals: Tensor | _Images,
    k: int = 3,
    features: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """The real images nearest to each sample: a sample that is one of them was memorised.

    Args:
        samples: in [-1, 1], shape (n, *shape).
        reals: bytes of the same shape, or points, (count, *shape); or a data set of them, as
            `gan.open_data` gives it.
        k: how many, at most as there are real images.
        features: compare these of images in [-1, 1] instead of the pixels; gives (batch, length).

    Returns:
        Indices into `reals` and distances (per pixel value, root mean square), both of shape
        (n, k), nearest first.
    """
    vector = features or (lambda images: images.flatten(1))
    mine = vector(samples.float()).float()
    best = torch.full((len(samples), 0), math.inf), torch.zeros(len(samples), 0, dtype=torch.int64)
    for start in range(0, len(reals), 4096):
        indices = torch.arange(start, min(start + 4096, len(reals)))
        images = _take(reals, indices)
        gaps = torch.cdist(
            mine, vector(images).float(), compute_mode="donot_use_mm_for_euclid_dist"
        )
        all_indices = torch.cat([best[1], indices.expand(len(mine), -1)], 1)
        all_gaps = torch.cat([best[0], gaps], 1)
        order = all_gaps.argsort(dim=1, stable=True)[:, :k]
        best = all_gaps.gather(1, order), all_indices.gather(1, order)
    return best[1], best[0] / math.sqrt(mine.shape[1])


def _take(reals: Tensor | _Images, indices: Tensor) -> Tensor:
    found = reals[indices] if isinstance(reals, Tensor) else reals.__getitems__(indices.tolist())[0]
    return found.float() / 127.5 - 1 if found.dtype == torch.uint8 else found.float()


def nearest_picture(samples: Tensor, reals: Tensor | _Images, k: int = 3) -> Tensor:
    """A grid in which each sample is followed by its nearest real images and a gap.

    Args:
        samples: as `nearest` takes them; images.
        reals: as `nearest` takes them.
        k: neighbours of each.

    Returns:
        uint8 of shape (channels, height, width).
    """
    indices, _ = nearest(samples, reals, k)
    neighbours = _take(reals, indices.flatten())
    groups = torch.cat(
        [
            samples[:, None],
            neighbours.view(len(samples), -1, *samples.shape[1:]),
            torch.ones_like(samples[:, None]),
        ],
        1,
    )
    across = max(1, round(math.sqrt(len(samples) / groups.shape[1])))
    return picture(groups.flatten(0, 1), columns=across * groups.shape[1])
