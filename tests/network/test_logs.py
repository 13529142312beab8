"""Logs: levels, JSON lines, private files that are rotated, also one that another process writes."""

from __future__ import annotations

import json
import logging

import pytest

from pgfl.network.logs import LogSettings, start_logging

LOG = logging.getLogger("pgfl.network.site.site")


@pytest.fixture(autouse=True)
def _logging_as_before():
    before, level = logging.root.handlers[:], logging.root.level
    yield
    for handler in logging.root.handlers:
        if handler not in before:
            handler.close()
    logging.root.handlers[:] = before
    logging.root.setLevel(level)


def test_every_line_is_one_json_object_also_with_an_exception_and_line_breaks(tmp_path):
    start_logging(LogSettings(format="json", file="site.log"), tmp_path)
    LOG.info("client %s is connected", "ann\nbob")
    LOG.debug("nobody wants to know")
    logging.getLogger("asyncio").info("nor this")
    try:
        raise KeyError("planted")
    except KeyError:
        LOG.exception("round 7 failed")
    first, second = [json.loads(line) for line in (tmp_path / "site.log").read_text().splitlines()]
    assert first["message"] == "client ann\nbob is connected"
    assert (first["level"], first["logger"]) == ("info", "pgfl.network.site.site")
    assert "KeyError: 'planted'" in second["exception"]


def test_a_level_leaves_out_what_is_below_it(tmp_path):
    start_logging(LogSettings(level="warning", file="site.log"), tmp_path)
    LOG.info("left out")
    LOG.warning("kept")
    assert "kept" in (tmp_path / "site.log").read_text()
    assert "left out" not in (tmp_path / "site.log").read_text()


def test_a_file_is_private_and_rotated_and_only_so_many_are_kept(tmp_path):
    start_logging(LogSettings(file="logs/site.log", megabytes=0.001, keep=2), tmp_path)
    for number in range(200):
        LOG.info("line %d", number)
    files = sorted((tmp_path / "logs").iterdir())
    assert [path.name for path in files] == ["site.log", "site.log.1", "site.log.2"]
    assert all(path.stat().st_size <= 0.001 * 2**20 and path.stat().st_mode & 0o077 == 0 for path in files)
    assert "line 199" in files[0].read_text()
