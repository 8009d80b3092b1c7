"""Images: what is looked at, what is sent of them, and which prompts carry them."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import PIL.Image
import pytest

from medagents_async import methods
from medagents_async.datasets import reader
from medagents_async.errors import BadImage, InputError
from medagents_async.images import MOST_BYTES, SAMPLE, SIDE, Album, fitted
from medagents_async.simulator import Request, plausible
from medagents_async.types import Call, Image, Layout, Prompt, Question
from tests.support.bench import QUESTION, answer
from tests.support.drawings import bomb, file, noise, opened

ORIENTATION = 0x0112
SMALL = noise(40, 30)


def data_url(content: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"


# Requests


@pytest.mark.parametrize("layout", ["paper", "shared-prefix"])
def test_content_parts(layout: Layout) -> None:
    """Images, then the text that would be there without them; the system message stays a text."""
    pictures = (Image("data:1", "sha256:1"), Image("https://x/2.png", "https://x/2.png"))
    plain, shown = (
        Prompt("role", "material", "task"),
        Prompt("role", "material", "task", images=pictures),
    )
    for system in (True, False):
        *system_before, user = plain.messages(layout, system=system)
        *system_now, parts = shown.messages(layout, system=system)
        assert system_now == system_before
        assert isinstance(user.content, str)
        assert parts.content == [
            {"type": "image_url", "image_url": {"url": "data:1"}},
            {"type": "image_url", "image_url": {"url": "https://x/2.png"}},
            {"type": "text", "text": user.content},
        ]
        *_, named = shown.messages(layout, system=system, named=True)
        assert not isinstance(named.content, str)
        assert [part.get("image_url") for part in named.content] == [
            {"url": "sha256:1"},
            {"url": "https://x/2.png"},
            None,
        ]


def said(call: Call) -> str | list[str]:
    request = Request(orjson.loads(call.body), call.stage, call.question_id, n=call.n)
    texts = [plausible(request).text or ""] * call.samples
    return texts if call.samples > 1 else texts[0]


@pytest.mark.parametrize("name", sorted(methods.every_method()))
def test_every_method_shows_images_with_the_question(name: str, tmp_path: Path) -> None:
    """And with nothing else: a vote on a report that does not repeat it has none."""
    path = tmp_path / "scan.png"
    path.write_bytes(SMALL)
    question = Question(
        QUESTION.id, 0, QUESTION.text, QUESTION.options, images=(str(path), str(path))
    )
    settings: dict[str, Any] = {"shots": "0"} if name == "medprompt" else {}
    seen = answer(said, method=name, question=question, **settings)
    carrying = set()
    for call, body in seen.bodies.items():
        content = body["messages"][-1]["content"]
        if isinstance(content, list):
            *images, text = content
            assert [part["image_url"]["url"] for part in images] == [data_url(SMALL)] * 2
            assert question.text in text["text"]
            carrying.add(call.partition(":")[0])
        else:
            assert question.text not in content
    assert carrying
    if name == "medagents":
        assert {"analyse_question", "analyse_option", "recruit_question", "decide"} <= carrying
        assert {"vote", "revise", "advise"}.isdisjoint(carrying)
    for step in seen.steps:  # memory and OUT keep names alone
        assert b"base64" not in step.call.body
        assert step.call.brief is None


# What is sent


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_what_fits_is_sent_as_it_lies(kind: str, mode: str) -> None:
    content = noise(SIDE, 200, kind, mode=mode)
    assert fitted(content, SIDE) == (kind.lower(), content)


def test_the_longest_side_is_capped() -> None:
    for width, height in ((3000, 1500), (1500, 3000)):
        kind, sent = fitted(file(PIL.Image.new("RGB", (width, height), "red"), "PNG"), SIDE)
        image = opened(sent)
        assert (kind, max(image.size), min(image.size)) == ("png", SIDE, SIDE // 2)
        assert image.getpixel((10, 10)) == (255, 0, 0)
    assert fitted(noise(2000, 100), 64) == fitted(noise(2000, 100), 64)


def test_bytes_are_capped() -> None:
    """Even where the pixels are allowed: worse quality first, then fewer pixels."""
    for kind, content in (
        ("PNG", noise(1000, 1000)),
        ("JPEG", noise(1024, 1024, "JPEG", quality=100)),
    ):
        assert len(content) > MOST_BYTES, kind
        now, sent = fitted(content, SIDE)
        assert (now, len(sent) <= MOST_BYTES) == ("jpeg", True)
        assert opened(sent).size == opened(content).size
    _, sent = fitted(noise(3000, 3000, "JPEG", quality=95), 3000)
    assert len(sent) <= MOST_BYTES
    assert opened(sent).width < 3000


def test_pixels_come_out_as_they_are_seen() -> None:
    exif = PIL.Image.Exif()
    exif[ORIENTATION] = 6  # turned by a quarter
    lying = PIL.Image.new("RGB", (40, 20), "white")
    kind, sent = fitted(file(lying, "JPEG", exif=exif, comment=b"a name"), SIDE)
    assert (kind, opened(sent).size) == ("jpeg", (20, 40))
    assert b"a name" not in sent
    clear = file(PIL.Image.new("RGBA", (8, 8), (255, 0, 0, 0)), "PNG")
    assert opened(fitted(clear, SIDE)[1]).getpixel((0, 0)) == (255, 255, 255)
    deep = PIL.Image.fromarray(np.array([[1000, 2000], [3000, 5000]], dtype=np.uint16))
    grey = opened(fitted(file(deep, "PNG"), SIDE)[1])
    assert (grey.mode, np.asarray(grey).tolist()) == ("L", [[0, 64], [128, 255]])
    inks = file(PIL.Image.new("CMYK", (8, 8)), "JPEG")
    assert opened(fitted(inks, SIDE)[1]).mode == "RGB"


@pytest.mark.parametrize("kind", ["GIF", "BMP", "TIFF", "WEBP"])
def test_other_formats_become_ones_that_every_server_reads(kind: str) -> None:
    frames = [PIL.Image.new("RGB", (30, 20), color) for color in ("blue", "red")]
    options = {} if kind == "BMP" else {"save_all": True, "append_images": frames[1:]}
    if kind == "WEBP":
        options["lossless"] = True
    now, sent = fitted(file(frames[0], kind, **options), SIDE)
    assert (now, opened(sent).getpixel((5, 5))) == ("png", (0, 0, 255))


# The look before a run


def test_what_is_no_image(tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("not a picture")
    (tmp_path / "empty.png").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    (tmp_path / "bomb.png").write_bytes(bomb())
    (tmp_path / "drawing.eps").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    reasons = {
        "gone.png": "no such file",
        "text.png": "no image",
        "empty.png": "no image",
        "drawing.eps": "no image",
        "folder": "is no file",
        "bomb.png": "pixels",
        "a\0b": "null",
        "https://example.org/x.png": "--allow-remote-images",
        "file:///etc/passwd": "neither a path nor",
        "data:image/png,abc": "base64",
        "data:image/png;base64,***": "base64",
        data_url(b"text"): "data: URL is no image",
    }
    album = Album(folder=tmp_path, remote=False)
    for reference, reason in reasons.items():
        with pytest.raises(BadImage, match=r"^images\.1: ") as caught:
            album.fingerprints([data_url(SMALL), reference])
        assert reason in str(caught.value)
        assert len(str(caught.value)) < 300


def test_fingerprints_tell_contents_not_places(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("a.png", "sub/b.png"):
        (tmp_path / name).write_bytes(SMALL)
    album = Album(folder=tmp_path)
    (one,) = album.fingerprints(["a.png"])
    same = ["sub/b.png", str(tmp_path / "a.png"), data_url(SMALL)]
    assert album.fingerprints(same) == [one] * 3
    (tmp_path / "a.png").write_bytes(noise(40, 30, seed=1))
    assert album.fingerprints(["a.png"]) != [one]
    assert album.fingerprints(["https://example.org/a.png"]) == ["https://example.org/a.png"]


def test_a_large_file_is_told_by_its_size_and_ends(tmp_path: Path) -> None:
    """The header is all that is decoded: a broken middle is found when it is sent."""
    content = noise(400, 300)
    assert len(content) > 3 * SAMPLE
    broken = content[: 2 * SAMPLE] + bytes(SAMPLE) + content[3 * SAMPLE :]
    seen = {}
    for name, text in {
        "a": content,
        "b": broken,
        "c": content + b"\0",
        "d": content[:-1] + b"?",
    }.items():
        (tmp_path / name).write_bytes(text)
        (seen[name],) = Album(folder=tmp_path).fingerprints([name])
    assert seen["a"] == seen["b"]
    assert len(set(seen.values())) == 3


def test_rows_with_bad_images(tmp_path: Path) -> None:
    (tmp_path / "ok.png").write_bytes(SMALL)
    path = tmp_path / "in.jsonl"
    rows = [
        {"question": f"{n}?", "options": {"A": "a", "B": "b"}, "images": images}
        for n, images in enumerate((["ok.png"], ["gone.png"], None, ["ok.png", 7], []))
    ]
    path.write_bytes(b"\n".join(map(orjson.dumps, rows)))
    with pytest.raises(InputError) as caught:
        reader.check(path, reader.Selection())
    assert [number for number, _ in caught.value.problems] == [2, 4]
    source = reader.check(path, reader.Selection(), skip_bad_rows=True)
    assert [item.question.images for item in source.items()] == [("ok.png",), (), ()]
    assert (source.rows, source.skipped, source.illustrated) == (3, 2, 1)


# Made once


def test_an_image_is_made_once_and_named_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "scan.png"
    path.write_bytes(SMALL)
    album = Album(folder=tmp_path)

    async def twice() -> None:
        first = await album.ready(["scan.png"])
        path.unlink()
        assert await album.ready(["scan.png"]) == first
        (image,) = first
        assert image.url == data_url(SMALL)
        assert image.name == f"sha256:{hashlib.sha256(SMALL).hexdigest()}"

    asyncio.run(twice())


def test_memory_is_bounded(tmp_path: Path) -> None:
    for n in range(4):
        (tmp_path / str(n)).write_bytes(SMALL)
    album = Album(folder=tmp_path, keep=2 * len(data_url(SMALL)))

    async def main() -> None:
        await album.ready(["0", "1", "0", "2"])  # "1" was wanted longest ago
        for n in range(4):
            (tmp_path / str(n)).unlink()
        assert len(await album.ready(["0", "2"])) == 2
        with pytest.raises(BadImage, match="no such file"):
            await album.ready(["1"])

    asyncio.run(main())


@pytest.mark.parametrize("content", [noise(400, 300)[:-5000], noise(400, 300, "JPEG")[:5000]])
def test_an_image_that_breaks_off_is_not_sent(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "torn").write_bytes(content)
    album = Album(folder=tmp_path)
    assert album.fingerprints(["torn"])
    with pytest.raises(BadImage, match="torn: "):
        asyncio.run(album.ready(["torn"]))
