"""The clients' primal problems, factored once, in cache-sized blocks of whole servers and buckets of equal D_k.

How a run is cut depends on that run alone, and no sum crosses a client, so results do not depend on the batch.

Whether an objective can learn what is declared about the target, and how many classes softmax regression has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pgfl import equations as eq
from pgfl.arrays import AnyArray, Array, Bools, DTypeLike, Floats, Ints, Linear, Namespace, column, is_jax, pick, put
from pgfl.errors import ConfigError, DataError, PrivacyError
from pgfl.federation.federation import Federation
from pgfl.objectives import BatchedObjective, Objective
from pgfl.objectives.interface import Prepared, tolerance_for
from pgfl.objectives.weighted import weighted
from pgfl.privacy.request import Privacy
from pgfl.simulate.communicator import Communicator
from pgfl.simulate.layout import Layout, RunLayout
from pgfl.suggestions import nearest, quoted


def with_classes(
    objectives: Objectives, federation: Federation, privacy: Privacy | None, communicator: Communicator
) -> Objectives:
    """Return the objectives with `classes` filled in: as many as the target has declared labels.

    Without declared labels it is the largest label of all clients + 1, but never under privacy.
    """
    _check_declared(objectives, federation)
    filled = _all_filled(objectives, federation, privacy, communicator)
    _check_bound(_each(filled), privacy)
    return filled


def with_weights(
    objectives: Objectives, federation: Federation, privacy: Privacy | None, communicator: Communicator
) -> Objectives:
    """Return the objectives for records with weights, if they have any.

    Their cap is public under privacy; elsewhere it is the largest weight.
    """
    has_weights = bool(communicator.maximum([float(federation.weights is not None)])[0])
    if not has_weights:
        return objectives
    cap = None if privacy is None else privacy.weight_cap
    if privacy is not None and cap is None:
        raise PrivacyError(
            "privacy.weight_cap is missing; weights of records need a public bound, to which they are clipped."
        )
    largest = 0.0 if federation.weights is None else float(federation.weights.max())
    cap = float(communicator.maximum([largest])[0]) if cap is None else cap
    if isinstance(objectives, Objective):
        return weighted(objectives, cap)
    return {name: weighted(objective, cap) for name, objective in objectives.items()}


def classes_of(objectives: Objectives) -> int | None:
    """C of softmax regression; None for the other objectives."""
    objective = objectives if isinstance(objectives, Objective) else next(iter(objectives.values()))
    return objective.label_count


def _all_filled(
    objectives: Objectives, federation: Federation, privacy: Privacy | None, communicator: Communicator
) -> Objectives:
    if not any(objective.lacks_labels for objective in _each(objectives)):
        return objectives
    labels = federation.encoding.target.labels if federation.encoding else None
    if privacy is not None and labels is None:
        raise PrivacyError(
            "objective.classes is missing; under privacy the number of classes is stated, never read from records."
        )
    classes = len(labels) if labels else _largest_label(federation, communicator) + 1
    if isinstance(objectives, Objective):
        return objectives.with_labels(classes)
    return {name: objective.with_labels(classes) for name, objective in objectives.items()}


def _check_declared(objectives: Objectives, federation: Federation) -> None:
    """Raise if what is declared about the target belongs to another task than the objective's."""
    target = federation.encoding.target if federation.encoding else None
    if target is None:
        return
    for objective in _each(objectives):
        if target.labels is not None and objective.label_kind == "numbers":
            raise DataError(
                f"The target {quoted(target.name)} has labels, but {objective.kind} regression predicts numbers; "
                "choose logistic for two labels or softmax for more."
            )
        if target.labels is not None and objective.label_kind == "two labels" and len(target.labels) > 2:
            raise DataError(
                f"The target {quoted(target.name)} has {len(target.labels)} labels, but {objective.kind} regression "
                "has two; choose softmax."
            )
        if target.bounds is not None and objective.label_kind in ("two labels", "labels"):
            raise DataError(
                f"The target {quoted(target.name)} has bounds, but {objective.kind} regression predicts labels; "
                "declare labels instead, or choose ridge or huber."
            )


def _each(objectives: Objectives) -> list[Objective]:
    return [objectives] if isinstance(objectives, Objective) else list(objectives.values())


def _largest_label(federation: Federation, communicator: Communicator) -> int:
    largest = float(communicator.maximum([np.max(federation.targets)])[0])
    return max(int(largest), 1) if 0 <= largest < 2**31 else 1


def _check_bound(objectives: list[Objective], privacy: Privacy | None) -> None:
    """Labels are clipped to `y_bound`, which must not make one class of another."""
    bound = None if privacy is None else privacy.y_bound
    known = [count for objective in objectives if (count := objective.label_count)]
    if bound is not None and known and bound < max(known) - 1:
        raise PrivacyError(
            f"privacy.y_bound = {bound:g} would clip labels up to {max(known) - 1} to another class; leave it out."
        )


PAD_TO_LONGEST = 2**11  # clients below which one bucket with padding beats many without
BLOCK_ELEMENTS = 2**23  # elements of features in a block: threads share a large run block by block


@dataclass(frozen=True)
class Bucket:
    """Clients with one objective and (padded) equally many rows; `where` are their places in the block, ascending."""

    where: Ints
    objective: Objective
    features: Array
    targets: Array
    counts: Array
    prepared: Prepared | None  # None where no problem is solved

    def solve(self, centre: Array, rows: Ints | None) -> tuple[Array, Array]:
        """(argmin, certified error) of the chosen rows."""
        assert self.prepared is not None, "this algorithm said that it solves nothing"
        return self.prepared.solve(centre, rows)

    def chosen(self, active: Ints | None) -> tuple[Ints | None, Ints | None]:
        """Return the active clients' rows in this bucket, and their rows in the block's answer."""
        if active is None:
            return None, self.where
        place = np.searchsorted(self.where, active)
        mine = place < len(self.where)
        mine[mine] = self.where[place[mine]] == active[mine]
        return place[mine], np.flatnonzero(mine)


@dataclass(frozen=True)
class Block:
    """Whole servers that are computed in one go."""

    clients: slice
    pairs: slice
    buckets: tuple[Bucket, ...]
    modulus: Array  # m, a column of every client's or one scalar for all
    ridge_penalty: Array  # 2λ/|C_s|, likewise
    records: Array  # D_k, likewise
    update_norm: float | None
    tolerance: Floats  # of every client's solution; infinite where none can be certified
    strictest: float  # the least of them

    def problem(self, active: Ints | None) -> BlockProblem:
        """Return the problems of the block's active clients (places within the block), or of all."""
        return BlockProblem(self, active)

    def objective_values(self, models: Array) -> Array:
        """f_k of every client at its model."""
        return self.problem(None).objective(models)


@dataclass(frozen=True)
class BlockProblem:
    """A `Problem` over the active clients of a block."""

    block: Block
    active: Ints | None

    @property
    def modulus(self) -> Array:
        """m of every active client."""
        return self._own(self.block.modulus)

    @property
    def records(self) -> Array:
        """D_k of every active client."""
        return self._own(self.block.records)

    @property
    def update_norm(self) -> float | None:
        """How far a model may move from its public centre."""
        return self.block.update_norm

    def solve(self, centre: Array) -> tuple[Array, Array]:
        """Every bucket's solver on its own clients."""
        if len(self.block.buckets) == 1:
            return self.block.buckets[0].solve(centre, self.active)
        xp = centre.__array_namespace__()
        models, errors = xp.zeros_like(centre), xp.zeros_like(centre[:, 0])
        for bucket in self.block.buckets:
            rows, places = bucket.chosen(self.active)
            if places is None or len(places):
                w, error = bucket.solve(pick(centre, places), rows)
                models, errors = put(models, places, w), put(errors, places, error)
        return models, errors

    def gradient(self, w: Array) -> Array:
        """∇f_k of every active client at its row of w."""
        return eq.regularised_gradient(self._mapped(w, "gradient", w), self._own(self.block.ridge_penalty), w)

    def projected(self, w: Array) -> Array:
        """Every row of w, moved into the domain of its client's objective."""
        buckets = self.block.buckets
        if len(buckets) == 1:
            return eq.project(w, buckets[0].objective.domain)
        for bucket in buckets:
            places = bucket.chosen(self.active)[1]
            if bucket.objective.domain is not None and (places is None or len(places)):
                w = put(w + 0.0, places, eq.project(pick(w, places), bucket.objective.domain))
        return w

    def objective(self, w: Array) -> Array:
        """f_k of every active client at its row of w."""
        return eq.regularised_loss(self._mapped(w, "loss", w[:, 0]), self._own(self.block.ridge_penalty), w)

    def _own(self, values: Array) -> Array:
        return pick(values, self.active) if values.ndim else values

    def _mapped(self, w: Array, method: str, like: Array) -> Array:
        out = like.__array_namespace__().zeros_like(like)
        for bucket in self.block.buckets:
            rows, places = (self.active, None) if len(self.block.buckets) == 1 else bucket.chosen(self.active)
            data = [pick(values, rows) for values in (bucket.features, bucket.targets, bucket.counts)]
            if places is None or len(places):
                out = put(out, places, evaluated(bucket.objective, method, pick(w, places), *data))
        return out


def evaluated(objective: Objective, method: str, w: Array, features: Array, targets: Array, counts: Array) -> Array:
    """Return the loss or gradient of every client; a user's objective sees one client at a time, without padding."""
    evaluate = getattr(objective, method)
    if isinstance(objective, BatchedObjective):
        return evaluate(w, features, targets, counts)
    rows = [int(count) for count in counts]
    clients = range(len(rows))
    found = [evaluate(w[k, :], features[k, : rows[k], :], targets[k, : rows[k]], counts[k]) for k in clients]
    return w.__array_namespace__().asarray(np.array(found, dtype=w.dtype))


Objectives = Objective | Mapping[str, Objective]


def objective_of(objectives: Objectives, cluster: str) -> Objective:
    """Return the objective of one cluster: its own, or the one for all."""
    if isinstance(objectives, Objective):
        return objectives
    if cluster not in objectives:
        raise ConfigError(
            f"No objective is given for cluster {cluster}; add one, or give one objective for all clusters."
        )
    return objectives[cluster]


def check_clusters(objectives: Objectives, clusters: Sequence[str]) -> None:
    """Raise unless each cluster has an objective, and each objective a cluster."""
    for cluster in clusters:
        objective_of(objectives, cluster)
    unknown = [] if isinstance(objectives, Objective) else [name for name in objectives if name not in set(clusters)]
    if unknown:
        raise ConfigError(
            f"An objective is given for cluster {unknown[0]}, which the federation does not have"
            f"{nearest(unknown[0], clusters)}; leave it out."
        )


def model_length(objectives: Objectives, federation: Federation) -> int:
    """Return the length of a model, which must be the same for all clusters: servers average models."""
    names, features = federation.cluster_ids, federation.dimension
    first, *others = ((objective_of(objectives, name).model_length(features), name) for name in names)
    for length, name in others:
        if length != first[0]:
            raise ConfigError(
                f"Models of cluster {first[1]} have {first[0]} numbers and those of cluster {name} {length}, but "
                "clusters learn from each other only with models of one length; give all clusters the same `kind` and "
                "`classes`."
            )
    return first[0]


def prepare(
    layout: Layout,
    objectives: Objectives,
    rho: Floats | float,
    dtype: DTypeLike,
    xp: Namespace = np,
    update_norm: float | None = None,
    solved: bool = True,
) -> list[Block]:
    """Return all problems, factored if they are to be `solved`; `rho` is one number, or every client's own.

    Runs small enough to share a block do; a large run is cut between servers.
    """
    cuts = _cuts(layout) if xp is np else [(0, layout.clients)]
    return [block_of(layout, slice(*cut), objectives, rho, dtype, xp, update_norm, solved) for cut in cuts]


def pairs_of(layout: Layout, clients: slice) -> slice:
    """Return the (server, cluster) pairs of the servers of some clients."""
    first = np.searchsorted(layout.pair_server, layout.client_server[clients.start])
    last = np.searchsorted(layout.pair_server, layout.client_server[clients.stop - 1], side="right")
    return slice(int(first), int(last))


def _cuts(layout: Layout) -> list[tuple[int, int]]:
    dimension = layout.runs[0].federation.dimension
    size = np.cumsum(layout.counts) * dimension
    server_ends = np.searchsorted(layout.client_server, np.unique(layout.client_server), side="right")
    cuts, start, spent = [], 0, 0
    for end in server_ends.tolist():
        if size[end - 1] - spent >= BLOCK_ELEMENTS or end == layout.clients:
            cuts.append((start, end))
            start, spent = end, int(size[end - 1])
    return cuts


def block_of(
    layout: Layout,
    clients: slice,
    objectives: Objectives,
    rho: Floats | float,
    dtype: DTypeLike,
    xp: Namespace,
    update_norm: float | None,
    solved: bool = True,
) -> Block:
    """Whole servers' problems, factored if they are to be `solved`."""
    groups: dict[tuple[int, int], tuple[Objective, list[tuple[RunLayout, Ints]]]] = {}
    known: list[Objective] = []
    lam = np.empty(clients.stop - clients.start)
    for run in layout.runs:
        start, stop = max(run.clients.start, clients.start), min(run.clients.stop, clients.stop)
        if start >= stop:
            continue
        places = np.arange(start, stop) - clients.start
        own = run.order[start - run.clients.start : stop - run.clients.start]
        cluster = run.federation.client_cluster[own]
        longest = _padded(run)
        for q in np.unique(cluster):
            objective = objective_of(objectives, run.federation.cluster_ids[q])
            if objective not in known:
                known.append(objective)
            lam[places[cluster == q]] = objective.lam
            rows = longest[own[cluster == q]]
            for length in np.unique(rows):
                key = (known.index(objective), int(length))
                groups.setdefault(key, (objective, []))[1].append((run, places[cluster == q][rows == length]))
    server_clients = layout.server_clients[clients]
    own_rho = rho if np.ndim(rho) == 0 else np.asarray(rho)[clients]
    modulus = eq.strong_convexity(own_rho, lam, server_clients).astype(dtype)
    buckets = [
        _bucket(layout, clients.start, objective, length, members, modulus if solved else None, dtype, xp)
        for (_, length), (objective, members) in sorted(groups.items(), key=lambda item: item[0])
    ]
    ridge_penalty = eq.ridge_penalty(lam, server_clients).astype(dtype)
    records = layout.counts[clients].astype(dtype)
    columns = (column(modulus, xp), column(ridge_penalty, xp), column(records, xp))
    tolerance = np.full(len(modulus), np.inf)
    for bucket in buckets:
        tolerance[bucket.where] = tolerance_for(bucket.objective, dtype, np) if bucket.objective.convex else np.inf
    pairs = pairs_of(layout, clients)
    return Block(clients, pairs, tuple(buckets), *columns, update_norm, tolerance, float(tolerance.min()))


def _bucket(
    layout: Layout,
    offset: int,
    objective: Objective,
    length: int,
    members: Sequence[tuple[RunLayout, Ints]],
    modulus: AnyArray | None,
    dtype: DTypeLike,
    xp: Namespace,
) -> Bucket:
    """Some clients' rows and, given a modulus, their problems factored."""
    where = np.sort(np.concatenate([places for _, places in members]))
    dimension = layout.runs[0].federation.dimension
    features = np.zeros((len(where), length, dimension), dtype=dtype)
    parts = () if all(run.federation.weights is None for run, _ in members) else (2,)  # a target and its weight
    targets = np.zeros((len(where), length, *parts), dtype=dtype)
    counts = layout.counts[where + offset].astype(dtype)
    for run, places in members:
        federation, rows = run.federation, np.searchsorted(where, places)
        first = federation.offsets[run.order[places + offset - run.clients.start]]
        own = np.arange(length) < counts[rows, None]
        source = np.where(own, first[:, None] + np.arange(length), first[:, None])
        features[rows] = federation.features[source] * own[..., None]
        found = federation.weighted_targets(source)
        targets[rows] = found * (own if found.ndim == 2 else own[..., None])
    arrays = (xp.asarray(features), xp.asarray(targets), xp.asarray(counts))
    if modulus is None:
        return Bucket(where, objective, *arrays, None)
    prepared = objective.prepare(*arrays, xp.asarray(modulus[where]))
    if is_jax(xp):
        from pgfl.simulate.jax_engine import compiled

        prepared = compiled(prepared)
    return Bucket(where, objective, *arrays, prepared)


def _padded(run: RunLayout) -> Ints:
    """Return the padded rows of every client of a run: the run's longest if that is cheap, else up to 1/8 more."""
    counts, whole = run.federation.counts, run.whole
    if whole.clients <= PAD_TO_LONGEST and whole.clients * whole.longest <= 2 * whole.rows:
        return np.full_like(counts, whole.longest)
    unit = 2 ** np.maximum(np.floor(np.log2(counts)).astype(np.int64) - 3, 0)
    return np.asarray(-(-counts // unit) * unit)


def mean_of_pairs(pairs: slice, client_pair: Ints, dtype: DTypeLike) -> tuple[Linear, Bools]:
    """Return the operator from participants, given their pairs, to the means of `pairs`; and which pairs have any."""
    pair = client_pair - pairs.start
    taking_part = np.bincount(pair, minlength=pairs.stop - pairs.start)
    indptr = np.zeros(len(taking_part) + 1, dtype=np.int64)
    np.cumsum(taking_part, out=indptr[1:])
    return Linear(indptr, np.arange(len(pair)), (1.0 / taking_part[pair]).astype(dtype), len(pair)), taking_part > 0
