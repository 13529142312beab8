"""The controls of the Play view: which keys of a config they move, and how far."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, get_args

from pgfl.algorithms.algorithms import ALGORITHMS
from pgfl.algorithms.client_rules import CLIENT_RULES
from pgfl.config import Config
from pgfl.config.schema import TRAINED_BY_GRADIENT, Decay
from pgfl.federation.graphs import GRAPHS
from pgfl.objectives import OBJECTIVES
from pgfl.privacy.trust import Level
from pgfl.studio.play_state import PlayState

STEPS = 100  # of a logarithmic slider, from one end to the other


@dataclass(frozen=True)
class Slider:
    """A number that is moved: its keys, its range, and how it is read from a config and written to a state."""

    name: str
    label: str
    help: str
    keys: tuple[str, ...]  # in the sentences of the program
    low: float
    high: float
    step: float
    read: Callable[[Config], float | None]
    write: Callable[[PlayState, Config, float], PlayState]
    log: bool = False
    whole: bool = False

    def limits(self, config: Config) -> tuple[float, float]:
        """Return the ends of the slider."""
        high = float(_clients(config)) if self.name == "participants" else self.high
        return self.low, high

    def position(self, value: float) -> float:
        """Return where the slider stands for a value."""
        return math.log10(max(value, 1e-12)) if self.log else value

    def value(self, position: float) -> float:
        """Return the value at a position, rounded to three figures where the slider is logarithmic."""
        value = float(f"{10.0**position:.3g}") if self.log else float(f"{position:.6g}")
        return round(value) if self.whole else value

    def shown(self, value: float) -> str:
        """Return the value as text."""
        return f"{value:.6g}"


def _tau(config: Config) -> tuple[float, float]:
    tau = config.algorithm.tau
    if isinstance(tau, Decay):
        return tau.start, tau.decay
    return (float(tau), 1.0) if not isinstance(tau, str) else (0.0, 1.0)


def _with_tau(state: PlayState, start: float, decay: float) -> PlayState:
    return state.without("algorithm.tau").changed(
        "algorithm.tau", start if decay == 1.0 else {"start": start, "decay": decay}
    )


def _learns_from_clusters(config: Config) -> bool:
    return config.algorithm.kind != TRAINED_BY_GRADIENT


def _learns_by_number(config: Config) -> bool:
    return _learns_from_clusters(config) and not isinstance(config.algorithm.tau, str)


def _clients(config: Config) -> int:
    return int(getattr(config.data, "clients_per_server", 1))


def _participants(config: Config) -> float:
    chosen = config.algorithm.participants
    return float(_clients(config) if chosen == "all" else min(int(chosen), _clients(config)))


def _with_participants(state: PlayState, config: Config, value: float) -> PlayState:
    everyone = value == _clients(config)
    return state.changed("algorithm.participants", "all" if everyone else _number(value))


def _records(config: Config) -> float | None:
    samples = getattr(config.data, "samples", None)
    return float(samples[1]) if samples else None


def _with_records(state: PlayState, config: Config, value: float) -> PlayState:
    """Another most; the least keeps its share of it."""
    samples = getattr(config.data, "samples", None) or (1, 1)
    least = max(1, round(value * samples[0] / samples[1])) if value >= 1 else value
    return state.changed("data.samples", [least, _number(value)])


def _rho(config: Config) -> float | None:
    rho = config.algorithm.rho
    return float(rho) if _learns_from_clusters(config) and not isinstance(rho, str) else None


def _synthetic(key: str) -> Callable[[Config], float | None]:
    return lambda config: float(getattr(config.data, key)) if hasattr(config.data, key) else None


def _number(value: float) -> float | int:
    return int(value) if float(value).is_integer() else value


def _sets(key: str, *, whole: bool = False) -> Callable[[PlayState, Config, float], PlayState]:
    return lambda state, config, value: state.changed(key, _number(value) if whole else float(value))


SLIDERS = (
    Slider(
        "tau", "τ", "how much of a cluster’s model is borrowed from the other clusters; 0 = none",
        ("algorithm.tau", "algorithm.tau.start"),
        0.0, 0.95, 0.01,
        lambda c: _tau(c)[0] if _learns_by_number(c) else None, lambda s, c, v: _with_tau(s, v, _tau(c)[1]),
    ),
    Slider(
        "decay", "decay of τ", "τ is multiplied by this in every round", ("algorithm.tau.decay",), 0.9, 1.0, 0.001,
        lambda c: _tau(c)[1] if _learns_by_number(c) else None, lambda s, c, v: _with_tau(s, _tau(c)[0], v),
    ),
    Slider(
        "rho", "ρ", "how strongly clients are held to their server’s model; large = small, steady steps",
        ("algorithm.rho",), -1.0, 2.0, 0.02, _rho,
        _sets("algorithm.rho"), log=True,
    ),
    Slider(
        "participants", "participants", "clients of each server that take part in a round",
        ("algorithm.participants",), 1, 15, 1, _participants, _with_participants, whole=True,
    ),
    Slider(
        "gamma", "spread of clusters", "how far the clusters' true models differ (γ)", ("data.gamma",), 0.0, 1.0, 0.01,
        _synthetic("gamma"), _sets("data.gamma"),
    ),
    Slider(
        "records", "records per client", "the most that a client has", ("data.samples",), 0.3, 2.3, 0.02, _records,
        _with_records, log=True, whole=True,
    ),
    Slider(
        "noise", "observation noise", "standard deviation of the labels' noise", ("data.observation_noise",),
        0.0, 3.0, 0.05, _synthetic("observation_noise"), _sets("data.observation_noise"),
    ),
    Slider(
        "rounds", "rounds", "how long training lasts", ("rounds",), 10, 500, 10, lambda c: float(c.rounds),
        _sets("rounds", whole=True), whole=True,
    ),
)  # fmt: skip
EPSILON = Slider(
    "epsilon", "ε", "each client's whole privacy budget", ("privacy.epsilon",), -1.0, 3.0, 0.02,
    lambda c: c.privacy.epsilon if c.privacy.enabled else None, lambda s, c, v: s.with_privacy(float(v)),
    log=True,
)  # fmt: skip
DIGITS_EPSILON = replace(EPSILON, name="digits-epsilon", help="less noise to the right: from noise to strokes")


@dataclass(frozen=True)
class Choice:
    """A setting with a few values, as the config's schema names them."""

    name: str
    label: str
    keys: tuple[str, ...]
    options: Callable[[Config], dict[str, str]]
    read: Callable[[Config], str | None]
    key: str


def _same(values: tuple[Any, ...]) -> Callable[[Config], dict[str, str]]:
    return lambda config: {str(value): _WORDS.get(str(value), str(value)) for value in values}


def _losses(config: Config) -> dict[str, str]:
    task = OBJECTIVES[config.objective.kind].task
    return {kind: kind for kind in OBJECTIVES.built_in if OBJECTIVES[kind].task == task}


_WORDS = {
    "pgfl": "PGFL",
    "pgfl-exact": "PGFL, exact mixing",
    "pgfl-onestep": "PGFL, one-step",
    "fedavg": "FedAvg",
    "admm": "solves its problem (ADMM)",
    "gradient": "one gradient step",
}
TRUST_WORDS = {
    "local": "local: nobody is trusted",
    "site": "site: its server is trusted",
    "masked": "masked: only sums are seen",
}
CHOICES = (
    Choice("algorithm", "algorithm", ("algorithm.kind",), _same(ALGORITHMS.built_in),
           lambda c: c.algorithm.kind, "algorithm.kind"),
    Choice("client", "a client", ("algorithm.client",), _same(CLIENT_RULES.built_in),
           lambda c: c.algorithm.client if _learns_from_clusters(c) else None, "algorithm.client"),
    Choice("objective", "loss", ("objective.kind",), _losses, lambda c: c.objective.kind, "objective.kind"),
    Choice("graph", "server graph", ("graph.kind",),
           _same(GRAPHS.built_in),
           lambda c: c.graph.kind, "graph.kind"),
)  # fmt: skip
TRUST_CHOICE = Choice(
    "trust", "trust level", ("privacy.trust",), lambda config: {level: TRUST_WORDS[level] for level in get_args(Level)},
    lambda c: c.privacy.trust if c.privacy.enabled else None, "privacy.trust",
)  # fmt: skip


def owner_of(sentence: str) -> str | None:
    """Return the control that a sentence of the program is about, by the key that it names.

    >>> owner_of("`algorithm.rho` must be above 0; got -1.0.")
    'rho'
    """
    controls = (*SLIDERS, EPSILON, *CHOICES, TRUST_CHOICE)
    named = {f"`{key}`": control.name for control in controls for key in control.keys}
    found = [(sentence.find(key), name) for key, name in named.items() if key in sentence]
    return min(found)[1] if found else None


def implied(before: Config, after: Config, control: str) -> str:
    """Return what else a change of a control has changed, in a sentence; nothing if it changed itself alone."""
    found = []
    for one in (*SLIDERS, *CHOICES):
        old, new = one.read(before), one.read(after)
        if one.name != control and old is not None and new is not None and old != new:
            words = [
                _WORDS.get(str(value), f"{value:.6g}" if isinstance(value, float) else value) for value in (old, new)
            ]
            found.append(f"{one.label} from {words[0]} to {words[1]}")
    return f"This also changes {', '.join(found)}." if found else ""


def choose(state: PlayState, choice: Choice, value: str) -> PlayState:
    """With another value of a choice."""
    chosen = state.changed(choice.key, value)
    if choice.name == "algorithm" and value == TRAINED_BY_GRADIENT:
        return chosen.without("algorithm.client").changed("algorithm.client", "admm")
    if choice.name == TRUST_CHOICE.name and value != "local":
        return chosen.changed("algorithm.client", "gradient")
    return chosen
