"""`make proofs` brings a browser where it can, and says what to do where it cannot."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import browser

RECORDS = """#!/bin/sh
echo "$@" >> "{log}"
case "$*" in *install*) {installs} ;; esac
"""


@pytest.fixture
def without_browser(tmp_path, monkeypatch):
    """A machine on which nothing is found but what the test puts there."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("PGFL_CHROMIUM", raising=False)
    monkeypatch.setattr(browser, "MAC", ())
    return tmp_path


def apt_get(folder, installs):
    """A stand-in for apt-get that records its calls."""
    script = folder / "apt-get"
    script.write_text(RECORDS.format(log=folder / "calls", installs=installs))
    script.chmod(0o755)


def test_as_root_on_debian_chromium_is_installed(without_browser, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 0)
    apt_get(without_browser, f'printf "" > "{without_browser}/chromium"; /bin/chmod 755 "{without_browser}/chromium"')
    assert browser.main() == 0
    calls = (without_browser / "calls").read_text().splitlines()
    assert calls == ["update -qq", "install -y -qq --no-install-recommends chromium"]


def test_a_failed_installation_says_what_to_do(without_browser, monkeypatch, capsys):
    monkeypatch.setattr(os, "getuid", lambda: 0)
    apt_get(without_browser, "exit 100")
    assert browser.main() == 2
    assert browser.ADVICE in capsys.readouterr().err


@pytest.mark.parametrize("has_apt", [True, False])
def test_others_are_told_what_to_install_and_nothing_is_touched(without_browser, monkeypatch, capsys, has_apt):
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    if has_apt:
        apt_get(without_browser, "true")
    assert browser.main() == 2
    said = capsys.readouterr().err
    assert said.strip() == browser.ADVICE
    assert not (without_browser / "calls").exists()


def test_a_browser_that_is_named_but_missing_is_said_by_name(tmp_path):
    missing = str(tmp_path / "no-such-browser")
    root = Path(__file__).parents[1]
    ended = subprocess.run(
        [sys.executable, "-m", "tests.browser"], env={**os.environ, "PGFL_CHROMIUM": missing}, cwd=root,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 2
    assert missing in ended.stderr
