"""`make screenshots`: the pictures of the report's page in docs/, of runs on the example questions.

The simulator answers: what its experts say shows the page, not medicine.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from medagents_async import simulator
from medagents_async.reporting import files
from tests.contract.test_report import ROOT, report
from tests.support import browser
from tests.support.browser import Reader
from tests.support.command import Run

DOCS = ROOT / "docs"
EXAMPLES = ROOT / "examples" / "medqa_sample.jsonl"
METHODS = ("cot", "self-consistency", "mdagents", "medagents")
LARGEST = 200_000  # bytes of a picture


def runs(folder: Path) -> list[Path]:
    """The same questions by each of the methods."""
    outputs = []
    with simulator.running(latency=(0.1, 0.5), prefix_cache=True) as server:
        for method in METHODS:
            place = folder / method
            place.mkdir()
            job = Run(place, server.url, b"")
            job.source, job.output = EXAMPLES, place / f"{method}.jsonl"
            result = job("--method", method, "--concurrency", "12", "--seed", "7")
            assert result.code == 0, result.err
            outputs.append(job.output)
    return outputs


def disputed(output: Path) -> str:
    """The part of an address that opens a question on which the panel revised its report."""
    rows = sorted((row for _, row in files.rows(output)), key=lambda row: int(row["index"]))
    return next(f"#{row['id']}" for row in rows if row["detail"]["rounds"] > 1)


def pictures(page: Path, part: str) -> None:
    """A desk in the light, a consultation, a phone in the dark."""
    with browser.running() as chromium:
        desk: dict[str, Any] = {"viewport": {"width": 1200, "height": 1000}}
        Reader(chromium, page, **desk).page.screenshot(path=DOCS / "report-page.png")
        small: dict[str, Any] = {"viewport": {"width": 900, "height": 640}}
        reader = Reader(chromium, page, part, **small)
        reader.page.get_by_role("button", name="medagents", exact=False).last.click()
        reader.page.locator("ins").first.wait_for()
        reader.page.locator("ins").first.evaluate(
            "found => found.scrollIntoView({block: 'center'})"
        )
        reader.page.screenshot(path=DOCS / "report-consultation.png")
        phone: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"}
        reader = Reader(chromium, page, part, **phone)
        reader.page.get_by_role("button", name="medagents", exact=False).last.click()
        reader.page.get_by_text("Timeline: ").wait_for()
        reader.page.screenshot(path=DOCS / "report-phone.png")


def main() -> int:
    if browser.executable() is None:
        print(browser.MISSING, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        outputs = runs(Path(folder))
        result = report(*outputs, "--html", page)
        assert result.code == 0, result.err
        pictures(page, disputed(outputs[-1]))
    for path in sorted(DOCS.glob("report-*.png")):
        size = path.stat().st_size
        print(f"{path.relative_to(ROOT)}: {size / 1000:.0f} kB")
        assert size < LARGEST
    return 0


if __name__ == "__main__":
    sys.exit(main())
