"""A config as a Python program that trains the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, cast

from pgfl.algorithms.algorithms import ALGORITHMS
from pgfl.config import Config
from pgfl.config.schema import Decay
from pgfl.config.table_data import TableData
from pgfl.federation.declarations import Column
from pgfl.objectives import OBJECTIVES
from pgfl.privacy.request import Privacy

WIDTH = 100


def python_text(config: Config) -> str:
    """Return the program; tests run it and compare."""
    names = {"train"}
    parts = [
        f"federation = {_federation(config, names)}",
        f"algorithm = {_algorithm(config, names)}",
        f"objective = {_objective(config, names)}",
    ]
    arguments = ["federation", "algorithm", "objective", f"rounds={config.rounds}"]
    if config.algorithm.participants != "all":
        arguments.append(f"participants={config.algorithm.participants!r}")
    if config.privacy.enabled:
        parts.append(f"privacy = {_privacy(config, names)}")
        arguments.append("privacy=privacy")
    plain = {"seed": (config.seed, 0), "runs": (config.runs, 1), "record_every": (config.record_every, 1)}
    arguments += [f"{key}={value!r}" for key, (value, default) in plain.items() if value != default]
    arguments.append(f"metrics={list(config.metrics)!r}")
    if config.data.own_records and config.stop is not None:
        arguments.append(f"stop={config.stop!r}")
    parts.append(f"result = {_call('train', arguments)}")
    shown = _outcome(config)
    head = f"from pgfl import {', '.join(sorted(names, key=lambda name: (name.islower(), name)))}"
    return "\n".join([head, "", *parts, f"print({shown})"]) + "\n"


def _outcome(config: Config) -> str:
    """Return what the program prints: of a table, the measures on held-out rows; else the metric that is drawn."""
    if config.data.own_records:
        held_out = "{one.name: one.whole.value for one in result.measures}"
        return held_out if getattr(config.data, "test", None) is not None else "result.verdict.sentence"
    return f'result.curve("{config.metrics[0]}")[:, -1]' if config.metrics else "result.verdict.sentence"


def _federation(config: Config, names: set[str]) -> str:
    data, graph = config.data, config.graph
    source = graph.edges if graph.kind == "edges" else graph.kind
    shared: dict[str, Any] = {"graph": source}
    if graph.kind == "random":
        shared["average_degree"] = graph.average_degree
    shared["seed"] = config.seed
    names.add(data.maker.partition(".")[0])
    if data.kind == "table":
        table = cast("TableData", data)
        own = {key: getattr(data, key) for key in ("target", "client", "server", "cluster", "features", "test")}
        own = {key: value for key, value in own.items() if value is not None}
        own |= {"ignore": list(table.ignore)} if table.ignore else {}
        own |= {"intercept": True} if table.intercept else {}
        own |= {"map": data.model_dump()["map"]} if table.map else {}
        written = _keywords(own | shared)
        if table.columns:
            names.add("Column")
            columns = ", ".join(f"{name!r}: {_column(column)}" for name, column in table.columns.items())
            written.append(f"columns={{{columns}}}")
        return _call(data.maker, [repr(table.table), *written])
    own = {key: value for key, value in data.model_dump(exclude={"kind"}).items() if value is not None}
    if config.runs == 1:
        return _call(data.maker, _keywords(own | shared))
    return "lambda run: " + _call(data.maker, [*_keywords(own | shared), "run=run"])


def _column(column: Column) -> str:
    return f"Column({', '.join(_keywords(column.stated()))})"


def _algorithm(config: Config, names: set[str]) -> str:
    settings = config.algorithm
    kind = ALGORITHMS[settings.kind]
    names.add(kind.__name__)
    own: dict[str, Any] = {}
    for one in fields(kind):  # type: ignore[arg-type]
        value = config.graph.mixing if one.name == "mixing" else getattr(settings, one.name)
        if isinstance(value, Decay):
            names.add("Decaying")
            value = _Written(f"Decaying({value.start!r}, {value.decay!r})")
        own[one.name] = value
    return _call(kind.__name__, _keywords(own))


def _objective(config: Config, names: set[str]) -> str:
    def one(settings: Any) -> str:
        name = OBJECTIVES[settings.kind].__name__
        names.add(name)
        stated = {key: value for key, value in settings.own_keys.items() if value is not None}
        own: dict[str, Any] = {"lam": settings.lam, **stated}
        return f"{name}({', '.join(_keywords(own))})"

    if not config.objective.clusters:
        return one(config.objective)
    each = ", ".join(f"{name!r}: {one(config.objective.of(name))}" for name in config.objective.clusters)
    return f"{{{each}}}"


def _privacy(config: Config, names: set[str]) -> str:
    names.add("Privacy")
    asked = config.privacy.model_dump(exclude={"enabled"})
    default = {one.name: None if one.default is MISSING else one.default for one in fields(Privacy)}
    return _call("Privacy", _keywords({key: value for key, value in asked.items() if value != default[key]}))


class _Written(str):
    """Code that stands as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _keywords(values: Mapping[str, Any]) -> list[str]:
    return [f"{key}={value!r}" for key, value in values.items()]


def _call(name: str, arguments: list[str]) -> str:
    """Return a call on one line, or one line per argument where that is too long."""
    line = f"{name}({', '.join(arguments)})"
    return line if len(line) <= WIDTH else f"{name}(\n    " + ",\n    ".join(arguments) + ",\n)"
