"""A demonstration network on one machine: made-up data, real processes, and their replay in the simulator."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pgfl.algorithms.roles import EVERYONE
from pgfl.arrays import AnyArray, Floats
from pgfl.errors import LedgerError, NetworkError
from pgfl.federation.federation import Federation
from pgfl.federation.graphs import line
from pgfl.federation.synthetic import synthetic_regression
from pgfl.network.agreement import Training
from pgfl.network.local import LEDGER, NOISE, LocalNetwork
from pgfl.privacy.ledger.ledger import Ledger
from pgfl.privacy.request import Privacy
from pgfl.privacy.trust import CONTRIBUTORS, Level
from pgfl.signals import sigterm_as_keyboard_interrupt
from pgfl.simulate.layout import Layout
from pgfl.simulate.simulator import Replay, Simulator

ObjectiveName = Literal["huber", "ridge", "logistic"]
START_SECONDS = 240.0
DELTA = 1e-5
COMPANY: dict[Level, int] = {
    "local": 1,
    "site": CONTRIBUTORS,
    "masked": 4,
}  # clients of a site in one cluster, at least
CLIENTS: dict[Level, int] = {"local": 2, "site": 2, "masked": 4}  # of each site, unless the user says otherwise


@dataclass(frozen=True)
class Scenario:
    """The size of a demonstration and what it trains."""

    sites: int = 3
    clients: int = 2
    rounds: int = 5
    objective: ObjectiveName = "huber"
    epsilon: float = 20.0
    seed: int = 0
    trust: Level = "local"
    samples: tuple[int, int] = (20, 40)  # least and most records of a client

    def network(self, folder: Path) -> LocalNetwork:
        """A network in a folder, not prepared yet; its clients record their noise, so that it can be replayed."""
        federation = demo_federation(
            self.sites, self.clients, self.objective, self.seed, trust=self.trust, samples=self.samples
        )
        training = demo_training(federation, self.objective, self.rounds, self.trust)
        privacy = demo_privacy(self.objective, self.epsilon, self.rounds, self.trust)
        return LocalNetwork(folder, federation, training, privacy, demo_timing(), record_noise=True)


def demo_federation(
    sites: int,
    clients: int,
    objective: ObjectiveName,
    seed: int,
    dimension: int = 5,
    trust: Level = "local",
    samples: tuple[int, int] = (20, 40),
) -> Federation:
    """Made-up data on a line of sites, in two clusters where there are enough clients.

    Where only sums over the clients of a site and cluster are noised, there are several of them.
    """
    if trust != "local" and clients < CONTRIBUTORS:
        raise NetworkError(f"With --trust {trust} every site needs at least {CONTRIBUTORS} clients; see --clients.")
    federation = synthetic_regression(
        servers=sites,
        clients_per_server=clients,
        clusters=min(2, sites * clients),
        dimension=dimension,
        samples=samples,
        graph=line(sites),
        seed=seed,
    )
    if trust != "local":
        federation = _in_company(federation, clients, COMPANY[trust])
    if objective == "logistic":
        return federation.replace(targets=(federation.targets > 0).astype(float), truth=None)
    return federation


def _in_company(federation: Federation, clients: int, company: int) -> Federation:
    """The same with the clients of a site put into clusters, `company` at a time, and targets that follow these."""
    assert federation.truth is not None
    groups = np.minimum(np.arange(federation.size) % clients // company, max(clients // company - 1, 0))
    cluster = groups % len(federation.cluster_ids)
    moved = np.repeat(federation.truth[cluster] - federation.truth[federation.client_cluster], federation.counts, 0)
    targets = federation.targets + np.einsum("ij,ij->i", federation.features, moved)
    return federation.replace(client_cluster=cluster, targets=targets, generated=True)


def demo_training(federation: Federation, objective: ObjectiveName, rounds: int, trust: Level = "local") -> Training:
    """The training that the sites agree on. Where the noise of a sum is shared, clients take gradient steps."""
    client = {"client": "admm", "rho": 3.0} if trust == "local" else {"client": "gradient", "rho": 8.0}
    return Training.model_validate(
        {
            "rounds": rounds,
            "dimension": federation.dimension,
            "clusters": tuple(federation.cluster_ids),
            "objective": {"kind": objective, "lam": 0.01},
            "algorithm": {"kind": "pgfl", "tau": {"start": 0.3, "decay": 0.98}, **client},
            "privacy": {"trust": trust},
        }
    )


def demo_timing() -> dict[str, float]:
    """Everyone waits for everyone, however slow this machine is: only a whole round equals the simulator's."""
    return {"start": START_SECONDS, "answers": START_SECONDS, "exchange": START_SECONDS}


def demo_privacy(objective: ObjectiveName, epsilon: float, rounds: int, trust: Level = "local") -> dict[str, Any]:
    """Every client's own policy."""
    bounds: dict[str, float] = {"x_norm": 3.0}
    if objective == "ridge":
        bounds |= {"y_bound": 5.0, "w_norm": 4.0}
    budget = {"epsilon": epsilon, "delta": DELTA, "max_releases": rounds, "zeta": 0.99}
    return {"enabled": True, **budget, **bounds, "trust": trust}


AGREEMENT = 1e-10
_ROUND_SECONDS, _END_SECONDS = 30.0, 60.0


@contextmanager
def demo_folder(keep: Path | None) -> Iterator[Path]:
    """A new folder that is deleted in the end unless it is to be kept, also after SIGTERM or a closed terminal."""
    with ExitStack() as stack:
        stack.enter_context(sigterm_as_keyboard_interrupt())
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


def errors(network: LocalNetwork) -> dict[str, tuple[int, float]]:
    """Return the last round of every site and the error of its models in it, relative to the truth of made-up data.

    It is NMSD over the clusters: 1 for models of zero. Empty where the data have no truth.
    """
    federation, found = network.federation, {}
    if federation.truth is None:
        return {}
    truth = dict(zip(federation.cluster_ids, federation.truth, strict=True))
    size = sum(float(np.sum(one**2)) for one in truth.values())
    for site in federation.server_ids:
        saved = network.arrays(site)
        if saved is not None:
            models = _models_in(saved[1])
            found[site] = (saved[0], sum(float(np.sum((models[q] - truth[q]) ** 2)) for q in truth) / size)
    return found


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


ByRound = dict[int, Floats]


def largest_difference(network: LocalNetwork) -> float:
    """Between the sites' models and the clients' clean models in the network, and the simulator's given the noise.

    The simulator gets the same data, the same participants and, coordinate by coordinate, the noise that was drawn.
    """
    privacy = Privacy(**_stated(network)) if network.privacy.get("enabled") else None
    federation = privacy.bounded(network.federation) if privacy else network.federation
    accepted = _by_round(network, "accepted")
    clean, noise = _recorded(network) if privacy else ({}, None)
    simulator = _replaying(network, federation, accepted, noise)
    layout, place = simulator.layout, _places(federation, simulator.layout)
    largest = 0.0
    for number in sorted(accepted):
        state = simulator.run_round()
        for client in accepted[number] if privacy else ():
            largest = max(largest, float(np.abs(state.model[place[client]] - clean[client][number]).max()))
    for site, clusters in _models(network).items():
        server = federation.server_ids.index(site)
        for cluster, model in clusters.items():
            q = federation.cluster_ids.index(cluster) if simulator.algorithm.server_rule.personalised else 0
            (row,) = np.flatnonzero((layout.pair_server == server) & (layout.pair_cluster == q))
            largest = max(largest, float(np.abs(simulator.state.server_models[row] - model).max()))
    return largest


def _replaying(
    network: LocalNetwork,
    federation: Federation,
    accepted: Mapping[int, list[str]],
    noise: Mapping[str, ByRound] | None,
) -> Simulator:
    """A simulator in which exactly these clients take part in each round, with exactly this noise."""
    w_norm = None if noise is None else network.privacy.get("w_norm")
    objectives = {q: network.training.build_objective(q, w_norm) for q in federation.cluster_ids}
    drawn = None if noise is None else lambda round, client: noise[client][round]
    replay = Replay(accepted.__getitem__, drawn, _by_round(network, "retired").__getitem__)
    return Simulator([federation], network.training.build_algorithm(), objectives, replay=replay)


def _stated(network: LocalNetwork) -> dict[str, Any]:
    return {key: value for key, value in network.privacy.items() if key != "enabled"}


def _places(federation: Federation, layout: Layout) -> dict[str, int]:
    """The row of each client in the engine's arrays."""
    return {federation.client_id(k): int(flat) for k, flat in enumerate(layout.runs[0].position)}


def _by_round(network: LocalNetwork, figure: str) -> dict[int, list[str]]:
    """The clients that all sites together list under a figure of each round."""
    listed: dict[int, list[str]] = {}
    for site in network.federation.server_ids:
        for row in network.history(site):
            listed.setdefault(row["round"], []).extend(row.get(figure, []))
    return listed


def _recorded(network: LocalNetwork) -> tuple[dict[str, ByRound], dict[str, ByRound]]:
    """Clean models and noise of every client by round, from its ledger and the recording beside it.

    Noise that a site added to a sum of clean contributions is shared out among them evenly: the sum is the same.
    """
    clean: dict[str, ByRound] = {}
    noise: dict[str, ByRound] = {}
    for client in network.federation.client_ids:
        clean[client], noise[client] = {}, {}
        with Ledger.read(network.home(client) / LEDGER) as ledger:
            rows = [(row.number, int(row.round_key.rpartition("/")[2]), row.entrusted) for row in ledger.rows()]
        for number, round, entrusted in rows:
            model, released = np.load(network.home(client) / NOISE / f"{number:06d}.npy", allow_pickle=False)
            clean[client][round] = model
            if not entrusted:
                noise[client][round] = released - model
    for client, round, share in _shares(network, noise):
        noise[client][round] = share
    return clean, noise


def _shares(network: LocalNetwork, noised: Mapping[str, ByRound]) -> Iterator[tuple[str, int, Floats]]:
    """The noise that sites added, per contributor: client, round, noise."""
    federation, personalised = network.federation, network.training.build_algorithm().server_rule.personalised
    cluster = dict(zip(federation.client_ids, federation.client_cluster.tolist(), strict=True))
    for site in federation.server_ids:
        for row in network.history(site):
            round = row["round"]
            clean = [client for client in row["accepted"] if round not in noised[client]]
            for client in clean:
                pair = federation.cluster_ids[cluster[client]] if personalised else EVERYONE
                together = [other for other in clean if not personalised or cluster[other] == cluster[client]]
                summed, released = np.load(network.home(site) / NOISE / f"{round:06d}-{pair}.npy", allow_pickle=False)
                yield client, round, (released - summed) / len(together)


def _models(network: LocalNetwork) -> dict[str, dict[str, Floats]]:
    models: dict[str, dict[str, Floats]] = {}
    for site in network.federation.server_ids:
        saved = network.arrays(site)
        if saved is not None:
            models[site] = _models_in(saved[1])
    return models


def _models_in(state: Mapping[str, AnyArray]) -> dict[str, Floats]:
    names = json.loads(str(state["about"]))["clusters"]
    return dict(zip(names, state["state.model"], strict=True))
