"""Lines that others can cause as often as they like do not fill the disk."""

from __future__ import annotations

import logging
from types import SimpleNamespace

from pgfl.network import logs as logs
from pgfl.network.logs import RateLimitedLogger


def test_a_flood_is_one_line_a_minute_with_its_number_and_other_subjects_are_not_held_back(caplog, monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(logs, "time", SimpleNamespace(monotonic=lambda: clock.now))
    limited = RateLimitedLogger(logging.getLogger("pgfl.test"))
    with caplog.at_level(logging.INFO):
        for _ in range(5000):
            clock.now += 0.01
            limited.warning("ann", "client ann: refused")
        limited.info("bob", "client bob: refused")
        clock.now += 60.0
        limited.warning("ann", "client ann: refused")
    assert caplog.messages == [
        "client ann: refused",
        "client bob: refused",
        "client ann: refused (and 4999 more like this in the last minute)",
    ]


def test_many_subjects_do_not_fill_the_memory():
    limited = RateLimitedLogger(logging.getLogger("pgfl.test"))
    for number in range(5000):
        limited.warning(f"stranger {number}", "refused")
    assert len(limited._last) <= 1000
