"""Prepared images: made once, whole or not at all, the same however they are made."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from PIL import Image

from gan.data import ImageData, dataset, open_data, pool, prepare
from gan.data.cache import Cache, cache_folder, parse_size, size_words
from gan.data.decode import Target
from gan.data.items import FileItems
from gan.errors import DataError


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("GAN_CACHE", str(folder))
    return folder / "images"


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    (tmp_path / "photos").mkdir()
    for index in range(40):
        pixels = random.integers(0, 256, (12, 16, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / "photos" / f"{index:03}.png")
    return tmp_path / "photos"


@pytest.fixture
def no_decoding(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def forbid() -> None:
        def decode_all(*_: object) -> None:
            pytest.fail("decoded again")

        monkeypatch.setattr(prepare, "decode_all", decode_all)

    return forbid


def entries(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if path.is_dir())


def pixels(data: ImageData) -> torch.Tensor:
    return data.__getitems__(range(len(data)))[0]


def same(first: ImageData, second: ImageData) -> bool:
    return first.fingerprint == second.fingerprint and torch.equal(pixels(first), pixels(second))


def test_the_second_time_nothing_is_decoded(
    photos: Path, cache: Path, no_decoding: Callable[[], None]
) -> None:
    first = open_data(str(photos), resolution=(8, 8))
    no_decoding()
    assert same(first, open_data(str(photos), resolution=(8, 8)))
    assert len(entries(cache)) == 1


def test_other_settings_or_content_are_another_entry(photos: Path, cache: Path) -> None:
    open_data(str(photos))
    open_data(str(photos), resolution=(8, 8))
    open_data(str(photos), resolution=(8, 8), fit="stretch")
    open_data(str(photos), resolution=(8, 8), background=(0, 0, 0))
    assert len(entries(cache)) == 4
    os.utime(photos / "000.png", (1, 1))
    open_data(str(photos))
    assert len(entries(cache)) == 5


def test_labels_do_not_make_another_entry(photos: Path, cache: Path, tmp_path: Path) -> None:
    open_data(str(photos))
    table = tmp_path / "labels.csv"
    table.write_text("".join(f"{index:03}.png,{index % 3}\n" for index in range(40)))
    assert open_data(str(photos), labels=str(table)).num_classes == 3
    assert len(entries(cache)) == 1


def test_all_ways_give_the_same_pixels(
    photos: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (photos / "007.png").write_bytes(b"")

    def opened(**options: object) -> ImageData:
        return open_data(str(photos), resolution=(8, 8), skip_unreadable=True, **options)

    in_memory = opened(no_cache=True)
    assert not cache.exists()
    assert len(in_memory) == 39
    assert same(in_memory, opened())
    assert same(in_memory, opened(no_cache=True, cache_limit=1))

    monkeypatch.setattr(pool, "_ALONE_SECONDS", 0)
    monkeypatch.setattr(pool, "_STRETCH", 8)
    monkeypatch.setattr(pool, "cores", lambda: 2)
    assert same(in_memory, opened(no_cache=True))
    (entry,) = entries(cache)
    (cache / entry / "meta.json").unlink()
    assert same(in_memory, opened())

    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("none", (), {"available": 0}))
    lazy = opened(no_cache=True)
    assert same(in_memory, lazy)
    assert lazy.notes[-1].startswith("decoded anew at each use")
    assert torch.equal(lazy[3][0], in_memory[3][0])
    assert lazy.device is None
    assert lazy.to(torch.device("cuda")) is lazy


def test_mapped_images_can_be_sent_without_their_pixels(photos: Path) -> None:
    data = open_data(str(photos))
    sent = pickle.dumps(data)
    assert len(sent) < 5000 < data.images.numel()
    assert same(data, pickle.loads(sent))


@pytest.mark.parametrize(("seconds", "pictures"), [(0.0, 1), (1e9, 512)])
def test_a_process_is_given_what_takes_so_long(
    seconds: float, pictures: int, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_STRETCH_SECONDS", seconds)
    names = sorted(path.name for path in photos.glob("*.png"))
    run = pool._Run(FileItems(str(photos), names), Target(1, 4, 4), None)
    with pool.tqdm(total=len(names), disable=True) as bar:
        run.alone(bar, 1e-9)
    assert run.done > 0
    assert run.stretch == pictures


def test_writing_into_an_image_does_not_change_the_data(photos: Path) -> None:
    data = open_data(str(photos))
    image, _ = data[0]
    before = image.clone()
    image.zero_()
    images, _ = data.__getitems__([0])
    images.zero_()
    assert torch.equal(data[0][0], before)
    with pytest.raises(IndexError, match="example 40 of 40"):
        data[40]


def test_a_device_gets_the_images_if_they_fill_no_more_than_a_quarter_of_it(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, other = open_data(str(photos)), torch.device("meta")
    monkeypatch.setattr(dataset, "_free", lambda device: 4 * data.images.nbytes)
    moved = data.to(other)
    assert moved.device == moved.labels.device == other
    assert data.device == torch.device("cpu")
    assert data.to(torch.device("cpu")) is data
    monkeypatch.setattr(dataset, "_free", lambda device: 4 * data.images.nbytes - 1)
    assert data.to(other) is data


def test_an_entry_that_lost_its_end_is_made_again(photos: Path, cache: Path) -> None:
    first = open_data(str(photos))
    expected = first.images.clone()
    (entry,) = entries(cache)
    with open(cache / entry / "pixels.bin", "r+b") as file:
        file.truncate(100)
    assert torch.equal(open_data(str(photos)).images, expected)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupted_preparation_leaves_nothing(
    error: type[BaseException],
    photos: Path,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with monkeypatch.context() as patch:

        def interrupted(*_: object) -> None:
            raise error

        patch.setattr(pool, "decode_stretch", interrupted)
        with pytest.raises(error):
            open_data(str(photos))
        assert entries(cache) == []
        said = [record.getMessage() for record in caplog.records]
        stopped = ["Preparing images was stopped; nothing was kept."]
        assert said == (stopped if error is KeyboardInterrupt else [])


def test_what_a_killed_process_left_is_removed(photos: Path, cache: Path) -> None:
    open_data(str(photos))
    (entry,) = entries(cache)
    (cache / entry).rename(cache / f"{entry}.partial")
    open_data(str(photos))
    assert entries(cache) == [entry]


def test_what_was_left_of_another_source_is_removed(photos: Path, cache: Path) -> None:
    (cache / "dead.partial").mkdir(parents=True)
    (cache / "alive.partial").mkdir()
    with Cache(1).locked("alive"):
        open_data(str(photos))
        assert not (cache / "dead.partial").exists()
        assert (cache / "alive.partial").exists()


def test_what_is_readable_again_is_not_left_out(photos: Path, cache: Path) -> None:
    path = photos / "003.png"
    content, status = path.read_bytes(), path.stat()
    path.write_bytes(bytes(len(content)))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert len(open_data(str(photos), skip_unreadable=True)) == 39
    with pytest.raises(DataError, match=r"003\.png: not an image of a known format"):
        open_data(str(photos))
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert len(open_data(str(photos))) == 40


def test_a_noted_failure_is_not_told_of_another_damage(photos: Path) -> None:
    path = photos / "003.png"
    whole, status = path.read_bytes(), path.stat()
    for kept, reason in (0, "not an image of a known format"), (100, "broken"):
        path.write_bytes(whole[:kept].ljust(len(whole), b"\0"))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        with pytest.raises(DataError, match=rf"003\.png: .*{reason}"):
            open_data(str(photos))


def test_failures_of_the_values_are_not_prepared_again(
    photos: Path, no_decoding: Callable[[], None]
) -> None:
    Image.fromarray(np.full((8, 8), np.nan, np.float32)).save(photos / "nan.tif")
    assert len(open_data(str(photos), skip_unreadable=True)) == 40
    no_decoding()
    assert len(open_data(str(photos), skip_unreadable=True)) == 40


def test_many_at_once_make_one_entry(
    photos: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, results = [], []
    decode_all = prepare.decode_all
    monkeypatch.setattr(prepare, "decode_all", lambda *args: (made.append(1), decode_all(*args))[1])
    threads = [
        threading.Thread(target=lambda: results.append(open_data(str(photos)))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert len(results) == 4
    assert all(same(results[0], other) for other in results)


# --- bounds ------------------------------------------------------------------------------------

SIZE = 40 * 3 * 12 * 16


def test_what_was_used_longest_ago_makes_room(photos: Path, cache: Path) -> None:
    def opened(grey: int) -> None:
        open_data(str(photos), background=(grey, 0, 0), cache_limit=2 * SIZE)
        newest = max(cache.glob("*/meta.json"), key=lambda meta: meta.stat().st_mtime_ns)
        os.utime(newest, (grey + clock, grey + clock))

    clock = 1000
    opened(1)
    (first,) = entries(cache)
    opened(2)
    (second,) = set(entries(cache)) - {first}
    os.utime(cache / first / "meta.json", (5000, 5000))  # used again
    opened(3)
    assert first in entries(cache)
    assert second not in entries(cache)
    assert len(entries(cache)) == 2


def test_a_set_above_the_limit_stays_in_memory(photos: Path, cache: Path) -> None:
    data = open_data(str(photos), cache_limit=SIZE - 1)
    assert same(data, open_data(str(photos), no_cache=True))
    note = "not kept for the next time: 23 kB are more than cache_limit (23 kB) allows"
    assert data.notes[-1] == note
    assert entries(cache) == []


def test_a_set_that_the_disk_has_no_room_for_stays_in_memory(
    photos: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("usage", (), {"free": 500})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    note = f"not kept for the next time: 23 kB are more than the 500 B free in {cache}"
    assert open_data(str(photos)).notes[-1] == note


def test_a_cache_folder_that_cannot_be_written(photos: Path, cache: Path) -> None:
    cache.write_text("a file in its place")
    data = open_data(str(photos))
    assert len(data) == 40
    assert data.notes[-1].startswith(f"not kept for the next time: {cache} cannot be used")


def test_a_full_disk_says_so(photos: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs: /dev/full")
    items = FileItems(str(photos), [f"{index:03}.png" for index in range(40)])
    with pytest.raises(DataError, match=r"cannot be written to /dev/full: .*Make room there"):
        pool.decode_all(items, Target(3, 8, 8), Path("/dev/full"))


@pytest.mark.parametrize("broken", [False, True])
def test_what_is_written_goes_to_the_disk_meanwhile(
    broken: bool, photos: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_ALONE_SECONDS", 0)
    monkeypatch.setattr(pool, "_FLUSH_SECONDS", 0)
    monkeypatch.setattr(pool, "cores", lambda: 2)
    flushed, fsync = [], os.fsync

    def flush(file: int) -> None:
        flushed.append(os.fstat(file).st_size)
        if broken:
            raise OSError(5, "Input/output error")
        fsync(file)

    monkeypatch.setattr(os, "fsync", flush)
    if broken:
        with pytest.raises(DataError, match=r"cannot be written to .*Input/output error.* Make ro"):
            open_data(str(photos))
        assert entries(cache) == []
    else:
        open_data(str(photos))
        assert len(flushed) > 1
    assert set(flushed) == {40 * 3 * 12 * 16}


@pytest.mark.parametrize(
    ("text", "size"), [(5, 5), ("500", 500), ("2KB", 2000), ("1.5 GiB", 3 << 29), ("1tb", 10**12)]
)
def test_sizes(text: str | int, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(("size", "text"), [
    (0, "0 B"), (999, "999 B"), (23040, "23 kB"), (1_230_000, "1.2 MB"), (50 * 10**9, "50 GB"),
    (2 * 10**13, "20 TB"),
])  # fmt: skip
def test_sizes_in_words(size: int, text: str) -> None:
    assert size_words(size) == text


@pytest.mark.parametrize("text", ["", "-1", "many", "5 apples", "1e9"])
def test_sizes_that_are_none(text: str, photos: Path) -> None:
    with pytest.raises(DataError) as caught:
        open_data(str(photos), cache_limit=text)
    assert str(caught.value) == f"cache_limit: {text!r} is no size. Write it as 500MB or 20GiB."


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert Cache(1).folder == Path(os.environ["GAN_CACHE"]) / "images"
    monkeypatch.delenv("GAN_CACHE")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "gan-toolkit"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == tmp_path / ".cache" / "gan-toolkit"
    monkeypatch.setattr("sys.platform", "darwin")
    assert cache_folder() == tmp_path / "Library" / "Caches" / "gan-toolkit"
    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert cache_folder() == tmp_path / "local" / "gan-toolkit"


# --- other processes -----------------------------------------------------------------------------


def test_a_decoding_process_that_dies_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deadly.py").write_text(
        "import os, sys\n"
        "from gan.data.items import FileItems\n"
        "class Deadly(FileItems):\n"
        "    def take(self, part):\n"
        "        return Deadly(self.root, self.names[part])\n"
        "    def pictures(self, index):\n"
        "        print('no more', file=sys.stderr, flush=True)\n"
        "        os._exit(9)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    from deadly import Deadly  # type: ignore[import-not-found]

    monkeypatch.setattr(pool, "_ALONE_SECONDS", 0)
    monkeypatch.setattr(pool, "cores", lambda: 2)
    items = Deadly(str(tmp_path), [f"{index}.png" for index in range(64)])
    with pytest.raises(DataError) as caught:
        pool.decode_all(items, Target(3, 8, 8), None)
    assert str(caught.value).startswith(
        "data: a decoding process died (exit code 9: no more) between 0.png and 63.png."
    )


def test_decoding_processes_do_not_import_torch() -> None:
    program = pool._PROGRAM.format(path=sys.path)
    code = program.replace("main()", "print('torch' in sys.modules)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
