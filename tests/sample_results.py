"""A small made-up result, for tests of files, pages and the command line."""

import numpy as np

from pgfl.config import parse
from pgfl.privacy.card import PrivacyCard
from pgfl.results.result import Network, Result, RunModels

CARD = PrivacyCard(
    label="Each client's records are protected",
    epsilon=0.0,
    delta=1e-5,
    unit="one replaced record",
    against="everyone who sees all messages",
    assuming="",
    not_covered="whoever breaks into the device itself",
    releases=0,
    most_releases=9,
    budget=2.0,
)
CLUSTERS = ("adults", "children", "<b>odd & ends</b>")


def sample_result(
    *, runs=1, noise=None, rounds=40, clients=30, servers=5, dimension=4, absent=True, **fields
) -> Result:
    """`noise` None is without privacy. Server 0 has no model for the last cluster where `absent`."""
    rng = np.random.default_rng(1)
    config = parse({"rounds": rounds, "runs": runs, "name": "sample"})
    history = {"run": np.repeat(np.arange(runs), rounds + 1), "round": np.tile(np.arange(rounds + 1), runs)}
    fall = 0.9 ** history["round"] * rng.uniform(0.8, 1.2, len(history["round"])) + 1e-3
    history |= {"nmsd": fall} | {f"nmsd_{q}": fall * (1 + i) / 2 for i, q in enumerate(CLUSTERS)}
    history |= {"primal_residual": fall * 3, "dual_residual": fall * 5, "disagreement": fall / 10}
    models, privacy = [], []
    for _ in range(runs):
        network = Network(
            client_server=rng.integers(servers, size=clients),
            client_cluster=rng.integers(len(CLUSTERS), size=clients),
            edges=np.array([(s, (s + 1) % servers) for s in range(servers)] if servers > 2 else []).reshape(-1, 2),
        )
        pair_server, pair_cluster = (grid.ravel() for grid in np.mgrid[:servers, : len(CLUSTERS)])
        present = np.ones(len(pair_server), dtype=bool)
        present[len(CLUSTERS) - 1] = not absent
        clean = rng.normal(size=(clients, dimension))
        released = None
        if noise:
            released = clean + rng.normal(size=clean.shape)
            released[0] = np.nan
            epsilon = rng.uniform(1, 2, clients)
            privacy.append(
                {
                    "client": np.array([f"client-{k:02d}" for k in range(clients)]),
                    "releases": rng.integers(1, 9, clients),
                    "rho": epsilon / 10,
                    "epsilon": epsilon,
                    "epsilon_paper": epsilon * 1.2,
                    "refused": np.zeros(clients, dtype=int),
                    "guarantee": np.ones(clients, dtype=bool),
                }
            )
        servers_models = rng.normal(size=(len(pair_server), dimension))
        models.append(RunModels(clean, released, pair_server, pair_cluster, servers_models, present, network))
    return Result(
        client_ids=tuple(f"client-{k:02d}" for k in range(clients)),
        server_ids=tuple(f"server-{s}" for s in range(servers)),
        cluster_ids=CLUSTERS,
        objectives=("ridge", "huber", "logistic"),
        models=models,
        history=history,
        config=config,
        clean_history={key: history[key] for key in ("run", "round", "nmsd")} if noise else None,
        privacy=privacy,
        noise=noise,
        terms=CARD if noise else None,
        warnings=("τ is <large>.",),
        seconds=1.25,
        **fields,
    )
