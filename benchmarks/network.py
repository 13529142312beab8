"""`make bench-network`: the real network on this machine. Takes about a quarter of an hour."""

from __future__ import annotations

import sys
from functools import partial

import bare_streams
import harness
import network_crowd
import network_distance
import network_links
import network_masked
import network_rounds
import network_streams

CASES: harness.Cases = {
    "peers": network_links.peers,
    "streams": network_streams.streams,
    "echo": bare_streams.bare,
    "crowd": network_crowd.crowd,
    "memory": network_rounds.memory,
    "start": network_rounds.start,
    "distance": network_distance.distance,
    **{f"clients-{size}": partial(network_rounds.rounds, size) for size in (1, 5, 10)},
    **{f"masked-{size}": partial(network_masked.masked_round, size) for size in network_masked.SIZES},
}
REMARKS = [
    "Everything runs on one machine, on loopback, with TLS and authenticated clients; d = 60 unless said.",
    "The start counts from the first process to the end of the first round; the keys are registered before.",
    "A masked round and a plain one (linearised steps, one cluster) run over TLS streams, and nobody drops out. CPU "
    "time is that of the site and all clients together, in one process; wall time is with the clients in two processes "
    "of their own, on two cores that all share. Rounds are prepared ahead, shown apart.",
    "Memory is proportional set size: pages of libraries are divided among the processes that use them. For one client "
    "these are its own and its site's, whatever else the machine runs. A client "
    "takes 50 MB of its own. Alone, Python takes 8 MB, NumPy 17, what TLS and certificates need 12, OpenDP's noise 11 "
    "and Pydantic 4: 52 before a line of pgfl, so the goal cannot be met with these libraries. "
    "It reads its table in a process that ends: with polars in it, it took 108 MB. The 200 clients were measured "
    "before that.",
    "A simulated stream answers at once, from this benchmark's own process. 10,000 answers a second leave the site 100 "
    "µs each. The echo shows how much of that the transport takes: TLS, frames and nothing behind them.",
    "The start is that of processes whose modules have bytecode, as is usual (no PYTHONDONTWRITEBYTECODE).",
    "Distances are measured with both sites, all clients and the cables in one process, over pairs of rounds. They are "
    "delays alone, except in the row that states losses: there every packet is lost with that chance and "
    "comes again after two round trips, which a retransmission of TCP takes at the end of a message.",
    "Rows with a load were measured with priority: their processes had nearly all of both cores, while the others that "
    "the load counts waited.",
]


if __name__ == "__main__":
    sys.exit(harness.main("network", __doc__, CASES, REMARKS))
