"""The browser of the tests; `python -m tests.studio.chromium` installs one where none is found and that is possible."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
MAC = (
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
ADVICE = "No Chromium was found; install one (Debian: apt-get install chromium), or name one with PGFL_CHROMIUM."


def found():
    """The browser that `PGFL_CHROMIUM` names, else the first that is found; None if there is none."""
    named = os.environ.get("PGFL_CHROMIUM")
    places = [named] if named else [shutil.which(name) for name in NAMES]
    return next((path for path in (*places, *MAC) if path and Path(path).exists()), None)


def executable():
    """The browser's path."""
    path = found()
    if path is None:
        raise RuntimeError(ADVICE)
    return path


def main():
    """Install Debian's Chromium where none is found and that is possible; else say what to install."""
    if found():
        return 0
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
