"""The short form of `make chaos`: a network of real processes survives a few faults, and its accounts are right."""

from __future__ import annotations

import pytest

from tests.network.chaos import Campaign

FAULTS = {
    "deaths and changes": ("kill -9 a site", "expel and admit a client"),
    "proxies": ("the proxy is gone", "the proxy refuses"),
    "lies and slow clients": ("a neighbour lies about budgets", "a client is ten times slower"),
}


@pytest.mark.proof
@pytest.mark.parametrize("faults", FAULTS)
def test_everyone_takes_part_again_after_each_fault_and_nobody_is_charged_twice(tmp_path, faults):
    campaign = Campaign(tmp_path, seed=11)
    campaign.faults = {name: campaign.faults[name] for name in FAULTS[faults]}
    seconds = campaign.run(3)
    assert sum(map(len, seconds.values())) == 3
