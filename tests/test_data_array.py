"""Images in .npy and .npz files: layouts, ranges, labels, splits."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from gan.data import open_data
from gan.data.dataset import Stored
from gan.errors import DataError


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("GAN_CACHE", str(folder))
    return folder


IMAGES = np.random.default_rng(0).integers(0, 256, (5, 3, 6, 9), np.uint8)


def saved(folder: Path, array: np.ndarray, name: str = "a.npy") -> str:
    np.save(folder / name, array)
    return str(folder / name)


@pytest.mark.parametrize("layout", ["channels first", "channels last"])
@pytest.mark.parametrize("kind", ["npy", "npz", "compressed npz"])
def test_layouts_and_files(layout: str, kind: str, tmp_path: Path, cache: Path) -> None:
    array = IMAGES if layout == "channels first" else IMAGES.transpose(0, 2, 3, 1)
    array = np.ascontiguousarray(array)
    path = tmp_path / f"a.{kind[-3:]}"
    if kind == "npy":
        np.save(path, array)
    else:
        save = np.savez if kind == "npz" else np.savez_compressed
        save(path, images=array, labels=np.array([[7], [5], [5], [9], [7]]))
    data = open_data(str(path))
    assert torch.equal(data.__getitems__(range(5))[0], torch.from_numpy(IMAGES))
    assert data.num_classes == (0 if kind == "npy" else 3)
    if kind != "npy":
        assert data.class_names == ("5", "7", "9")
        assert data.labels.tolist() == [1, 0, 0, 2, 1]
    assert len(pickle.dumps(data)) < 4000 or kind == "compressed npz"
    assert torch.equal(pickle.loads(pickle.dumps(data))[4][0], data[4][0])
    assert os.listdir(cache) == []  # nothing to prepare


def test_mapped_arrays_are_not_read() -> None:
    assert Stored.of(IMAGES) is None


def test_a_slice_of_a_mapped_array_is_found_again(tmp_path: Path) -> None:
    path = saved(tmp_path, IMAGES)
    mapped = np.load(path, mmap_mode="r")
    stored = Stored.of(mapped[2:4])
    assert stored is not None
    assert torch.equal(stored.open(), torch.from_numpy(IMAGES[2:4]))
    assert Stored.of(mapped[:, :, ::2]) is None


def test_grey_images_without_a_channel_axis(tmp_path: Path) -> None:
    data = open_data(saved(tmp_path, IMAGES[:, 0]))
    assert data.shape == (1, 6, 9)
    assert torch.equal(data.images[:, 0], torch.from_numpy(IMAGES[:, 0]))


@pytest.mark.parametrize(("shape", "expected"), [
    ((2, 3, 8, 8), (3, 8, 8)), ((2, 8, 8, 4), (4, 8, 8)), ((2, 4, 4, 3), (3, 4, 4)),
    ((2, 3, 4, 4), (3, 4, 4)), ((2, 1, 28, 1), (1, 1, 28)),
])  # fmt: skip
def test_which_axis_holds_the_channels(
    shape: tuple[int, ...], expected: tuple[int, ...], tmp_path: Path
) -> None:
    assert open_data(saved(tmp_path, np.zeros(shape, np.uint8))).shape == expected


@pytest.mark.parametrize(
    ("dtype", "values", "expected"),
    [
        ("float32", [0.0, 0.2, 1.0], [0, 51, 255]),
        ("float64", [-1.0, 0.0, 1.0], [0, 128, 255]),
        ("float16", [0, 51, 255], [0, 51, 255]),
        ("uint16", [0, 257 * 51, 65535], [0, 51, 255]),
        ("int64", [0, 51, 255], [0, 51, 255]),
        ("bool", [0, 1, 1], [0, 255, 255]),
    ],
)
def test_values_are_scaled_by_their_range(
    dtype: str, values: list[float], expected: list[int], tmp_path: Path
) -> None:
    array = np.array(values, dtype)[:, None, None] * np.ones((1, 4, 4), dtype)
    data = open_data(saved(tmp_path, array))
    assert data.images[:, 0, 1, 2].tolist() == expected
    low, high = array.min(), array.max()
    assert (dtype == "bool") == (data.notes == ())
    if data.notes:
        assert data.notes[0].startswith(f"values from {low:g} to {high:g} are taken to lie between")


@pytest.mark.parametrize(("values", "reason"), [
    *((pair, f"values of type float32 from {pair[0]:g} to {pair[1]:g} are in none of the ranges "
       "0 to 1, -1 to 1, 0 to 255, 0 to 65535 (but for 0 to 1, they must be whole numbers, or "
       "reach beyond half of it). Scale or clip them, or save them as uint8.")
      for pair in ([-3.0, 3.0], [0.0, 1e6], [0.5, 1.01], [-0.01, 1.0], [0.5, 255.5])),
    ([0.0, np.nan], "image 1 (counted from 0) holds NaN. Mend it, or leave it out."),
    ([np.inf, 0.0], "image 0 (counted from 0) holds infinity. Mend it, or leave it out."),
])  # fmt: skip
def test_values_without_a_known_range(values: list[float], reason: str, tmp_path: Path) -> None:
    array = np.array(values, np.float32)[:, None, None] * np.ones((1, 4, 4), np.float32)
    path = saved(tmp_path, array)
    with pytest.raises(DataError) as caught:
        open_data(path)
    assert str(caught.value) == f"data: {path}: {reason}"


@pytest.mark.parametrize(("low", "high"), [
    (0, 1.0000001), (-1e-7, 1), (-1.0000002, 1.0000002), (-0.001, 255.4), (-9, 65600.5),
])  # fmt: skip
def test_what_arithmetic_adds_to_a_range_rounds_away(
    low: float, high: float, tmp_path: Path
) -> None:
    array = np.array([low, high, high / 2], np.float32)[:, None, None] * np.ones((1, 4, 4))
    data = open_data(saved(tmp_path, array.astype(np.float32)))
    middle = 191 if low < -1 and high < 2 else 128
    assert data.images[:, 0, 0, 0].tolist() == [0, 255, middle]


@pytest.mark.parametrize("values", [[0, 2], [0, 300], [0.5, 128], [7.5, 40000]])
def test_values_that_are_whole_or_fill_their_range(values: list[float], tmp_path: Path) -> None:
    array = np.array(values, np.float32)[:, None, None] * np.ones((1, 4, 4), np.float32)
    top = 255 if values[1] < 256 else 65535
    data = open_data(saved(tmp_path, array))
    assert data.images[1, 0, 0, 0] == round(values[1] * 255 / top)


def test_resized_and_recoloured(tmp_path: Path, cache: Path) -> None:
    path = saved(tmp_path, np.full((4, 8, 8, 3), (200, 200, 200), np.uint8))
    data = open_data(path, resolution=(4, 4), channels=1)
    assert data.shape == (1, 4, 4)
    assert (data.images == 200).all()
    assert os.listdir(cache) == []  # so few are made again in no time
    assert "4 of 4 images have colours and were made grey" in data.notes


def test_large_arrays_are_prepared_once(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gan.data.prepare._SMALL", 10)
    monkeypatch.setattr("gan.data.pool._ALONE_SECONDS", 0)
    monkeypatch.setattr("gan.data.pool.cores", lambda: 2)
    random = np.random.default_rng(0).random((200, 4, 4), np.float32)
    data = open_data(saved(tmp_path, random))
    assert np.array_equal(data.images[:, 0].numpy(), np.rint(random.astype(float) * 255))
    assert os.listdir(cache) == ["images"]


def test_splits_by_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x_train=IMAGES[:3], y_train=[0, 1, 0], x_test=IMAGES[3:],
             y_test=[1, 1])  # fmt: skip
    train = open_data(str(tmp_path / "a.npz"))
    test = open_data(str(tmp_path / "a.npz"), split="test")
    assert (len(train), train.labels.tolist()) == (3, [0, 1, 0])
    assert (len(test), test.labels.tolist()) == (2, [1, 1])
    assert test.class_names == train.class_names
    assert torch.equal(test.images, torch.from_numpy(IMAGES[3:]))
    np.savez(tmp_path / "b.npz", train_images=IMAGES, val_images=IMAGES[:1],
             test_images=IMAGES[:2], test_labels=np.array([[1], [2]]))  # fmt: skip
    assert open_data(str(tmp_path / "b.npz")).num_classes == 0
    assert open_data(str(tmp_path / "b.npz"), split="test").labels.tolist() == [0, 1]
    with pytest.raises(DataError, match=r"has no test split \(the array \(5, 3, 6, 9\)\)"):
        open_data(saved(tmp_path, IMAGES), split="test")


def test_labels_from_an_array_file(tmp_path: Path) -> None:
    path = saved(tmp_path, IMAGES)
    labels = saved(tmp_path, np.array([3, 1, 3, 1, 1]), "labels.npy")
    assert open_data(path, labels=labels).labels.tolist() == [1, 0, 1, 0, 0]
    wrong = saved(tmp_path, np.array([3, 1]), "labels.npy")
    with pytest.raises(DataError, match="it needs 5 whole numbers, one an image"):
        open_data(path, labels=wrong)
    with pytest.raises(DataError, match=r"labels: 'folders' cannot be used with .*a.npy"):
        open_data(path, labels="folders")


def test_several_candidates(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", first=IMAGES, second=IMAGES)
    with pytest.raises(DataError, match=r"holds several arrays that may be images: first \(5, 3"):
        open_data(str(tmp_path / "a.npz"))
    np.savez(tmp_path / "a.npz", images=IMAGES, masks=IMAGES, age=range(5), label=[1, 1, 1, 1, 2])
    assert open_data(str(tmp_path / "a.npz")).class_names == ("1", "2")
    np.savez(tmp_path / "a.npz", images=IMAGES, age=range(5), height=range(5))
    with pytest.raises(DataError, match="several arrays that may be labels: age, height"):
        open_data(str(tmp_path / "a.npz"))
    assert open_data(str(tmp_path / "a.npz"), labels="none").num_classes == 0


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (np.zeros((5, 7)), "holds no array of images: the array (5, 7). Images have the shape"),
        (np.zeros((0, 8, 8)), "the array of shape (0, 8, 8) is empty"),
        (
            np.zeros((2, 5, 8, 6)),
            "of 1, 3 or 4 channels, neither second nor last. Save grey images, RGB, or RGBA.",
        ),
        (
            np.zeros((2, 8, 8), complex),
            "values of type complex128 are no images. Save bytes, whole numbers or floats",
        ),
        (np.array([[[{}]]]), "the array (1, 1, 1) of Python objects, which are never loaded."),
        (np.zeros((64, 48, 3)), "holds no array of images: the array (64, 48, 3)."),
    ],
)
def test_arrays_that_are_no_images(array: np.ndarray, reason: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        open_data(saved(tmp_path, array))
    assert reason in str(caught.value)


def test_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path, IMAGES)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(DataError, match=r"a\.npy' may not be read by you\. Change its permissions"):
        open_data(path)


def test_damaged_files(tmp_path: Path) -> None:
    path = Path(saved(tmp_path, IMAGES))
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataError, match=r"a\.npy cannot be read as an array of images"):
        open_data(str(path))
    (tmp_path / "b.npz").write_bytes(b"hello")
    with pytest.raises(DataError, match=r"b\.npz cannot be read as an array of images") as caught:
        open_data(str(tmp_path / "b.npz"))
    assert "it is neither an .npy nor an .npz file. Save it again" in str(caught.value)
    np.savez(tmp_path / "c.npz", images=IMAGES)
    (tmp_path / "c.npz").write_bytes((tmp_path / "c.npz").read_bytes()[:300])
    with pytest.raises(DataError, match=r"images: it ends too early \(an unfinished download\?\)"):
        open_data(str(tmp_path / "c.npz"))


LABELS_THAT_FIT = {
    "columns": (np.array([[3], [0], [3], [3], [0]]), ("0", "3"), [1, 0, 1, 1, 0]),
    "bool": (np.array([True, False, True, True, False]), ("0", "1"), [1, 0, 1, 1, 0]),
    "names": (np.array(["dog", "cat", "dog", "dog", "cat"]), ("cat", "dog"), [1, 0, 1, 1, 0]),
}


@pytest.mark.parametrize("kind", LABELS_THAT_FIT)
def test_labels_of_many_kinds(kind: str, tmp_path: Path) -> None:
    labels, names, numbers = LABELS_THAT_FIT[kind]
    np.savez(tmp_path / "a.npz", images=IMAGES, labels=labels)
    alone = saved(tmp_path, labels, "l.npy")
    for data in (
        open_data(str(tmp_path / "a.npz")),
        open_data(saved(tmp_path, IMAGES), labels=alone),
    ):
        assert (data.class_names, data.labels.tolist()) == (names, numbers)


LABELS_THAT_DO_NOT_FIT = [
    (np.arange(4), "holds int64 of shape (4,); it needs 5 whole numbers, one an image. Or use"),
    (np.arange(5) / 2, "holds float64 of shape (5,); it needs 5 whole numbers, one an image. "
     "Save them as labels.astype(int). Or use labels none."),
    (np.eye(5), "holds float64 of shape (5, 5); it needs 5 whole numbers, one an image. "
     "Save one-hot labels as labels.argmax(1). Or use labels none."),
    (np.array(list("abcab"), object), "holds Python objects, which are never loaded, of shape"),
    (np.array([0, -1, 0, -1, 1]), "has 2 labels below 0, such as -1. Number the classes from 0 on"),
]  # fmt: skip


@pytest.mark.parametrize(("labels", "reason"), LABELS_THAT_DO_NOT_FIT)
def test_labels_that_do_not_fit(labels: np.ndarray, reason: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=IMAGES, labels=labels)
    np.save(tmp_path / "l.npy", labels, allow_pickle=True)
    for source, given in (str(tmp_path / "a.npz"), "auto"), ("", str(tmp_path / "l.npy")):
        with pytest.raises(DataError, match=r"^labels: ") as caught:
            open_data(source or saved(tmp_path, IMAGES), labels=given)
        assert reason in str(caught.value)
    assert open_data(str(tmp_path / "a.npz"), labels="none").num_classes == 0


def test_objects_that_are_not_needed_are_left_alone(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=IMAGES, meta=np.array([{}, 1], object))
    assert len(open_data(str(tmp_path / "a.npz"))) == 5


@pytest.mark.parametrize(
    ("shape", "order", "size"),
    [
        ((5, 3, 3, 3), "height, width, channels", (3, 3, 3)),
        ((5, 1, 4, 4), "channels, height, width", (1, 4, 4)),
        ((5, 4, 4, 3), "height, width, channels", (3, 4, 4)),
    ],
)
def test_an_order_in_doubt_is_said(
    shape: tuple[int, ...], order: str, size: tuple[int, ...], tmp_path: Path
) -> None:
    data = open_data(saved(tmp_path, np.zeros(shape, np.uint8)))
    assert data.notes == (f"the shape {shape} is taken to be (count, {order})",)
    assert data.shape == size
