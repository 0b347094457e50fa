"""Whether a file holds all of its picture, where decoders fill in what lacks without a word."""

from __future__ import annotations

import io
import random

from PIL import Image

_SCAN, _END = b"\xff\xda", b"\xff\xd9"
_FILLED = {127, 128}  # what libjpeg makes of blocks that are not there; 127 in CMYK
_NOISE = random.Random(0).randbytes(4096).replace(b"\xff", b"\xfe")  # holds no marker


def ends_too_early(data: bytes, picture: Image.Image) -> bool:
    """Whether the end of a file was never written, or a JPEG's pixels end before its end marker.

    A JPEG that looks as if some were filled in (grey in its last corner, or with bits that no scan
    sends) is decoded again with noise before its end marker: a decoder that has all of the picture
    skips it. So no whole picture is ever refused. Not found are damage that leaves as much to
    decode as there was, or more, and the loss of a part of a progressive picture's last scan.

    Args:
        data: the file.
        picture: what it was decoded to, as it is in the file.

    Reference: ITU-T T.81, B.1.1.3 on markers and G.1.1.1 on progressive scans.
    """
    if picture.format in ("WEBP", "AVIF"):
        return data.endswith(bytes(512))
    if picture.format not in ("JPEG", "MPO"):
        return False
    scan = 2
    while data[scan : scan + 1] == b"\xff" and data[scan + 1] != _SCAN[1]:
        scan += 2 + int.from_bytes(data[scan + 2 : scan + 4], "big")
    end = data.find(_END, scan)  # behind the headers, which may hold a thumbnail
    if end < 0:
        return True
    if picture.info.get("progressive"):
        suspicious = _lacks_bits(data[scan:end], len(picture.getbands()))
    else:
        corner = picture.getpixel((picture.width - 1, picture.height - 1))
        suspicious = set(corner if isinstance(corner, tuple) else [corner]) <= _FILLED
    return suspicious and _needs_more(data[:end] + _NOISE + data[end:], picture)


def _lacks_bits(scans: bytes, components: int) -> bool:
    sent, start = 0, scans.find(_SCAN)
    scans += b"\1" * 1024  # a header cut short is of a scan that does not count
    while start >= 0:
        parts = scans[start + 4]
        first, last, bits = scans[start + 5 + 2 * parts : start + 8 + 2 * parts]
        if bits & 15 == 0:  # down to the lowest bit
            sent += parts * (last - first + 1)
        start = scans.find(_SCAN, start + 2)
    return sent < 64 * components


def _needs_more(noisy: bytes, picture: Image.Image) -> bool:
    again: Image.Image = Image.open(io.BytesIO(noisy), formats=("JPEG",))
    again.load()
    return again.tobytes() != picture.tobytes()
