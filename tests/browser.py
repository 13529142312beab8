"""A real browser for tests: Debian's Chromium, or whichever Chromium or Chrome is found."""

import shutil
from contextlib import contextmanager

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def program() -> str | None:
    """The path of an installed browser; None leaves the choice to Playwright, which may have one of its own."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


@contextmanager
def browser():
    """A browser without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program(), args=["--no-sandbox"])
        try:
            yield opened
        finally:
            opened.close()


def watched(page) -> dict[str, list[str]]:
    """What a page asks for beyond files, and the errors of its scripts: both lists fill while the page is used."""
    seen = {"requests": [], "errors": []}
    page.on("request", lambda r: r.url.startswith(("file:", "data:")) or seen["requests"].append(r.url))
    page.on("pageerror", lambda error: seen["errors"].append(str(error)))
    page.on("console", lambda line: line.type == "error" and seen["errors"].append(line.text))
    return seen
