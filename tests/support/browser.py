"""A page in a real browser: the machine's own Chromium, without a window."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MISSING = "there is no Chromium here: make browser, or install one"


def executable() -> str | None:
    """Where this machine's Chromium is."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def running() -> Iterator[Browser]:
    """A browser, for as long as no other test wants the event loop."""
    found = executable()
    assert found, MISSING
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found)
        try:
            yield browser
        finally:
            browser.close()


class Reader:
    """Someone with a page open; keeps every complaint, and every request but that for the page."""

    def __init__(self, browser: Browser, file: Path, part: str = "", **settings: Any) -> None:
        self.page: Page = browser.new_context(**settings).new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(file.resolve().as_uri() + part)
        self.page.wait_for_selector("#rows", state="attached")
        self.page.wait_for_function("performance.getEntriesByName('questions').length")

    def close(self) -> None:
        """Leaves the page. Nothing was complained of, and no request left it."""
        assert not self.complaints
        assert len(self.requests) == 1, self.requests
        self.page.context.close()

    @property
    def ids(self) -> list[str]:
        """The questions in view, or just beyond."""
        return self.page.locator("#rows .row .id").all_text_contents()

    @property
    def count(self) -> str:
        return (self.page.text_content("#count") or "").split(" of ")[0]

    @property
    def focus(self) -> str:
        found: str = self.page.evaluate("document.activeElement.id")
        return found

    def consultation(self) -> str:
        """All text of the open consultation, revisions as their plain text."""
        self.page.wait_for_selector("#dialog[open] .verdict")
        for _ in range(self.page.locator(".step button[aria-pressed=true]").count()):
            self.page.locator(".step button[aria-pressed=true]").first.click()
        return self.page.text_content("#consultation") or ""

    def overflow(self) -> float:
        """Pixels by which the page, or an open consultation, is wider than the screen."""
        found: float = self.page.evaluate(
            "Math.max(document.documentElement.scrollWidth, find('#consultation').scrollWidth)"
            " - innerWidth"
        )
        return found
