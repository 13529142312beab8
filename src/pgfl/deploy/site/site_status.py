"""The status of a site, running or not, as its operator sees it."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

from pgfl.deploy.processes import only_one
from pgfl.deploy.site.site import LIVE, LOCK
from pgfl.deploy.site.site_store import SiteStore
from pgfl.errors import NetworkError


def status_of(home: Path) -> dict[str, Any]:
    """The figures of the site in this folder, for people and JSON."""
    with closing(SiteStore.of_site(home)) as store:
        clients, neighbours = store.clients().values(), store.neighbours().values()
        history, last = store.history(1), store.last_round()
    live = _live(home)
    return {
        "running": bool(live),
        "round": last,
        "last": history[-1] if history else None,
        "connected": live.get("connected", []),
        "up": live.get("up", []),
        "waiting_for": live.get("waiting_for", []),
        "missing": live.get("missing"),
        "refused": live.get("refused", {}),
        "clients": [
            {"name": c.name, "cluster": c.cluster, "releases": c.releases, "accepted": c.accepted} for c in clients
        ],
        "neighbours": [{"name": n.certificate.name, "address": n.address} for n in neighbours],
    }


def _live(home: Path) -> dict[str, Any]:
    """What a running site wrote about itself last; empty if it does not run."""
    try:
        with only_one(home / LOCK, "site"):
            return {}
    except NetworkError:
        live: dict[str, Any] = json.loads((home / LIVE).read_text()) if (home / LIVE).exists() else {"starting": True}
        return live
