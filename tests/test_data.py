"""`open_data`: every kind of source, what it gives, and what it says when it cannot."""

from __future__ import annotations

import gzip
import os
import pickle
import re
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from gan.data import ImageData, open_data, sources_named
from gan.data.sources_made import POINTS_SCALE, POINTS_STD, centres
from gan.errors import DataError


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("GAN_CACHE", str(folder))
    return folder


def picture(path: Path, colour: int | tuple[int, ...] = (10, 20, 30), size=(8, 6)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = "L" if isinstance(colour, int) else {3: "RGB", 4: "RGBA"}[len(colour)]
    Image.new(mode, size, colour).save(path)
    return path


def test_digits_are_scaled_by_value() -> None:
    from sklearn.datasets import load_digits

    raw = load_digits()
    data = open_data("digits")
    assert isinstance(data, ImageData)
    assert (len(data), data.name, data.shape, data.num_classes) == (1797, "digits", (1, 8, 8), 10)
    assert data.class_names == tuple("0123456789")
    assert data.images.dtype == torch.uint8
    expected = torch.from_numpy(raw.images[:, None] / 16 * 255).round()
    torch.testing.assert_close(data.images.double(), expected, rtol=0, atol=0)
    assert data.labels.tolist() == raw.target.tolist()


def test_digits_come_without_importing_scikit_learn_and_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code = "import sys, gan.data\ngan.data.open_data('digits')\nsys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    data = open_data("digits")
    monkeypatch.setattr("gan.data.sources_made._DIGITS", "elsewhere.csv")
    other = open_data("digits")
    assert torch.equal(other.images, data.images)
    assert torch.equal(other.labels, data.labels)


def test_one_and_many_examples_agree() -> None:
    data = open_data("digits")
    images, labels = data.__getitems__([5, 3, 5])
    assert images.shape == (3, 1, 8, 8)
    assert labels.dtype == torch.int64
    for row, index in enumerate([5, 3, 5]):
        image, label = data[index]
        assert torch.equal(images[row], image)
        assert isinstance(label, int)
        assert labels[row] == label


def test_labels_none_gives_zeros_and_no_classes() -> None:
    data = open_data("digits", labels="none")
    assert (data.num_classes, data.class_names) == (0, ())
    assert data.labels.dtype == torch.int64
    assert not data.labels.any()


def test_fingerprint_depends_on_content_and_settings_only() -> None:
    first, again = open_data("digits"), open_data("digits")
    larger = open_data("digits", resolution=(16, 16))
    assert first.fingerprint == again.fingerprint
    assert len({first.fingerprint, larger.fingerprint, open_data("fake:3").fingerprint}) == 3
    assert larger.shape == (1, 16, 16)


def test_fake_has_any_size_and_is_always_the_same() -> None:
    data = open_data("fake:5", resolution=(6, 10), channels=4)
    assert data.images.shape == (5, 4, 6, 10)
    assert torch.equal(data.images, open_data("fake:5", resolution=(6, 10), channels=4).images)
    assert open_data("fake:2").shape == (3, 64, 64)
    assert open_data("fake:400").images.unique().numel() == 256


@pytest.mark.parametrize("name", ["fake:", "fake:0", "fake:-3", "fake:many"])
def test_fake_without_a_count(name: str) -> None:
    with pytest.raises(DataError, match=r"no number of images\. Write fake:COUNT"):
        open_data(name)


def test_fake_that_would_fill_the_memory() -> None:
    with pytest.raises(DataError, match=r"would take 11\.4 GiB of memory; at most 4 GiB"):
        open_data("fake:1000000")


@pytest.mark.parametrize(("name", "modes"), [("ring", 8), ("grid", 25)])
def test_points_lie_around_their_centres(name: str, modes: int) -> None:
    data = open_data(name)
    assert data.shape == (2,)
    assert data.num_classes == 0
    points, _ = data.__getitems__(range(len(data)))
    assert points.dtype == torch.float32
    assert points.abs().max() < 1
    distance, nearest = torch.cdist(points, centres(name)).min(1)
    assert nearest.bincount(minlength=modes).min() >= len(data) // modes
    std = (distance.square().mean() / 2).sqrt() * POINTS_SCALE[name]
    assert std == pytest.approx(POINTS_STD, rel=0.02)


def test_ring_has_radius_two() -> None:
    torch.testing.assert_close(centres("ring").norm(dim=1) * 2.5, torch.full((8,), 2.0))
    assert not torch.equal(open_data("ring").images, open_data("ring", split="test").images)


# --- named -------------------------------------------------------------------------------------


def write_idx(folder: Path, stem: str, images: np.ndarray, labels: np.ndarray) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for kind, array in ("images-idx3", images), ("labels-idx1", labels):
        head = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
        with gzip.open(folder / f"{stem}-{kind}-ubyte.gz", "wb") as file:
            file.write(head + array.astype(np.uint8).tobytes())


def test_fashion_mnist_from_debians_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = np.arange(3 * 4 * 5).reshape(3, 4, 5)
    write_idx(tmp_path / "debian", "train", images, np.array([9, 0, 3]))
    write_idx(tmp_path / "debian", "t10k", images + 100, np.array([1, 2, 3]))
    monkeypatch.setattr(sources_named, "DEBIAN_FASHION_MNIST", tmp_path / "debian")
    data = open_data("fashion-mnist", root=tmp_path / "none")
    assert data.images.tolist() == images[:, None].tolist()
    assert data.labels.tolist() == [9, 0, 3]
    assert data.class_names[9] == "Ankle boot"
    test = open_data("fashion-mnist", root=tmp_path / "none", split="test")
    assert test.images.tolist() == (images[:, None] + 100).tolist()


def test_fashion_mnist_as_installed(requires_fashion_mnist: Path) -> None:
    data = open_data("fashion-mnist")
    assert (len(data), data.shape, data.num_classes) == (60_000, (1, 28, 28), 10)
    assert data.labels.bincount().tolist() == [6000] * 10


def test_idx_file_cut_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_idx(tmp_path, "train", np.zeros((3, 4, 5)), np.zeros(3))
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:-1]))
    monkeypatch.setattr(sources_named, "DEBIAN_FASHION_MNIST", tmp_path)
    with pytest.raises(DataError, match=r"images-idx3-ubyte\.gz is no complete idx file"):
        open_data("fashion-mnist", root=tmp_path / "none")


def test_a_folder_of_idx_files(tmp_path: Path) -> None:
    images = np.arange(3 * 4 * 5).reshape(3, 4, 5)
    write_idx(tmp_path, "emnist-letters-train", images, np.array([10, 2, 2]))
    write_idx(tmp_path, "emnist-letters-test", images + 100, np.array([2, 7, 2]))
    data, test = (open_data(str(tmp_path), split=split) for split in ("train", "test"))
    assert data.images.tolist() == images[:, None].tolist()
    assert test.images.tolist() == (images[:, None] + 100).tolist()
    # A class that only one of them has does not move the others.
    assert data.class_names == test.class_names == ("2", "7", "10")
    assert (data.labels.tolist(), test.labels.tolist()) == ([2, 0, 0], [0, 1, 0])
    assert open_data(str(tmp_path), labels="none").num_classes == 0


def test_idx_files_that_are_not_packed_and_without_labels(tmp_path: Path) -> None:
    images = np.arange(3 * 4 * 5).reshape(3, 4, 5)
    write_idx(tmp_path, "train", images, np.zeros(3))
    packed = tmp_path / "train-images-idx3-ubyte.gz"
    (tmp_path / "train-images.idx3-ubyte").write_bytes(gzip.decompress(packed.read_bytes()))
    packed.write_bytes(b"the same file with .gz does not count")
    (tmp_path / "train-labels-idx1-ubyte.gz").unlink()
    data = open_data(str(tmp_path))
    assert data.images.tolist() == images[:, None].tolist()
    assert data.num_classes == 0


def test_idx_files_that_cannot_be_opened(tmp_path: Path) -> None:
    images, where = np.zeros((3, 4, 5)), re.escape(str(tmp_path))
    write_idx(tmp_path, "mnist-train", images, np.zeros(2))
    for split, message in [
        ("test", f"data: the idx files in {where} have no split test."),
        ("train", f"data: {where} holds 2 labels for the 3 images of mnist-train-images-idx3-"),
    ]:
        with pytest.raises(DataError, match=f"^{message}"):
            open_data(str(tmp_path), split=split)
    write_idx(tmp_path, "emnist-train", images, np.zeros(3))
    with pytest.raises(DataError, match=r"one split train: emnist-train, mnist-train\. Move all"):
        open_data(str(tmp_path))
    (tmp_path / "mnist-train-images-idx3-ubyte.gz").unlink()
    (tmp_path / "emnist-train-images-idx3-ubyte.gz").write_bytes(b"not packed")
    with pytest.raises(DataError, match=r"emnist-train-images-idx3-ubyte.gz cannot be read as an"):
        open_data(str(tmp_path))


def test_cifar10_through_torchvision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torchvision

    class Missing:
        def __init__(self, root: Path, *, train: bool, download: bool) -> None:
            if not download:
                raise RuntimeError("Dataset not found or corrupted.")
            (root / "half-made").touch()
            if not (tmp_path / "reachable").exists():
                raise OSError("Name or service not known")
            self.data = np.arange(2 * 4 * 4 * 3, dtype=np.uint8).reshape(2, 4, 4, 3)
            self.targets = [1, 0]
            self.classes = ["cat", "dog"]

    monkeypatch.setattr(torchvision.datasets, "CIFAR10", Missing)
    with pytest.raises(DataError) as caught:
        open_data("cifar10", root=tmp_path / "new")
    assert not (tmp_path / "new").exists()
    assert str(caught.value).startswith(
        f"data: 'cifar10' is not in {tmp_path / 'new'} and could not be downloaded: "
        "Name or service not known. Run once where the network is reachable, or put the files"
    )
    (tmp_path / "reachable").touch()
    data = open_data("cifar10", root=tmp_path)
    assert data.images[1, 2, 3, 0] == 48 + 3 * (3 * 4 + 0) + 2
    assert data.class_names == ("cat", "dog")
    assert data.labels.tolist() == [1, 0]


def stub(
    monkeypatch: pytest.MonkeyPatch, kind: str, options: dict[str, object], **has: object
) -> None:
    """Put in the place of one of torchvision's classes one that holds what it is given."""
    import torchvision

    class Stub:
        def __init__(self, root: Path, **given: object) -> None:
            assert given == {**options, "download": False}
            self.root = str(root)
            self.__dict__.update(has)

    monkeypatch.setattr(torchvision.datasets, kind, Stub)


@pytest.mark.parametrize(
    ("name", "kind", "split", "options", "pixels"),
    [
        ("mnist", "MNIST", "train", {"train": True}, torch.zeros(2, 28, 28, dtype=torch.uint8)),
        ("kmnist", "KMNIST", "test", {"train": False}, torch.zeros(2, 28, 28, dtype=torch.uint8)),
        ("cifar100", "CIFAR100", "test", {"train": False}, np.zeros((2, 32, 32, 3), np.uint8)),
        ("svhn", "SVHN", "train", {"split": "train"}, np.zeros((2, 3, 32, 32), np.uint8)),
        ("stl10", "STL10", "test", {"split": "test"}, np.zeros((2, 3, 96, 96), np.uint8)),
    ],
)
def test_torchvisions_sets(
    name: str, kind: str, split: str, options: dict[str, object], pixels: np.ndarray,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    labels = "labels" if kind in ("SVHN", "STL10") else "targets"
    classes = [f"class {index}" for index in range(100)]
    stub(monkeypatch, kind, options, data=pixels, classes=classes, **{labels: [1, 0]})
    data = open_data(name, root=tmp_path, split=split)
    size = pixels.shape[2]
    assert data.shape == (1 if kind in ("MNIST", "KMNIST") else 3, size, size)
    assert data.labels.tolist() == [1, 0]
    assert data.class_names[1] == ("1" if kind in ("MNIST", "SVHN") else "class 1")


def test_celeba_is_a_folder_without_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{index:06}.jpg" for index in range(2)]
    for name in names:
        picture(tmp_path / "celeba" / "img_align_celeba" / name, (9, 9, 9), (178, 218))
    stub(monkeypatch, "CelebA", {"split": "train"}, filename=names, base_folder="celeba")
    data = open_data("celeba", root=tmp_path)
    assert (len(data), data.shape, data.num_classes) == (2, (3, 218, 178), 0)


# --- folders -----------------------------------------------------------------------------------


def test_flat_folder(tmp_path: Path) -> None:
    for index in range(3):
        picture(tmp_path / f"{index}.png", (index, 20, 30))
    data = open_data(str(tmp_path))
    assert data.name == tmp_path.name
    assert data.images.shape == (3, 3, 6, 8)
    assert data.images[:, :, 0, 0].tolist() == [[0, 20, 30], [1, 20, 30], [2, 20, 30]]
    assert data.num_classes == 0


def test_one_folder_a_class(tmp_path: Path) -> None:
    picture(tmp_path / "dog" / "a.png", 1)
    picture(tmp_path / "cat" / "deeper" / "b.png", 2)
    data = open_data(str(tmp_path))
    assert data.class_names == ("cat", "dog")
    assert (data.images[:, 0, 0, 0].tolist(), data.labels.tolist()) == ([2, 1], [0, 1])
    assert open_data(str(tmp_path), labels="none").num_classes == 0


def test_class_folders_that_are_numbers_are_in_their_order(tmp_path: Path) -> None:
    for name in ("10", "2", "1"):
        picture(tmp_path / name / "a.png", int(name))
    data = open_data(str(tmp_path))
    assert data.class_names == ("1", "2", "10")
    assert torch.equal(data.images[:, 0, 0, 0], torch.tensor([1, 10, 2], dtype=torch.uint8))
    assert data.labels.tolist() == [0, 2, 1]


def test_images_beside_folders_are_unlabelled(tmp_path: Path) -> None:
    picture(tmp_path / "a.png")
    picture(tmp_path / "x" / "b.png")
    picture(tmp_path / "y" / "c.png")
    assert open_data(str(tmp_path)).num_classes == 0
    with pytest.raises(DataError, match=r"labels: 'folders' .* holds images outside .* a\.png"):
        open_data(str(tmp_path), labels="folders")


def test_junk_is_no_image(tmp_path: Path) -> None:
    picture(tmp_path / "a.png")
    for name in (".DS_Store", "._a.png", "Thumbs.db", ".ipynb_checkpoints/a.png", "__MACOSX/b.png"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"junk")
    (tmp_path / "readme.txt").write_text("hello")
    data = open_data(str(tmp_path))
    assert len(data) == 1
    assert data.notes == ("1 other files ignored, such as readme.txt",)


def test_names_in_no_known_encoding(tmp_path: Path) -> None:
    path = picture(tmp_path / "a.png", 5)
    try:
        path.rename(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe.png"))
    except OSError:
        pytest.skip("needs: a file system that takes any name")
    assert open_data(str(tmp_path)).images[0, 0, 0, 0] == 5


def test_classes_in_no_known_encoding_can_be_written_anywhere(tmp_path: Path) -> None:
    for name in ("cafe", "tea"):
        picture(tmp_path / name / "a.png", 5)
    try:
        os.rename(tmp_path / "cafe", os.fsencode(tmp_path) + b"/caf\xe9")
    except OSError:
        pytest.skip("needs: a file system that takes any name")
    data = open_data(str(tmp_path))
    assert data.class_names == ("caf\\udce9", "tea")
    assert data.labels.tolist() == [0, 1]


def test_images_of_many_sizes_meet_at_a_power_of_two(tmp_path: Path) -> None:
    for index, size in enumerate([(40, 90), (70, 50), (100, 100)]):
        picture(tmp_path / f"{index}.png", 5, size)
    data = open_data(str(tmp_path))
    assert data.shape == (1, 32, 32)
    assert data.notes == ("3 of 3 images were brought to 32x32 pixels (height x width) by crop",)


def test_images_of_a_cameras_size_are_made_smaller(tmp_path: Path) -> None:
    picture(tmp_path / "a.png", 5, (1100, 700))
    assert open_data(str(tmp_path)).shape == (1, 256, 256)


def test_one_grey_image_among_colours_and_the_reverse(tmp_path: Path) -> None:
    for index in range(6):
        picture(tmp_path / f"{index}.png", (200, 100, 0))
    picture(tmp_path / "grey.jpg", 50)
    data = open_data(str(tmp_path))
    assert data.shape[0] == 3
    assert data.images[6].unique().tolist() == [50]
    assert data.notes == ("1 of 7 images are grey and were given 3 channels",)
    data = open_data(str(tmp_path), channels=1)
    assert data.images[:, 0, 0, 0].tolist() == [118] * 6 + [50]  # 0.299 * 200 + 0.587 * 100
    assert data.notes == ("6 of 7 images have colours and were made grey",)


def test_same_folder_same_fingerprint_until_it_changes(tmp_path: Path) -> None:
    picture(tmp_path / "a.png")
    before = open_data(str(tmp_path)).fingerprint
    assert open_data(str(tmp_path)).fingerprint == before
    picture(tmp_path / "b.png")
    assert open_data(str(tmp_path)).fingerprint != before


# --- mistakes ----------------------------------------------------------------------------------


def test_unknown_name_lists_all_and_the_nearest() -> None:
    with pytest.raises(DataError) as caught:
        open_data("fashion_mnist")
    assert str(caught.value) == (
        "data: 'fashion_mnist' is neither a path that exists nor a known name. "
        "Did you mean 'fashion-mnist'? Known names: digits, mnist, fashion-mnist, kmnist, "
        "cifar10, cifar100, svhn, stl10, celeba, lsun, ring, grid, fake:COUNT."
    )


def test_path_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"does not exist\. Give the path of a folder or file"):
        open_data(str(tmp_path / "nowhere"))


def test_empty_folder_and_folder_without_images(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"the folder .* is empty\. Put images in it\."):
        open_data(str(tmp_path))
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(DataError, match=r"holds 1 files but no images, such as notes\.txt"):
        open_data(str(tmp_path))


def test_a_single_image(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.png' is a single image\. Give a folder, zip or tar"):
        open_data(str(picture(tmp_path / "a.png")))


def test_labels_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="labels: 'folders' cannot be used with 'fake:3'"):
        open_data("fake:3", labels="folders")
    picture(tmp_path / "a.png")
    with pytest.raises(DataError, match="Put each image in the folder of its class"):
        open_data(str(tmp_path), labels="folders")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"channels": 2}, "channels: 2 is not one of None, 1, 3, 4."),
        ({"fit": "cover"}, "fit: 'cover' is not one of 'crop', 'pad', 'stretch'."),
        ({"pairs": "yes"}, "pairs: 'yes' is not one of 'none', 'folders', 'side-by-side'."),
        ({"resolution": (0, 8)}, "resolution: (0, 8) is no height and width in pixels."),
        (
            {"resolution": (64, 99999999)},
            "resolution: (64, 99999999) is more than 8192 pixels a side. Ask for less.",
        ),
        ({"background": (0, 256, 0)}, "background: (0, 256, 0) is not three values from 0 to 255."),
        ({"pairs": "folders"}, "pairs: 'digits' has no folders A and B. Use pairs side-by-side."),
        (
            {"labels": "l.csv"},
            "labels: 'l.csv' cannot be used with 'digits'. Use labels auto or none.",
        ),
    ],
)
def test_options_that_cannot_be(options: dict[str, object], message: str) -> None:
    with pytest.raises(DataError) as caught:
        open_data("digits", **options)
    assert str(caught.value) == message


def test_split_that_is_not_there() -> None:
    with pytest.raises(DataError, match=r"split: 'digits' has no test split\. Use split train\."):
        open_data("digits", split="test")
    with pytest.raises(DataError, match="split: 'validation' is not one of 'train', 'test'"):
        open_data("digits", split="validation")


# --- the house ---------------------------------------------------------------------------------


def test_can_be_sent_to_a_worker() -> None:
    data = open_data("digits")
    copy = pickle.loads(pickle.dumps(data))
    assert torch.equal(copy.images, data.images)
    assert (copy.labels.tolist(), copy.class_names) == (data.labels.tolist(), data.class_names)


def test_import_is_light() -> None:
    code = (
        "import sys, gan.data, gan.data.decode, gan.data.items; "
        "print([m for m in ('torch', 'sklearn', 'torchvision') if m in sys.modules]);"
        "import gan.data.door; "
        "print([m for m in ('sklearn', 'torchvision') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[]", "[]"]
