"""Samples as files, the way between seeds, and the real images beside samples."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from gan.data import ImageData
from gan.errors import GanError
from gan.gallery import (
    interpolate,
    nearest,
    nearest_picture,
    save_animation,
    save_samples,
    slerp,
)
from gan.networks import build_generator
from gan.sampling import latents, sample, to_bytes


@pytest.fixture
def generator() -> nn.Module:
    return build_generator("mlp", (1, 6, 5), z_dim=8, hidden=(16,))


@pytest.fixture
def conditional() -> nn.Module:
    return build_generator("mlp", (3, 4, 4), z_dim=8, hidden=(16,), num_classes=3)


def pixels(content: bytes) -> Tensor:
    array = np.array(Image.open(BytesIO(content)))
    return torch.from_numpy(array if array.ndim == 3 else array[:, :, None]).permute(2, 0, 1)


# --- many images ---------------------------------------------------------------------------------


def test_a_folder_holds_one_file_a_seed(tmp_path: Path, generator: nn.Module) -> None:
    save_samples(tmp_path / "new" / "out", generator, range(7, 10))
    files = sorted((tmp_path / "new" / "out").iterdir())
    assert [file.name for file in files] == [f"seed-00000{seed}.png" for seed in (7, 8, 9)]
    read = torch.stack([pixels(file.read_bytes()) for file in files])
    assert torch.equal(read, to_bytes(sample(generator, range(7, 10))))
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["out"]


def test_a_zip_holds_images_and_labels(tmp_path: Path, conditional: nn.Module) -> None:
    path = tmp_path / "out.zip"
    save_samples(path, conditional, [4, 2])
    with zipfile.ZipFile(path) as archive:
        assert archive.namelist() == ["seed-000004.png", "seed-000002.png", "dataset.json"]
        read = torch.stack([pixels(archive.read(name)) for name in archive.namelist()[:2]])
        labels = json.loads(archive.read("dataset.json"))
    assert torch.equal(read, to_bytes(sample(conditional, [4, 2])))
    assert labels == {"labels": [["seed-000004.png", 1], ["seed-000002.png", 2]]}


@pytest.mark.parametrize("labels", [2, [2, 2, 2], torch.tensor([2, 2, 2])])
def test_an_npz_holds_arrays(tmp_path: Path, conditional: nn.Module, labels: Any) -> None:
    path = tmp_path / "out.npz"
    save_samples(path, conditional, range(3), labels, truncation=1.0)
    with np.load(path) as arrays:
        assert sorted(arrays) == ["images", "labels", "seeds"]
        images = torch.from_numpy(arrays["images"]).permute(0, 3, 1, 2)
        assert torch.equal(images, to_bytes(sample(conditional, range(3), 2, truncation=1.0)))
        assert arrays["labels"].tolist() == [2, 2, 2]
        assert arrays["seeds"].tolist() == [0, 1, 2]


def test_points_go_into_an_npz(tmp_path: Path) -> None:
    points = build_generator("mlp", (2,), z_dim=4, hidden=(8,))
    save_samples(tmp_path / "out.npz", points, range(5))
    with np.load(tmp_path / "out.npz") as arrays:
        assert torch.equal(torch.from_numpy(arrays["images"]), sample(points, range(5)))
    with pytest.raises(GanError, match="points are no images; write them to a file that ends in"):
        save_samples(tmp_path / "out", points, range(5))


@pytest.mark.parametrize("name", ["out", "out.zip", "out.npz"])
def test_half_a_result_is_no_result(
    tmp_path: Path, generator: nn.Module, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    whole = generator.forward

    def fail(z: Tensor, labels: Tensor | None = None) -> Tensor:
        calls.append(z)
        if len(calls) == 5:
            raise OSError(28, "No space left on device")
        return whole(z)

    monkeypatch.setattr(generator, "forward", fail)
    with pytest.raises(GanError) as caught:
        save_samples(tmp_path / name, generator, range(600))
    assert str(caught.value) == f"cannot write {tmp_path / name}: No space left on device"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "seeds", "message"),
    [
        ("out.jpgs", [0], "{out}: give a folder, or a file that ends in .npz, .zip or .png"),
        ("full", [0], "{out} exists and is not empty; choose another folder"),
        ("out", [1, 2, 1], "seeds: one of them comes twice, and would give the same image twice"),
    ],
)
def test_what_cannot_be_written(
    tmp_path: Path, generator: nn.Module, name: str, seeds: list[int], message: str
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    with pytest.raises(GanError) as caught:
        save_samples(tmp_path / name, generator, seeds)
    assert str(caught.value) == message.format(out=tmp_path / name)


# --- between images ------------------------------------------------------------------------------


def test_slerp_by_hand() -> None:
    a, b = torch.tensor([2.0, 0.0]), torch.tensor([0.0, 2.0])
    expected = torch.tensor([2 * math.cos(math.pi / 6), 2 * math.sin(math.pi / 6)])
    torch.testing.assert_close(slerp(a, b, 1 / 3), expected)


def test_slerp_keeps_the_length_where_a_straight_line_does_not() -> None:
    a, b = latents([0, 1], 512)
    middle = slerp(a, b, 0.5).norm()
    assert middle == pytest.approx((a.norm() + b.norm()).item() / 2, rel=0.05)
    assert torch.lerp(a, b, 0.5).norm() < 0.8 * middle


@pytest.mark.parametrize("scale", [1.0, 2.0, -1.0])
def test_slerp_where_there_is_no_arc(scale: float) -> None:
    a = torch.tensor([1.0, 2.0])
    torch.testing.assert_close(slerp(a, scale * a, 0.25), a * (0.75 + 0.25 * scale))


def test_an_interpolation_passes_through_its_seeds(generator: nn.Module) -> None:
    images = interpolate(generator, [5, 8, 2], frames=4)
    assert images.shape == (9, 1, 6, 5)
    assert torch.equal(images[::4], sample(generator, [5, 8, 2]))
    assert images.flatten(1).unique(dim=0).shape[0] == 9


def test_a_loop_ends_before_it_begins_again(generator: nn.Module) -> None:
    images = interpolate(generator, [5, 8], frames=3, loop=True)
    assert images.shape[0] == 6
    assert torch.equal(images[[0, 3]], sample(generator, [5, 8]))
    torch.testing.assert_close(images[[1, 2]], images[[5, 4]])


def test_an_interpolation_stays_in_one_class(conditional: nn.Module) -> None:
    first = interpolate(conditional, [1, 2], frames=2)
    assert torch.equal(first, interpolate(conditional, [1, 2], frames=2, label=1))
    assert torch.equal(first[0], sample(conditional, [1])[0])
    assert not torch.equal(first, interpolate(conditional, [1, 2], frames=2, label=0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seeds": [1]}, "seeds: 1 of them; an interpolation goes between two or more"),
        ({"seeds": [1, 2], "frames": 0}, "frames: 0 is below 1"),
        ({"seeds": [1, 2], "label": 3}, "label: 3 is no class; this generator has 0 to 2"),
    ],
)
def test_interpolations_that_cannot_be(
    conditional: nn.Module, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(GanError) as caught:
        interpolate(conditional, **options)
    assert str(caught.value) == message


def test_a_label_without_classes(generator: nn.Module) -> None:
    with pytest.raises(GanError, match=r"^label: 0 is no class; it has no classes$"):
        interpolate(generator, [0, 1], label=0)


@pytest.mark.parametrize("ending", [".gif", ".webp", ".png"])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_an_animation_has_all_its_frames(tmp_path: Path, ending: str, channels: int) -> None:
    path = tmp_path / f"way{ending}"
    steps = torch.linspace(-1, 1, 5).view(-1, 1, 1, 1)
    save_animation(path, steps.expand(-1, channels, 64, 64), fps=10)
    with Image.open(path) as image:
        assert image.n_frames == 5
        assert image.size == (68, 68)
        for index, expected in enumerate(to_bytes(steps).flatten().tolist()):
            image.seek(index)
            value = image.convert("RGBA" if channels == 4 else "RGB").getpixel((30, 30))[0]
            assert abs(value - expected) <= 1 or channels == 4
            assert image.info.get("duration", 100) == 100
    assert list(tmp_path.iterdir()) == [path]


def test_an_animation_as_mp4(tmp_path: Path) -> None:
    if shutil.which("ffmpeg") is None:
        pytest.skip("needs: ffmpeg (apt-get install ffmpeg)")
    path = tmp_path / "way.mp4"
    save_animation(path, torch.zeros(6, 3, 63, 65), fps=5)
    probe = "ffprobe -v error -count_frames -show_entries stream=nb_read_frames,width -of json"
    done = subprocess.run([*probe.split(), str(path)], capture_output=True, check=True)
    assert json.loads(done.stdout)["streams"] == [{"width": 70, "nb_read_frames": "6"}]


def test_mp4_without_ffmpeg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(GanError, match=r"^an \.mp4 needs ffmpeg \(apt-get install ffmpeg\)"):
        save_animation(tmp_path / "way.mp4", torch.zeros(2, 1, 8, 8))
    assert list(tmp_path.iterdir()) == []


def test_an_animation_of_another_kind(tmp_path: Path) -> None:
    with pytest.raises(GanError, match=r"way\.avi: give a file that ends in \.gif, \.webp, \.png"):
        save_animation(tmp_path / "way.avi", torch.zeros(2, 1, 8, 8))


# --- beside images -------------------------------------------------------------------------------


def test_neighbours_by_hand() -> None:
    reals = torch.tensor([0, 100, 200, 255], dtype=torch.uint8).view(4, 1, 1, 1).expand(4, 1, 2, 2)
    samples = torch.tensor([1.0, 90 / 127.5 - 1]).view(2, 1, 1, 1).expand(2, 1, 2, 2)
    indices, distances = nearest(samples, reals, k=2)
    assert indices.tolist() == [[3, 2], [1, 0]]
    torch.testing.assert_close(distances * 127.5, torch.tensor([[0.0, 55.0], [10.0, 90.0]]))


def test_a_copy_is_found_among_many() -> None:
    reals = torch.randint(0, 256, (9000, 1, 4, 4), dtype=torch.uint8)
    chosen = torch.tensor([0, 4095, 4096, 8999])
    indices, distances = nearest(reals[chosen] / 127.5 - 1, reals, k=1)
    assert indices.flatten().tolist() == chosen.tolist()
    assert (distances == 0).all()


def test_fewer_real_images_than_neighbours() -> None:
    indices, _ = nearest(torch.zeros(3, 1, 2, 2), torch.zeros(2, 1, 2, 2, dtype=torch.uint8), k=5)
    assert indices.tolist() == [[0, 1]] * 3


def test_neighbours_by_features() -> None:
    reals = torch.tensor([[5.0, 0.0], [0.0, 1.0]])
    indices, _ = nearest(torch.zeros(1, 2), reals, k=1, features=lambda x: x[:, :1])
    assert indices.tolist() == [[1]]


def test_neighbours_out_of_a_data_set() -> None:
    images = torch.randint(0, 256, (50, 1, 4, 4), dtype=torch.uint8)
    data = ImageData("random", images, "fingerprint")
    samples = torch.rand(5, 1, 4, 4) * 2 - 1
    for mine, theirs in zip(nearest(samples, data), nearest(samples, images), strict=True):
        assert torch.equal(mine, theirs)
    assert torch.equal(nearest_picture(samples, data), nearest_picture(samples, images))


def test_the_picture_of_neighbours() -> None:
    reals = torch.tensor([0, 64, 128], dtype=torch.uint8).view(3, 1, 1, 1).expand(3, 1, 64, 64)
    grid = nearest_picture(torch.full((1, 1, 64, 64), -1.0), reals, k=2)
    assert grid.shape == (1, 68, 2 + 4 * 66)
    assert grid[0, 34, [34, 100, 166, 232]].tolist() == [0, 0, 64, 255]
