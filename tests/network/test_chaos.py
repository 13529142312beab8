"""The short form of `make chaos`: a network of real processes survives a few faults, and its accounts are right."""

from __future__ import annotations

import pytest

from tests.network.chaos import Campaign


@pytest.mark.proof
def test_everyone_takes_part_again_after_each_fault_and_nobody_is_charged_twice(tmp_path):
    campaign = Campaign(tmp_path, seed=11)
    campaign.faults = {name: campaign.faults[name] for name in ("kill -9 a site", "expel and admit a client")}
    seconds = campaign.run(2)
    assert sum(map(len, seconds.values())) == 2
