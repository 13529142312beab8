"""The check that a peer plays the same mathematics can fail."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture
def peers(monkeypatch):
    monkeypatch.syspath_prepend(HERE.parents[1] / "benchmarks")
    import peers

    monkeypatch.setattr(peers, "TURNS", 2)
    monkeypatch.setattr(peers, "TURN_SECONDS", 0.0)
    return peers


def measure(peers):
    peer = peers.Peer("A plain loop", str(HERE / "plain_peer.py"), ("numpy",))
    return peers.measure("plain", peer, Path(sys.executable))


def test_a_peer_of_the_same_mathematics_gets_a_row(peers):
    row = measure(peers)
    assert row.ratio > 0 and row.low <= row.ratio <= row.high and row.start_up.endswith(" s")


@pytest.mark.proof
@pytest.mark.parametrize("wrong", ["sums", "clients swapped"])
def test_a_peer_of_other_mathematics_is_refused(peers, monkeypatch, wrong):
    monkeypatch.setenv("WRONG", wrong)
    with pytest.raises(peers.PeerFailed, match="not the same mathematics"):
        measure(peers)


def test_a_peer_that_dies_is_named_with_its_last_words(peers, monkeypatch):
    monkeypatch.setenv("WRONG", "dies")
    with pytest.raises(peers.PeerFailed, match=r"plain ended .* no such library"):
        measure(peers)
