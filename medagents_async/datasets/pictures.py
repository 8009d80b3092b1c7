"""Images of rows: files that are there, and those that have to be written first."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medagents_async.datasets.rows import BadRow
from medagents_async.datasets.sources import Record, optional
from medagents_async.errors import UsageError

_KINDS = {b"\xff\xd8\xff": ".jpg", b"\x89PNG": ".png", b"GIF8": ".gif", b"RIFF": ".webp"}
_VIDEOS = (".mp4", ".mkv", ".webm", ".avi", ".mov")


@dataclass(frozen=True)
class Pictures:
    """Where images are and go to.

    A row names them as seen from the folder of `output`, the file that it will stand in.
    `folder` is where the published images or videos are, by default where their records are;
    what has no file yet is written into `output`'s name with `.images`.
    """

    output: Path
    folder: Path | None = None

    def named(self, record: Record, name: str) -> str:
        """The image `name` of the set. Raises BadRow where it is not there."""
        return self._relative(self._find(record, (name,)))

    def stored(self, image: Any) -> str:
        """An image published inside its record, as {"bytes": …}. Raises BadRow."""
        content = image.get("bytes") if isinstance(image, dict) else None
        if not isinstance(content, bytes):
            raise BadRow("image: no bytes")
        kind = next((kind for start, kind in _KINDS.items() if content.startswith(start)), None)
        if kind is None:
            raise BadRow("image: neither JPEG, PNG, GIF nor WebP")
        # By content, so that questions about one image share it.
        name = hashlib.blake2b(content, digest_size=12).hexdigest() + kind
        return self._write(name, content)

    def frames(self, record: Record, name: str, count: int) -> list[tuple[float, str]]:
        """`count` frames, evenly spread, of the video `name`: (second, image). Raises BadRow."""
        path = self._find(record, [name + kind for kind in _VIDEOS])
        try:
            return [
                (second, self._write(f"{name}-{second:08.2f}.jpg", content))
                for second, content in frames(path, count)
            ]
        except (OSError, ValueError) as error:  # PyAV's errors are these, too
            raise BadRow(f"{path.name}: {error}") from error

    def _find(self, record: Record, names: Sequence[str]) -> Path:
        folder = self.folder or record.folder or Path()
        found = next((folder / name for name in names if (folder / name).is_file()), None)
        if found is None:
            raise BadRow(f"{folder} has no {' or '.join(names)}: name its folder with --images")
        return found

    def _write(self, name: str, content: bytes) -> str:
        path = self.output.with_suffix(".images") / name
        try:
            path.parent.mkdir(exist_ok=True)
            if not path.exists() or path.read_bytes() != content:
                path.write_bytes(content)
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}") from error
        return self._relative(path)

    def _relative(self, path: Path) -> str:
        return Path(os.path.relpath(path.resolve(), self.output.parent.resolve())).as_posix()


def middles(length: float, count: int) -> list[float]:
    """The middles of `count` equal parts of `length` seconds."""
    return [round(length * (2 * part + 1) / (2 * count), 2) for part in range(count)]


def frames(path: Path, count: int) -> Iterator[tuple[float, bytes]]:
    """(second, JPEG) at the middles of `count` equal parts of a video, each once.

    Raises UsageError without the library, ValueError or OSError where there is no video to read.
    """
    av = optional("av", "video")
    optional("PIL.Image", "video")  # which PyAV imports for to_image
    with av.open(str(path)) as container:
        if not container.streams.video or container.duration is None:
            raise ValueError("no video of known length")
        stream = container.streams.video[0]
        for second in middles(container.duration / av.time_base, count):
            container.seek(int(second * av.time_base))  # to the key frame before it
            frame = None
            for frame in container.decode(stream):
                if frame.time is not None and frame.time >= second:
                    break
            if frame is None:
                raise ValueError(f"no frame at {second} s")
            target = io.BytesIO()
            frame.to_image().save(target, "JPEG", quality=90)
            yield second, target.getvalue()
