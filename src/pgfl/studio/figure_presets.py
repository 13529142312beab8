"""The nine figures of the paper as configs, with their claims and verdicts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

from pgfl.algorithms.algorithms import PGFL
from pgfl.algorithms.schedules import Decaying
from pgfl.federation.mnist import SECTION_V_B
from pgfl.lab.paper.conditions import DECREASING, DIFFERENT, GUARANTEED, KINDS, TAU, Kind, digits, everyone
from pgfl.lab.paper.experiments import DigitData, RegressionData, Trial

CLAIMS = "claims.json"
STRONG_NOISE = 0.003
RECORD_DIGITS = 10
AGAINST_A_SETTING = 200  # rounds of Figs. 4 and 6


@dataclass(frozen=True)
class Figure:
    """A curve of a figure of the paper, and what the paper claims about it."""

    title: str
    trial: Trial
    fedavg: Mapping[str, Any]
    claims: tuple[ClaimShown, ...]

    def settings(self) -> dict[str, Any]:
        """Return the trial as an unchecked config; FedAvg's steps stand beside it for the comparison."""
        return settings_of_trial(self.trial, self.fedavg)


@dataclass(frozen=True)
class ClaimShown:
    """A claim with the verdict of the reproduction."""

    claim: str
    verdict: str
    here: bool
    where: str | None
    measured: str
    value: float | None
    low: float | None
    high: float | None
    unit: str


@cache
def figures() -> dict[str, Figure]:
    """Return all figures by name, in the order of the paper; those with noise as printed and with a guarantee."""
    found: dict[str, Figure] = {}
    ridge = asdict(KINDS[0].fedavg)
    found["fig1"] = _figure("fig1", "Fig. 1 · all clients, no privacy", everyone(_pgfl(KINDS[0], TAU)), ridge)
    found["fig2"] = _figure("fig2", "Fig. 2 · client scheduling", KINDS[0].pgfl(TAU, private=False), ridge)
    for kind in KINDS:
        own: dict[str, tuple[str, Trial]] = {
            "fig3": ("Fig. 3 · privacy", kind.pgfl(TAU)),
            "fig4": ("Fig. 4 · choosing τ", kind.pgfl(TAU, rounds=AGAINST_A_SETTING)),
            "fig5": ("Fig. 5 · unlike clusters", kind.pgfl(DECREASING, gamma=DIFFERENT)),
            "fig6": ("Fig. 6 · price of privacy", kind.pgfl(TAU, rounds=AGAINST_A_SETTING)),
        }
        for name, (title, trial) in own.items():
            key = name if kind is KINDS[0] else f"{name}-{kind.name}"
            suffix = ", noise with a proven guarantee" if kind is GUARANTEED else ", paper's noise (no guarantee)"
            found[key] = _figure(name, title + suffix, trial, asdict(kind.fedavg), kind.name)
    shown = {
        "fig7": ("Fig. 7 · digits in pairs", "pairs"),
        "fig8": ("Fig. 8 · digits in triplets", "triplets"),
        "fig9": ("Fig. 9 · digits, choosing τ", "triplets"),
    }
    for name, (title, tasks) in shown.items():
        trial = digits(tasks, TAU, None, phi0=STRONG_NOISE, record_every=RECORD_DIGITS)
        found[name] = _figure(name, title, trial, {"step_size": 1.0, "local_steps": 1}, "strong")
    return dict(sorted(found.items()))


def _pgfl(kind: Kind, tau: float) -> PGFL:
    return PGFL(rho=kind.rho, tau=tau)


def _figure(item: str, title: str, trial: Trial, fedavg: Mapping[str, Any], ending: str | None = None) -> Figure:
    chosen = tuple(claim for key, claim in claims(item) if ending is None or key.endswith(ending))
    steps = {key: fedavg[key] for key in ("step_size", "local_steps")}
    return Figure(title, trial, steps, chosen)


def claims(item: str) -> list[tuple[str, ClaimShown]]:
    """Return the claims of an item with their keys, as `pgfl reproduce all` judged them."""
    names = ClaimShown.__dataclass_fields__
    return [(row["key"], ClaimShown(**{name: row[name] for name in names})) for row in _judged() if row["item"] == item]


@cache
def _judged() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((resources.files(__package__) / CLAIMS).read_text("utf-8"))["claims"]
    return rows


def settings_of_trial(trial: Trial, fedavg: Mapping[str, Any]) -> dict[str, Any]:
    """Return an experiment of the reproduction as an unchecked config.

    >>> settings_of_trial(figures()["fig2"].trial, {})["algorithm"]["participants"]
    3
    """
    algorithm = trial.algorithm
    tau = algorithm.tau
    stated = {"start": tau.start, "decay": tau.decay} if isinstance(tau, Decaying) else tau
    privacy = {} if trial.privacy is None else {"enabled": True, **_stated(asdict(trial.privacy))}
    return {
        "rounds": trial.rounds,
        "metrics": list(trial.metrics),
        "record_every": trial.record_every,
        "data": _data(trial.data),
        "graph": {"kind": trial.data.graph if isinstance(trial.data, RegressionData) else "random"},
        "objective": _objective(trial),
        "algorithm": {"kind": algorithm.kind, "rho": float(algorithm.rho), "tau": stated}
        | {"participants": trial.participants, **fedavg},
        **({"privacy": privacy} if privacy else {}),
    }


def _data(data: RegressionData | DigitData) -> dict[str, Any]:
    if isinstance(data, DigitData):
        return {"kind": "mnist", "tasks": data.tasks, "samples": list(SECTION_V_B[data.tasks][1])}
    own = _stated(asdict(replace(data)))
    del own["graph"]
    return {"kind": "synthetic-regression", **own, "samples": list(data.samples)}


def _objective(trial: Trial) -> dict[str, Any]:
    objective = trial.objective
    return {"kind": objective.kind, "lam": objective.lam, **objective.own_settings()}


def _stated(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
