"""Cluster discovery beside known clusters and one model: agreement, error and what it costs, on fresh federations.

    python -m benchmarks.discovery --runs 10
    python -m benchmarks.discovery --cells gamma-200-4-local one-200-4-local --runs 2

A cell is data, records of a client, ε and trust; `plain` has no privacy. 150 clients of ten servers, Huber regression
with 60 features, three clusters. NMSD is measured client by client, against the true model of its true cluster.
The rule was found on seeds below 110; these begin at 12,500. One model for all is trained in the first run only.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, replace

import numpy as np

from pgfl import PGFL, Federation, Huber, Privacy, Result, train
from pgfl.lab.paper.experiments import RegressionData
from pgfl.lab.paper.judging import interval
from pgfl.lab.paper.learned_weights import FamilyData
from pgfl.metrics import adjusted_rand_index, decibels
from pgfl.privacy.accounting import exact_rho
from pgfl.privacy.trust import Level

FIRST_SEED = 12_500
ROUNDS, RHO, KAPPA, ZETA = 460, 0.85, 0.8, 0.9925  # those of learned weights at ε = 4


@dataclass(frozen=True)
class Cell:
    """Data, privacy, and the goal: the least adjusted Rand index, and how many dB known clusters may be ahead."""

    data: RegressionData
    epsilon: float | None
    trust: Level = "local"
    least_index: float = 0.0
    most_behind: float = np.inf


@dataclass(frozen=True)
class UnevenData(FamilyData):
    """Three clusters of 15, 45 and 90 clients."""

    clusters: int = 10
    sizes: tuple[int, ...] = (1, 3, 6)  # in tenths

    def federation(self, seed: int, run: int) -> Federation:
        """Ten clusters, of which some are the same."""
        made, owner = super().federation(seed, run), np.repeat(np.arange(3), self.sizes)
        assert made.truth is not None
        truth = made.truth[[0, 1, 4]][owner]
        label = np.repeat(made.client_cluster, made.counts)
        moved = np.einsum("ij,ij->i", made.features, (truth - made.truth)[label])
        made = made.replace(targets=made.targets + moved, truth=truth, generated=True)
        merged = made.in_clusters(owner[made.client_cluster], ("few", "more", "most"))
        return merged.replace(truth=truth[[0, 1, 4]])


GAMMA = RegressionData(observation_noise=0.7, gamma=0.5, x_norm=1.0, samples=(200, 200))
UNRELATED = FamilyData(observation_noise=0.7, gamma=0.0, families=3, clusters=3, x_norm=1.0, samples=(200, 200))
FEWER = {"samples": (50, 100)}
CELLS: dict[str, Cell] = {
    "gamma-200-plain": Cell(GAMMA, None, "local", 0.98, 0.5),
    "gamma-200-4-local": Cell(GAMMA, 4.0, "local", 0.98, 1.0),
    "gamma-200-4-masked": Cell(GAMMA, 4.0, "masked", 0.98, 1.0),
    "unrelated-200-4-local": Cell(UNRELATED, 4.0, "local", 0.98, 1.0),
    "unrelated-200-4-masked": Cell(UNRELATED, 4.0, "masked", 0.98, 1.0),
    "gamma-75-8-local": Cell(replace(GAMMA, **FEWER), 8.0, "local", 0.95, 2.0),
    "gamma-75-8-masked": Cell(replace(GAMMA, **FEWER), 8.0, "masked", 0.95, 2.0),
    "unrelated-75-4-masked": Cell(replace(UNRELATED, **FEWER), 4.0, "masked", 0.0, 4.0),
    "five-200-4-local": Cell(
        FamilyData(observation_noise=0.7, gamma=0.5, families=1, clusters=5, x_norm=1.0, samples=(200, 200)),
        4.0,
        "local",
        0.0,
        4.0,
    ),
    "uneven-200-4-local": Cell(
        UnevenData(observation_noise=0.7, gamma=0.5, families=1, x_norm=1.0, samples=(200, 200)), 4.0, "local", 0.0, 4.0
    ),
    "one-200-4-local": Cell(replace(GAMMA, gamma=0.0), 4.0, "local", 0.0, 0.7),
}


def trained(cell: Cell, federation: Federation, seed: int, *, discover: bool = False) -> Result:
    """One training."""
    privacy = None
    if cell.epsilon is not None:
        privacy = Privacy(
            epsilon=cell.epsilon, zeta=ZETA, max_releases=ROUNDS, index="release", x_norm=1.0, trust=cell.trust
        )
    return train(
        federation, PGFL(RHO, 0.0, "metropolis", "gradient"), Huber(0.001, kappa=KAPPA), rounds=ROUNDS, privacy=privacy,
        seed=seed, metrics=(), record_every=ROUNDS, progress=False, discover=discover, engine="numba", threads=1,
    )  # fmt: skip


def error(result: Result, made: Federation) -> float:
    """NMSD in dB of what every client receives, against its own true model."""
    assert made.truth is not None
    models, network, truth = result.of_run(0), result.of_run(0).network, made.truth[made.client_cluster]
    assert network is not None
    row = {
        pair: n for n, pair in enumerate(zip(models.pair_server.tolist(), models.pair_cluster.tolist(), strict=True))
    }
    places = [row[pair] for pair in zip(network.client_server.tolist(), network.client_cluster.tolist(), strict=True)]
    apart = ((models.servers[places] - truth) ** 2).sum(axis=1) / (truth**2).sum(axis=1)
    return float(decibels(np.mean(apart)))


def measured(name: str, runs: int) -> str:
    """One line of the table."""
    cell, rows, started = CELLS[name], [], time.perf_counter()
    for seed in range(FIRST_SEED, FIRST_SEED + runs):
        made = cell.data.federation(seed, 0)
        one = made.in_clusters(np.zeros(made.size, dtype=np.int64), ("all",))
        single = name.startswith("one")
        known = error(trained(cell, one if single else made, seed), made)
        if seed == FIRST_SEED:
            alone = known if single else error(trained(cell, one, seed), made)
        found = trained(cell, made, seed, discover=True)
        assert found.clusters is not None
        spent = float(found.clusters["rho"].max()) if "rho" in found.clusters else 0.0
        share = spent / exact_rho(cell.epsilon, 1e-5) if cell.epsilon else 0.0
        index = (
            float(len(found.cluster_ids) == 1)
            if single
            else adjusted_rand_index(found.clusters["cluster"], made.client_cluster)
        )
        rows.append((known, alone, error(found, made), index, share))
        print(f"{name} {seed}: " + " ".join(f"{value:.2f}" for value in rows[-1]), file=sys.stderr, flush=True)
    means, worst = np.mean(rows, axis=0), np.array(rows)[:, 3].min()
    behind = interval([row[2] - row[0] for row in rows])
    met = means[3] >= cell.least_index and behind.value <= cell.most_behind
    figures = " | ".join(f"{value:.1f}" for value in means[:3])
    figures += f" | {behind.value:.1f} [{behind.low:.1f}, {behind.high:.1f}]"
    verdict = "met" if met else "missed"
    seconds = time.perf_counter() - started
    return f"| {name} | {figures} | {means[3]:.2f} (worst {worst:.2f}) | {means[4]:.2f} | {verdict} | {seconds:.0f} s |"


def main() -> None:
    """Parse the command line, and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", nargs="*", choices=list(CELLS), default=list(CELLS))
    parser.add_argument("--runs", type=int, default=10)
    options = parser.parse_args()
    print("| cell | known, dB | one model | found | behind | adjusted Rand index | share of ρ | goal | time |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in options.cells:
        print(measured(name, options.runs), flush=True)


if __name__ == "__main__":
    main()
