"""Embedded colour profiles, made by hand, against their own arithmetic."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageCms

from gan.data import open_data
from gan.data.colours import in_srgb, profile_effect
from gan.data.decode import Target, convert, open_picture

P3 = ((0.51512, 0.2412, -0.00105), (0.29198, 0.69225, 0.04189), (0.1571, 0.06657, 0.78407))
"""Display P3's red, green and blue as XYZ under D50."""
SRGB = ((0.43607, 0.22249, 0.01392), (0.38515, 0.71687, 0.09708), (0.14307, 0.06061, 0.7141))
WHITE = (0.9642, 1.0, 0.8249)


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("GAN_CACHE", str(tmp_path_factory.mktemp("cache")))


def profile(space: bytes, pcs: bytes, tags: dict[bytes, bytes]) -> bytes:
    table, content, place = b"", b"", 132 + 12 * len(tags)
    for name, data in tags.items():
        data += bytes(-len(data) % 4)
        table += struct.pack(">4sII", name, place + len(content), len(data))
        content += data
    kind = b"prtr" if space == b"CMYK" else b"mntr"
    head = struct.pack(">I4sI4s4s4s", place + len(content), b"", 0x02400000, kind, space, pcs)
    head = head.ljust(36, b"\0") + b"acsp"
    head = head.ljust(68, b"\0") + fixed(*WHITE)
    return head.ljust(128, b"\0") + struct.pack(">I", len(tags)) + table + content


def fixed(*values: float) -> bytes:
    return b"".join(struct.pack(">i", round(value * 65536)) for value in values)


def xyz(values: tuple[float, float, float]) -> bytes:
    return b"XYZ \0\0\0\0" + fixed(*values)


def gamma(value: float) -> bytes:
    return b"curv\0\0\0\0" + struct.pack(">IH", 1, round(value * 256))


def rgb_profile(primaries: tuple[tuple[float, float, float], ...], power: float) -> bytes:
    tags = {b"wtpt": xyz(WHITE)}
    tags |= {name + b"XYZ": xyz(values) for name, values in zip((b"r", b"g", b"b"), primaries)}  # noqa: B905
    tags |= {name + b"TRC": gamma(power) for name in (b"r", b"g", b"b")}
    return profile(b"RGB ", b"XYZ ", tags)


def grey_profile(power: float) -> bytes:
    return profile(b"GRAY", b"XYZ ", {b"wtpt": xyz(WHITE), b"kTRC": gamma(power)})


def ink_profile() -> bytes:
    """No ink is white, any black is black, and every other ink is the grey of half lightness."""
    nodes = [(255, 128, 128) if not any((c, m, y, k)) else ((0 if k else 128), 128, 128)
             for c in (0, 1) for m in (0, 1) for y in (0, 1) for k in (0, 1)]  # fmt: skip
    straight = bytes(range(256))
    table = b"mft1\0\0\0\0" + bytes([4, 3, 2, 0]) + fixed(1, 0, 0, 0, 1, 0, 0, 0, 1)
    table += straight * 4 + bytes(value for node in nodes for value in node) + straight * 3
    return profile(b"CMYK", b"Lab ", {b"wtpt": xyz(WHITE), b"A2B0": table, b"A2B1": table})


def encoded(linear: np.ndarray) -> np.ndarray:
    """sRGB's curve (IEC 61966-2-1), from light in 0..1 to 0..255."""
    linear = np.clip(linear, 0, 1)
    curve = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return 255 * curve


def opened(picture: Image.Image, icc: bytes, kind: str = "PNG") -> Image.Image:
    buffer = io.BytesIO()
    picture.save(buffer, kind, icc_profile=icc)
    return open_picture(buffer.getvalue())


@pytest.mark.parametrize("colour", [(100, 150, 100), (255, 255, 255), (200, 180, 160), (0, 0, 0)])
def test_display_p3_becomes_srgb(colour: tuple[int, int, int]) -> None:
    picture = opened(Image.new("RGB", (2, 2), colour), rgb_profile(P3, 2.2))
    light = (np.array(colour) / 255) ** (round(2.2 * 256) / 256)
    expected = encoded(np.linalg.solve(np.array(SRGB).T, np.array(P3).T @ light))
    assert profile_effect(picture) == "converted"
    found = convert(picture, Target(3, 2, 2))[:, 0, 0]
    assert np.abs(found - expected).max() <= 1.5
    grey = convert(picture, Target(1, 2, 2))[0, 0, 0]
    assert grey == pytest.approx(np.dot((0.299, 0.587, 0.114), expected), abs=1.5)


def test_opacity_and_palettes_keep_what_they_are() -> None:
    swapped = rgb_profile((SRGB[1], SRGB[0], SRGB[2]), 2.2)  # its red is sRGB's green
    clear = opened(Image.new("RGBA", (2, 2), (255, 0, 0, 128)), swapped)
    assert np.abs(convert(clear, Target(4, 2, 2))[:, 0, 0] - (0.0, 255, 0, 128)).max() <= 1
    assert np.abs(convert(clear, Target(3, 2, 2))[:, 0, 0] - (127.0, 255, 127)).max() <= 1
    palette = Image.new("P", (2, 2), 1)
    palette.putpalette([0, 0, 0, 255, 0, 0])
    coloured = opened(palette, swapped)
    assert np.abs(convert(coloured, Target(3, 2, 2))[:, 0, 0] - (0.0, 255, 0)).max() <= 1


@pytest.mark.parametrize("mode", ["L", "LA"])
def test_grey_values_that_count_light(mode: str) -> None:
    picture = opened(Image.new(mode, (2, 2), 50 if mode == "L" else (50, 255)), grey_profile(1.0))
    found = convert(picture, Target(1, 2, 2))[0, 0, 0]
    assert found == pytest.approx(float(encoded(np.array(50 / 255))), abs=1)
    assert in_srgb(picture).mode == ("L" if mode == "L" else "RGBA")


@pytest.mark.parametrize("kind", ["JPEG", "TIFF"])
def test_inks_are_mixed_as_their_profile_says(kind: str) -> None:
    for ink, expected in ((0, 0, 0, 0), 255), ((255, 0, 0, 0), 119), ((0, 0, 0, 255), 0):
        picture = opened(Image.new("CMYK", (8, 8), ink), ink_profile(), kind)
        assert profile_effect(picture) == "converted"
        found = convert(picture, Target(3, 8, 8)).astype(int)
        assert np.abs(found - expected).max() <= 2, ink


def test_a_profile_of_srgb_changes_nothing() -> None:
    icc = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    picture = opened(Image.new("RGB", (2, 2), (1, 77, 200)), icc)
    assert profile_effect(picture) == ""
    assert in_srgb(picture) is picture


@pytest.mark.parametrize("icc", [b"no profile", grey_profile(1.0), rgb_profile(P3, 2.2)[:200]])
def test_a_profile_that_cannot_be_used_is_ignored(icc: bytes) -> None:
    picture = opened(Image.new("RGB", (2, 2), (1, 77, 200)), icc)
    assert profile_effect(picture) == "ignored"
    assert convert(picture, Target(3, 2, 2))[:, 0, 0].tolist() == [1, 77, 200]


def test_what_was_done_is_noted_also_from_the_cache(tmp_path: Path) -> None:
    wide, odd = rgb_profile(P3, 2.2), b"no profile"
    for name, icc in ("a", None), ("b", wide), ("c", wide), ("d", odd):
        Image.new("RGB", (8, 8), (100, 150, 100)).save(tmp_path / f"{name}.png", icc_profile=icc)
    for _ in range(2):
        data = open_data(str(tmp_path))
        assert data.notes == (
            "2 of 4 images had other colours and were brought to sRGB",
            "1 of 4 images have a colour profile that cannot be used",
        )
        assert (data.images[1] == data.images[2]).all()
        assert (data.images[0] == data.images[3]).all()
        assert (data.images[0] != data.images[1]).any()
