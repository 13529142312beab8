"""The public facts that a plan rests on: sizes, bounds, the task, ε, and how well prediction is expected to work."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from scipy.special import ndtri

from pgfl.config.schema import Config
from pgfl.errors import ConfigError
from pgfl.federation.columns import ArrayColumn, NumberColumn
from pgfl.federation.encoding import RowEncoding
from pgfl.objectives import OBJECTIVES, Huber, Logistic, Softmax
from pgfl.planning.row_shapes import SPREAD, RowShape, from_zero
from pgfl.privacy.trust import Level, Trust

Task = Literal["regression", "classification"]
EXPECTED: dict[Task, float] = {"regression": 0.4, "classification": 0.75}
EXPECTED_BETWEEN: dict[Task, tuple[float, float]] = {"regression": (0.1, 0.7), "classification": (0.6, 0.9)}
"""R² or AUC of tables of which nothing is stated: a middle, and within what every made-up table draws its own."""
EXPECTED_OF_DIGITS = 0.97
SPREAD_IN_BOUNDS = 0.4  # standard deviation of a target that is scaled from its bounds to [−1, 1], as a guess
TABLE_GAMMA = 0.3  # how much coefficients of a table's clusters differ at most, relative to themselves
LEAST_MISSED = 0.005  # of the variance: no linear model of a table is taken to explain more than the rest
LOOSE = 0.7  # a spread that is less than this part of the usual one shows that bounds are wide
MOST_NUMBERS = 3_000_000  # of made-up features: what a twin may hold so that a plan takes a minute
MOST_SKETCHED = 200_000  # of a table's, whose twins are looked at and never trained on
MOST_SERVERS = 1000  # of a table whose own places a plan knows


@dataclass(frozen=True)
class Placement:
    """Who is where: the edges between servers, and (server, cluster, number of records) of every client."""

    edges: tuple[tuple[int, int], ...]
    clients: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Facts:
    """Nothing here depends on a record: a plan is the same whatever the records say.

    `expected` is how well linear models of the clusters can predict without privacy and with endless data: the share of
    the labels' variance that they explain, or their AUC. `label_scale` is the labels' standard deviation, as the user
    expects it; `label_mean` is their mean, of two labels the share of the second one. `rows` are the kinds of a table's
    columns; without it rows have the norm `x_norm` and point in all directions alike. Of more than two `labels`, one
    against the rest is looked at.
    """

    servers: int
    clients_per_server: int
    clusters: int
    records: tuple[int, int]
    columns: int
    x_norm: float
    epsilon: float
    delta: float = 1e-5
    task: Task = "regression"
    expected: float = 0.8
    label_scale: float = 1.0
    label_mean: float | None = None  # a guess, if it is not stated
    gamma: float = 0.15
    graph: str = "random"
    average_degree: float = 3.0
    trust: Level = Trust.level
    contributors: int = Trust.contributors
    colluders: int = Trust.colluders
    dropouts: float = Trust.dropouts
    rows: RowShape | None = None
    placement: Placement | None = None
    target_from_zero: bool = False  # a quantity from 0 upwards, so that most labels lie in the lower half
    label_stated: bool = False  # `label_scale` is not a guess
    expected_stated: bool = True  # nor is `expected`
    labels: int = 2  # of a classification
    test_records: int = 0  # by which a run will be measured; 0: so many that chance does not matter

    def __post_init__(self) -> None:
        for name in ("servers", "clients_per_server", "clusters", "columns"):
            if getattr(self, name) < 1:
                raise ConfigError(f"A plan needs {name} of at least 1; got {getattr(self, name)}.")
        if not (1 <= self.records[0] <= self.records[1]):
            raise ConfigError(f"Records per client must be (least, most), from 1 up; got {self.records}.")
        for name in ("x_norm", "epsilon", "label_scale"):
            if not (np.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise ConfigError(f"A plan needs a {name} above 0; got {getattr(self, name)}.")
        least = 0.5 if self.task == "classification" else 0.0
        if not least < self.expected < 1.0:
            what = "AUC" if self.task == "classification" else "share of variance"
            raise ConfigError(f"The expected {what} must lie between {least:g} and 1; got {self.expected:g}.")
        if self.label_mean is not None:
            self._check_mean(self.label_mean)

    def _check_mean(self, mean: float) -> None:
        if self.task == "classification":
            if not 0.0 < mean < 1.0:
                raise ConfigError(f"The share of the second label must lie between 0 and 1; got {mean:g}.")
        elif self.rows is not None and not abs(mean) < 1.0:
            raise ConfigError(
                f"The mean of labels that are scaled from their bounds to [-1, 1] lies within; got {mean:g}."
            )

    @property
    def loss(self) -> Huber | Logistic | Softmax:
        """The loss that is planned, Huber's with κ = 1."""
        if self.task == "regression":
            return Huber(0.0, kappa=1.0)
        return Logistic(0.0) if self.labels == 2 else Softmax(0.0, classes=self.labels)

    @property
    def largest_weight(self) -> float:
        """How much a client weighs on average, where a server has most records of a cluster per client.

        Records count alike, so a client's step is as long as its share of the largest client's records.
        """
        if self.placement is None:
            return 1.0
        pairs: dict[tuple[int, int], list[int]] = {}
        for server, cluster, records in self.placement.clients:
            pairs.setdefault((server, cluster), []).append(records)
        return max(sum(each) / len(each) for each in pairs.values()) / self.records[1]

    @property
    def trusted(self) -> Trust:
        """Whom clients trust."""
        return Trust(self.trust, self.contributors, self.colluders, self.dropouts)

    @property
    def per_pair(self) -> int:
        """Clients of one cluster at one server, on average."""
        return max(1, round(self.clients_per_server / self.clusters))

    @property
    def largest_pair(self) -> int:
        """Most clients of one cluster at one server."""
        if self.placement is None:
            return self.per_pair
        return max(Counter((server, cluster) for server, cluster, _ in self.placement.clients).values())

    @property
    def equivalent_local_epsilon(self) -> float:
        """The ε at which local noise would disturb a pair's mean as much as this trust does at ε, roughly."""
        trust, clients = self.trusted, self.per_pair
        if not (trust.aggregates and trust.takes_part(clients)):
            return self.epsilon
        return self.epsilon * float(np.sqrt(clients / trust.excess(clients)))

    @property
    def clients(self) -> int:
        """All clients."""
        return self.servers * self.clients_per_server if self.placement is None else len(self.placement.clients)

    @property
    def typical_length(self) -> float:
        """The norm of a typical row."""
        return self.x_norm if self.rows is None else min(self.x_norm, self.rows.typical_length)

    @property
    def explained(self) -> float:
        """The expected share of variance that is explained, roughly also where an AUC is expected."""
        if self.task == "regression":
            return self.expected
        apart = 2.0 * float(ndtri(self.expected)) ** 2  # squared, of normal margins with and without the label
        return apart / (apart + 4.0)

    @property
    def uses_nmsd(self) -> bool:
        """Whether models are compared with those that made the labels (NMSD), not by predictions of new records."""
        return self.task == "regression" and self.rows is None

    def with_more_records(self, times: int) -> Facts:
        """Return the facts with so many times the records of every client."""
        placed = self.placement and replace(
            self.placement, clients=tuple((s, q, times * records) for s, q, records in self.placement.clients)
        )
        least, most = self.records
        return replace(self, records=(times * least, times * most), placement=placed)

    def with_more_clients(self, times: int) -> Facts:
        """So many times the clients, in the same places."""
        placed = self.placement and replace(self.placement, clients=self.placement.clients * times)
        return replace(self, clients_per_server=times * self.clients_per_server, placement=placed)

    @property
    def with_half_the_columns(self) -> Facts:
        """Half of the columns, with labels that are as predictable as before."""
        if self.rows is None:
            return replace(self, columns=(self.columns + 1) // 2)
        fewer = self.rows.halved
        return replace(self, rows=fewer, columns=fewer.columns, x_norm=self.x_norm * fewer.longest / self.rows.longest)

    @property
    def with_tighter_bounds(self) -> Facts:
        """Of a table: bounds that hold nearly all records and no more, where what is stated shows that they are wider.

        What lies outside is clipped. A bound that a few outliers set costs noise for numbers that hardly occur.
        """
        if self.rows is None:
            return self
        found = self
        if self.rows.spread < LOOSE * SPREAD:
            found = replace(found, rows=replace(self.rows, spread=SPREAD))
        if self.task == "regression" and self.label_scale < LOOSE * SPREAD_IN_BOUNDS:
            found = replace(found, label_scale=SPREAD_IN_BOUNDS, label_mean=None, label_stated=False)
        return found

    @property
    def mean_records(self) -> float:
        """Records per client, on average."""
        return sum(self.records) / 2.0

    @property
    def planned(self) -> Facts:
        """The same with fewer servers where made-up data of all of them would be too large."""
        numbers = self.clients * self.mean_records * self.columns
        if numbers <= MOST_NUMBERS or (self.placement is not None and self.servers <= MOST_SERVERS):
            return self
        servers = max(1, int(self.servers * MOST_NUMBERS / numbers))
        return replace(self, servers=servers, placement=None)


def sketched(facts: Facts) -> Facts:
    """Return a table's facts with so few records per client that a twin is small, however large the table is."""
    if facts.rows is None or facts.placement is None:
        return facts
    numbers = facts.columns * sum(records for _, _, records in facts.placement.clients)
    share = min(1.0, MOST_SKETCHED / numbers)
    fewer = tuple((server, cluster, math.ceil(share * records)) for server, cluster, records in facts.placement.clients)
    return replace(facts, placement=replace(facts.placement, clients=fewer))


def facts_of(config: Config, **changes: Any) -> Facts:
    """Return the public facts of a config; of a table only its columns' names and who is where are read.

    `changes` replace facts, or state what a config does not: `expected`, `label_scale`, `label_mean`, `epsilon`,
    `spread`.
    """
    data, privacy = config.data, config.privacy
    if data.has_weights:
        raise ConfigError("A plan takes all records to count alike; leave data.weight and data.class_weight out.")
    kind = OBJECTIVES[config.objective.kind].task
    task: Task = "regression" if kind == "regression" else "classification"
    if kind == "multiclass" and not data.own_records:
        raise ConfigError(f"Of generated data a plan knows two labels, not {config.objective.kind}; use logistic.")
    known: dict[str, Any] = {
        "task": task,
        "expected": EXPECTED[task] if data.own_records or task == "regression" else EXPECTED_OF_DIGITS,
        "expected_stated": changes.get("expected") is not None or not data.own_records,
        "labels": len(data.declared_target.labels or ()) or config.objective.own_keys.get("classes") or 2,
        "epsilon": privacy.epsilon,
        "delta": privacy.delta,
        "x_norm": privacy.x_norm,
        "graph": "random" if config.graph.kind == "edges" else config.graph.kind,
        "average_degree": config.graph.average_degree,
        **{name: getattr(privacy, name) for name in ("trust", "contributors", "colluders", "dropouts")},
    }
    spread = changes.pop("spread", None)
    known |= _table(config, spread) if data.own_records else data.planner_facts()
    known |= {name: value for name, value in changes.items() if value is not None}
    for name, key in (("epsilon", "privacy.epsilon"), ("x_norm", "privacy.x_norm")):
        if known[name] is None:
            raise ConfigError(f"`{key}` is missing; a plan needs the target ε and the bound on a row's norm.")
    known["label_stated"] = changes.get("label_scale") is not None
    facts = Facts(**known)
    return replace(facts, expected=with_endless_data(facts))


def are_of_columns(encoding: RowEncoding) -> bool:
    """Whether rows are those of a table whose columns go through the same maps."""
    alike = not any(isinstance(column, NumberColumn) and column.knots for column in encoding.columns)
    return alike and not any(isinstance(column, ArrayColumn) for column in encoding.columns)


def with_endless_data(facts: Facts) -> float:
    """Return what could be explained with endless data, where `expected` is what a cluster's own records allow.

    A user knows, or has read, what a model explains that was fitted to some records. Of new records, least squares with
    d columns and n records misses (n − 1)/(n − d − 1) times what the best linear model misses. With labels the
    difference is small.
    """
    if facts.rows is None or facts.task == "classification" or facts.placement is None or not facts.expected_stated:
        return facts.expected
    records = sum(records for _, _, records in facts.placement.clients) / facts.clusters
    missed = (1.0 - facts.expected) * max(records - facts.columns - 1.0, 1.0) / max(records - 1.0, 1.0)
    return float(1.0 - max(missed, LEAST_MISSED))


def _table(config: Config, spread: float | None) -> dict[str, Any]:
    """Of a table: who is where, with how many records, and what is declared of its columns."""
    data = config.data
    graph, at_servers = config.shapes()(0)
    columns, places = data.placed_clients(config)
    test, folds = getattr(data, "test", None), data.cross_validation
    training = 1.0 - test if isinstance(test, float) else 1.0 - 1.0 / folds if folds else 1.0
    clients = tuple((server, cluster, max(1, round(training * rows))) for server, cluster, rows in places)
    with_clients, counts = len({server for server, _, _ in clients}), [records for _, _, records in clients]
    held_out = sum(rows for _, _, rows in places) - sum(records for _, _, records in clients)
    known = {
        "test_records": max(0, held_out) if isinstance(test, float) or folds else 0,
        "servers": len(at_servers),
        "clients_per_server": max(1, round(len(clients) / with_clients)),
        "clusters": len({cluster for _, cluster, _ in clients}),
        "records": (min(counts), max(counts)),
        "columns": columns,
        "average_degree": 2.0 * len(graph.edges) / len(at_servers),
        "placement": Placement(tuple(map(tuple, graph.edges.tolist())), clients),
        "gamma": TABLE_GAMMA,
    }
    encoding = data.public_encoding()
    if encoding is not None and encoding.x_norm is not None:
        known |= {"x_norm": config.privacy.x_norm or encoding.x_norm}
        known |= {"rows": RowShape.of(encoding, spread)} if are_of_columns(encoding) else {}
    if encoding is not None and encoding.target.bounds is not None:
        known |= {"label_scale": SPREAD_IN_BOUNDS, "target_from_zero": from_zero(encoding.target.bounds)}
    return known
