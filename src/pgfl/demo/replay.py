"""A network's training once more, in the simulator, with the participants and the noise that the network recorded."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from pgfl.array_types import Floats
from pgfl.core.federation import Federation
from pgfl.core.roles import EVERYONE
from pgfl.deploy.local import LEDGER, NOISE, LocalNetwork
from pgfl.privacy.ledger import Ledger
from pgfl.privacy.request import Privacy
from pgfl.simulate.flat_layout import Layout
from pgfl.simulate.simulator import Replay, Simulator

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
        state = simulator.play()
        for client in accepted[number] if privacy else ():
            largest = max(largest, float(np.abs(state.model[place[client]] - clean[client][number]).max()))
    for site, clusters in _models(network).items():
        server = federation.server_ids.index(site)
        for cluster, model in clusters.items():
            q = federation.cluster_ids.index(cluster) if simulator.algorithm.personalised else 0
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
    federation, personalised = network.federation, network.training.build_algorithm().personalised
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
            names = json.loads(str(saved[1]["about"]))["clusters"]
            models[site] = dict(zip(names, saved[1]["state.model"], strict=True))
    return models
