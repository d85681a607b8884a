"""A headless Chromium for tests that look and click: Debian's package, driven by Playwright.
Nothing is downloaded."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

SAYS_NO = "LINKFLAP_NO_BROWSER"
LIGHT_AND_DARK: tuple[Literal["light", "dark"], ...] = ("light", "dark")
WIDE, PHONE = (1440, 900), (390, 844)


def executable() -> str:
    """The path of Chromium. Without one, the test fails, or is skipped if the environment says that
    there is none."""
    if reason := os.environ.get(SAYS_NO):
        pytest.skip(f"no browser: {reason}")
    found = (
        shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )
    if found is None:
        pytest.fail(
            f"no Chromium was found; install the package chromium, or set {SAYS_NO} to a reason",
            pytrace=False,
        )
    return found


@contextmanager
def chromium() -> Iterator[Browser]:
    """One browser, closed after the block."""
    with sync_playwright() as playwright:
        # Root has no user namespaces in many containers; the pages are our own files.
        browser = playwright.chromium.launch(
            executable_path=executable(), args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        try:
            yield browser
        finally:
            browser.close()


class Seen:
    """An open report, with every error and request of the page."""

    def __init__(self, browser: Browser, path: Path) -> None:
        self.complaints: list[str] = []
        self.asked: list[str] = []
        context = browser.new_context(viewport={"width": WIDE[0], "height": WIDE[1]}, offline=True)
        self.page: Page = context.new_page()
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(f"dialog {dialog.message}"))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-drawn=yes]", state="attached", timeout=60_000)

    def close(self) -> None:
        """Closes the page and what it kept."""
        self.page.context.close()
