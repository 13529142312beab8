"""Tests read and write nothing outside of their own folders: they get a new home, and what stays behind is an error.

The first process of a test run makes the home, before it imports anything that could look for the user's. The others
inherit it, so that kernels are compiled once. pip keeps its settings and its downloads.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
OWN_HOME = "PGFL_TESTS_HOME"
FOLDERS = {
    "HOME": "home",
    "XDG_CACHE_HOME": "home/.cache",
    "XDG_CONFIG_HOME": "home/.config",
    "XDG_DATA_HOME": "home/.local/share",
    "XDG_STATE_HOME": "home/.local/state",
    "NUMBA_CACHE_DIR": "numba",
    "MPLCONFIGDIR": "matplotlib",
    "IPYTHONDIR": "ipython",
    "JUPYTER_CONFIG_DIR": "jupyter",
}
"""Where programs look for files of the user → the folder that they get in the tests."""

PLACES = (".", ".cache", ".config", ".local/share", ".local/state")
OURS = ("pgfl", "numba", "matplotlib", "jax", "ipython", "jupyter", "nicegui", "fontconfig")
"""Names under a home that pgfl or one of its libraries would write; other programs of the user may write."""

MEMORY, LEAST_FREE_BYTES = Path("/dev/shm"), 6 * 2**30
EXPECTED = ("__pycache__", ".hypothesis", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".venv")


def in_memory():
    """A folder in memory, because ledgers wait for the disk after every release; None if there is no room."""
    roomy = MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > LEAST_FREE_BYTES
    return MEMORY if roomy else None


def leave_home():
    """Set a new home for this process and all that it starts; return (the user's, the new one)."""
    home = Path.home()
    cache, config = (Path(os.environ.get(name) or home / short) for name, short in
                     (("XDG_CACHE_HOME", ".cache"), ("XDG_CONFIG_HOME", ".config")))  # fmt: skip
    kept = {
        "PIP_CACHE_DIR": [cache / "pip"],
        "PIP_CONFIG_FILE": [config / "pip" / "pip.conf", home / ".pip" / "pip.conf"],
        "PLAYWRIGHT_BROWSERS_PATH": [cache / "ms-playwright"],
        "PYENV_ROOT": [home / ".pyenv"],
    }
    for name, places in kept.items():
        if place := next((place for place in places if place.exists()), None):
            os.environ.setdefault(name, str(place))
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # every core has a process of tests: threads would wait in turns
    new = Path(tempfile.mkdtemp(prefix="pgfl-", dir=in_memory()))
    (new / "tmp").mkdir()
    os.environ["TMPDIR"] = str(new / "tmp")
    tempfile.tempdir = None  # so that it is read again
    os.environ[OWN_HOME] = str(new)
    for name, folder in FOLDERS.items():
        (new / folder).mkdir(parents=True, exist_ok=True)
        os.environ[name] = str(new / folder)
    return home, new


def files_outside(home):
    """The files that a test could have left: in the user's home under our names, and in the work tree."""
    found = {}
    for place in PLACES:
        for entry in (home / place).glob("*"):
            if any(name in entry.name.lower() for name in OURS):
                for path in (entry, *entry.rglob("*")):
                    found[str(path)] = path.lstat().st_mtime_ns if path.exists() else None
    command = ["git", "status", "--porcelain", "--ignored"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    for path in (line[3:] for line in listed.splitlines() if line[:2] in ("??", "!!")):
        if not any(name in Path(path).parts for name in EXPECTED):
            found[path] = None
    return found


HOMES = None if OWN_HOME in os.environ else leave_home()
BEFORE = files_outside(HOMES[0]) if HOMES else {}


def pytest_sessionfinish(session):
    """Fail the run, in the process that made the home, if a file was written outside."""
    if HOMES is None:
        return
    changed = {path for path, written in files_outside(HOMES[0]).items() if BEFORE.get(path, 0) != written}
    if changed:
        print("\nThe tests wrote outside of their own folders:", *sorted(changed), sep="\n  ")
        session.exitstatus = 1


def pytest_unconfigure():
    """Remove the home, in the process that made it."""
    if HOMES is not None:
        shutil.rmtree(HOMES[1], ignore_errors=True)
