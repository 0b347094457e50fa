"""How fast data gets ready, and how fast the stream delivers it, against what people use else."""

from __future__ import annotations

import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import psutil

from gan.config import Config
from gan.data import open_data
from gan.data.stream import EndlessBatches, Stream, data_loader
from gan.data_config import DataConfig
from gan.speed.timing import Spread

_IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
_MOST_FILES = 20_000


def measure(options: DataConfig, batch_size: int, rounds: int) -> dict[str, Any]:
    """Time preparation and stream of a source against what people use otherwise.

    Args:
        options: the source, and how it is prepared.
        batch_size: of the stream.
        rounds: how often each of two things is timed, in turn; the ratio is the median's.

    Returns:
        Plain values by name; ratios above 1 mean that this toolkit is faster. What a source
        does not allow (there are no files to decode in an array) is None.
    """
    opening, memory = options.opening(), _memory()
    with _fresh_cache():
        first, data = _timed(lambda: open_data(options.data, **opening))
        again, data = _timed(lambda: open_data(options.data, **opening))
    size = tuple(data.shape[-2:])
    files = _files(Path(options.data))
    _speed(_stream(data, batch_size), batch_size)
    rows: dict[str, Any] = {
        "source": options.data,
        "images": len(data),
        "shape": list(data.shape),
        "cores": os.cpu_count(),
        "seconds until ready, first time": round(first, 3),
        "seconds until ready, again": round(again, 3),
        "memory beyond the map of the images, MiB": round((_memory() - memory) / 2**20, 1),
        "preparation / bare Pillow loop": None,
        "stream / ImageFolder with 2 workers": None,
    }
    if files:
        rows["preparation / bare Pillow loop"] = _against_pillow(options, files, size, rounds)
    speeds = []
    for _ in range(rounds):
        ours = _speed(_stream(data, batch_size), batch_size)
        theirs = _speed(_image_folder(files, size, batch_size), batch_size) if files else None
        speeds.append((ours, theirs))
    stream = statistics.median(ours for ours, _ in speeds)
    rows["stream, images per second"] = round(stream)
    if files:
        ratios = [ours / theirs for ours, theirs in speeds if theirs]
        rows["stream / ImageFolder with 2 workers"] = str(Spread.of(ratios))
    dcgan = _dcgan64()
    rows["DCGAN at 64x64, images per second"] = round(dcgan, 1)
    rows["stream / DCGAN at 64x64"] = round(stream / dcgan, 1)
    return rows


def _memory() -> int:
    """Bytes that this process holds for itself, without files that it maps."""
    held = psutil.Process().memory_info()
    return int(held.rss - getattr(held, "shared", 0))


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.perf_counter()
    result = work()
    return time.perf_counter() - begin, result


@contextmanager
def _fresh_cache() -> Iterator[None]:
    """Prepared images in a folder that goes away; the user's own cache is left alone."""
    before = os.environ.get("GAN_CACHE")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GAN_CACHE"] = folder
        try:
            yield
        finally:
            del os.environ["GAN_CACHE"]
            if before is not None:
                os.environ["GAN_CACHE"] = before


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    found = (path for path in sorted(folder.rglob("*")) if path.suffix.lower() in _IMAGES)
    return list(islice(found, _MOST_FILES))


def _decode(work: tuple[Path, tuple[int, int]]) -> None:
    from PIL import Image

    path, (height, width) = work
    with Image.open(path) as image:
        image.convert("RGB").resize((width, height), Image.Resampling.BOX).tobytes()


def _against_pillow(
    options: DataConfig, files: list[Path], size: tuple[int, int], rounds: int
) -> str:
    ratios = []
    for _ in range(rounds):
        with _fresh_cache():
            ours, data = _timed(lambda: open_data(options.data, **options.opening()))
        with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
            pool.map(_decode, [(files[0], size)] * 2 * (os.cpu_count() or 1))  # imports are done
            work = [(path, size) for path in files]
            bare, _ = _timed(lambda: pool.map(_decode, work, chunksize=64))  # noqa: B023
        ratios.append((len(data) / ours) / (len(files) / bare))
    return str(Spread.of(ratios))


def _speed(batches: Iterable[Any], batch_size: int, seconds: float = 2.0) -> float:
    iterator, count = iter(batches), 0
    next(iterator)
    begin = time.perf_counter()
    for _ in iterator:
        count += 1
        if time.perf_counter() - begin > seconds:
            break
    return count * batch_size / (time.perf_counter() - begin)


def _stream(data: Any, batch_size: int) -> Iterable[Any]:
    order = EndlessBatches(len(data), batch_size, seed=0)
    return Stream(data_loader(data, order), order)


def _image_folder(files: list[Path], size: tuple[int, int], batch_size: int) -> Iterator[Any]:
    """What torchvision's ImageFolder does with a file, in a DataLoader of two workers."""
    from torch.utils.data import DataLoader
    from torchvision import transforms
    from torchvision.datasets.folder import default_loader

    steps = [transforms.Resize(min(size)), transforms.CenterCrop(size), transforms.ToTensor()]
    transform = transforms.Compose([*steps, transforms.Normalize(0.5, 0.5)])
    files = files * (batch_size // len(files) + 1)
    data: Any = _Files(files, default_loader, transform)
    loader: DataLoader[Any] = DataLoader(data, batch_size, shuffle=True, num_workers=2)
    while True:
        yield from loader


class _Files:
    def __init__(self, files: list[Path], load: Callable[..., Any], transform: Any) -> None:
        self.files, self.load, self.transform = files, load, transform

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        return self.transform(self.load(str(self.files[index])))


def _dcgan64() -> float:
    """Images per second that DCGAN at 64x64 consumes on this machine."""
    from gan.loop import probe
    from gan.run import build

    options = {"data": "fake:256", "resolution": "64", "batch_size": 64}
    run = build(Config.from_dict(options))
    return run.images_per_update / probe(run, seconds=4.0)
