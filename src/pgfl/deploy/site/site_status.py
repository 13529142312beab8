"""The status of a site, running or not, as its operator sees it."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import Any

from pgfl.deploy.processes import only_one
from pgfl.deploy.site.live_figures import LiveFigures
from pgfl.deploy.site.site import LOCK
from pgfl.deploy.site.site_store import SiteStore
from pgfl.deploy.site.trustee import LEDGERS
from pgfl.errors import LedgerError, NetworkError
from pgfl.privacy.ledger import Ledger


def status_of(home: Path) -> dict[str, Any]:
    """The figures of the site in this folder, for people and JSON."""
    with closing(SiteStore.of_site(home)) as store:
        clients, neighbours = store.clients().values(), store.neighbours().values()
        history, last = store.history(1), store.last_round()
    running = is_running(home)
    live = LiveFigures.read(home) if running else LiveFigures()
    return {
        "running": running,
        "round": last,
        "last": history[-1] if history else None,
        "connected": live.connected,
        "up": live.up,
        "waiting_for": live.waiting_for,
        "missing": live.missing,
        "refused": live.refused,
        "clients": [
            {"name": c.name, "cluster": c.cluster, "releases": c.releases, "accepted": c.accepted}
            | entrusted_account(home, c.name)
            | {"epsilon_left": _left(live, c.name, c.releases)}
            for c in clients
        ],
        "neighbours": [{"name": n.certificate.name, "address": n.address} for n in neighbours],
    }


def entrusted_account(home: Path, client: str) -> dict[str, Any]:
    """What a client has spent that trusts this site, from the account that the site keeps for it; nothing of others."""
    path = home / LEDGERS / f"{client}.db"
    if not path.exists():
        return {"trust": "local", "epsilon": None, "delta": None, "spent": None}
    try:
        with Ledger.read(path) as ledger:
            summary = ledger.summary()
    except LedgerError:  # it is being made
        return {"trust": "site", "epsilon": None, "delta": None, "spent": None}
    return {"trust": "site"} | {name: summary[name] for name in ("epsilon", "delta", "spent")}


def _left(live: LiveFigures, client: str, releases: int) -> float | None:
    """The ε that is left to a client, if it is connected or was, and tells its budget."""
    budget = live.budgets.get(client)
    return None if budget is None else budget.epsilon_left(releases)


def is_running(home: Path) -> bool:
    """Whether a process serves the site in this folder."""
    try:
        with only_one(home / LOCK, "site"):
            return False
    except NetworkError:
        return True


def when_applied(home: Path, change: int, seconds: float) -> str:
    """From which round on a change counts, as the running site acknowledges it, in words."""
    if not is_running(home):
        return "applied when the site starts"
    until = time.monotonic() + seconds
    with closing(SiteStore.of_site(home)) as store:
        while time.monotonic() < until:
            taken_over, round = store.acknowledged()
            if taken_over >= change:
                return f"applied from round {round}"
            time.sleep(0.1)
    return "not applied yet: the running site takes it over after the round that is under way"
