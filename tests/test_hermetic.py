"""Tests read and write nothing outside of their own folders, and a test that does makes the run fail."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hermetic import FOLDERS, OWN_HOME, ROOT

GUILTY = {
    "in the home": "def test_it(): (HOME / '.cache' / 'pgfl').mkdir(parents=True)",
    "in a kept folder": "def test_it(): (HOME / '.cache' / 'matplotlib' / 'fontlist.json').write_text('{}')",
    "in the work tree": "def test_it(): (ROOT / 'left-by-a-test.txt').write_text('')",
}
INNOCENT = """
def test_it(tmp_path):
    assert Path.home() != HOME
    (Path.home() / ".cache" / "pgfl").mkdir(parents=True)
    import matplotlib
    assert matplotlib.rcParams["lines.linewidth"] != 77
    child = "import matplotlib; from pathlib import Path; print(Path.home(), matplotlib.get_configdir())"
    shown = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, check=True).stdout
    assert str(HOME) not in shown and os.environ["PGFL_TESTS_HOME"] in shown
"""


def run_of(tmp_path, text):
    """A test run of one file, by a user whose home has settings that would show in a test."""
    home = tmp_path / "home"
    (home / ".cache" / "matplotlib").mkdir(parents=True)
    (home / ".config" / "matplotlib").mkdir(parents=True)
    (home / ".config" / "matplotlib" / "matplotlibrc").write_text("lines.linewidth: 77\n", "utf-8")
    head = (
        f"import os, subprocess, sys\nfrom pathlib import Path\nHOME, ROOT = Path({str(home)!r}), Path({str(ROOT)!r})\n"
    )
    (tmp_path / "test_it.py").write_text(head + text, "utf-8")
    kept = {name: value for name, value in os.environ.items() if name not in FOLDERS and name != OWN_HOME}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.hermetic",
        "-p",
        "no:cacheprovider",
        tmp_path / "test_it.py",
    ]
    environment = kept | {"HOME": str(home), "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)


def test_every_folder_of_the_user_is_one_of_the_tests():
    for name in FOLDERS:
        assert Path(os.environ[name]).is_relative_to(os.environ[OWN_HOME])
    assert Path.home().is_relative_to(os.environ[OWN_HOME])


@pytest.mark.proof
def test_a_run_sees_nothing_of_the_home_and_fails_if_it_leaves_a_file(tmp_path):
    """One test, because two that run at once would see each other's file in the work tree."""
    done = run_of(tmp_path / "innocent", INNOCENT)
    assert done.returncode == 0, done.stdout + done.stderr
    for where, text in GUILTY.items():
        try:
            done = run_of(tmp_path / where, text)
        finally:
            (ROOT / "left-by-a-test.txt").unlink(missing_ok=True)
        assert "1 passed" in done.stdout
        assert done.returncode == 1, done.stdout
        assert "wrote outside of their own folders" in done.stdout
