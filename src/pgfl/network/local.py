"""A whole network on one machine, as separate real processes on loopback: for the demo, the tests and the benchmark."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from pgfl.arrays import AnyArray, AnyFloats
from pgfl.errors import NetworkError
from pgfl.federation.federation import Federation
from pgfl.masking.terms import Roster, read_roster, roster_text
from pgfl.network import processes
from pgfl.network.agreement import Training, task_of
from pgfl.network.protocol import identity
from pgfl.network.settings import toml_of
from pgfl.network.site.reports import LIVE
from pgfl.network.site.store import STORE, SiteStore

LEDGER, NOISE = "ledger.db", "noise"  # in the folder of a client; noise also in a site's
WEIGHT = "w"  # the column of weights, if there are any
Found = TypeVar("Found")
_COMMAND = "from pgfl.cli import main; main()"
_SYNCHRONOUS = 1e9  # rounds wait for everyone until their deadline, as the simulator does
_UNBOUNDED = 1e9  # plain averaging, as in the simulator, with which such a network is compared


@dataclass
class LocalNetwork:
    """Sites and clients of a federation, each in a folder of its own below `folder`."""

    folder: Path
    federation: Federation
    training: Training
    privacy: dict[str, Any]
    timing: dict[str, Any] = field(default_factory=dict)
    quorum: dict[str, Any] = field(default_factory=dict)
    bounds: dict[str, Any] = field(default_factory=dict)
    record_noise: bool = False
    limits: dict[str, Any] = field(default_factory=dict)
    own_privacy: dict[str, dict[str, Any]] = field(default_factory=dict)  # of clients that deviate from `privacy`
    ports: dict[str, int] = field(default_factory=dict)
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    # set-up, as operators and owners would do it ---------------------------------------------------------------------

    def prepare(self, peer_address: Callable[[str, str], str] | None = None) -> None:
        """Make keys, links, admissions, settings and data; `peer_address(from, to)` overrides an address."""
        for site in self.federation.server_ids:
            self.ports[site] = processes.free_port()
            identity.create_site(self.home(site), site, [])
            self._write_site(site)
        for first, second in self.edges():
            for here, there in ((first, second), (second, first)):
                address = peer_address(here, there) if peer_address else f"127.0.0.1:{self.ports[there]}"
                certificate = identity.SiteCertificate.read(self.home(there) / identity.SITE_CERTIFICATE)
                self._with_store(here, partial(_link, certificate, address))
        for client in self.federation.client_ids:
            self.add_client(client)

    def add_client(self, client: str) -> None:
        """One client's key, data and settings, and its admission."""
        index = self.federation.client_ids.index(client)
        site = self.federation.server_ids[self.federation.client_server[index]]
        cluster = self.federation.cluster_ids[self.federation.client_cluster[index]]
        key = identity.create_client(self.home(client), client)
        rows = slice(*self.federation.offsets[index : index + 2])
        table = csv_of(self.federation.features[rows], self.federation.weighted_targets(rows))
        (self.home(client) / "data.csv").write_text(table)
        weight = None if self.federation.weights is None else WEIGHT
        settings: dict[str, Any] = {
            "name": client, "data": "data.csv", "weight": weight,
            "task": task_of(self.training.objective.of(cluster).kind),
            "record_noise": NOISE if self.record_noise else None,
            "site": {
                "address": f"127.0.0.1:{self.ports[site]}",
                "fingerprint": identity.SiteCertificate.read(self.home(site) / identity.SITE_CERTIFICATE).fingerprint,
            },
            "privacy": self.privacy | self.own_privacy.get(client, {}),
            "limits": self.limits or None,
        }  # fmt: skip
        if settings["privacy"].get("trust") == "masked":
            settings["roster"] = {"file": str(self._enrol(site, client, key).resolve())}
        (self.home(client) / "client.toml").write_text(toml_of(settings))
        self._with_store(site, lambda store: store.admit(client, key, cluster))

    def _enrol(self, site: str, client: str, key: identity.ClientKey) -> Path:
        """Add a client to the roster that the owners of a site's clients keep together; returns its file."""
        path = self.folder / f"roster-{site}.json"
        known = dict(read_roster(path).keys) if path.exists() else {}
        path.write_text(roster_text(Roster({**known, client: key.line})))
        return path

    def home(self, name: str) -> Path:
        """The folder of a site or a client."""
        return self.folder / name

    def edges(self) -> list[tuple[str, str]]:
        """Pairs of linked sites."""
        ids = self.federation.server_ids
        return [(ids[a], ids[b]) for a, b in self.federation.graph.edges.tolist()]

    def clients_of(self, site: str) -> list[str]:
        """A site's clients."""
        number = self.federation.server_ids.index(site)
        return [self.federation.client_id(k) for k in np.flatnonzero(self.federation.client_server == number).tolist()]

    # processes --------------------------------------------------------------------------------------------------------

    def start(self, *names: str) -> None:
        """Start these sites and clients (all of them if none is named)."""
        for name in names or (*self.federation.server_ids, *self.federation.client_ids):
            if name in self.federation.server_ids:
                arguments = ["site", "serve", str(self.home(name) / "site.toml")]
            else:
                arguments = ["client", "join", str(self.home(name) / "client.toml")]
            self.running[name] = processes.start(
                [sys.executable, "-P", "-c", _COMMAND, *arguments], self.home(name) / "log.txt"
            )

    def kill(self, name: str) -> None:
        """kill -9."""
        processes.kill(self.running.pop(name))

    def terminate(self, name: str) -> None:
        """Ask one to end, and wait until it has."""
        processes.stop(self.running.pop(name), patience=60.0)

    def stop(self) -> None:
        """Stop everything."""
        processes.stop(*self.running.values())
        self.running.clear()

    def ended(self) -> dict[str, int]:
        """Exit codes of what has ended."""
        return {name: code for name, child in self.running.items() if (code := child.poll()) is not None}

    # observation ------------------------------------------------------------------------------------------------------

    def live(self, site: str) -> dict[str, Any]:
        """The status that a site wrote last."""
        try:
            found: dict[str, Any] = json.loads((self.home(site) / LIVE).read_text())
            return found
        except (OSError, ValueError):
            return {}

    def history(self, site: str) -> list[dict[str, Any]]:
        """The figures of all rounds."""
        return self._with_store(site, SiteStore.history)

    def arrays(self, site: str) -> tuple[int, dict[str, AnyArray]] | None:
        """The saved state."""
        return self._with_store(site, SiteStore.load_state)

    def log(self, name: str) -> str:
        """The output of a process."""
        path = self.home(name) / "log.txt"
        return path.read_text(errors="replace") if path.exists() else ""

    def wait(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        """Wait for a condition; a process that ended with an error ends the wait."""
        until = time.monotonic() + seconds
        while not condition():
            failed = [name for name, code in self.ended().items() if code != 0]
            if failed:
                raise NetworkError(f"{failed[0]} ended early: {self.log(failed[0])[-600:].strip()}")
            if time.monotonic() > until:
                raise NetworkError(f"After {seconds:g} s still waiting for {what}; see the logs in {self.folder}.")
            time.sleep(0.1)

    def round_of(self, site: str) -> int:
        """The last completed round."""
        return self._with_store(site, SiteStore.last_round)

    def _with_store(self, site: str, use: Callable[[SiteStore], Found]) -> Found:
        with closing(SiteStore(self.home(site) / STORE)) as store:
            return use(store)

    def _write_site(self, site: str) -> None:
        settings = {
            "name": site,
            "listen": {"host": "127.0.0.1", "port": self.ports[site]},
            "timing": {"pace": 0.0, "patience": _SYNCHRONOUS, **self.timing},
            "quorum": self.quorum,
            "bounds": {"spread": _UNBOUNDED, **self.bounds},
            "training": self.training.model_dump(exclude_none=True),
            "record_noise": NOISE if self.record_noise else None,
        }
        (self.home(site) / "site.toml").write_text(toml_of(settings))


def _link(certificate: identity.SiteCertificate, address: str, store: SiteStore) -> None:
    store.link(certificate, address)


def csv_of(features: AnyFloats, targets: AnyFloats) -> str:
    """A client's table: the target y, perhaps a weight, then the features x0, x1, …, to the last digit."""
    first = ["y"] if targets.ndim == 1 else ["y", WEIGHT]
    header = ",".join([*first, *(f"x{i}" for i in range(features.shape[1]))])
    rows = [",".join(map(repr, row)) for row in np.column_stack([targets, features]).tolist()]
    return "\n".join([header, *rows]) + "\n"
