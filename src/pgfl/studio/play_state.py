"""What is being played: a preset with changes, which is also the address of the page."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any
from urllib.parse import urlencode

import tomli_w

from pgfl.config import Config, parse
from pgfl.config.files import apply_override, presets, read_settings
from pgfl.config.schema import TRAINED_BY_GRADIENT, AlgorithmSettings
from pgfl.errors import ConfigError
from pgfl.studio.figure_presets import Figure, figures
from pgfl.suggestions import nearest

FIRST = STORY = "story"
STORY_SETTINGS: Mapping[str, Any] = {
    "rounds": 80,
    "data": {
        "kind": "synthetic-regression",
        "clients_per_server": 12,
        "dimension": 20,
        "samples": [30, 60],
        "gamma": 0.3,
        "observation_noise": 4.0,
        "x_norm": 4.472136,
    },
    "graph": {"kind": "none", "mixing": "clients"},
    "objective": {"kind": "huber", "lam": 0.001, "kappa": 2.0},
    "algorithm": {"client": "gradient", "rho": 6.0, "tau": 0.0},
    "privacy": {
        "enabled": False,
        "epsilon": 8.0,
        "trust": "masked",
        "zeta": 0.985,
        "max_releases": 80,
        "index": "release",
        "x_norm": 4.472136,
        "y_bound": 40.0,
    },
}
TOO_LARGE = ("million-clients",)
PREVIEW_ROUNDS, PREVIEW_SHARE = 20, 5
METRICS = {"synthetic-regression": "nmsd", "mnist": "accuracy"}
PRIVATE_RHO, PRIVATE_KAPPA = 30.0, 1.0  # of the paper's figures with a guarantee


@dataclass(frozen=True)
class PlayState:
    """A preset and the keys that differ from it, as TOML values by dotted key.

    >>> state = PlayState("fig1").changed("algorithm.tau", 0.2)
    >>> state.address()
    '/?preset=fig1&set=algorithm.tau%3D0.2'
    >>> state.config().algorithm.tau
    0.2
    """

    preset: str = FIRST
    changes: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of_query(cls, preset: str | None, changes: Iterable[str]) -> PlayState:
        """Return the state that an address names; a preset that does not exist is an error."""
        name = preset or FIRST
        if name not in choices():
            raise ConfigError(f"There is no preset {name!r}{nearest(name, choices())}; choose one of the list.")
        pairs = (text.partition("=") for text in changes)
        return cls(name, tuple((key.strip(), value.strip()) for key, _, value in pairs))

    def query(self) -> str:
        """Return the part of an address that names this state."""
        return urlencode([("preset", self.preset), *(("set", f"{key}={value}") for key, value in self.changes)])

    def address(self, path: str = "/") -> str:
        """Return the address of this state."""
        return f"{path}?{self.query()}"

    def changed(self, key: str, value: object) -> PlayState:
        """With another value of a key."""
        kept = tuple(pair for pair in self.changes if pair[0] != key)
        return replace(self, changes=(*kept, (key, toml_value(value))))

    def without(self, *prefixes: str) -> PlayState:
        """Without the changes of these keys and of those below them."""
        gone = tuple(f"{prefix}." for prefix in prefixes)
        return replace(
            self, changes=tuple(c for c in self.changes if c[0] not in prefixes and not c[0].startswith(gone))
        )

    def config(self) -> Config:
        """Return the config; what is wrong with it is a ConfigError."""
        settings = copy.deepcopy(dict(base_settings(self.preset)))
        for key, value in self.changes:
            apply_override(settings, f"{key}={value}")
        settings["name"] = self.preset
        privacy = settings.get("privacy")
        if isinstance(privacy, dict) and any(key == "privacy.epsilon" for key, _ in self.changes):
            for schedule in ("phi0", "phi1"):
                privacy.pop(schedule, None)
        return parse(settings)

    def with_privacy(self, epsilon: float) -> PlayState:
        """With a target ε; where the preset has no guarantee, with the loss and the bounds of the paper's figures
        that have one.
        """
        config, state = self.config(), self.changed("privacy.epsilon", epsilon).changed("privacy.enabled", True)
        if config.privacy.enabled and config.privacy.guarantee == "required":
            return state
        state = state.changed("privacy.guarantee", "required")
        if (dimension := getattr(config.data, "dimension", None)) is not None:
            length = round(math.sqrt(dimension), 6)
            state = state.changed("data.x_norm", length).changed("privacy.x_norm", length)
        else:
            state = state.changed("privacy.x_norm", 1.0)
        if config.objective.kind == "ridge":
            state = state.changed("objective.kind", "huber").changed("objective.kappa", PRIVATE_KAPPA)
            state = state.changed("algorithm.rho", PRIVATE_RHO)
        return state

    def without_privacy(self) -> PlayState:
        """Without privacy; everything else stays."""
        return self.without("privacy").changed("privacy.enabled", False)


@cache
def choices() -> dict[str, str]:
    """Return every preset that can be played, with its title."""
    own = {name: name for name in presets() if _is_playable(name)}
    return {STORY: "The first minute"} | {name: figure.title for name, figure in figures().items()} | own


def _is_playable(name: str) -> bool:
    return not name.startswith("paper-") and name not in TOO_LARGE


def figure_of(preset: str) -> Figure | None:
    """Return the figure of the paper that a preset plays."""
    return figures().get(preset)


@cache
def base_settings(preset: str) -> Mapping[str, Any]:
    """Return what a preset states, with one run and only the metric that is drawn."""
    figure = figures().get(preset)
    settings = dict(STORY_SETTINGS) if preset == STORY else figure.settings() if figure else read_settings(preset)[0]
    kind = settings.get("data", {}).get("kind", "synthetic-regression")
    return {**settings, "runs": 1, "metrics": [METRICS[kind]]}


def preview_of(config: Config) -> Config:
    """Return the first rounds only, for a picture while a slider moves."""
    rounds = max(min(PREVIEW_ROUNDS, config.rounds), config.rounds // PREVIEW_SHARE)
    every = max(config.record_every, min(rounds, rounds // 20))
    return config.model_copy(update={"rounds": rounds, "record_every": max(1, every)})


def comparison_configs(config: Config) -> dict[str, Config]:
    """Return the configs of the curves to compare with: FedAvg, and the same training with isolated servers."""
    found: dict[str, Config] = {}
    if config.algorithm.kind != TRAINED_BY_GRADIENT:
        own = config.algorithm
        same = {key: getattr(own, key) for key in ("participants", "local_steps", "full_records", "count")}
        fedavg = AlgorithmSettings.model_validate(
            {"kind": TRAINED_BY_GRADIENT, **same, "step_size": fedavg_step(config)}
        )
        found["FedAvg"] = config.model_copy(update={"algorithm": fedavg})
    if config.graph.kind != "none":
        alone = config.graph.model_copy(update={"kind": "none"})
        found["servers isolated"] = config.model_copy(update={"graph": alone})
    return found


def fedavg_step(config: Config) -> float | str:
    """Return a step that does FedAvg justice: chosen from the data as ρ is or, with privacy, as long as PGFL's.

    Its local steps together then have the sensitivity of PGFL's step of 1/ρ, and so the same noise. Where the noise
    guarantees nothing, the step is that of the paper's figure.
    """
    own, privacy = config.algorithm, config.privacy
    if privacy.enabled and privacy.guarantee == "none":
        return own.step_size
    if privacy.enabled and not isinstance(own.rho, str):
        longest = 0.99 / ((privacy.x_norm or 1.0) ** 2 + config.objective.lam)  # beyond, steps may spread apart
        return float(f"{min(1.0 / (own.rho * own.local_steps), longest):.3g}")
    return "auto"


def toml_value(value: object) -> str:
    """Return a value as TOML spells it.

    >>> toml_value({"start": 0.4, "decay": 0.98}), toml_value("all"), toml_value(True)
    ('{ start = 0.4, decay = 0.98 }', '"all"', 'true')
    """
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {toml_value(item)}" for key, item in value.items()) + " }"
    return tomli_w.dumps({"v": value}).partition("=")[2].strip()
