"""Small images, drawn as they are wanted; the same arguments give the same bytes."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
import PIL.Image


def noise(
    width: int, height: int, kind: str = "PNG", *, mode: str = "RGB", seed: int = 0, **options: Any
) -> bytes:
    """An image file of random pixels, which hardly shrink."""
    bands = len(PIL.Image.new(mode, (1, 1)).getbands())
    shape = (height, width, bands) if bands > 1 else (height, width)
    values = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    return file(PIL.Image.fromarray(values), kind, **options)


def file(image: PIL.Image.Image, kind: str, **options: Any) -> bytes:
    target = io.BytesIO()
    image.save(target, kind, **options)
    return target.getvalue()


def opened(content: bytes) -> PIL.Image.Image:
    image = PIL.Image.open(io.BytesIO(content))
    image.load()
    return image


def bomb() -> bytes:
    """The header of a PNG of 400 million pixels, and little else."""
    fields = struct.pack(">IIBBBBB", 20_000, 20_000, 8, 2, 0, 0, 0)
    header = b"IHDR" + fields
    chunk = struct.pack(">I", len(fields)) + header + struct.pack(">I", zlib.crc32(header))
    data = b"IDAT" + zlib.compress(b"\0")
    body = struct.pack(">I", len(data) - 4) + data + struct.pack(">I", zlib.crc32(data))
    return b"\x89PNG\r\n\x1a\n" + chunk + body
