"""Lines that others can cause as often as they like do not fill the disk."""

from __future__ import annotations

import logging
from types import SimpleNamespace

from pgfl.network import logs as sparing_log
from pgfl.network.logs import SparingLog


def test_a_flood_is_one_line_a_minute_with_its_number_and_other_subjects_are_not_held_back(caplog, monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(sparing_log, "time", SimpleNamespace(monotonic=lambda: clock.now))
    sparing = SparingLog(logging.getLogger("pgfl.test"))
    with caplog.at_level(logging.INFO):
        for _ in range(5000):
            clock.now += 0.01
            sparing.warning("ann", "client ann: refused")
        sparing.info("bob", "client bob: refused")
        clock.now += 60.0
        sparing.warning("ann", "client ann: refused")
    assert caplog.messages == [
        "client ann: refused",
        "client bob: refused",
        "client ann: refused (and 4999 more like this in the last minute)",
    ]


def test_many_subjects_do_not_fill_the_memory():
    sparing = SparingLog(logging.getLogger("pgfl.test"))
    for number in range(5000):
        sparing.warning(f"stranger {number}", "refused")
    assert len(sparing._last) <= 1000
