"""`make bench-network`: the real network on this machine, beside bare Flower. Takes about a quarter of an hour."""

from __future__ import annotations

import sys
from functools import partial

import harness
import network_distance
import network_links
import network_masked
import network_rounds

CASES: harness.Cases = {
    "peers": network_links.peers,
    "streams": network_links.streams,
    "memory": network_rounds.memory,
    "start": network_rounds.start,
    "distance": network_distance.distance,
    **{f"clients-{size}": partial(network_rounds.beside_flower, size) for size in (1, 5, 10)},
    **{f"masked-{size}": partial(network_masked.masked_round, size) for size in network_masked.SIZES},
}
REMARKS = [
    "Everything runs on one machine, on loopback, with TLS and node authentication on both sides; d = 60 unless said.",
    "A round of bare Flower is one message and one reply a node with the same arrays and no arithmetic; ours solves, "
    "perturbs, and writes the ledger. The ratio's spread is that of our rounds over the median of theirs.",
    "The start counts from the first process to the end of the first round; on both sides the keys are registered "
    "before.",
    "A masked round and a plain one (linearised steps, one cluster) run over TLS streams, and nobody drops out. CPU "
    "time is that of the site and all clients together, in one process; wall time is with the clients in two processes "
    "of their own, on two cores that all share. Rounds are prepared ahead, shown apart.",
    "Memory is proportional set size. A simulated stream answers at once, from this benchmark's own process, which "
    "needs about as much processor time for an answer as the site; 10,000 answers a second leave the site 100 µs each.",
    "The start is bound by importing Flower: the three SuperLinks take two fifths of its processor time, Flower's part "
    "of the three sites a quarter, and the six clients a quarter. Measured at a load of 25, where imports take twice "
    "the processor time of a quiet machine (`import numpy`: 0.24 s instead of 0.11 s) and ten times the seconds.",
    "The rows of streams, start and distance are of a machine under a load of 25 to 32, so compare them with each "
    "other only. At a load of 10, and before the site's processor time for an answer fell by a third (525 to 337 µs, "
    "one after the other), 200 streams gave 3,037 answers a second.",
    "Distances are delays alone, without losses; `tests/deploy/test_long_links.py` has the losses.",
]


if __name__ == "__main__":
    sys.exit(harness.main("network", __doc__, CASES, REMARKS))
