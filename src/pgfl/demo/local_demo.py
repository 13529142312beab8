"""A demonstration from start to end: real processes are started, watched until they are done, and judged."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pgfl.demo.replay import largest_difference
from pgfl.demo.scenario import START_SECONDS
from pgfl.deploy.local import LEDGER, LocalNetwork
from pgfl.errors import LedgerError, NetworkError
from pgfl.privacy.ledger import Ledger
from pgfl.privacy.trust import Level
from pgfl.signals import ended_like_ctrl_c

AGREEMENT = 1e-10
_ROUND_SECONDS, _END_SECONDS = 30.0, 60.0


@contextmanager
def demo_folder(keep: Path | None) -> Iterator[Path]:
    """A new folder that is deleted in the end unless it is to be kept, also after SIGTERM or a closed terminal."""
    with ExitStack() as stack:
        stack.enter_context(ended_like_ctrl_c())
        folder = keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pgfl-demo-")))
        if folder.exists() and any(folder.iterdir()):
            raise NetworkError(f"{folder} is not empty; give a new folder to --keep.")
        yield folder


def train(network: LocalNetwork, look: Callable[[], None] = lambda: None) -> float:
    """Start every site and client and wait until all have ended; returns the seconds. `look` is called meanwhile."""
    began = time.monotonic()

    def over() -> bool:
        look()
        return network.ended().keys() >= set(network.federation.server_ids)

    network.prepare()
    try:
        network.start()
        network.wait(over, START_SECONDS + _ROUND_SECONDS * network.training.rounds, "the last round")
        network.wait(lambda: set(network.ended()) == set(network.running), _END_SECONDS, "the clients to end")
    finally:
        network.stop()
    return time.monotonic() - began


@dataclass(frozen=True)
class SiteProgress:
    """Where one site is, while it trains."""

    site: str
    round: int
    connected: int
    clients: int
    waiting_for: tuple[str, ...]
    last: dict[str, Any] | None  # the figures of its last round
    worst_epsilon: float | None


def progress(network: LocalNetwork, site: str) -> SiteProgress:
    """Where a site is now, from the files that it and its clients write."""
    live, members = network.live(site), network.clients_of(site)
    history = network.history(site)[-1:] if live else []
    spent = [float(ledger["epsilon"]) for client in members if (ledger := ledger_summary(network, client))]
    return SiteProgress(
        site,
        live.get("round", 0),
        len(live.get("connected", [])),
        len(members),
        tuple(live.get("waiting_for", [])),
        history[0] if history else None,
        max(spent) if spent else None,
    )


@dataclass(frozen=True)
class Outcome:
    """The figures of a demonstration; the difference is to the simulator, None if a site went on without another."""

    trust: Level
    sites: int
    clients: int
    rounds: dict[str, int]
    late: dict[str, list[str]]
    disagreement: dict[str, float | None]
    releases: dict[str, int]
    epsilon: dict[str, float | None]
    round_seconds: float | None
    seconds: float
    not_compared_because: list[str]
    difference: float | None
    agrees: bool


def outcome_of(network: LocalNetwork, seconds: float) -> Outcome:
    """The outcome of a network that has ended."""
    histories = {site: network.history(site) for site in network.federation.server_ids}
    alone = [
        f"{site} went on without {', '.join(row['absent'])} in round {row['round']}"
        for site, rows in histories.items()
        for row in rows
        if row["absent"]
    ]
    ledgers = {client: ledger_summary(network, client) or {} for client in network.federation.client_ids}
    later = [row["seconds"] for rows in histories.values() for row in rows[1:]]
    difference = None if alone else largest_difference(network)
    return Outcome(
        trust=network.training.privacy.trust,
        sites=len(histories),
        clients=len(ledgers),
        rounds={site: rows[-1]["round"] if rows else 0 for site, rows in histories.items()},
        late={site: sorted({name for row in rows for name in row["late"]}) for site, rows in histories.items()},
        disagreement={site: rows[-1]["disagreement"] if rows else None for site, rows in histories.items()},
        releases={client: figures.get("releases", 0) for client, figures in ledgers.items()},
        epsilon={client: figures.get("epsilon") for client, figures in ledgers.items()},
        round_seconds=float(np.median(later)) if later else None,
        seconds=seconds,
        not_compared_because=alone,
        difference=difference,
        agrees=difference is not None and difference <= AGREEMENT,
    )


def ledger_summary(network: LocalNetwork, client: str) -> dict[str, Any] | None:
    """What a client has spent, from its ledger; None while there is none, or while it is being written."""
    path = network.home(client) / LEDGER
    if not path.exists():
        return None
    try:
        with Ledger.read(path) as ledger:
            return ledger.summary()
    except LedgerError:
        return None  # it is being written
