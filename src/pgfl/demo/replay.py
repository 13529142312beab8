"""A network's training once more, in the simulator, with the participants and the noise that the network recorded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pgfl.array_types import AnyFloats, Floats, Ints
from pgfl.core.federation import Federation
from pgfl.deploy.local import LEDGER, NOISE, LocalNetwork
from pgfl.privacy.ledger import Ledger
from pgfl.privacy.request import Privacy
from pgfl.simulate.engine import Engine
from pgfl.simulate.flat_layout import Layout, lay_out
from pgfl.simulate.problems import prepare

ByRound = dict[int, Floats]


def largest_difference(network: LocalNetwork) -> float:
    """Between the sites' models and the clients' clean models in the network, and the simulator's given the noise.

    The simulator gets the same data, the same participants and, coordinate by coordinate, the noise that was drawn.
    """
    privacy = Privacy(**_stated(network)) if network.privacy.get("enabled") else None
    federation = privacy.bounded(network.federation) if privacy else network.federation
    accepted = _accepted(network)
    clean, noise = _recorded(network) if privacy else ({}, None)
    engine, layout = _replaying_engine(network, federation, accepted, noise)
    place = _places(federation, layout)
    largest = 0.0
    for number in sorted(accepted):
        state = engine.play()
        for client in accepted[number] if privacy else ():
            largest = max(largest, float(np.abs(state.model[place[client]] - clean[client][number]).max()))
    for site, clusters in _models(network).items():
        server = federation.server_ids.index(site)
        for cluster, model in clusters.items():
            q = federation.cluster_ids.index(cluster) if engine.algorithm.personalised else 0
            (row,) = np.flatnonzero((layout.pair_server == server) & (layout.pair_cluster == q))
            largest = max(largest, float(np.abs(engine.state.server_models[row] - model).max()))
    return largest


def _replaying_engine(
    network: LocalNetwork,
    federation: Federation,
    accepted: Mapping[int, list[str]],
    noise: Mapping[str, ByRound] | None,
) -> tuple[Engine, Layout]:
    """An engine that lets exactly these clients take part in each round, with exactly this noise."""
    algorithm = network.training.build_algorithm()
    layout = lay_out([federation], 0, algorithm.personalised)
    place = _places(federation, layout)
    w_norm = None if noise is None else network.privacy.get("w_norm")
    objectives = {q: network.training.build_objective(q, w_norm) for q in federation.cluster_ids}
    blocks: Any = prepare(layout, objectives, algorithm.rho, np.float64)
    engine = Engine(
        layout,
        blocks,
        algorithm,
        _TookPart({n: np.sort([place[c] for c in names]).astype(np.int64) for n, names in accepted.items()}),  # type: ignore[arg-type]
        noise=None if noise is None else _Replayed({place[client]: rows for client, rows in noise.items()}),
    )
    return engine, layout


@dataclass
class _Replayed:
    """A noise source that adds what the clients drew: noise[client][round]."""

    noise: Mapping[int, Mapping[int, Floats]]

    def release(self, models: Floats, sigma: AnyFloats, clients: Ints, round: int) -> Floats:
        drawn = [self.noise[client][round] for client in clients.tolist()]
        return models + np.array(drawn).reshape(models.shape)


@dataclass
class _TookPart:
    """A scheduler that lets exactly those take part whose answers the sites accepted."""

    by_round: Mapping[int, Ints]
    everyone_always: bool = False

    def draw(self, round: int) -> Ints:
        return self.by_round[round]


def _stated(network: LocalNetwork) -> dict[str, Any]:
    return {key: value for key, value in network.privacy.items() if key != "enabled"}


def _places(federation: Federation, layout: Layout) -> dict[str, int]:
    """The row of each client in the engine's arrays."""
    return {federation.client_id(k): int(flat) for k, flat in enumerate(layout.runs[0].position)}


def _accepted(network: LocalNetwork) -> dict[int, list[str]]:
    accepted: dict[int, list[str]] = {}
    for site in network.federation.server_ids:
        for row in network.history(site):
            accepted.setdefault(row["round"], []).extend(row["accepted"])
    return accepted


def _recorded(network: LocalNetwork) -> tuple[dict[str, ByRound], dict[str, ByRound]]:
    """Clean models and noise of every client by round, from its ledger and the recording beside it."""
    clean: dict[str, ByRound] = {}
    noise: dict[str, ByRound] = {}
    for client in network.federation.client_ids:
        clean[client], noise[client] = {}, {}
        with Ledger.read(network.home(client) / LEDGER) as ledger:
            rounds = {row.number: int(row.round_key.rpartition("/")[2]) for row in ledger.rows()}
        for number, round in rounds.items():
            model, released = np.load(network.home(client) / NOISE / f"{number:06d}.npy", allow_pickle=False)
            clean[client][round], noise[client][round] = model, released - model
    return clean, noise


def _models(network: LocalNetwork) -> dict[str, dict[str, Floats]]:
    models: dict[str, dict[str, Floats]] = {}
    for site in network.federation.server_ids:
        saved = network.arrays(site)
        if saved is not None:
            names = json.loads(str(saved[1]["about"]))["clusters"]
            models[site] = dict(zip(names, saved[1]["state.model"], strict=True))
    return models
