"""`report --html`: the page in a real browser, at real size, and with replies that mean ill."""

from __future__ import annotations

import base64
import hashlib
import re
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest
from playwright.sync_api import Browser

from medagents_async import simulator
from medagents_async.reporting import files, html
from medagents_async.scoring.summary import summarise
from tests.contract.test_report import report
from tests.support import browser as browsers
from tests.support.browser import Reader
from tests.support.command import Run
from tests.support.consultations import lexicon, outcome, panel_row, step, written

Rows = Callable[[int], list[dict[str, Any]]]
MakeRun = Callable[..., Run]
Read = Callable[..., Reader]

#: The questions of MedQA's test set.
MEDQA = 1273
#: Anything slower is no longer slowness of the machine; the measured time is printed.
PATIENCE_MS = 20_000
PHONE = {"viewport": {"width": 360, "height": 740}}
WORDS = lexicon(Random(0))


@pytest.fixture
def read() -> Iterator[Read]:
    """`read(page, "#ID", …)`: someone who has the page open, without a complaint till the end.

    The browser starts with the first, so that a test can run a server before.
    """
    if browsers.executable() is None:
        pytest.skip(browsers.MISSING)
    readers: list[Reader] = []
    with ExitStack() as stack:
        started: list[Browser] = []

        def open_page(file: Path, part: str = "", **settings: Any) -> Reader:
            if not started:
                started.append(stack.enter_context(browsers.running()))
            readers.append(Reader(started[0], file, part, **settings))
            return readers[-1]

        yield open_page
        for reader in readers:
            reader.close()


def made(*outputs: Path) -> Path:
    page = outputs[0].with_suffix(".html")
    result = report(*outputs, "--html", page)
    assert result.code == 0, result.err
    assert f"wrote {page}" in result.err
    return page


def by_hand(folder: Path, *rows: dict[str, Any]) -> Path:
    return made(written(folder, iter(rows), len(rows)))


def test_two_real_runs_read_by_keyboard(
    run: MakeRun, rows: Rows, tmp_path: Path, read: Read
) -> None:
    outputs = []
    with simulator.running() as server:
        for method in ("medagents", "mdagents"):
            job = run(server.url, rows(12), method)
            assert job("--method", method).code == 0
            outputs.append(job.output)
    reader = read(made(*outputs))
    page, keys = reader.page, reader.page.keyboard
    assert reader.ids == [f"q{n}" for n in range(12)]
    assert "medagents/out" in page.inner_text("#head")
    assert page.locator("figure svg").count() == 3  # accuracy, frontier, entropy
    keys.press("/")
    assert reader.focus == "search"
    keys.type("FEVER q1")
    assert reader.ids == ["q1", "q10", "q11"]
    keys.press("ArrowDown")
    assert reader.focus == "grid"
    keys.press("ArrowDown")
    assert page.get_attribute("#grid", "aria-activedescendant") == "row-1"
    assert page.evaluate("getComputedStyle(find('.row.active')).outlineStyle") == "solid"
    keys.press("Enter")
    said = reader.consultation()
    row = next(each for each in files.rows(outputs[0]) if each[1]["id"] == "q10")[1]
    assert all(each["reply"] in said for each in row["trace"])
    assert "Patient 10 has a fever" in said
    assert page.url.endswith("#q10")
    keys.press("ArrowRight")
    page.wait_for_function("location.hash === '#q11'")
    keys.press("Escape")
    page.wait_for_selector("#dialog", state="hidden")
    assert reader.focus == "grid"
    assert "#" not in page.url
    reader = read(outputs[0].with_suffix(".html"), "#q3")
    assert "Patient 3 has a fever" in reader.consultation()
    reader.page.get_by_role("button", name="mdagents/out").click()
    reader.page.get_by_text("Triage", exact=True).first.wait_for()


def test_every_reply_of_any_method(run: MakeRun, rows: Rows, read: Read) -> None:
    outputs = []
    with simulator.running() as server:
        for method, *more in (
            ("mdagents", "--set", "complexity=moderate"),
            ("borda-count",),
            ("ensemble-refinement", "--set", "one_request=true"),
            ("self-consistency", "--repeats", "2"),
        ):
            job = run(server.url, rows(1), method)
            assert job("--method", method, *more).code == 0
            outputs.append(job.output)
    expected = [row for output in outputs for _, row in files.rows(output)]
    expected.sort(key=lambda row: (row["method"] == "self-consistency", row["repeat"]))
    reader = read(made(*outputs), "#q0")
    buttons = reader.page.locator(".choices button")
    assert buttons.count() == len(expected) == 5
    for place, row in enumerate(expected):
        buttons.nth(place).click()
        reader.page.wait_for_function(
            "count => document.querySelectorAll('.step').length === count", arg=row["calls"]
        )
        said = reader.consultation()
        for each in row["trace"]:
            assert all(text in said for text in each.get("replies", [each["reply"]]))


def test_filters_and_order(tmp_path: Path, read: Read) -> None:
    failed = {"kind": "timeout", "message": "no reply", "stage": "vote"}
    answers = [{"x": "A", "y": "A", "z": "B"}, {"x": "B", "y": "B", "z": "B"}]
    page = by_hand(
        tmp_path,
        outcome(0, "A", "A", []),
        outcome(1, "B", "A", [], subject="step2"),
        outcome(2, None, "A", [step("decide", "I cannot say")]),
        outcome(3, None, "A", [], status="error", error=failed),
        outcome(4, "B", None, [], {"answers": answers, "rounds": 3, "consensus": True}),
        *(outcome(0, said, "A", [], repeat=n) for n, said in ((1, "A"), (2, "B"))),
    )
    reader = read(page)

    def chosen(**wanted: str) -> list[str]:
        for name, value in wanted.items():
            reader.page.select_option(f"select[name={name}]", value)
        found = reader.ids
        assert reader.count == str(len(found))
        for name in wanted:
            reader.page.select_option(f"select[name={name}]", index=0)
        return found

    assert chosen(verdict="right") == ["q0"]
    assert chosen(verdict="wrong") == ["q0", "q1", "q2", "q3"]
    assert chosen(verdict="no answer key") == ["q4"]
    assert chosen(status="unparsed") == ["q2"]
    assert chosen(status="error") == ["q3"]
    assert chosen(subject="step2") == ["q1"]
    assert chosen(flips="repeats") == ["q0"]
    assert chosen(flips="consultation") == ["q4"]
    assert chosen(verdict="right", subject="step2") == []
    assert chosen(order="most tokens")[0] == "q2"
    assert not reader.page.is_visible("select[name=run]")
    reader.page.fill("#search", "fever nothing-like-it")
    assert reader.ids == []
    reader.page.keyboard.press("Enter")
    reader.page.keyboard.press("Enter")  # nothing is there to open
    reader.page.fill("#search", "")
    reader.page.get_by_text("q3", exact=True).click()
    assert "error ✗ (timeout in stage vote: no reply)" in reader.consultation()
    assert "kept no trace" in reader.consultation()


HOSTILE = (
    "<script>alert(1)</script>",
    "</script></div></dialog><img src=x onerror=alert(1)><svg onload=alert(1)>",
    "<!--<script>",
    "<a href='javascript:alert(1)' onclick=alert(1)>Option: A</a>",
    "<iframe src=https://example.org></iframe><style>*{display:none}</style>",
    "line\u2028separator\u2029 \u202eoverride \x00\x1b[31m \ufeff{{ 7*7 }} ${alert(1)}",
    "__proto__",
    "x" * 3_000_000,
    "<b>" * 20_000,
)


def test_hostile_replies_are_text(tmp_path: Path, read: Read) -> None:
    rows = []
    for number, text in enumerate(HOSTILE):
        who = text[:200]
        steps = [
            step("summarise", f"{text} first", agent=who, prompt=text, reasoning=text),
            step("revise", f"{text} second", round=1, finish_reason=who, server=who),
            step(who, None, error=text, round=2, n=1),
        ]
        detail = {"experts": [who], who: {who: who}, "votes": [{who: "no"}]}
        rows.append(outcome(number, "A", "A", steps, detail, subject=who))
        rows[-1] |= {"status": "error", "error": {"kind": who, "message": text, "stage": who}}
    reader = read(by_hand(tmp_path, *rows))
    page = reader.page
    assert reader.count == str(len(HOSTILE))
    elements = page.locator("script, style, img, iframe, a, dialog").count()
    for number, text in enumerate(HOSTILE):
        page.evaluate(f"location.hash = 'q{number}'")
        page.wait_for_selector(f"#dialog-title:text('q{number}')")
        page.wait_for_selector(".step:nth-of-type(1)")
        for summary in page.locator(".step summary").all():
            summary.click()
        assert text[:200].split("\x00")[0] in reader.consultation()
        assert page.locator("script, style, img, iframe, a, dialog").count() == elements
    page.get_by_text("show all 3,000,006 characters").first.wait_for(state="detached")


def test_a_huge_reply_is_shown_on_demand(tmp_path: Path, read: Read) -> None:
    reader = read(by_hand(tmp_path, outcome(0, "A", "A", [step("decide", "x" * 10**6)])))
    reader.page.get_by_text("q0", exact=True).click()
    assert len(reader.consultation()) < 30_000
    reader.page.get_by_text("show all 1,000,000 characters").click()
    assert len(reader.consultation()) > 10**6


def test_revisions_show_what_changed(tmp_path: Path, read: Read) -> None:
    first, second = (
        f"The fever came {when} the rash. Give aspirin." for when in ("before", "after")
    )
    steps = [step("summarise", first), step("revise", second, round=1)]
    reader = read(by_hand(tmp_path, outcome(0, "A", "A", steps)))
    reader.page.get_by_text("q0", exact=True).click()
    assert reader.page.text_content("del") == "before"
    assert reader.page.text_content("ins") == "after"
    chance = Random(1)
    texts = ["", "a", *(" ".join(chance.choices(["a", "b", "\n"], k=60)) for _ in range(60))]
    texts += [" ".join(chance.choices(WORDS, k=2000)) for _ in range(2)]
    for one, two in pairwise(texts):
        runs = reader.page.evaluate("([one, two]) => difference(one, two)", [one, two])
        assert "".join(text for sign, text in runs if sign != "+") == one
        assert "".join(text for sign, text in runs if sign != "-") == two


def test_a_run_without_its_input_shows_the_first_prompt(tmp_path: Path, read: Read) -> None:
    output = written(tmp_path, iter([panel_row(0, WORDS)]), 1)
    (tmp_path / "in.jsonl").unlink()
    reader = read(made(output), "#q0")
    said = reader.consultation()
    assert "input file was not found" in said
    assert said.index("Patient 0 has a fever") < said.index("Decision")


def test_light_and_dark_desk_and_phone(tmp_path: Path, read: Read) -> None:
    page = by_hand(tmp_path, *(panel_row(n, WORDS) for n in range(30)))
    light, dark = (read(page, color_scheme=scheme) for scheme in ("light", "dark"))
    assert light.page.screenshot() != dark.page.screenshot()
    grounds = [
        each.page.evaluate("getComputedStyle(document.body).backgroundColor")
        for each in (light, dark)
    ]
    assert grounds[0] != grounds[1]
    phone = read(page, **PHONE, has_touch=True)
    assert phone.overflow() <= 0
    phone.page.locator("summary").first.tap()  # all tables
    assert phone.overflow() <= 0
    phone.page.get_by_text("q1", exact=True).tap()
    phone.consultation()
    for summary in phone.page.locator("#dialog summary").all():
        summary.tap()
    assert phone.overflow() <= 0
    phone.page.go_back()
    phone.page.wait_for_selector("#dialog", state="hidden")


def test_medqa_with_full_traces_opens_at_once(
    tmp_path: Path, read: Read, capsys: pytest.CaptureFixture[str]
) -> None:
    output = written(tmp_path, (panel_row(n, WORDS) for n in range(MEDQA)), MEDQA)
    page = made(output)
    reader = read(page)
    opened = reader.page.evaluate("performance.getEntriesByName('questions')[0].startTime")
    whole = reader.page.evaluate("performance.timing.loadEventEnd - performance.timing.fetchStart")
    reader.page.focus("#grid")
    reader.page.keyboard.press("End")
    assert f"q{MEDQA - 1}" in reader.ids
    assert reader.page.locator("#rows .row").count() < 100
    reader.page.evaluate("performance.mark('pressed')")
    reader.page.keyboard.press("Enter")
    reader.consultation()
    sizes = [each.stat().st_size / 1e6 for each in (output, page)]
    with capsys.disabled():
        print(
            f"\n{MEDQA} questions: {sizes[0]:.0f} MB of rows, a page of {sizes[1]:.1f} MB; "
            f"questions after {opened:.0f} ms, all of it after {whole:.0f} ms"
        )
    assert opened < PATIENCE_MS


# Without a browser


def test_the_policy_allows_nothing_but_the_page_itself(tmp_path: Path) -> None:
    page = by_hand(tmp_path, panel_row(0, WORDS)).read_text("utf-8")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy
    assert policy[1].startswith("default-src &#39;none&#39;;")
    assert "unsafe" not in policy[1]
    for element in ("script", "style"):
        (source,) = re.findall(rf"<{element}>(.*?)</{element}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
        assert f"{element}-src &#39;sha256-{digest}&#39;" in policy[1]
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", re.sub(r">[\w+/=]{99,}<", "", page))
    assert not re.search(
        r"\s(style|on\w+)=", re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    )
    for path in html.PAGE.glob("*.js"):
        forbidden = r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|Function\("
        assert not re.search(forbidden, path.read_text("utf-8")), path


def test_names_are_escaped_in_tables_and_plots(tmp_path: Path) -> None:
    rows = [outcome(n, "A", "A", [], subject=HOSTILE[n % 2]) for n in range(4)]
    page = by_hand(tmp_path, *rows).read_text("utf-8")
    assert "alert(1)" in page
    assert not re.search(r"<(img|script|svg on)[^>]*alert|<script>alert", page)


def test_a_block_holds_rows_as_they_were(tmp_path: Path) -> None:
    rows = [panel_row(n, WORDS) for n in range(25)]
    page = by_hand(tmp_path, *rows).read_text("utf-8")
    blocks = re.findall(r'id="block-\d+">([^<]+)<', page)
    found = [
        row for block in blocks for row in orjson.loads(zlib.decompress(base64.b64decode(block)))
    ]
    assert len(blocks) > 1
    for row, kept in zip(rows, found, strict=True):
        assert kept["detail"] == orjson.loads(orjson.dumps(row["detail"]))
        for mine, theirs in zip(row["trace"], kept["trace"], strict=True):
            assert theirs["reply"] == mine["reply"]
            assert [
                {"role": role, "content": "\n\n".join(kept["paragraphs"][n] for n in places)}
                for role, places in theirs["prompt"]
            ] == mine["request"]["messages"]


def test_memory_holds_one_block(tmp_path: Path) -> None:
    """60 MB of replies."""
    rows = (outcome(n, "A", "A", [step("decide", "x" * 200_000)]) for n in range(300))
    output = written(tmp_path, rows, 300)
    loaded = files.load(output)
    arguments = ([output], [loaded], [summarise(loaded)], None)
    html.write(tmp_path / "page.html", *arguments)  # imports and caches come first
    tracemalloc.start()
    try:
        html.write(tmp_path / "page.html", *arguments)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20_000_000


def test_a_page_that_cannot_be_written(tmp_path: Path) -> None:
    output = written(tmp_path, iter([panel_row(0, WORDS)]), 1)
    result = report(output, "--html", tmp_path / "none" / "page.html")
    assert result.code == 2
    assert "cannot write" in result.err
    (tmp_path / "empty.jsonl").write_bytes(b"")
    assert report(tmp_path / "empty.jsonl", "--html", tmp_path / "empty.html").code == 0
