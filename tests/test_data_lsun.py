"""LSUN's databases, made small by the tests, and what is said without them."""

from __future__ import annotations

import io
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from gan.data import open_data
from gan.errors import DataError


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("GAN_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def lmdb() -> Any:
    return pytest.importorskip("lmdb", reason="needs: lmdb (pip install lmdb)")


def database(lmdb: Any, folder: Path, values: list[int]) -> None:
    folder.mkdir(parents=True)
    with lmdb.open(str(folder), map_size=1 << 20) as store, store.begin(write=True) as writing:
        for value in values:
            buffer = io.BytesIO()
            Image.new("RGB", (8, 6), (value, 0, 0)).save(buffer, "WEBP", lossless=True)
            writing.put(f"{value:040x}".encode(), buffer.getvalue())


def test_its_categories_are_the_classes(lmdb: Any, tmp_path: Path) -> None:
    database(lmdb, tmp_path / "tower_train_lmdb", [7, 8])
    database(lmdb, tmp_path / "bedroom_train_lmdb", [1, 2, 3])
    database(lmdb, tmp_path / "tower_val_lmdb", [9])
    data = open_data("lsun", root=tmp_path)
    assert (data.shape, data.class_names) == ((3, 6, 8), ("bedroom", "tower"))
    assert data.images[:, 0, 0, 0].tolist() == [1, 2, 3, 7, 8]
    assert data.labels.tolist() == [0, 0, 0, 1, 1]
    test = open_data("lsun", root=tmp_path, split="test")
    assert (test.images[:, 0, 0, 0].tolist(), test.num_classes) == ([9], 0)


def test_other_processes_decode_it_and_nothing_is_written_beside_it(
    lmdb: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gan.data.pool._ALONE_SECONDS", 0)
    monkeypatch.setattr("gan.data.pool.cores", lambda: 2)
    monkeypatch.chdir(tmp_path)
    database(lmdb, tmp_path / "bedroom_train_lmdb", list(range(200)))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    data = open_data("lsun", root=tmp_path)
    assert np.array_equal(data.images[:, 0, 0, 0].numpy(), np.arange(200))
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_a_picture_that_cannot_be_read_is_named(lmdb: Any, tmp_path: Path) -> None:
    folder = tmp_path / "bedroom_train_lmdb"
    database(lmdb, folder, [1, 2])
    with lmdb.open(str(folder), map_size=1 << 20) as store, store.begin(write=True) as writing:
        writing.put(b"broken", b"no picture")
    with pytest.raises(DataError, match=r"bedroom_train_lmdb/broken: not an image of a known form"):
        open_data("lsun", root=tmp_path)
    assert len(open_data("lsun", root=tmp_path, skip_unreadable=True)) == 2


def test_its_pictures_can_be_sent_to_a_worker(lmdb: Any, tmp_path: Path) -> None:
    database(lmdb, tmp_path / "bedroom_train_lmdb", [5])
    data = pickle.loads(pickle.dumps(open_data("lsun", root=tmp_path, no_cache=True)))
    assert data.images[0, 0, 0, 0] == 5


def test_folders_that_are_not_there(lmdb: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        open_data("lsun", root=tmp_path)
    assert str(caught.value) == (
        f"data: 'lsun' needs a folder for each category in {tmp_path}, such as bedroom_train_lmdb "
        "or church_outdoor_train_lmdb, with LSUN's data.mdb in it. Unpack the databases there, or "
        "name the folder that holds them with data_root."
    )


def test_a_database_that_is_damaged(lmdb: Any, tmp_path: Path) -> None:
    folder = tmp_path / "bedroom_train_lmdb"
    folder.mkdir()
    with pytest.raises(DataError, match=r"database .*bedroom_train_lmdb cannot be read: .* Unpack"):
        open_data("lsun", root=tmp_path)
    (folder / "data.mdb").write_bytes(os.urandom(8192))
    with pytest.raises(DataError, match=r"database .*bedroom_train_lmdb cannot be read: .* Unpack"):
        open_data("lsun", root=tmp_path)


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lmdb", None)
    with pytest.raises(DataError) as caught:
        open_data("lsun", root=tmp_path)
    assert str(caught.value) == (
        "data: 'lsun' needs the package lmdb. Install it with pip install 'gan-toolkit[lsun]'."
    )
