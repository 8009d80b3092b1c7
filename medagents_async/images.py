"""Images of questions: looked at before a run, made fit for a request when their question is asked.

A row names an image by its path as seen from IN's folder, by an absolute path, or by a `data:`,
`http:` or `https:` URL. A server gets remote URLs as they are, everything else as `data:` URLs.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import io
import stat
import warnings
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import IO, TYPE_CHECKING

from medagents_async.errors import BadImage
from medagents_async.types import Image

if TYPE_CHECKING:
    import PIL.Image

SIDE = 1024  # pixels of the longest side, by default
MOST_BYTES = 1 << 20  # of an image as it is sent, before base64 adds a third
KEPT = 64 << 20  # characters, of images that questions may share
SAMPLE = 64 << 10  # bytes at either end of a file that tell its content
AT_ONCE = 4  # decoded at the same time: the largest take 270 MB each
#: Pillow reads many more, some through other programs, which data need not start.
FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "MPO")
QUALITIES = (90, 75, 60)  # of JPEG: the first that is small enough


@dataclass(kw_only=True)
class Album:
    """The images of an input file.

    `folder` is what relative paths start from; `side` the most pixels of the longest side that are
    sent; `remote` whether URLs of other machines, which the server would fetch, are allowed; `keep`
    how many characters of images are remembered for further questions about them.
    """

    folder: Path = Path()
    side: int = SIDE
    remote: bool = True
    keep: int = KEPT
    _kept: OrderedDict[str, Image] = field(default_factory=OrderedDict, repr=False)
    _size: int = 0
    _room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE), repr=False)

    def fingerprints(self, references: Sequence[str]) -> list[str]:
        """What tells each image's content, after a look at its file's header.

        That is the size and a hash: of the whole content up to twice `SAMPLE` bytes, of both ends
        of a larger file, so that 100,000 files are looked at in reasonable time. Of a remote image
        it is the URL. Raises BadImage, which says which one it is.
        """
        found = []
        for place, reference in enumerate(references):
            try:
                found.append(self._fingerprint(reference))
            except BadImage as reason:
                raise BadImage(f"images.{place}: {reason}") from reason
        return found

    def _fingerprint(self, reference: str) -> str:
        if _is_remote(reference):
            if not self.remote:
                raise BadImage(f"{reference} is remote; see --allow-remote-images")
            return reference
        if _is_data(reference):
            content = _decoded(reference)
            return _look(io.BytesIO(content), len(content), "data: URL")
        return _of_file(*self._file(reference))

    def _file(self, reference: str) -> tuple[Path, int, int]:
        """(path, size in bytes, time of the last change in ns). Raises BadImage."""
        if "://" in reference:
            raise BadImage(f"{reference} is neither a path nor a data:, http: or https: URL")
        path = self.folder / reference
        try:
            status = path.stat()
        except FileNotFoundError as error:
            raise BadImage(f"{path}: no such file") from error
        except (OSError, ValueError) as error:
            raise BadImage(f"{path}: {error}") from error
        if not stat.S_ISREG(status.st_mode):  # opening a pipe might wait for ever
            raise BadImage(f"{path} is no file")
        return path, status.st_size, status.st_mtime_ns

    async def ready(self, references: Sequence[str]) -> tuple[Image, ...]:
        """The images as they go into requests, decoded and encoded off the event loop.

        Raises BadImage.
        """
        return tuple([await self._ready(reference) for reference in references])

    async def _ready(self, reference: str) -> Image:
        if _is_remote(reference):
            return Image(reference, reference)
        if reference in self._kept:
            self._kept.move_to_end(reference)
            return self._kept[reference]
        async with self._room:
            image = await asyncio.to_thread(self._made, reference)
        if not _is_data(reference):
            self._keep(reference, image)
        return image

    def _made(self, reference: str) -> Image:
        try:
            label = "data: URL"
            if _is_data(reference):
                content = _decoded(reference)
            else:
                path, *_ = self._file(reference)
                label = str(path)
                content = path.read_bytes()
            kind, sent = fitted(content, self.side)
        except BadImage:
            raise
        except Exception as error:  # decoders raise nearly anything at a broken file
            raise BadImage(f"{label}: {error}") from error
        url = f"data:image/{kind};base64,{base64.b64encode(sent).decode()}"
        return Image(url, f"sha256:{hashlib.sha256(content).hexdigest()}")

    def _keep(self, reference: str, image: Image) -> None:
        """Several questions may be about one image, and each has its repeats."""
        if reference in self._kept:  # two questions had it made at the same time
            return
        self._kept[reference] = image
        self._size += len(image.url)
        while self._size > self.keep:
            self._size -= len(self._kept.popitem(last=False)[1].url)


def _is_remote(reference: str) -> bool:
    return reference[:8].casefold().startswith(("http://", "https://"))


def _is_data(reference: str) -> bool:
    return reference[:5].casefold() == "data:"


def _decoded(url: str) -> bytes:
    """The bytes in a `data:` URL. Raises BadImage."""
    head, comma, content = url.partition(",")
    if not comma or not head.casefold().endswith(";base64"):
        raise BadImage("data: URL: want data:image/…;base64,…")
    try:
        return base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadImage(f"data: URL: {error}") from error


@lru_cache(maxsize=4096)  # rows about one image stand together in most sets
def _of_file(path: Path, size: int, _changed: int) -> str:
    try:
        with path.open("rb") as file:
            return _look(file, size, str(path))
    except OSError as error:
        raise BadImage(f"{path}: {error.strerror}") from error


def _look(file: IO[bytes], size: int, label: str) -> str:
    """The fingerprint of a file whose header is an image's. Raises BadImage."""
    import PIL.Image  # only here and below: most runs have no images

    state = hashlib.blake2b(f"{size}:".encode(), digest_size=16)
    state.update(file.read(SAMPLE))
    file.seek(max(SAMPLE, size - SAMPLE))
    state.update(file.read(SAMPLE))
    file.seek(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", PIL.Image.DecompressionBombWarning)
        try:
            PIL.Image.open(file, formats=FORMATS).close()
        except (PIL.Image.DecompressionBombWarning, PIL.Image.DecompressionBombError) as error:
            raise BadImage(
                f"{label} has more than {PIL.Image.MAX_IMAGE_PIXELS:,} pixels; make it smaller"
            ) from error
        except Exception as error:  # decoders raise nearly anything at a broken file
            raise BadImage(
                f"{label} is no image that can be read, such as JPEG, PNG, WebP or TIFF"
            ) from error
    return state.hexdigest()


def fitted(content: bytes, side: int) -> tuple[str, bytes]:
    """("jpeg" or "png", an image file of at most `side` pixels and `MOST_BYTES` bytes).

    A JPEG or PNG that fits is passed on as it lies: nothing is lost, and its bytes do not depend on
    Pillow's version. Of anything else come pixels alone: the first frame, upright, on white, grey
    or RGB. Raises what decoders raise.
    """
    import PIL.Image
    import PIL.ImageOps

    with PIL.Image.open(io.BytesIO(content), formats=FORMATS) as opened:
        kind = opened.format
        fits = max(opened.size) <= side and len(content) <= MOST_BYTES
        if fits and kind in ("JPEG", "PNG") and _is_plain(opened):
            opened.load()  # a file that breaks off must not be sent
            return kind.lower(), content
        image: PIL.Image.Image = opened
        if image.mode not in ("L", "RGB"):
            image = _flattened(PIL.ImageOps.exif_transpose(image))
        image.thumbnail((side, side), PIL.Image.Resampling.LANCZOS)
        image = PIL.ImageOps.exif_transpose(image)
        image.info = {}
        return _encoded(image, lossless=kind not in ("JPEG", "MPO"))


def _is_plain(image: PIL.Image.Image) -> bool:
    """Whether every reader of the file sees the same pixels."""
    upright = image.getexif().get(0x0112, 1) == 1  # Orientation
    still = getattr(image, "n_frames", 1) == 1
    opaque = image.mode in ("L", "RGB", "P") and "transparency" not in image.info
    return upright and still and opaque


def _flattened(image: PIL.Image.Image) -> PIL.Image.Image:
    """Grey or RGB: deep greys from darkest to lightest, what is transparent on white."""
    import numpy as np
    import PIL.Image

    if image.mode.startswith(("I", "F")):
        values = np.nan_to_num(np.asarray(image, dtype=np.float64))
        low, high = float(values.min()), float(values.max())
        grey = (values - low) * (255 / (high - low if high > low else 1.0))
        return PIL.Image.fromarray(grey.round().astype(np.uint8))
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        ground = PIL.Image.new("RGBA", layer.size, "white")
        ground.alpha_composite(layer)
        return ground.convert("RGB")
    return image.convert("L" if image.mode in ("1", "LA") else "RGB")


def _encoded(image: PIL.Image.Image, *, lossless: bool) -> tuple[str, bytes]:
    """As PNG where that is wanted and small enough, else as the best JPEG that is."""
    if lossless:
        target = io.BytesIO()
        image.save(target, "PNG")
        if target.tell() <= MOST_BYTES:
            return "png", target.getvalue()
    while True:
        for quality in QUALITIES:
            target = io.BytesIO()
            image.save(target, "JPEG", quality=quality)
            if target.tell() <= MOST_BYTES:
                return "jpeg", target.getvalue()
        image = image.resize((max(1, image.width * 3 // 4), max(1, image.height * 3 // 4)))
