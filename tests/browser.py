"""A real browser for tests: Debian's Chromium, or whichever Chromium or Chrome is found.

`python -m tests.browser` installs one where none is found and that is possible; `make proofs` does so first.
"""

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
MAC = (
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
ADVICE = (
    "The tests of the studio need a Chromium or Chrome, and none was found. Install one (Debian: sudo apt-get install "
    "chromium; macOS: brew install --cask chromium), or name one with PGFL_CHROMIUM; `make test` needs none."
)
NAMED = "PGFL_CHROMIUM names {}, which does not exist."


def found():
    """The browser that `PGFL_CHROMIUM` names, else the first that is found; None if there is none."""
    named = os.environ.get("PGFL_CHROMIUM")
    places = [named] if named else [shutil.which(name) for name in NAMES]
    return next((path for path in (*places, *(() if named else MAC)) if path and Path(path).exists()), None)


def program():
    """The path of the browser."""
    path = found()
    if path is None:
        raise RuntimeError(ADVICE)
    return path


@contextmanager
def browser():
    """A browser without a window; as root it cannot have a sandbox."""
    from playwright.sync_api import sync_playwright

    arguments = ["--no-sandbox"] if hasattr(os, "getuid") and os.getuid() == 0 else []
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program(), args=arguments)
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


def main():
    """Install Debian's Chromium where none is found and that is possible; else say what to install."""
    if found():
        return 0
    if named := os.environ.get("PGFL_CHROMIUM"):
        print(NAMED.format(named), file=sys.stderr)
        return 2
    if hasattr(os, "getuid") and os.getuid() == 0 and shutil.which("apt-get"):
        print("Installing Chromium for the tests of the studio", file=sys.stderr)
        quiet = {"stdout": subprocess.DEVNULL, "env": {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}}
        subprocess.run(["apt-get", "update", "-qq"], check=False, **quiet)
        subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"], check=False, **quiet)
    if found():
        return 0
    print(ADVICE, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
