"""A commented config for a table, to start from: `pgfl init` writes it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pgfl.errors import ConfigError, DataError
from pgfl.federation.columns import MISSING, OTHER
from pgfl.federation.declarations import INDICATOR, Column
from pgfl.federation.encoding import INTERCEPT, toml_key
from pgfl.federation.survey import MOST_NAMED, ColumnFacts, TableFacts, is_label
from pgfl.federation.usual_bounds import usual_bounds
from pgfl.maps import AUTO
from pgfl.privacy import rules
from pgfl.privacy.trust import Level, Trust
from pgfl.suggestions import quoted

Task = Literal["regression", "classification"]
SMALL_GRAPH = 10
"""With so many servers or fewer, all are neighbours."""
TEST_SHARE = 0.2
PRIVATE_ROUNDS = 50
LEFT_TO_A_PLAN = "# Steps, rounds and noise are left to a plan, which `pgfl run` makes from public facts alone."
EVEN = 1.5  # most rows of a client over fewest, up to which it hardly matters what counts alike
WIDTH = 44
TRUSTED: dict[Level, str] = {
    "local": "clients trust nobody",
    "site": "clients trust their server, which adds the noise",
    "masked": "a server sees only the noised sum over a cluster's clients",
}


@dataclass(frozen=True)
class InitOptions:
    """What a person states on the command line: the task, and public facts about columns where privacy needs them."""

    table: str
    task: Task | None = None
    epsilon: float | None = None
    declared: Mapping[str, Column] = field(default_factory=dict)
    trust: Level = Trust.level
    planned: Mapping[str, tuple[object, str]] | None = None
    """What a plan sets, with its reasons; empty where `pgfl run` is to plan, None where a person chooses."""
    foretold: str = ""
    map: str | None = None
    """A row map for all columns, or "auto"."""
    discover: bool = False
    """Whether clusters are found from models, in the place of those that the table names."""
    learn: bool | None = None
    """Whether clusters learn from each other as far as they agree; None: without privacy."""
    costs: tuple[float, float] | None = None
    """Of a miss and of a false alarm."""


@dataclass(frozen=True)
class Draft:
    """The text of a config, and the columns for which a person still has to state bounds, categories or labels."""

    text: str
    task: Task
    unstated: tuple[str, ...]


def draft_config(facts: TableFacts, options: InitOptions) -> Draft:
    """Write a config that runs as it is; with privacy, once all public bounds are stated.

    >>> from pgfl.federation.survey import survey
    >>> facts = survey({"client": ["a", "b"], "age": [40, 50], "y": [1.5, 2.5]})
    >>> draft = draft_config(facts, InitOptions("clients.csv"))
    >>> print(draft.text.split("[data.columns]")[1].split("[graph]")[0].strip())
    # How each column becomes features. Without bounds = "data" a number is taken as it is.
    age = { bounds = "data" }                   # 40 to 50
    y = { bounds = "data" }                     # the target: 1.5 to 2.5
    """
    if facts.places is None:
        raise DataError(facts.warnings[0])
    if facts.target is None:
        raise DataError(f"{facts.label} has no column 'y'; name the column to predict with --target.")
    if facts.target in facts.places.columns.names:
        raise DataError(f"The target {quoted(facts.target)} names where a row belongs; name another column.")
    target = facts.column(facts.target)
    task = options.task or ("classification" if is_label(target) else "regression")
    _check(facts, options, task)
    used = [column for column in facts.features if not _left_out(column) or column.name in options.declared]
    if not used:
        why = "; ".join(f"{quoted(column.name)} {_left_out(column)}" for column in facts.features[:MOST_NAMED])
        raise DataError(f"{facts.label} has no column that could be a feature{f' ({why})' if why else ''}; add one.")
    lines = [*(_declaration(column, options) for column in used), *_target_lines(target, task, options)]
    parts = [
        _head(options, task),
        _data(facts, options, [column for column in facts.features if column not in used]),
        _columns(lines, options),
        [*_graph(len(facts.places.servers)), *_chosen(options, "graph")],
        _objective(target, task, options),
        _algorithm(facts, options),
        *([DISCOVER] if options.discover else []),
        _privacy(options),
    ]
    unstated = tuple(line.name for line in lines if line.open)
    return Draft("\n\n".join("\n".join(part) for part in parts) + "\n", task, unstated)


@dataclass(frozen=True)
class _Line:
    """One declaration with its comment; an open one is left to the person."""

    name: str
    declared: str
    comment: str
    open: bool = False

    @property
    def text(self) -> str:
        return _noted(f"{'# ' if self.open else ''}{toml_key(self.name)} = {{ {self.declared} }}", self.comment)


def _check(facts: TableFacts, options: InitOptions, task: Task) -> None:
    if options.epsilon is not None and (found := rules.problem("epsilon", options.epsilon)):
        raise ConfigError(found)
    names = [column.name for column in facts.features] + [facts.target]
    for name in options.declared:
        if name not in names:
            raise ConfigError(f"{facts.label} has no feature {quoted(name)} to declare; check its name.")
    assert facts.target is not None
    target = facts.column(facts.target)
    if options.costs is not None and (task != "classification" or target.distinct != 2):
        raise ConfigError(f"--costs are for two labels; {quoted(target.name)} does not have two labels.")
    if target.missing:
        rows = f"{target.missing} of {facts.rows} rows"
        raise DataError(
            f"The target {quoted(target.name)} is missing in {rows}; fill these cells or remove the rows first."
        )
    if target.kind == "mixed":
        raise DataError(
            f"The target {quoted(target.name)} holds {quoted(target.strays[0])}, which is no number; correct it first."
        )
    if task == "classification" and target.distinct < 2:
        raise DataError(f"The target {quoted(target.name)} has one label only; classification needs two.")
    if task == "classification" and len(target.frequent) < target.distinct:
        raise DataError(f"The target {quoted(target.name)} has {target.distinct} values; use --task regression.")
    if task == "regression" and target.kind not in ("number", "boolean"):
        raise DataError(f"The target {quoted(target.name)} holds text; use --task classification.")


def _left_out(column: ColumnFacts) -> str | None:
    """Why a column is left out, if it is."""
    if column.looks_like_id:
        return "looks like an id"
    if column.constant:
        return "is empty" if column.empty else "is constant"
    if column.kind == "mixed":
        return f"holds {quoted(column.strays[0])}, which is no number"
    return {"text": "is free text", "other": "holds dates or lists"}.get(column.kind)


def _declaration(column: ColumnFacts, options: InitOptions) -> _Line:
    """How a feature is declared: as stated, else from the data, which privacy leaves to the person."""
    missing: dict[str, object] = {"missing": _missing(column)} if column.missing else {}
    comment = _values(column) + (f"; {column.missing} missing" if column.missing else "")
    private = options.epsilon is not None
    if stated := options.declared.get(column.name):
        return _Line(column.name, _toml(missing | stated.stated()), "as stated" if private else comment)
    if column.kind == "boolean":
        return _Line(column.name, _toml({"boolean": True} | missing), "" if private else comment)
    if column.kind == "category":
        if private:
            return _Line(column.name, 'categories = ["A", "B"], other = true', "state its public categories", open=True)
        other = {} if OTHER in column.labels else {"other": True}
        return _Line(column.name, _toml({"categories": column.labels} | other | missing), comment)
    if private:
        if found := usual_bounds(column.name):
            asked = "guessed from its name alone: are these its public bounds?"
            return _Line(column.name, _toml({"bounds": found} | missing), asked, open=True)
        return _Line(column.name, "bounds = [LOW, HIGH]" + _more(missing), "state public bounds", open=True)
    return _Line(column.name, _toml({"bounds": "data"} | missing), comment)


def _missing(column: ColumnFacts) -> str:
    """What an empty cell means: a feature of its own, or the category of that name."""
    return MISSING if column.kind == "category" and MISSING in column.labels else INDICATOR


def _target_lines(target: ColumnFacts, task: Task, options: InitOptions) -> list[_Line]:
    private = options.epsilon is not None
    comment = "the target" if private else f"the target: {_values(target)}"
    if stated := options.declared.get(target.name):
        return [_Line(target.name, _toml(stated.stated()), comment)]
    if task == "classification":
        if _is_zero_one(target):
            return [] if not private else [_Line(target.name, 'labels = ["0", "1"]', comment)]
        if private:
            return [_Line(target.name, 'labels = ["A", "B"]', "the target: state its public labels", open=True)]
        return [_Line(target.name, _toml({"labels": target.labels}), comment)]
    if private:
        return [_Line(target.name, "bounds = [LOW, HIGH]", "the target: state public bounds", open=True)]
    return [_Line(target.name, _toml({"bounds": "data"}), comment)]


def _is_zero_one(target: ColumnFacts) -> bool:
    return target.kind == "boolean" and set(target.labels) == {"0", "1"}


def _head(options: InitOptions, task: Task) -> list[str]:
    rounds = [f"rounds = {PRIVATE_ROUNDS}"] if options.epsilon is not None and options.planned is None else []
    return [
        f"# Written by `pgfl init` for the {task} of {options.table}. Change what you like, then: pgfl run THIS-FILE",
        *([f"# {options.foretold}"] if options.foretold else []),
        *rounds,
        *_chosen(options, ""),
        "seed = 0",
    ]


def _chosen(options: InitOptions, section: str) -> list[str]:
    """The keys of a section that a plan sets; those at the top have none."""
    found = []
    for name, (value, reason) in (options.planned or {}).items():
        place, _, key = name.rpartition(".")
        if place == section:
            found.append(_key(key, value, reason))
    return found


def _data(facts: TableFacts, options: InitOptions, ignored: Sequence[ColumnFacts]) -> list[str]:
    assert facts.places is not None
    assert facts.target is not None
    places = facts.places.columns
    lines = ["[data]", 'kind = "table"']
    lines += [_key("table", options.table, "relative to this file"), _key("target", facts.target)]
    for key, name in (("client", places.client), ("server", places.server), ("cluster", places.cluster)):
        if name is None:
            lines.append(_noted(f'# {key} = "NAME"', f'no such column: all clients are in one {key}, "all"'))
        elif name != key:
            lines.append(_key(key, name, f"the column that names a row's {key}"))
    if ignored:
        why = "; ".join(f"{column.name} {_left_out(column)}" for column in ignored)
        lines.append(_key("ignore", [column.name for column in ignored], why))
    if options.costs is not None:
        lines.append(
            _key(
                "costs", options.costs, "of missing the second label, and of a false alarm: predicted labels cost least"
            )
        )
    if INTERCEPT not in facts.names:
        lines.append(_key("intercept", True, "a feature that is always 1"))
    if chosen := _chosen(options, "data"):
        lines += chosen
    elif options.map is not None:
        why = "the one that predicts held-out training rows best" if options.epsilon is None else "left to the plan"
        lines.append(_key("map", options.map, why if options.map == AUTO else ""))
    share = f"{TEST_SHARE:.0%}".replace("%", " %")
    if facts.places.rows_per_client[2] < 2:
        return [*lines, _noted('# test = "test.csv"', "a table of test rows: every client has one row only")]
    return [
        *lines,
        _key("test", TEST_SHARE, f"{share} of each client's rows are held out; or the path of a test table"),
    ]


def _columns(lines: Sequence[_Line], options: InitOptions) -> list[str]:
    head = (
        "# Bounds, categories and labels are public facts that you state. Which columns are left out, boolean or may\n"
        "# be empty was seen in the table: check that this is no secret. Numbers are scaled to [-1, 1]."
        if options.epsilon is not None
        else '# How each column becomes features. Without bounds = "data" a number is taken as it is.'
    )
    return ["[data.columns]", head, *(line.text for line in lines)]


def _graph(servers: int) -> list[str]:
    kind = "none" if servers == 1 else "complete" if servers <= SMALL_GRAPH else "random"
    note = {
        "none": "there is one server",
        "complete": "all servers are neighbours; or ring, line, star, grid, random",
        "random": 'or ring, line, star, grid, complete; edges = "edges.csv" names your own',
    }[kind]
    return ["[graph]", _key("kind", kind, note)]


def _objective(target: ColumnFacts, task: Task, options: InitOptions) -> list[str]:
    if task == "regression":
        kind = "ridge" if options.epsilon is None else "huber"
        note = "squared error; huber is less sensitive to outliers" if kind == "ridge" else "private, unlike ridge"
    else:
        stated = options.declared.get(target.name)
        labels = stated.labels if stated is not None and stated.labels else target.labels
        kind = "logistic" if len(labels) == 2 else "softmax"
        note = "two labels" if kind == "logistic" else f"{len(labels)} labels"
    if options.planned is not None:
        return ["[objective]", *(_chosen(options, "objective") or [_key("kind", kind, note)])]
    return ["[objective]", _key("kind", kind, note), _key("lam", 0.01, "weight of the penalty on large coefficients")]


def _algorithm(facts: TableFacts, options: InitOptions) -> list[str]:
    if options.planned is None:
        return [*_kind_and_tau(facts, options), _key("count", "records", _rows_of_clients(facts))]
    chosen = _chosen(options, "algorithm")
    return ["[algorithm]", *(chosen or [LEFT_TO_A_PLAN, _key("client", "gradient", "which every trust level takes")])]


def _rows_of_clients(facts: TableFacts) -> str:
    """Return what counts alike, and whether it matters."""
    assert facts.places is not None
    least, _, most = facts.places.rows_per_client
    if most <= EVEN * least:
        return "all rows count alike; clients have about equally many"
    return f'all rows count alike; with "clients", one of {least} rows counts as much as one of {most}'


def _kind_and_tau(facts: TableFacts, options: InitOptions) -> list[str]:
    assert facts.places is not None
    lines = ["[algorithm]"]
    if options.epsilon is None:
        lines.append(_key("kind", "pgfl-exact", "converges to the optimum if all clients take part"))
    else:
        loses_less = "one gradient step per round, which loses less to noise than solving"
        lines += [_key("kind", "pgfl"), _key("client", "gradient", loses_less)]
    if not options.discover and len(facts.places.clusters) == 1:
        return [*lines, _key("tau", 0.0, "there is one cluster; several can learn from each other")]
    learn = options.epsilon is None if options.learn is None else options.learn
    if learn:
        return [*lines, _key("tau", AUTO, "clusters learn from each other as far as they agree; 0 keeps them apart")]
    return [*lines, _key("tau", 0.0, 'above 0, or "auto", clusters learn from each other')]


def _privacy(options: InitOptions) -> list[str]:
    if options.epsilon is None:
        return [
            _noted("# [privacy]", "noise on everything that a client sends; it needs public bounds, and"),
            _noted("# epsilon = 4.0", "`pgfl init TABLE --epsilon 4 --bounds age=18:90 …` writes them"),
        ]
    return [
        "[privacy]",
        _key("epsilon", float(options.epsilon), "the budget of each client"),
        _key("delta", 1e-5, "below 1 / (the largest number of rows of a client)"),
        *([_key("index", "release")] if options.planned is None else _chosen(options, "privacy")),
        *([] if options.trust == Trust.level else [_key("trust", options.trust, TRUSTED[options.trust])]),
    ]


def _key(name: str, value: object, comment: str = "") -> str:
    return _noted(f"{name} = {_value(value)}", comment)


def _noted(line: str, comment: str) -> str:
    return f"{line:<{WIDTH - 1}} # {comment}" if comment else line


def _value(value: object) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping):
        return f"{{ {_toml(value)} }}"
    if isinstance(value, Sequence):
        return f"[{', '.join(map(_value, value))}]"
    return f"{value:g}" if isinstance(value, float) and not value.is_integer() else repr(value)


def _toml(stated: Mapping[str, object]) -> str:
    return ", ".join(f"{key} = {_value(value)}" for key, value in stated.items())


def _more(stated: Mapping[str, object]) -> str:
    return f", {_toml(stated)}" if stated else ""


def _values(column: ColumnFacts) -> str:
    if column.kind == "number" and column.low is not None and column.high is not None:
        return f"{column.low:g} to {column.high:g}"
    if column.kind == "boolean":
        return " or ".join(column.labels)
    return f"{column.distinct} categories"


DISCOVER = ["[clusters]", _key("discover", True, "found from models; the table's own are ignored")]
