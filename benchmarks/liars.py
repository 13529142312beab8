"""How much lying clients and lying sites cost, with and without public bounds: `python benchmarks/liars.py`.

Ten sites on a ring with five clients each train a Huber regression in memory, with the roles of the real network. One
client of every site lies, a fifth of all, or one site of the ten does. Takes about a minute.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from pgfl import PGFL, Huber
from pgfl.algorithms.roles import Answer, Client, Publication, Server
from pgfl.arrays import Floats
from pgfl.federation.graphs import ring
from pgfl.federation.synthetic import synthetic_regression
from pgfl.network.site.bounds import ClientBound, UsualDistance
from pgfl.network.site.role import SiteRole
from pgfl.objectives import Bounds

SITES, CLIENTS, DIMENSION, ROUNDS, NOISE = 10, 5, 10, 60, 0.02
ALGORITHM, OBJECTIVE = PGFL(rho=4.0, tau=0.05), Huber(lam=0.001, kappa=1.0)
X_NORM, NEIGHBOUR_RADIUS = 4.0, 0.3
HUGE = 3e8  # in every coordinate: a norm of 9·10⁸
Lie = Callable[[Floats, Floats, Floats], Floats]
"""From the public centre, the honest update from it, and the honest updates of all clients of the site."""

CLIENT_LIES: dict[str, Lie] = {
    "nobody lies": lambda centre, update, others: centre + update,
    "huge": lambda centre, update, others: np.full_like(centre, HUGE),
    "sign flip, 10 times": lambda centre, update, others: centre - 10.0 * update,
    "ALIE": lambda centre, update, others: centre + others.mean(axis=0) - 1.5 * others.std(axis=0),
    "inner product": lambda centre, update, others: centre - 4.0 * others.mean(axis=0),
}
SITE_LIES: dict[str, Callable[[Floats, Floats], Floats]] = {
    "huge": lambda own, theirs: np.full_like(own, HUGE),
    "sign flip": lambda own, theirs: -own,
    "dissensus": lambda own, theirs: theirs - 5.0 * (own - theirs),
}
"""What a lying site sends a neighbour, from its own model and the neighbour's."""


class Network:
    """All sites and clients; `lie` is told by the first client of every site, `site_lie` by the first site."""

    def __init__(self, bounds: str, lie: Lie | None = None, site_lie: str | None = None) -> None:
        federation = synthetic_regression(
            servers=SITES, clients_per_server=CLIENTS, clusters=1, dimension=DIMENSION, samples=(40, 60),
            graph=ring(SITES), x_norm=X_NORM, seed=1,
        )  # fmt: skip
        self.truth = np.asarray(federation.truth)[0]
        self.chance, self.lie, self.site_lie = np.random.default_rng(2), lie, site_lie
        self.near = {str(s): [str(p) for p in federation.graph.neighbours(s)] for s in range(SITES)}
        self.clients = {
            f"{s}-{k}": Client(OBJECTIVE, ALGORITHM, *federation.rows(index))
            for s in range(SITES)
            for k, index in enumerate(np.flatnonzero(federation.client_server == s).tolist())
        }
        stated = bounds == "stated"
        bound = ClientBound(ALGORITHM, {"q": OBJECTIVE}, Bounds(X_NORM), NOISE) if stated else None
        self.sites = {
            s: SiteRole(
                Server(ALGORITHM, DIMENSION, self.near[s]),
                {name: "q" for name in self.clients if name.startswith(f"{s}-")},
                bound=bound,
                neighbour_radius=NEIGHBOUR_RADIUS if stated else None,
                usual=UsualDistance(10.0 if bounds == "default" else np.inf),
            )
            for s in self.near
        }

    def play(self, round: int) -> None:
        """One round of the whole network."""
        sent = {s: site.aggregate(round, self._answers(s, site, round)) for s, site in self.sites.items()}
        for s, site in self.sites.items():
            site.combine(round, {p: self._published(p, s, sent) for p in self.near[s]})

    def _answers(self, s: str, site: SiteRole, round: int) -> dict[str, Answer]:
        answers, centres = {}, {}
        for name in site.clients:
            request, client = site.request(name, round), self.clients[name]
            answers[name] = client.answer(request, lambda m: m + NOISE * self.chance.normal(size=DIMENSION))
            model = np.zeros(DIMENSION) if request.model is None else request.model
            modulus = np.float64(client.strong_convexity(request.server_clients))
            centres[name] = ALGORITHM.client_rule.centre(model, client.dual, modulus, np.float64(client.records))
        updates = np.array([answers[name].model - centres[name] for name in site.clients])
        liar = f"{s}-0"
        if self.lie is not None:
            said = self.lie(centres[liar], updates[0], updates)
            answers[liar] = replace(answers[liar], model=said)
            self.clients[liar].sent = (round, said)
        return {name: answer for name, answer in answers.items() if site.judge(name, answer) is None}

    def _published(self, sender: str, receiver: str, sent: dict[str, Publication]) -> Publication:
        if self.site_lie is None or sender != "0" or "q" not in sent[receiver].models:
            return sent[sender]
        said = SITE_LIES[self.site_lie](sent[sender].models["q"], sent[receiver].models["q"])
        return replace(sent[sender], models={"q": said})

    def error(self) -> float:
        """The mean over honest sites of ‖w − truth‖²/‖truth‖²; infinite once numbers are absurd."""
        models = [site.server.model("q") for s, site in self.sites.items() if not (self.site_lie and s == "0")]
        found = np.mean([np.sum((model - self.truth) ** 2) for model in models]) / np.sum(self.truth**2)
        return float(found) if np.isfinite(found) else float("inf")


def outcome(bounds: str, client_lie: str | None = None, site_lie: str | None = None, rounds: int = ROUNDS) -> float:
    """The error after some rounds."""
    network = Network(bounds, CLIENT_LIES[client_lie] if client_lie else None, site_lie)
    with np.errstate(all="ignore"):
        for round in range(1, rounds + 1):
            network.play(round)
    return network.error()


def table() -> list[tuple[str, float, float, float]]:
    """Who lies and how, and the error without bounds, with those by default, and with stated ones."""
    rows = [(f"a fifth of the clients: {name}", {"client_lie": name}) for name in CLIENT_LIES if name != "nobody lies"]
    rows += [(f"one site of ten: {name}", {"site_lie": name}) for name in SITE_LIES]
    return [
        (name, outcome("none", **how), outcome("default", **how), outcome("stated", **how))
        for name, how in [("nobody", {}), *rows]
    ]


def figure(rows: list[tuple[str, float, float, float]], path: Path) -> None:
    """Bars of both errors."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    drawn, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    place = np.arange(len(rows))
    for shift, column, label in ((0.27, 1, "none"), (0.0, 2, "by default"), (-0.27, 3, "stated")):
        axes.barh(place + shift, [min(float(row[column]), 1e18) for row in rows], height=0.25, label=label)
    axes.set_yticks(place, [row[0] for row in rows])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("‖w − truth‖² / ‖truth‖² after 60 rounds")
    axes.legend()
    drawn.savefig(path, dpi=110)


def main() -> None:
    """Print the table, and draw it if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figure", type=Path, help="draw the table to this file")
    options = parser.parse_args()
    rows = table()
    print("| who lies | without bounds | by default | with stated bounds |\n|---|---|---|---|")
    for name, free, default, stated in rows:
        print(f"| {name} | {free:.2g} | {default:.2g} | {stated:.2g} |")
    if options.figure:
        figure(rows, options.figure)


if __name__ == "__main__":
    main()
