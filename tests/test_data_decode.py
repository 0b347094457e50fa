"""Decoding: a folder of deliberately awful images, each checked by value after loading."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFile, features

from gan.data import describe, open_data
from gan.data.decode import (
    Target,
    UnreadableError,
    convert,
    glance,
    is_grey,
    open_picture,
    strictly,
)
from gan.errors import DataError

WHITE = (255, 255, 255)


def encoded(picture: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def plain(mode: str, colour: object, size: tuple[int, int] = (16, 16)) -> Image.Image:
    return Image.new(mode, size, colour)  # type: ignore[arg-type]


def palette(index: int) -> Image.Image:
    picture = plain("P", index)
    picture.putpalette([0, 0, 0, 10, 200, 30] + [0] * 762)
    return picture


def soft_palette() -> Image.Image:
    picture = palette(1)
    picture.info["transparency"] = bytes([255, 128] + [255] * 254)
    return picture


def png(depth: int, kind: int, samples: list[int], clear: tuple[int, ...] = ()) -> bytes:
    """One row of pixels, written by hand: Pillow does not write all that it reads."""
    channels = {0: 1, 2: 3, 4: 2, 6: 4}[kind]

    def chunk(name: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    code = {8: "B", 16: "H"}[depth]
    head = struct.pack(">IIBBBBB", len(samples) // channels, 1, depth, kind, 0, 0, 0)
    row = b"\0" + struct.pack(f">{len(samples)}{code}", *samples)
    key = [(b"tRNS", struct.pack(f">{len(clear)}H", *clear))] if clear else []
    parts = [(b"IHDR", head), *key, (b"IDAT", zlib.compress(row)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


def animated(kind: str, **options: object) -> bytes:
    frames = [plain("RGB", colour) for colour in ((255, 0, 0), (0, 255, 0))]
    return encoded(frames[0], kind, save_all=True, append_images=frames[1:], **options)


def deep(dtype: str, value: float) -> bytes:
    return encoded(Image.fromarray(np.full((16, 16), value, dtype)), "TIFF")


# File name: content, and the colour of every pixel as RGB on a white background.
AWFUL: dict[str, tuple[Callable[[], bytes], tuple[int, int, int]]] = {
    "rgb.png": (lambda: encoded(plain("RGB", (10, 20, 30)), "PNG"), (10, 20, 30)),
    "grey.png": (lambda: encoded(plain("L", 77), "PNG"), (77, 77, 77)),
    "one bit.png": (lambda: encoded(plain("1", 1), "PNG"), WHITE),
    "palette.png": (lambda: encoded(palette(1), "PNG"), (10, 200, 30)),
    "palette clear.png": (lambda: encoded(palette(1), "PNG", transparency=1), WHITE),
    "palette soft.png": (lambda: encoded(soft_palette(), "PNG"), (132, 227, 142)),
    "clear red.png": (lambda: encoded(plain("RGBA", (255, 0, 0, 0)), "PNG"), WHITE),
    "half red.png": (lambda: encoded(plain("RGBA", (255, 0, 0, 128)), "PNG"), (255, 127, 127)),
    "clear grey.png": (lambda: encoded(plain("LA", (10, 0)), "PNG"), WHITE),
    "solid grey.png": (lambda: encoded(plain("LA", (10, 255)), "PNG"), (10, 10, 10)),
    "grey key.png": (lambda: encoded(plain("L", 7), "PNG", transparency=7), WHITE),
    "rgb key.png": (lambda: encoded(plain("RGB", (7, 8, 9)), "PNG", transparency=(7, 8, 9)), WHITE),
    "deep grey.png": (lambda: png(16, 0, [257 * 100] * 16), (100, 100, 100)),
    "deep rgb.png": (lambda: png(16, 2, [257 * 9, 0, 65535] * 16), (9, 0, 255)),
    "deep grey key.png": (lambda: png(16, 0, [1000] * 16, (1000,)), WHITE),
    "deep rgb key.png": (lambda: png(16, 2, [1000, 0, 9] * 16, (1000, 0, 9)), WHITE),
    "deep rgb, other key.png": (lambda: png(16, 2, [65535, 0, 0] * 16, (1000, 0, 9)), (255, 0, 0)),
    "deep clear.png": (lambda: png(16, 6, [65535, 0, 0, 0] * 16), WHITE),
    "deep.tif": (lambda: deep("<u2", 257 * 100), (100, 100, 100)),
    "deep big endian.tif": (lambda: deep(">u2", 257 * 100), (100, 100, 100)),
    "wide deep.tif": (lambda: deep("<i4", 257 * 100), (100, 100, 100)),
    "float.tif": (lambda: deep("<f4", 51), (51, 51, 51)),
    "deep.pgm": (lambda: b"P5 2 1 65535\n" + 2 * struct.pack(">H", 257 * 9), (9, 9, 9)),
    "odd range.pgm": (lambda: b"P5 2 1 1000\n" + 2 * struct.pack(">H", 200), (51, 51, 51)),
    "bits.pbm": (lambda: b"P1 2 1 0 0\n", WHITE),
    "cmyk.jpg": (lambda: encoded(plain("CMYK", (0, 255, 255, 0)), "JPEG"), (255, 0, 0)),
    "cmyk.tif": (lambda: encoded(plain("CMYK", (255, 0, 255, 0)), "TIFF"), (0, 255, 0)),
    "ycbcr.tif": (lambda: encoded(plain("YCbCr", (99, 128, 128)), "TIFF"), (99, 99, 99)),
    "moving.gif": (lambda: animated("GIF"), (255, 0, 0)),
    "moving.png": (lambda: animated("PNG"), (255, 0, 0)),
    "moving.webp": (lambda: animated("WEBP", lossless=True), (255, 0, 0)),
    "pages.tif": (lambda: animated("TIFF"), (255, 0, 0)),
    "clear.gif": (lambda: encoded(palette(1), "GIF", transparency=1), WHITE),
    "icon.ico": (lambda: encoded(plain("RGBA", (255, 0, 0, 0)), "ICO"), WHITE),
    "wrong ending.jpg": (lambda: encoded(plain("RGB", (1, 2, 3)), "PNG"), (1, 2, 3)),
    "MIXED Case.PnG": (lambda: encoded(plain("RGB", (1, 2, 3)), "PNG"), (1, 2, 3)),
    "naïve 猫.png": (lambda: encoded(plain("RGB", (1, 2, 3)), "PNG"), (1, 2, 3)),
}

try:
    open_picture(AWFUL["ycbcr.tif"][0]())
except UnreadableError:  # Pillow before 13 writes such a file without all of its pixels
    del AWFUL["ycbcr.tif"]


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("GAN_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def awful(tmp_path: Path) -> Path:
    for name, (content, _) in AWFUL.items():
        (tmp_path / name).write_bytes(content())
    return tmp_path


def test_every_awful_image_has_its_colour(awful: Path) -> None:
    data = open_data(str(awful), resolution=(16, 16), channels=3)
    assert len(data) == len(AWFUL)
    for name, image in zip(sorted(AWFUL), data.images, strict=True):
        expected = np.array(AWFUL[name][1])[:, None, None]
        # JPEG rounds; everything else is exact.
        assert np.abs(image.numpy() - expected).max() <= (1 if name == "cmyk.jpg" else 0), name


def test_every_awful_image_in_grey(awful: Path) -> None:
    data = open_data(str(awful), resolution=(16, 16), channels=1)
    for name, image in zip(sorted(AWFUL), data.images, strict=True):
        luma = np.dot((0.299, 0.587, 0.114), AWFUL[name][1])
        assert np.abs(image.numpy() - luma).max() <= 1, name


def test_opacity_is_kept_in_four_channels(awful: Path) -> None:
    data = open_data(str(awful), resolution=(16, 16), channels=4)
    found = {
        name: tuple(image[:, 8, 8].tolist())
        for name, image in zip(sorted(AWFUL), data.images, strict=True)
    }
    assert found["half red.png"] == (255, 0, 0, 128)
    assert found["clear red.png"][3] == 0
    assert found["grey.png"] == (77, 77, 77, 255)
    assert found["deep grey.png"] == (100, 100, 100, 255)
    assert found["clear grey.png"] == (10, 10, 10, 0)


def test_background_is_as_stated(tmp_path: Path) -> None:
    plain("RGBA", (255, 0, 0, 0)).save(tmp_path / "a.png")
    data = open_data(str(tmp_path), background=(0, 0, 200))
    assert data.images[0, :, 3, 3].tolist() == [0, 0, 200]
    assert data.notes == ("1 of 1 images have opacity and were put on the background",)


def test_deep_ramp_is_monotone_and_not_clipped() -> None:
    ramp = np.linspace(0, 65535, 64).astype(np.uint16).reshape(8, 8)
    planes = convert(open_picture(encoded(Image.fromarray(ramp), "PNG")), Target(1, 8, 8))
    values = planes.ravel().astype(int)
    assert values.mean() == pytest.approx(127.5, abs=0.5)
    assert (np.diff(values) >= 0).all()
    assert np.unique(values).size == 64


def test_deep_colours_are_scaled_by_value(tmp_path: Path) -> None:
    values = [*range(0, 600, 7), *range(0, 65536, 257), *range(128, 65536, 257), 65535]
    exact = [round(value * 255 / 65535) for value in values]
    for kind, channels in (2, 3), (6, 4), (4, 2):
        samples = [value for value in values for _ in range(channels)]
        (tmp_path / f"{kind}.png").write_bytes(png(16, kind, samples))
        picture = open_picture((tmp_path / f"{kind}.png").read_bytes())
        planes = convert(picture, Target(4, 1, len(values)))
        for plane in planes if kind != 2 else planes[:3]:
            assert plane[0].tolist() == exact
    modes = describe(str(tmp_path)).modes
    assert modes == {"RGB 16-bit": 1, "RGBA 16-bit+": 2}


def test_a_deep_colour_key_is_exact() -> None:
    picture = open_picture(png(16, 2, [1000, 0, 9, 1001, 0, 9], (1000, 0, 9)))
    assert convert(picture, Target(4, 1, 2))[:, 0].tolist() == [[4, 4], [0, 0], [0, 0], [0, 255]]


def test_a_deep_key_is_exact() -> None:
    """Of 1000 and 1001, which are the same grey in 8 bits, only the key is clear."""
    picture = open_picture(png(16, 0, [1000, 1001], (1000,)))
    assert convert(picture, Target(4, 1, 2))[3].tolist() == [[0, 255]]
    assert convert(picture, Target(1, 1, 2)).tolist() == [[[255, 4]]]


@pytest.mark.parametrize(("low", "high", "reason"), [
    (-2.0, 1.0, "the values from -2 to 1 are in none of the ranges 0 to 1, -1 to 1, 0 to 255"),
    (0.0, 1.01, "the values from 0 to 1.01 are in none of the ranges"),
    (0.0, 70000.0, "the values from 0 to 70000 are in none of the ranges"),
    (0.0, float("nan"), "it holds NaN"), (0.0, -float("inf"), "it holds infinity"),
])  # fmt: skip
def test_values_without_a_known_range_are_refused(low: float, high: float, reason: str) -> None:
    picture = open_picture(encoded(Image.fromarray(np.array([[low, high]], np.float32)), "TIFF"))
    with pytest.raises(UnreadableError, match=f"^mode F: {reason}"):
        convert(picture, Target(1, 1, 2))


@pytest.mark.parametrize(("values", "dtype", "range_", "expected"), [
    ([0.25, 100.0, 200.0], "<f4", "0 and 255", [0, 100, 200]),
    ([0.0, 0.2, 1.0], "<f4", "0 and 1", [0, 51, 255]),
    ([-1.0, 0.0, 1.0], "<f4", "-1 and 1", [0, 128, 255]),
    ([100, 257 * 9, 65535], "<i4", "0 and 65535", [0, 9, 255]),
    ([100, 200, 201], "<i4", "0 and 255", [100, 200, 201]),
])  # fmt: skip
def test_all_images_of_a_source_have_one_range(
    values: list[float], dtype: str, range_: str, expected: list[int], tmp_path: Path
) -> None:
    for index, value in enumerate(values):
        (tmp_path / f"{index}.tif").write_bytes(deep(dtype, value))
    for _ in "made", "found again":
        data = open_data(str(tmp_path))
        assert data.images[:, 0, 3, 3].tolist() == expected
        mode = {"<f4": "F", "<i4": "I"}[dtype]
        assert (
            f"values of mode {mode} are taken to lie between {range_} in all images" in data.notes
        )


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP", "AVIF"])
def test_phone_photos_stand_upright(kind: str) -> None:
    if kind in ("WEBP", "AVIF") and not features.check(kind.lower()):
        pytest.skip(f"needs: Pillow with {kind}")
    pixels = np.zeros((32, 64, 3), np.uint8)
    pixels[:16] = (255, 0, 0)
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encoded(Image.fromarray(pixels), kind, exif=exif)
    picture = open_picture(data)
    assert glance(data) == (picture.size, False) == ((32, 64), False)
    planes = convert(picture, Target(3, 64, 32)).astype(int)
    assert np.abs(planes[:, 32, 28] - (255, 0, 0)).max() < 12  # the red is on the right
    assert planes[:, 32, 4].max() < 12


def test_a_damaged_note_of_the_orientation_is_ignored() -> None:
    data = encoded(plain("RGB", (9, 9, 9)), "JPEG", exif=b"Exif\0\0II*\0\x08\0\0\0\xff\xff\0\0")
    with strictly():
        assert open_picture(data).size == (16, 16)


def test_grey_palettes_count_as_grey() -> None:
    colourful, grey = palette(1), palette(0)
    assert not is_grey(colourful)
    assert is_grey(grey)
    assert is_grey(plain("LA", (3, 4)))
    assert not is_grey(plain("RGB", (5, 5, 5)))


# --- damage ------------------------------------------------------------------------------------

NOISE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8))
KINDS: list[tuple[str, dict[str, object]]] = [
    ("PNG", {}),
    ("JPEG", {}),
    ("JPEG", {"progressive": True}),
    ("WEBP", {}),
    ("BMP", {}),
    ("GIF", {}),
    ("TIFF", {}),
    ("TIFF", {"compression": "tiff_lzw"}),
    ("PPM", {}),
    ("TGA", {}),
    ("ICO", {}),
    ("JPEG2000", {}),
]


@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_no_part_of_a_file_becomes_an_image(kind: str, options: dict[str, object]) -> None:
    data = encoded(NOISE, kind, **options)
    assert open_picture(data).size == (64, 64)
    for share in (0, 0.1, 0.5, 0.9, 0.97):
        with pytest.raises(UnreadableError), strictly():
            open_picture(data[: int(share * len(data))])


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP"])
@pytest.mark.parametrize("share", [0.3, 0.5, 0.8])
def test_a_download_that_ends_in_zeros_is_no_image(kind: str, share: float) -> None:
    data = encoded(NOISE, kind)
    whole = int(share * len(data))
    with pytest.raises(UnreadableError):
        open_picture(data[:whole] + bytes(len(data) - whole))


def test_a_thumbnail_does_not_hide_a_missing_end() -> None:
    exif = Image.Exif()
    exif[0x010E] = "\xff\xd9" * 3
    data = encoded(NOISE, "JPEG", exif=b"Exif\0\0" + exif.tobytes()[6:] + b"\xff\xd8\xff\xd9")
    assert open_picture(data).size == (64, 64)
    with pytest.raises(UnreadableError, match="the file ends before the picture does"):
        open_picture(data[: len(data) // 2] + bytes(len(data) // 2))


JPEGS = [{}, {"progressive": True}, {"subsampling": 0, "restart_marker_rows": 1}]


@pytest.mark.parametrize("options", JPEGS)
@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
@pytest.mark.parametrize("share", [0.3, 0.5, 0.65])
def test_an_end_marker_does_not_make_a_jpeg_whole(
    mode: str, share: float, options: dict[str, object]
) -> None:
    data = encoded(NOISE.convert(mode), "JPEG", **options)
    cut = data[: int(share * len(data))].removesuffix(b"\xff")
    with pytest.raises(UnreadableError, match="the file ends before the picture does"):
        open_picture(cut + b"\xff\xd9")


@pytest.mark.parametrize("options", JPEGS)
@pytest.mark.parametrize("grey", [127, 128])
def test_a_grey_corner_does_not_make_a_jpeg_a_part(grey: int, options: dict[str, object]) -> None:
    for mode in "L", "RGB", "CMYK":
        picture = NOISE.copy()
        picture.paste((grey, grey, grey), (0, 16, 64, 64))
        data = encoded(picture.convert(mode), "JPEG", quality=100, **options)
        open_picture(data)
        open_picture(data[:-2] + bytes(9) + data[-2:])  # some cameras fill up


def test_a_progressive_jpeg_need_not_send_all_bits() -> None:
    data = encoded(NOISE, "JPEG", progressive=True)
    last = data.rindex(b"\xff\xda")
    last = data.rindex(b"\xff\xc4", 0, last) if b"\xff\xc4" in data[last - 64 : last] else last
    assert open_picture(data[:last] + b"\xff\xd9").size == (64, 64)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "the file is empty"),
        (b"hello, I am no picture", "not an image of a known format"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an image of a known format"),
    ],
)
def test_what_is_no_image_says_so(data: bytes, reason: str) -> None:
    with pytest.raises(UnreadableError) as caught:
        open_picture(data)
    assert str(caught.value) == reason


def test_a_decompression_bomb_is_refused() -> None:
    bomb = bytearray(encoded(plain("L", 0), "PNG"))
    bomb[16:24] = struct.pack(">II", 30_000, 30_000)
    bomb[29:33] = struct.pack(">I", zlib.crc32(bytes(bomb[12:29])))
    with pytest.raises(UnreadableError, match=r"900000000 pixels.* exceeds limit"):
        open_picture(bytes(bomb))


def test_unreadable_files_are_listed_before_training_starts(tmp_path: Path) -> None:
    NOISE.save(tmp_path / "good.png")
    half = encoded(NOISE, "JPEG")
    for index in range(10):
        (tmp_path / f"half {index}.jpg").write_bytes(half[: len(half) // 2])
    (tmp_path / "zero.png").touch()
    with pytest.raises(DataError) as caught:
        open_data(str(tmp_path))
    lines = str(caught.value).splitlines()
    assert lines[0] == f"data: 11 of 12 images of {tmp_path.name} cannot be read:"
    assert lines[1].startswith("  half 0.jpg: image file is truncated")
    assert lines[11:] == [
        "  and 1 more",
        "Repair or remove them, or leave them out with skip_unreadable.",
    ]
    data = open_data(str(tmp_path), skip_unreadable=True)
    assert np.array_equal(data.images.numpy()[0], np.asarray(NOISE).transpose(2, 0, 1))
    assert data.notes[0].startswith("left out, 11 of 12 images of")
    assert "half 9.jpg: image file is truncated" in data.notes[0]


def test_a_lenient_pillow_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    half = encoded(NOISE, "JPEG")
    (tmp_path / "half.jpg").write_bytes(half[: len(half) // 2])
    NOISE.save(tmp_path / "whole.png")
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    with pytest.raises(DataError, match=r"half\.jpg: image file is truncated"):
        open_data(str(tmp_path))
    assert ImageFile.LOAD_TRUNCATED_IMAGES


def test_nothing_left_is_an_error_even_when_skipping(tmp_path: Path) -> None:
    (tmp_path / "a.png").touch()
    with pytest.raises(DataError, match=r"a\.png: the file is empty\nNothing is left to train on"):
        open_data(str(tmp_path), skip_unreadable=True)


# --- geometry ----------------------------------------------------------------------------------


def resized(
    pixels: np.ndarray, height: int, width: int, fit: str = "stretch", **options
) -> np.ndarray:
    picture = Image.fromarray(pixels.astype(np.uint8))
    channels = 1 if pixels.ndim == 2 else pixels.shape[2]
    planes = convert(picture, Target(channels, height, width, fit, **options))
    return planes[0] if channels == 1 else planes.transpose(1, 2, 0)


def area_mean(pixels: np.ndarray, height: int, width: int) -> np.ndarray:
    """Average over exact areas, by cutting each pixel into so many that all areas are whole."""
    fine = np.repeat(np.repeat(pixels, height, 0), width, 1).astype(float)
    rows, columns = pixels.shape
    return fine.reshape(height, rows, width, columns).mean((1, 3))


@pytest.mark.parametrize("sizes", [
    (64, 64, 8, 8), (64, 48, 9, 7), (10, 10, 7, 7), (31, 17, 16, 16), (9, 100, 8, 3),
    (375, 60, 64, 9), (1100, 1, 96, 1),
])  # fmt: skip
def test_a_smaller_image_is_the_mean_over_exact_areas(sizes: tuple[int, int, int, int]) -> None:
    rows, columns, height, width = sizes
    pixels = np.random.default_rng(1).integers(0, 256, (rows, columns))
    found = resized(pixels, height, width)
    assert np.abs(found - area_mean(pixels, height, width)).max() <= 1.01  # rounded twice


def test_a_fine_checkerboard_becomes_grey() -> None:
    board = np.indices((64, 64)).sum(0) % 2 * 255
    assert np.abs(resized(board, 8, 8) - 127.5).max() <= 0.5


def test_an_edge_does_not_ring() -> None:
    edge = np.where(np.arange(30) < 13, 50, 200)[None].repeat(30, 0)
    for size in (7, 16, 30, 45, 64):
        found = resized(edge, size, size)
        assert (found.min(), found.max()) == (50, 200)


def test_a_larger_image_is_interpolated() -> None:
    found = resized(np.array([[0, 100]]), 1, 4)
    assert found.tolist() == [[0, 25, 75, 100]]


def test_the_same_size_is_left_alone() -> None:
    pixels = np.random.default_rng(2).integers(0, 256, (12, 20, 3))
    assert np.array_equal(resized(pixels, 12, 20), pixels)
    assert np.array_equal(resized(pixels, 12, 15, "crop"), pixels[:, 2:17])
    assert np.array_equal(resized(pixels, 7, 20, "crop"), pixels[2:9])


@pytest.mark.parametrize("shape", [(16, 32), (32, 16), (50, 90)])
def test_crop_keeps_a_circle_round(shape: tuple[int, int]) -> None:
    rows, columns = np.indices(shape)
    radius = min(shape) * 0.4
    middle = (shape[0] - 1) / 2, (shape[1] - 1) / 2
    disc = np.hypot(rows - middle[0], columns - middle[1]) < radius
    found = resized(disc * 255, 16, 16, "crop") > 127
    tall, wide = found.any(1).sum(), found.any(0).sum()
    assert abs(tall - wide) <= 0.05 * 16
    assert abs(wide - 2 * radius * 16 / min(shape)) <= 2


def test_pad_shows_everything_on_the_background() -> None:
    pixels = np.full((4, 8, 3), 90)
    found = resized(pixels, 8, 8, "pad", background=(1, 2, 3))
    assert (found[2:6] == 90).all()
    assert (found[[0, 1, 6, 7]] == (1, 2, 3)).all()


def test_pad_is_clear_where_opacity_is_kept() -> None:
    pixels = np.full((4, 8, 4), 90)
    found = resized(pixels, 8, 8, "pad")
    assert (found[2:6] == 90).all()
    assert (found[[0, 1, 6, 7]] == (255, 255, 255, 0)).all()


def test_hidden_colours_do_not_bleed() -> None:
    pixels = np.zeros((6, 6, 4))
    pixels[:, ::2] = (0, 0, 255, 255)
    pixels[:, 1::2] = (255, 0, 0, 0)
    found = resized(pixels, 4, 4)
    assert (found[..., 0] <= 1).all()
    assert (found[..., 2] >= 254).all()


@pytest.mark.parametrize("size", [(1, 1), (1, 100), (300, 2)])
@pytest.mark.parametrize("fit", ["crop", "pad", "stretch"])
def test_any_size_fits(size: tuple[int, int], fit: str) -> None:
    assert (resized(np.full(size, 50), 8, 12, fit, background=(50, 50, 50)) == 50).all()
