"""Hugging Face data sets: saved folders, columns, splits, and what is said without them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from gan.data import ImageData, open_data
from gan.errors import DataError


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("GAN_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    return pytest.importorskip("datasets", reason="needs: datasets (pip install datasets)")


def pictures(count: int = 4) -> list[Image.Image]:
    return [Image.fromarray(np.full((6, 8, 3), index, np.uint8)) for index in range(count)]


def table(datasets: Any, **columns: Any) -> Any:
    kinds = {"image": datasets.Image(), "other": datasets.Image()}
    kinds["label"] = datasets.ClassLabel(names=["cat", "dog", "emu"])
    kinds = {name: kinds.get(name, datasets.Value("int64")) for name in columns}
    return datasets.Dataset.from_dict(columns, features=datasets.Features(kinds))


def values(data: ImageData) -> list[int]:
    return data.images[:, 0, 0, 0].tolist()


def test_a_saved_folder(datasets: Any, tmp_path: Path) -> None:
    table(datasets, image=pictures(), label=[1, 0, 2, 1]).save_to_disk(tmp_path / "saved")
    data = open_data(str(tmp_path / "saved"))
    assert (values(data), data.shape) == ([0, 1, 2, 3], (3, 6, 8))
    assert data.labels.tolist() == [1, 0, 2, 1]
    assert data.class_names == ("cat", "dog", "emu")
    assert open_data(str(tmp_path / "saved"), labels="none").num_classes == 0


def test_a_saved_folder_is_decoded_by_many(
    datasets: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table(datasets, image=pictures(100)).save_to_disk(tmp_path / "saved")
    monkeypatch.setattr("gan.data.pool._ALONE_SECONDS", 0)
    monkeypatch.setattr("gan.data.pool.cores", lambda: 2)
    assert values(open_data(str(tmp_path / "saved"))) == list(range(100))


def test_splits_of_a_saved_folder(datasets: Any, tmp_path: Path) -> None:
    both = {
        "train": table(datasets, image=pictures(2)),
        "validation": table(datasets, image=pictures(3)),
    }
    datasets.DatasetDict(both).save_to_disk(tmp_path / "saved")
    assert len(open_data(str(tmp_path / "saved"))) == 2
    assert len(open_data(str(tmp_path / "saved"), split="test")) == 3
    ages = {"train": [30, 9, 9], "test": [30]}
    numbered = {
        name: table(datasets, image=pictures(len(age)), class_=age) for name, age in ages.items()
    }
    numbered = {name: part.rename_column("class_", "class") for name, part in numbered.items()}
    datasets.DatasetDict(numbered).save_to_disk(tmp_path / "numbered")
    assert open_data(str(tmp_path / "numbered"), split="test").labels.tolist() == [1]
    both["train"].save_to_disk(tmp_path / "one")
    with pytest.raises(DataError, match=r"has no test split\. Use split train"):
        open_data(str(tmp_path / "one"), split="test")


def test_columns_are_found_or_named(datasets: Any, tmp_path: Path) -> None:
    columns = {"image": pictures(2), "other": pictures(2)[::-1], "age": [30, 9]}
    table(datasets, **columns).save_to_disk(tmp_path / "saved")
    with pytest.raises(DataError) as caught:
        open_data(str(tmp_path / "saved"))
    assert str(caught.value).endswith(
        "has several columns of images. Choose with image_column from: image, other."
    )
    data = open_data(str(tmp_path / "saved"), image_column="other", label_column="age")
    assert (values(data), data.class_names) == ([1, 0], ("9", "30"))
    assert data.labels.tolist() == [1, 0]
    with pytest.raises(DataError, match=r"has no column 'picture' of images\. Choose with"):
        open_data(str(tmp_path / "saved"), image_column="picture")
    with pytest.raises(DataError, match=r"has no column 'sex'\. Choose from: image, other, age"):
        open_data(str(tmp_path / "saved"), image_column="image", label_column="sex")
    table(datasets, age=[1, 2]).save_to_disk(tmp_path / "numbers")
    with pytest.raises(DataError, match=r"has no column of images\. Choose with image_column"):
        open_data(str(tmp_path / "numbers"))


def test_missing_labels(datasets: Any, tmp_path: Path) -> None:
    table(datasets, image=pictures(2), label=[-1, -1]).save_to_disk(tmp_path / "none")
    assert open_data(str(tmp_path / "none")).num_classes == 0
    table(datasets, image=pictures(2), label=[-1, 2]).save_to_disk(tmp_path / "some")
    with pytest.raises(DataError, match=r"label_column: 1 of 2 rows of .* have no 'label'"):
        open_data(str(tmp_path / "some"))


def test_a_row_without_a_picture(datasets: Any, tmp_path: Path) -> None:
    table(datasets, image=[pictures(1)[0], None]).save_to_disk(tmp_path / "saved")
    with pytest.raises(DataError, match="row 1: no picture in this row"):
        open_data(str(tmp_path / "saved"))


def test_from_the_hub(datasets: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def load_dataset(name: str, configuration: str | None) -> Any:
        asked.append((name, configuration))
        if name == "nobody/none":
            raise ConnectionError("Couldn't reach the Hub\nmore")
        return datasets.DatasetDict({"train": table(datasets, image=pictures(2), label=[0, 1])})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    data = open_data("hf:owner/name:small")
    assert (data.name, values(data), data.num_classes) == ("owner/name:small", [0, 1], 3)
    assert asked == [("owner/name", "small")]
    with pytest.raises(DataError) as caught:
        open_data("hf:nobody/none")
    assert str(caught.value).startswith(
        "data: 'hf:nobody/none' cannot be loaded: Couldn't reach the Hub. Check the name; run once"
    )


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError) as caught:
        open_data("hf:owner/name")
    assert str(caught.value) == (
        "data: 'hf:owner/name' needs the package datasets. Install it with "
        "pip install 'gan-toolkit[hub]'."
    )
