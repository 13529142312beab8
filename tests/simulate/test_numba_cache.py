"""Machine code outlives the install that made it, never lies in the package, and can do without a place to lie."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pgfl

SCRIPT = """
import numpy as np
from pgfl.simulate.numba_kernels import settle
models, dual = np.ones((1, 3)), np.zeros((1, 3))
settle(np.arange(1), np.array([0, 1]), 0, models, models * 0.25, dual)
assert (dual == 0.75).all()
print(sum(settle.stats.cache_hits.values()), sum(settle.stats.cache_misses.values()))
"""


def installed(folder: Path) -> Path:
    shutil.copytree(Path(pgfl.__file__).parent, folder / "pgfl", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def loaded_and_compiled(package: Path, cache: Path) -> tuple[int, int]:
    """How many kernels a fresh process found, and how many it had to compile."""
    own = {"PYTHONPATH": str(package), "XDG_CACHE_HOME": str(cache), "HOME": str(cache), "PYTHONDONTWRITEBYTECODE": "1"}
    inherited = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=inherited | own, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    found, made = done.stdout.split()
    return int(found), int(made)


def test_a_new_install_finds_what_an_older_one_compiled_and_neither_writes_into_itself(tmp_path):
    first, second = installed(tmp_path / "first"), installed(tmp_path / "second")
    before = {path.relative_to(first) for path in first.rglob("*")}
    assert loaded_and_compiled(first, tmp_path / "cache") == (0, 1)
    assert loaded_and_compiled(second, tmp_path / "cache") == (1, 0)
    for package in (first, second):
        assert {path.relative_to(package) for path in package.rglob("*")} == before
    changed = second / "pgfl" / "simulate" / "numba_lanes.py"
    changed.write_text(changed.read_text("utf-8") + "# another version\n", "utf-8")
    assert loaded_and_compiled(second, tmp_path / "cache") == (0, 1)


def test_without_a_folder_to_write_to_kernels_are_compiled_every_time(tmp_path):
    nowhere = tmp_path / "a file"
    nowhere.write_text("", "utf-8")
    package = installed(tmp_path / "package")
    assert [loaded_and_compiled(package, nowhere) for _ in range(2)] == [(0, 1), (0, 1)]
