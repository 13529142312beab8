"""A trained model: what is done to a row before it is predicted, the coefficients, and where they come from."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, TypedDict, Unpack

import numpy as np

from pgfl.arrays import AnyArray, AnyFloats, AnyInts, Ints
from pgfl.drawing.pages import counted
from pgfl.errors import DataError, ResultError, UsageError
from pgfl.federation.clipping import clip_rows
from pgfl.federation.encoding import INTERCEPT, RowEncoding
from pgfl.objectives import OBJECTIVES, Logistic, Softmax
from pgfl.results.calibration import NO_CHANGE, Line, least_margin, lines_of
from pgfl.results.rows import ArrayRows
from pgfl.suggestions import nearest, unknown_name

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from pgfl.federation.encoding import TableRows
    from pgfl.federation.frames import TableSource
    from pgfl.objectives.interface import Task
    from pgfl.results.result import Result, RunModels


if TYPE_CHECKING:
    Table = TableSource | TableRows | ArrayLike

Clusters = str | Sequence[str] | AnyArray
"""One cluster for all rows, or one per row."""

NAME_ONE = "Name the model that predicts: client=, cluster=, or server= together with cluster=."
EXAMPLE = 'result.predict(rows, cluster="adults")'
PROVENANCE = (
    "name",
    "version",
    "rounds",
    "private",
    "noise",
    "guarantee",
    "privacy",
    "privacy_card",
    "verdict",
    "calibration",
    "costs",
)
"""The figures of a result's summary that its model keeps."""


class PredictOptions(TypedDict, total=False):
    """Which model predicts, and how rows are read.

    `client`, `cluster` (one, or one per row) or `server` with `cluster` names the model; without a name it is that of
    the table's column of clusters, or the only one. `encoded` says that an array holds encoded features, `ignore` names
    columns of a table that the model does not know. `calibrated` uses what held-out rows said about probabilities;
    `costs` are those of a miss and of a false alarm, for the second of two labels, in place of those that the config of
    the training stated.
    """

    client: str | None
    cluster: Clusters | None
    server: str | None
    encoded: bool
    ignore: Collection[str]
    calibrated: bool
    costs: tuple[float, float] | None


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """The models of a run, ready to predict.

    Rows are encoded as `encoding` describes (models that were trained on arrays have none, and `intercept` appends a
    1), rounded to `dtype` and clipped to `x_norm`, exactly as in training. `clusters` holds one row of coefficients per
    cluster, `servers` one per pair of (server, cluster) number, `clients` one per client: the released ones where
    privacy was on. With `classes` C, a row of coefficients is C × d numbers, class after class.

    >>> model = Model(("adults",), ("ridge",), ("regression",), np.array([[2.0, 3.0, 1.0]]), intercept=True)
    >>> model.predict([[1.0, 1.0], [0.0, 2.0]])
    array([6., 7.])
    >>> model
    <Model: ridge of 3 features, 1 cluster>
    """

    cluster_ids: Sequence[str]
    objectives: Sequence[str]
    tasks: Sequence[Task]
    clusters: AnyFloats
    server_ids: Sequence[str] = ()
    pair_server: AnyInts = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    pair_cluster: AnyInts = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    servers: AnyFloats | None = None
    client_ids: Sequence[str] = ()
    client_cluster: AnyInts | None = None
    clients: AnyFloats | None = None
    encoding: RowEncoding | None = None
    intercept: bool = False
    classes: int | None = None
    x_norm: float | None = None
    dtype: str = "float64"
    provenance: Mapping[str, object] = field(default_factory=dict)

    def __repr__(self) -> str:
        kinds = " and ".join(dict.fromkeys(self.objectives))
        return f"<Model: {kinds} of {counted(self.features, 'feature')}, {counted(len(self.cluster_ids), 'cluster')}>"

    @classmethod
    def of(cls, result: Result, run: int = 0) -> Model:
        """Return the model of one run of a result."""
        models = result.of_run(run)
        held, network = models.present, models.network
        return cls(
            cluster_ids=tuple(result.cluster_ids),
            objectives=tuple(result.objectives),
            tasks=tuple(result.tasks) or tuple(map(task_of, result.objectives)),
            clusters=_cluster_means(models, len(result.cluster_ids)),
            server_ids=tuple(result.server_ids),
            pair_server=models.pair_server[held],
            pair_cluster=models.pair_cluster[held],
            servers=models.servers if held.all() else models.servers[held],
            client_ids=tuple(result.client_ids),
            client_cluster=None if network is None else network.client_cluster,
            clients=models.clients if models.released is None else models.released,
            encoding=models.encoding or result.encoding,
            intercept=result.intercept,
            classes=result.classes,
            x_norm=result.x_norm,
            dtype=result.dtype,
            provenance=_provenance(result, run),
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Model:
        """Read a model file, or the model of a result folder."""
        from pgfl.results.model_file import load

        return load(path)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to one file; a file that is already there is refused."""
        from pgfl.results.model_file import save

        save(self, path)

    @property
    def features(self) -> int:
        """d, the number of features after encoding, the intercept's included."""
        return int(self.clusters.shape[1]) // (self.classes or 1)

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """One name per feature; numbered where the model was trained on arrays."""
        if self.encoding is not None:
            return self.encoding.feature_names
        names = tuple(f"feature-{number}" for number in range(1, self.features - self.intercept + 1))
        return (*names, INTERCEPT) if self.intercept else names

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns that a table must have, in the order in which an array gives them."""
        if self.encoding is not None:
            return self.encoding.cells
        return self.feature_names[: self.features - self.intercept]

    @property
    def cluster_column(self) -> str | None:
        """The column that names a row's cluster, if the training table had one."""
        return None if self.encoding is None else self.encoding.places.cluster

    @property
    def labels(self) -> tuple[str, ...] | None:
        """The labels that were declared as text, in the order of their numbers."""
        return None if self.encoding is None else self.encoding.target.labels

    @property
    def label_names(self) -> tuple[str, ...]:
        """One name per label, in the order of the columns of `predict_proba`: the declared one, else its number."""
        return self.labels or tuple(str(number) for number in range(self.classes or 2))

    def coefficients(
        self, *, client: str | None = None, cluster: str | None = None, server: str | None = None
    ) -> AnyFloats:
        """The coefficients of a client, of a cluster, or of a server for a cluster; of the only cluster by default."""
        return self.chosen(client=client, cluster=cluster, server=server)[0]

    def chosen(
        self, *, client: str | None = None, cluster: str | None = None, server: str | None = None
    ) -> tuple[AnyFloats, Task]:
        """Return the coefficients that are asked for, and what they predict."""
        alone = self.cluster_ids[0] if len(self.cluster_ids) == 1 and server is None else None
        if (client is not None and (cluster is not None or server is not None)) or (
            client is None and cluster is None and alone is None
        ):
            raise ResultError(NAME_ONE)
        if client is not None:
            found, owner, task = self._of_client(client), f"Client {client}", self._task_of(client)
        else:
            q = look_up(str(cluster or alone), self.cluster_ids, "cluster")
            found = self.clusters[q] if server is None else self._of_server(server, q)
            owner = f"Cluster {self.cluster_ids[q]}" if server is None else f"Server {server}"
            task = self.tasks[q]
        if np.isnan(found).all():
            raise ResultError(f"{owner} has no model to predict with; ask for the cluster's model.")
        return np.asarray(found), task

    def encode(self, table: Table, *, encoded: bool = False, ignore: Collection[str] = ()) -> AnyFloats:
        """Return the features of all rows as training saw them: encoded, rounded to `dtype` and clipped to `x_norm`.

        A table is matched by its columns' names, in any order. The columns client, server, cluster and the target may
        be there; any other column that the model does not know is refused unless `ignore` names it. An array has the
        model's columns in their order, in the table's units; with `encoded` it has the encoded features.
        """
        return self._features(self._rows(table), encoded, ignore)

    def margins(self, table: Table, **options: Unpack[PredictOptions]) -> AnyFloats:
        """xᵀw of every row; with classes, one column per class. A row's margin does not depend on the other rows."""
        return self._predicted(table, options)[0]

    def predict(self, table: Table, **options: Unpack[PredictOptions]) -> AnyArray:
        """Predict the target of every row, as the training table has it.

        A regression returns numbers in the target's unit. A classification returns the most probable label: as text
        where labels were declared, else as a number from 0; with `costs` of two labels, stated here or in the config of
        the training (`data.costs`), the one that costs less. See `PredictOptions` for how the model is named, and
        `encode` for what a table is.
        """
        costs = options.get("costs")
        margins, task = self._predicted(table, options, decide=costs is None and self.costs is not None)
        if costs is not None and task != "classification":
            raise ResultError("Costs of a miss and of a false alarm are for two labels; leave costs out.")
        if (stated := costs or self.costs) is not None:
            margins = margins - least_margin(stated)
        return self.in_target_unit(margins) if task == "regression" else self._labels(margins)

    def predict_proba(self, table: Table, **options: Unpack[PredictOptions]) -> AnyFloats:
        """Return the probability of every label: one row per row, one column per label, in the order of `label_names`.

        Raises `ResultError` for a regression.
        """
        margins, task = self._predicted(table, options)
        if task == "regression":
            raise ResultError("This model predicts numbers, which have no probabilities; use predict.")
        return self.label_probabilities(margins)

    def in_target_unit(self, margins: AnyFloats) -> AnyFloats:
        """Margins of a regression as numbers in the unit of the training table."""
        return margins if self.encoding is None else self.encoding.target.decode(margins.astype(np.float64))

    def label_probabilities(self, margins: AnyFloats) -> AnyFloats:
        """Return the probability of every label at margins of a classification."""
        if margins.ndim == 2:
            return np.asarray(Softmax().predict(margins))
        return np.column_stack([Logistic().predict(-margins), Logistic().predict(margins)])

    def label_numbers(self, margins: AnyFloats) -> Ints:
        """Return the number of the most probable label at margins of a classification."""
        return np.argmax(margins, axis=1) if margins.ndim == 2 else (margins > 0).astype(np.int64)

    @cached_property
    def costs(self) -> tuple[float, float] | None:
        """The costs of a miss and of a false alarm that the config of the training stated."""
        found = self.provenance.get("costs")
        return (float(found[0]), float(found[1])) if isinstance(found, Sequence) else None

    def label_threshold(self, cluster: str) -> float:
        """Return the margin above which the second of two labels is predicted: 0 unless the training stated costs."""
        if self.costs is None:
            return 0.0
        slope, offset = self._decisive_line(cluster)
        return (least_margin(self.costs) - offset) / slope

    @cached_property
    def _lines(self) -> Mapping[str, Line]:
        """What held-out rows said about probabilities, by cluster."""
        page = self.provenance.get("calibration")
        return lines_of(page) if isinstance(page, Mapping) else {}

    def _decisive_line(self, cluster: str) -> Line:
        """Return the calibration by which labels cost least: none where it is not known, or turns labels around."""
        slope, offset = self._lines.get(cluster, NO_CHANGE)
        return (slope, offset) if slope > 0.0 else NO_CHANGE

    def _predicted(self, table: Table, options: PredictOptions, decide: bool = False) -> tuple[AnyFloats, Task]:
        """Return the margins, and the task of the models that were asked for.

        To `decide` with stated costs, margins are calibrated where a calibration is known.
        """
        if unknown := [name for name in options if name not in PredictOptions.__annotations__]:
            known = nearest(unknown[0], PredictOptions.__annotations__)
            raise UsageError(f"predict has no argument {unknown[0]}{known}; call it as in {EXAMPLE}.")
        rows = self._rows(table)
        client, cluster, server = options.get("client"), options.get("cluster"), options.get("server")
        encoded, ignore = options.get("encoded", False), options.get("ignore", ())
        if client is None and cluster is None and self.cluster_column in rows.columns:
            cluster = rows.texts(str(self.cluster_column))
        if cluster is None or isinstance(cluster, str):
            model, task = self.chosen(client=client, cluster=cluster, server=server)
            margins = self._margins(self._features(rows, encoded, ignore), model)
            return self._calibrated(margins, options, decide, [self.cluster_of(client, cluster)]), task
        if client is not None:
            raise ResultError(NAME_ONE)
        names = self._names(rows, np.asarray(cluster, dtype=object))
        distinct, place = np.unique(names, return_inverse=True)
        chosen = [self.chosen(cluster=str(name), server=server) for name in distinct]
        if len({task for _, task in chosen}) > 1:
            raise ResultError("The clusters of these rows have different tasks; predict for one of them at a time.")
        features = self._features(rows, encoded, ignore)
        margins = self._by_cluster(features, [model for model, _ in chosen], place)
        return self._calibrated(margins, options, decide, [str(name) for name in distinct], place), chosen[0][1]

    def cluster_of(self, client: str | None, cluster: str | None) -> str:
        """Return the cluster whose calibration a model has; "" if that is not recorded."""
        if client is not None:
            known = self.client_cluster
            return "" if known is None else self.cluster_ids[int(known[look_up(client, self.client_ids, "client")])]
        return str(cluster or self.cluster_ids[0])

    def _calibrated(
        self, margins: AnyFloats, options: PredictOptions, decide: bool, names: Sequence[str], place: Ints | int = 0
    ) -> AnyFloats:
        """Return margins as held-out rows say that they should be, if that is asked for."""
        wanted = options.get("calibrated")
        if not wanted and not decide:
            return margins
        if wanted and (missing := [name for name in names if name not in self._lines]):
            raise ResultError(
                f"The probabilities of {missing[0] or 'this client'} were not calibrated: that takes two "
                "labels, enough held-out rows and a training without privacy; leave calibrated out."
            )
        slopes, offsets = np.array([self._lines[name] if wanted else self._decisive_line(name) for name in names]).T
        return np.asarray(slopes[place] * margins + offsets[place])

    def _labels(self, margins: AnyFloats) -> AnyArray:
        numbers = self.label_numbers(margins)
        return numbers if self.labels is None else np.array(self.labels, dtype=object)[numbers]

    def _rows(self, table: Table) -> TableRows | ArrayRows:
        if isinstance(table, np.ndarray | list | tuple):
            return ArrayRows(table, self.columns)
        from pgfl.federation.encoding import TableRows, read_rows

        return table if isinstance(table, TableRows) else read_rows(table)  # type: ignore[arg-type]

    def _names(self, rows: TableRows | ArrayRows, names: AnyArray) -> AnyArray:
        """Return the cluster of every row, as text."""
        if names.shape != (len(rows),):
            raise ResultError(f"There are {len(rows)} rows but {names.size} clusters; name one per row.")
        if not len(rows):
            raise DataError("There are no rows to predict; give at least one.")
        for row, name in enumerate(names):
            if name is None:
                raise rows.refuse(row, f"column '{self.cluster_column}' is empty; every row names its cluster.")
        return names.astype(str)

    def _of_client(self, client: str) -> AnyFloats:
        if self.clients is None:
            raise ResultError("This model holds no client models; load the result folder, or ask for a cluster.")
        place = look_up(client, self.client_ids, "client")
        return np.asarray(self.clients[place])

    def _of_server(self, server: str, cluster: int) -> AnyFloats:
        if self.servers is None:
            raise ResultError("This model holds no server models; load the result folder, or ask for a cluster.")
        place = look_up(server, self.server_ids, "server")
        found = np.flatnonzero((self.pair_server == place) & (self.pair_cluster == cluster))
        return np.asarray(self.servers[found[0]]) if len(found) else np.full(self.clusters.shape[1], np.nan)

    def _task_of(self, client: str) -> Task:
        if len(set(self.tasks)) == 1:
            return self.tasks[0]
        if self.client_cluster is None:
            raise ResultError(f"The cluster of client {client} is not recorded; predict with cluster= instead.")
        return self.tasks[int(self.client_cluster[look_up(client, self.client_ids, "client")])]

    def _features(self, rows: TableRows | ArrayRows, encoded: bool, ignore: Collection[str]) -> AnyFloats:
        features = self._encoded(rows, encoded, ignore)
        if not np.isfinite(features).all():
            raise rows.refuse(
                int(np.argmin(np.isfinite(features).all(axis=1))),
                "there is a value that is not a finite number; remove or fill it.",
            )
        rounded = features.astype(self.dtype, copy=False)
        return rounded if self.x_norm is None else clip_rows(rounded, self.x_norm)

    def _encoded(self, rows: TableRows | ArrayRows, encoded: bool, ignore: Collection[str]) -> AnyFloats:
        if encoded or self.encoding is None:
            if not isinstance(rows, ArrayRows):
                raise DataError(
                    "The features of this model have no names, because it was not trained on a table; predict in "
                    "Python, with an array."
                )
            if encoded:
                return rows.matrix(self.features, "encoded features")
            raw = rows.matrix(self.features - self.intercept, "features")
            return np.concatenate([raw, np.ones((len(raw), 1))], axis=1) if self.intercept else raw
        rows.check(self.encoding, ignore)
        return self.encoding.encode(rows)

    def _margins(self, rows: AnyFloats, model: AnyFloats) -> AnyFloats:
        # einsum adds up each row by itself; a matrix product's last bits depend on how many rows there are
        if self.classes is None:
            return np.asarray(np.einsum("nd,d->n", rows, model))
        return np.asarray(np.einsum("nd,cd->nc", rows, model.reshape(self.classes, -1)))

    def _by_cluster(self, rows: AnyFloats, models: Sequence[AnyFloats], place: Ints) -> AnyFloats:
        margins: AnyFloats = np.empty((len(rows), self.classes) if self.classes else len(rows), dtype=rows.dtype)
        for number, model in enumerate(models):
            mine = np.flatnonzero(place == number)
            margins[mine] = self._margins(rows[mine], model)
        return margins


def task_of(kind: str) -> Task:
    """Return the task of a kind of objective; an objective of your own is taken for a regression."""
    return OBJECTIVES[kind].task if kind in OBJECTIVES else "regression"


def look_up(name: str, names: Sequence[str], kind: str) -> int:
    """Return the place of a name in a list, or a sentence that says which name was probably meant."""
    try:
        return names.index(name)
    except ValueError:
        raise ResultError(unknown_name(kind, name, names)) from None


def _cluster_means(models: RunModels, clusters: int) -> AnyFloats:
    """Return the mean of every cluster's models over the servers that have one; NaN where none has."""
    held = np.flatnonzero(models.present)
    sums = np.zeros((clusters, models.servers.shape[1]), dtype=models.servers.dtype)
    np.add.at(sums, models.pair_cluster[held], models.servers[held])
    counts = np.bincount(models.pair_cluster[held], minlength=clusters)[:, None]
    return np.asarray(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan), dtype=sums.dtype)


def _provenance(result: Result, run: int) -> dict[str, object]:
    """Return where a model comes from: the figures of its run, and the digest of its config."""
    summary = result.summary()
    kept: dict[str, object] = {name: summary[name] for name in PROVENANCE if name in summary}
    return {**kept, "run": run, "config_digest": result.config_digest}
