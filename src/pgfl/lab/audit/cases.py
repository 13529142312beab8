"""What is attacked: for every objective, two records that differ most and the message that makes them matter most.

The others' rows are placed so that the server's centre takes all curvature out of the problem. The records lie beyond
the data bounds on purpose: the package has to clip them, and clipped they are the worst that the bounds allow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from pgfl.algorithms.algorithms import PGFL, Algorithm, FedAvg
from pgfl.arrays import Array, Floats, Ints
from pgfl.federation.federation import Federation
from pgfl.federation.graphs import empty
from pgfl.objectives import Huber, Logistic, MarginObjective, Objective, Ridge, Softmax
from pgfl.privacy import accounting
from pgfl.privacy.request import Privacy

MU = 3.0  # the loss that the schedules below add up to; attacks have most power around it
DEPLOYED_MU = 1.5  # the same for real clients, of which there are few: a smaller claim is refuted by fewer trials
ROUNDS = 3
ZETA = 0.5  # a strong decay, so that a wrong one shows
BEYOND = 5.0  # how many times past its bound the canary is handed in


@dataclass(frozen=True)
class Case:
    """Client data in two worlds, the shipped parts, and the centre that the server forces in every round."""

    name: str
    objective: Objective
    algorithm: Algorithm
    privacy: Privacy
    shared: tuple[Floats, Floats]  # the rows and labels of both worlds
    canaries: tuple[tuple[Floats, float], tuple[Floats, float]]  # the record of world 0, and of world 1
    centre: Floats
    attained: bool = True  # whether the sensitivity is reached, not only bounded
    intercept: bool = False  # whether the last column, of ones, is the client's own doing
    companions: tuple[
        tuple[Floats, Floats], ...
    ] = ()  # the other contributors at the same server, the same in both worlds

    def federation(self, worlds: Ints) -> Federation:
        """A server for every entry of `worlds`, with one client and its companions, as raw data; there are no edges."""
        others = [rows for rows, _ in self.companions], [labels for _, labels in self.companions]
        rows = [np.vstack([self.shared[0], canary[0], *others[0]]) for canary in self.canaries]
        labels = [np.concatenate([self.shared[1], [canary[1]], *others[1]]) for canary in self.canaries]
        size, trials = len(labels[0]), len(worlds)
        counts = np.tile([len(self.shared[1]) + 1, *map(len, others[1])], trials)
        return Federation(
            features=np.stack(rows)[worlds].reshape(size * trials, -1),
            targets=np.stack(labels)[worlds].reshape(-1),
            offsets=np.concatenate([[0], np.cumsum(counts)]),
            client_server=np.repeat(np.arange(trials), self.contributors),
            client_cluster=np.zeros(trials * self.contributors, dtype=np.int64),
            server_ids=tuple(f"{t:07d}" for t in range(trials)),
            cluster_ids=("q",),
            graph=empty(trials),
            generated=True,
        )

    @property
    def contributors(self) -> int:
        """How many clients each server has."""
        return 1 + len(self.companions)

    @property
    def phi(self) -> Floats:
        """What each round spends, as the schedule claims."""
        assert self.privacy.phi1 is not None
        return accounting.phi(self.privacy.phi1 * self.privacy.zeta, self.privacy.zeta, np.arange(1, ROUNDS + 1))


@dataclass(frozen=True)
class Welsch(MarginObjective):
    """κ²(1 − exp(−r²/κ²)) with κ = 1: bounded, and not convex; an objective as a user may write it."""

    kind: ClassVar[str] = "welsch"
    convex: bool = False

    def scalar_loss(self, margin: Array, target: Array) -> Array:
        """1 − exp(−r²)."""
        return 1.0 - margin.__array_namespace__().exp(-((margin - target) ** 2))

    def slope(self, margin: Array, target: Array) -> Array:
        """2r exp(−r²), at most 0.86."""
        rest = margin - target
        return 2.0 * rest * margin.__array_namespace__().exp(-(rest**2))

    def curvature(self, margin: Array, target: Array) -> Array:
        """The positive part of the second derivative, so that steps descend."""
        xp, square = margin.__array_namespace__(), (margin - target) ** 2
        return xp.clip((2.0 - 4.0 * square) * xp.exp(-square), 0.0, None)


def cases() -> list[Case]:
    """All that is attacked."""
    return [*paper_cases(), softmax(), linearised_huber(), linearised_logistic(), linearised_ridge()]


def paper_cases() -> list[Case]:
    """The clients of the paper: they solve their primal problems, or train by FedAvg."""
    return [huber(), logistic(), bounded_ridge(), clipped(), fedavg()]


def deployed_cases() -> list[Case]:
    """What real clients are attacked with."""
    on_device: dict[str, Any] = {"phi1": _first(DEPLOYED_MU), "index": "release"}
    ridges = (bounded_ridge(), linearised_ridge())
    return [
        scattered(),
        linearised(scattered()),
        *(replace(ridge, privacy=replace(ridge.privacy, **on_device)) for ridge in ridges),
    ]


def deployed_site() -> Case:
    """A real site that adds the noise, attacked by a neighbour who works with its other client."""
    case = linearised(scattered())
    trusting = replace(case.privacy, trust="site", contributors=2)
    return replace(case, name="huber, trusted site", privacy=trusting, companions=(case.shared,))


def deployed_masked() -> Case:
    """Real clients of a masked sum: the attacked one, two other honest ones, and two who work with the site.

    Companions have twice the records, so that the sum's noise is that of the attacked client's own Δ.
    """
    case = linearised(scattered())
    hidden = replace(case.privacy, trust="masked", contributors=4, colluders=2, dropouts=0.2)
    rows, labels = case.shared
    companion = np.vstack([rows, rows, rows[:2]]), np.concatenate([labels, labels, labels[:2]])
    return replace(case, name="huber, masked clients", privacy=hidden, companions=(companion,) * 4)


def huber() -> Case:
    """Opposite residuals beyond κ, of a row of full length: Δ = 4κB/(D m) is attained."""
    return Case(
        "huber",
        Huber(lam=0.01),
        PGFL(rho=2.0),
        _privacy(x_norm=1.0),
        _others(),
        ((BEYOND * _axis(0), 3.0), (BEYOND * _axis(0), -3.0)),
        centre=400.0 * _axis(1),
    )


def scattered() -> Case:
    """Huber with κ = 2 on a device, where the record moves several coordinates, the intercept's among them.

    λ is large beside ρ, so that m depends much on |C_s|. Rows are long before they are clipped. The others come in
    pairs whose pulls cancel in those coordinates, so that a wrong treatment of rows does not shift both worlds alike.
    """
    canary = np.array([0.75, 0.0, 1.0])
    return Case(
        "huber, scattered",
        Huber(lam=4.0, kappa=2.0),
        PGFL(rho=0.5),
        Privacy(phi1=_first(DEPLOYED_MU), zeta=ZETA, x_norm=0.2, y_bound=10.0, index="release"),
        (np.array([[0.0, side, 1.0] for side in (1.0, -1.0, 0.5, -0.5)]), np.zeros(4)),
        ((canary, BEYOND * 10.0), (canary, -BEYOND * 10.0)),
        centre=400.0 * _axis(1),
        intercept=True,
    )


def fedavg() -> Case:
    """Huber again, by local gradient steps: Δ = steps · step · 4κB/D, attained but for the regulariser's pull."""
    first = huber()
    return Case(
        "huber, fedavg",
        Huber(lam=0.001),
        FedAvg(step_size=0.1, local_steps=5),
        first.privacy,
        first.shared,
        first.canaries,
        first.centre,
    )


def logistic() -> Case:
    """Rows nearly alike on either side of a huge model, with the labels it denies: Δ = 2B/(D m) is approached."""
    tilt, rows = 0.015, _others()[0]
    ahead = (1.0 - tilt**2) ** 0.5
    return Case(
        "logistic",
        Logistic(lam=0.01),
        PGFL(rho=2.0),
        _privacy(x_norm=1.0, index="release"),
        (rows, np.array([0.0, 1.0, 0.0])),
        (
            (BEYOND * (ahead * _axis(0) + tilt * _axis(1)), 0.0),
            (BEYOND * (ahead * _axis(0) - tilt * _axis(1)), 1.0),
        ),
        centre=2000.0 * _axis(1),
    )


def softmax() -> Case:
    """The logistic case with a third class: p ≈ e_1 and e_2, labels 2 and 1; Δ = 2√2·B/(D m) is approached."""
    first = logistic()
    (one, _), (other, _) = first.canaries
    return Case(
        "softmax",
        Softmax(lam=0.01, classes=3),
        PGFL(rho=2.0),
        first.privacy,
        (first.shared[0], np.array([0.0, 1.0, 2.0])),
        ((one, 1.0), (other, 0.0)),
        centre=np.concatenate([0.5 * first.centre, -0.5 * first.centre, 0.0 * first.centre]),
    )


def bounded_ridge() -> Case:
    """The best two records where Y = BW: at 60° and 120° to a model at the edge of its ball, with opposite labels.

    They reach 0.87 of Δ. Labels that may be far larger than BW reach all of it, but with models that hardly matter.
    """
    return Case(
        "ridge, bounded",
        Ridge(lam=0.01),
        PGFL(rho=40.0),
        _privacy(x_norm=1.0, y_bound=1.0, w_norm=1.0),
        (0.3 * np.tile(_axis(2), (3, 1)), np.zeros(3)),
        (
            (BEYOND * (np.cos(np.pi / 3) * _axis(0) + np.sin(np.pi / 3) * _axis(1)), -BEYOND),
            (BEYOND * (-np.cos(np.pi / 3) * _axis(0) + np.sin(np.pi / 3) * _axis(1)), BEYOND),
        ),
        centre=_axis(0),
        attained=False,
    )


def linearised(case: Case) -> Case:
    """The same with one gradient step instead of a solution; it is as large as ρ makes it, whatever λ and |C_s| are."""
    return replace(case, name=f"{case.name}, linearised", algorithm=PGFL(rho=case.algorithm.rho, client="gradient"))


def linearised_huber() -> Case:
    """Opposite residuals beyond κ, of a row of full length: Δ = 4κB/(D ρ) is attained."""
    return linearised(huber())


def linearised_logistic() -> Case:
    """Δ = 2B/(D ρ) is approached at a huge model."""
    return linearised(logistic())


def linearised_ridge() -> Case:
    """The server sends a model far outside the ball: the step must be taken from its projection."""
    case = linearised(bounded_ridge())
    return replace(case, centre=400.0 * case.centre)


def pair_cases() -> list[Case]:
    """What is attacked where only the noised sum over a server's clients is released."""
    return [site(), masked()]


def site() -> Case:
    """A neighbour sees noised aggregates, and knows the data of all clients but one."""
    return _shared_by_four("huber, site", trust="site")


def masked() -> Case:
    """The server works with two of four contributors, who tell it what they handed in, noise and all."""
    return _shared_by_four("huber, masked", trust="masked", colluders=2, dropouts=0.0)


def _shared_by_four(name: str, **trust: Any) -> Case:
    """Companions have twice the records, so that the sum's noise is that of the attacked client's own Δ."""
    case, (rows, labels) = linearised_huber(), _others()
    companion = np.vstack([rows, rows, rows[:2]]), np.concatenate([labels, labels, labels[:2]])
    return replace(case, name=name, privacy=replace(case.privacy, **trust), companions=(companion,) * 3)


def clipped() -> Case:
    """A loss that is not convex, with updates pushed past the radius on opposite sides: Δ = 2R is attained."""
    return Case(
        "clipped updates",
        Welsch(lam=0.01),
        PGFL(rho=2.0),
        _privacy(update_norm=0.05, index="release"),
        _others(),
        ((_axis(0), 0.7), (_axis(0), -0.7)),
        centre=400.0 * _axis(1),
    )


def _privacy(**bounds: Any) -> Privacy:
    return Privacy(phi1=_first(MU), zeta=ZETA, **bounds)


def _first(mu: float) -> float:
    """φ(1) of the schedule that adds up to a loss of μ."""
    return 0.5 * mu**2 / float(accounting.growth(ZETA, 0, ROUNDS - 1))


def _others() -> tuple[Floats, Floats]:
    return np.array([[0.2, 0.6, 0.4], [-0.3, -0.7, 0.1], [0.1, 0.5, -0.6]]), np.array([0.4, -0.2, 1.0])


def _axis(number: int) -> Floats:
    return np.asarray(np.eye(3)[number], dtype=np.float64)
