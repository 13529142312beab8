"""The result of a run: models, history, privacy, and the queries on them."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

import numpy as np

from pgfl import __version__
from pgfl.arrays import AnyArray, AnyFloats, AnyInts, Bools, Ints
from pgfl.errors import MissingExtra, ResultError
from pgfl.federation.encoding import RowEncoding
from pgfl.metrics import MEASURES
from pgfl.privacy.card import PrivacyCard
from pgfl.results.alternatives import NOT_TRIED, Alternatives
from pgfl.results.calibration import Calibration
from pgfl.results.clusters import sentence as clusters_sentence
from pgfl.results.coefficients import LEVEL
from pgfl.results.measures import Measured, few_rows
from pgfl.results.model import EXAMPLE, Model, PredictOptions
from pgfl.results.verdict import Verdict
from pgfl.results.weights import sentence
from pgfl.suggestions import friendly_signature, kind_of, nearest, unknown_name

if TYPE_CHECKING:
    import pandas
    import polars
    from dp_accounting import DpEvent
    from matplotlib.axes import Axes

    from pgfl.config import Config
    from pgfl.federation.declarations import Column
    from pgfl.objectives.interface import Task
    from pgfl.results.comparison import Comparison
    from pgfl.results.model import Table
    from pgfl.results.state import RecordDigests, TrainingState


Columns = dict[str, AnyArray]
"""Columns of equal length by name. A history has `run`, `round` and one column per metric."""

EndedBy = Literal["budget", "converged", "diverging"]
"""Why training ended before its last round."""

RESIDUALS = ("primal_residual", "dual_residual")
TEST_FIGURES = (
    "Figures of held-out rows are exact functions of those rows, which the guarantee does not protect; hold out "
    "records that may be known."
)
INHERITED = (
    "These clients have inherited the largest account of an earlier training, because their records may have been with "
    "other clients: {}."
)
MOST_LISTED = 8


@dataclass(frozen=True, eq=False)
class Network:
    """Who is where in one run: server and cluster of every client, and the edges (E × 2) between servers."""

    client_server: AnyInts
    client_cluster: AnyInts
    edges: AnyInts


@dataclass(frozen=True, eq=False)
class RunModels:
    """The models at the end of one run.

    `clients` are the clean w_k (None where they were not kept), `released` the last w̃_k that left each client (None
    without privacy; a row of NaN for a client that never took part). `servers` holds w_{q,s} for the pairs of
    (server, cluster) index in `pair_server` and `pair_cluster`; `present` marks those that the server has. `encoding`
    is that of the run's own rows, if they came from a table.
    """

    clients: AnyFloats | None
    released: AnyFloats | None
    pair_server: AnyInts
    pair_cluster: AnyInts
    servers: AnyFloats
    present: Bools
    network: Network | None = None
    encoding: RowEncoding | None = None

    @property
    def shareable_clients(self) -> AnyFloats:
        """The client models that may be shown: the released ones where privacy is on."""
        chosen = self.clients if self.released is None else self.released
        if chosen is None:
            raise ResultError("This run kept no client models.")
        return chosen


@dataclass(eq=False, repr=False)
class Result:
    """The result of a run. A notebook shows its verdict, a short table, the network and the first curves.

    `history` holds what may be shown, `clean_history` what was measured on clean client models of a private
    simulation. `encoding`, `intercept`, `dtype` and `x_norm` say what is done to a row before a model sees it.
    `objectives` names the objective of each cluster, `classes` is C of softmax models (C × d numbers, row after row),
    `noise` the source of the noise ("seeded" or "secure", None without privacy), `terms` say what is promised.
    `verdict` says whether the models have converged, and what to change if not. `ended_by` says why
    training ended before the last round; `spent_at` holds, for each run, the last round to which a client could
    contribute, None if that is the last round of all. `measures` compares held-out rows with trivial baselines at the
    end of training; `client_measures` has one row per client of run 0 (without privacy only), `held_out` points of
    predicted and observed targets. `weights` says who learned from whom, where that was learned (`tau = "auto"`): what
    every cluster's data have in each cluster's model. `clusters` says who belongs to which cluster, and how probably,
    where that was found (`discover`). `fits` has the standard errors of run 0's `coefficients`, and `fits_note` says
    why some are missing. `alternatives` compares run 0 with simpler models, without privacy only, and
    `calibration` says how far the probabilities of two labels are to be trusted. `states` is what
    further rounds start from, `digests` finds
    records that have moved meanwhile, and `continued` says that a training has gone on from here with float-safe noise.

    >>> result = Result(
    ...     client_ids=("ann", "bob"), server_ids=("north",), cluster_ids=("adults",), objectives=("ridge",),
    ...     models=(RunModels(np.eye(2), None, np.array([0]), np.array([0]), np.ones((1, 2)), np.array([True])),),
    ...     history={"run": np.array([0, 0]), "round": np.array([0, 1]), "nmsd": np.array([1.0, 0.1])},
    ... )
    >>> result
    <Result: 2 clients at 1 server in 1 cluster, 1 round, NMSD -10.00 dB>
    >>> result.client("bob"), result.cluster("adults")
    (array([0., 1.]), array([1., 1.]))
    >>> result.predict([[2.0, 3.0]], client="bob")
    array([3.])
    """

    client_ids: Sequence[str]
    server_ids: Sequence[str]
    cluster_ids: Sequence[str]
    objectives: Sequence[str]
    models: Sequence[RunModels]
    history: Columns
    config: Config | None = None
    intercept: bool = False
    encoding: RowEncoding | None = None
    x_norm: float | None = None
    dtype: str = "float64"
    tasks: Sequence[Task] = ()
    classes: int | None = None
    rho: float | None = None  # that was used, whether it was stated or chosen
    step_size: float | None = None  # likewise, of FedAvg
    engine: str | None = None  # likewise; None where the result does not say
    clean_history: Columns | None = None
    privacy: Sequence[Columns] = ()
    noise: str | None = None
    terms: PrivacyCard | None = None
    ended_by: EndedBy | None = None
    spent_at: Sequence[int | None] = ()
    warnings: Sequence[str] = ()
    states: Sequence[TrainingState] = ()
    seconds: float = 0.0
    verdict: Verdict | None = None
    measures: Sequence[Measured] = ()
    client_measures: Columns | None = None
    held_out: Columns | None = None
    weights: Columns | None = None
    clusters: Columns | None = None
    fits: Columns | None = None
    fits_note: str = ""
    alternatives: Alternatives | None = None
    calibration: Calibration | None = None
    folder: Path | None = field(default=None, compare=False)
    continued: bool = field(default=False, compare=False)
    digests: RecordDigests | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        from pgfl.results.report.page import summary_line

        return f"<Result: {summary_line(self)}>"

    def _repr_html_(self) -> str:
        from pgfl.results.report.page import result_card

        return result_card(self)

    def plot(self, metric: str | None = None, *, ax: Axes | None = None) -> Axes:
        """Draw a metric over the rounds with matplotlib: all clients and each cluster, and a band if there are runs.

        Without a metric, the most important one is drawn. `ax` are the axes to draw on; by default a new figure.
        """
        from pgfl.results.report.curves import draw_metric

        return draw_metric(self, metric, ax)

    def compare(self, *others: Result, names: Sequence[str] | None = None) -> Comparison:
        """This result beside others: final figures, privacy, and the settings in which they differ.

        `names` are those of all results, this one first. A notebook shows the comparison with its curves; `print`
        shows it as text, and its `plot` draws a metric of all of them.

        >>> from pgfl import PGFL, FedAvg, Ridge, synthetic_regression, train
        >>> federation = synthetic_regression(servers=3, clients_per_server=4, dimension=5, graph="ring", seed=1)
        >>> pgfl, fedavg = (train(federation, one, Ridge(), rounds=20) for one in (PGFL(rho=5.0, tau=0.2), FedAvg()))
        >>> pgfl.compare(fedavg, names=["PGFL", "FedAvg"]).figures["NMSD"]
        ('-14.27 dB', '-4.58 dB')
        """
        from pgfl.results.comparison import Comparison

        return Comparison.of((self, *others), names)

    @property
    def dimension(self) -> int:
        """The length of a model: d, or C·d with C classes."""
        return int(self.models[0].servers.shape[-1])

    @property
    def features(self) -> int:
        """d, the number of features, the intercept's included."""
        return self.dimension // (self.classes or 1)

    @property
    def private(self) -> bool:
        """Whether client models left their clients with noise only."""
        return self.models[0].released is not None

    @property
    def guarantee(self) -> str | None:
        """What is promised, in one line; None without privacy."""
        return None if self.terms is None else self.terms.label

    @property
    def privacy_card(self) -> PrivacyCard | None:
        """What is promised and what the worst client has spent, to show or to paste; None without privacy."""
        if self.terms is None or not (spent := self.spending()):
            return None
        epsilon, releases = spent["epsilon"]["worst"], spent["releases"]["worst"]
        return replace(
            self.terms,
            epsilon=math.inf if epsilon is None else epsilon,
            releases=int(releases or 0),
            config=self.config_digest or "",
        )

    @property
    def config_digest(self) -> str | None:
        """A digest of the config's text; None for a training without a config."""
        if self.config is None:
            return None
        from pgfl.config import to_toml

        return hashlib.blake2b(to_toml(self.config).encode(), digest_size=16).hexdigest()

    @property
    def notes(self) -> list[str]:
        """Notes on the figures, where they could be taken for better or more private than they are."""
        simpler = [] if self.alternatives is None else [self.alternatives.sentence]
        if self.private and self.encoding is not None and len(self.cluster_ids) > 1:
            simpler = [NOT_TRIED]
        unprotected = self.private and any(name in self.metrics for name in MEASURES)
        inherited = [INHERITED.format(_listed(names))] if (names := self.inherited) else []
        learned = []
        if self.weights is not None and len(self.cluster_ids) > 1:
            learned = [f"Who learned from whom: {sentence(self.weights, self.cluster_ids)}"]
        found = [] if self.clusters is None else [clusters_sentence(self.clusters, self.terms)]
        return [
            *simpler,
            *found,
            *learned,
            *few_rows(self.client_measures),
            *([TEST_FIGURES] if unprotected else []),
            *inherited,
        ]

    @property
    def inherited(self) -> list[str]:
        """The clients whose account began with the largest one of an earlier training, in any run."""
        tables = [table for table in self.privacy if "inherited" in table]
        return list(dict.fromkeys(str(name) for table in tables for name in table["client"][table["inherited"]]))

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """The names of the features, where they came from a table."""
        return None if self.encoding is None else self.encoding.feature_names

    def client(self, client: str, run: int = 0) -> AnyFloats:
        """Return a client's model; with privacy on, the last that it released (NaN if none)."""
        return np.asarray(self.of_run(run).shareable_clients[_look_up(client, self._client_index, "client")])

    def server(self, server: str, cluster: str, run: int = 0) -> AnyFloats:
        """w_{q,s}: a server's model for a cluster, NaN if it has none."""
        models = self.of_run(run)
        s, q = _look_up(server, self._server_index, "server"), _look_up(cluster, self._cluster_index, "cluster")
        found = np.flatnonzero((models.pair_server == s) & (models.pair_cluster == q) & models.present)
        return np.asarray(models.servers[found[0]]) if len(found) else np.full(self.dimension, np.nan)

    def cluster(self, cluster: str, run: int = 0) -> AnyFloats:
        """Return a cluster's model: the average over the servers that have one."""
        models = self.of_run(run)
        chosen = models.present & (models.pair_cluster == _look_up(cluster, self._cluster_index, "cluster"))
        return np.asarray(models.servers[chosen].mean(axis=0)) if chosen.any() else np.full(self.dimension, np.nan)

    def model(self, run: int = 0) -> Model:
        """Return the model of a run: it predicts, and is saved to one file or exported."""
        if run not in self._models:
            self._models[run] = Model.of(self, run)
        return self._models[run]

    @friendly_signature(EXAMPLE)
    def predict(self, table: Table, *, run: int = 0, **options: Unpack[PredictOptions]) -> AnyArray:
        """Predict the target of the rows of an array or a table: numbers in its unit, or the most probable labels.

        Rows are encoded and clipped exactly as in training. See `Model.predict`.
        """
        return self.model(run).predict(table, **options)

    def predict_proba(self, table: Table, *, run: int = 0, **options: Unpack[PredictOptions]) -> AnyFloats:
        """Return the probability of every label, one column per label; see `Model.predict_proba`."""
        return self.model(run).predict_proba(table, **options)

    @property
    def declared_columns(self) -> dict[str, Column]:
        """How the columns of a table became features, as `columns` of `Federation.read`: for new rows of the same."""
        if self.encoding is None:
            raise ResultError("This run was not trained on a table; its features have no names.")
        from pgfl.results.state import kept_columns

        return kept_columns(self.encoding)

    def coefficients(self, level: float = LEVEL) -> polars.DataFrame:
        """Return the coefficients of every cluster in run 0 as a data frame, by name and in the table's units.

        `coefficient` is what the model predicts with; `reference` is the category or number that it is compared with.
        `estimate` is the same without penalty and without what the cluster learned from others, `std_error` its
        standard error (HC1, records being independent) with `df` degrees of freedom, and [`low`, `high`] its confidence
        interval at `level`; null where they are not known. Log-odds have odds ratios too. With more than two labels
        `label` is compared with the first one. Raises `ResultError` where a map leaves no coefficient per column.
        """
        from pgfl.results.coefficients import Terms

        return Terms.of(self.model()).table(self.fits, level)

    def of_run(self, run: int) -> RunModels:
        """Return all models of one run."""
        if not isinstance(run, Integral) or not 0 <= run < len(self.models):
            raise ResultError(f"There is no run {run!r}; the runs are 0 to {len(self.models) - 1}.")
        return self.models[run]

    @cached_property
    def _models(self) -> dict[int, Model]:
        return {}

    @cached_property
    def _client_index(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.client_ids)}

    @cached_property
    def _server_index(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.server_ids)}

    @cached_property
    def _cluster_index(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.cluster_ids)}

    @property
    def rounds(self) -> Ints:
        """The recorded rounds, ascending from 0."""
        return np.unique(self.history["round"])

    @property
    def metrics(self) -> tuple[str, ...]:
        """What was measured."""
        return tuple(name for name in self.history if name not in ("run", "round"))

    def curve(self, metric: str) -> AnyFloats:
        """Return one metric as (runs, recorded rounds)."""
        if metric not in self.metrics:
            raise ResultError(f"There is no metric {metric}{nearest(metric, self.metrics)}; see `metrics`.")
        order = np.lexsort((self.history["round"], self.history["run"]))
        return np.asarray(self.history[metric][order].reshape(-1, len(self.rounds)))

    @property
    def residuals(self) -> Columns:
        """The primal and dual residuals with their run and round."""
        return {name: self.history[name] for name in ("run", "round", *RESIDUALS) if name in self.history}

    def to_polars(self) -> polars.DataFrame:
        """Return the history as a data frame."""
        import polars

        return polars.DataFrame(self.history)

    def to_pandas(self) -> pandas.DataFrame:
        """Return the history as a data frame of pandas; raises `MissingExtra` where that is not installed."""
        try:
            import pandas
        except ImportError:
            raise MissingExtra("A pandas data frame needs pandas; install it with pip install pandas.") from None
        return pandas.DataFrame(self.history)

    def summary(self) -> dict[str, Any]:
        """Return the figures at the end, ready for JSON; metrics are averages over the runs."""
        final = {name: _number(np.mean(self.curve(name)[:, -1])) for name in self.metrics}
        return {
            "name": self.config.name if self.config else "run",
            "version": __version__,
            "clients": len(self.client_ids),
            "servers": len(self.server_ids),
            "clusters": list(self.cluster_ids) if len(self.cluster_ids) <= 100 else len(self.cluster_ids),
            "dimension": self.dimension,
            "classes": self.classes,
            "rho": self.rho,
            "step_size": self.step_size,
            "objectives": sorted(set(self.objectives)),
            "runs": len(self.models),
            "rounds": int(self.rounds[-1]),
            "engine": self.engine,
            "seconds": round(self.seconds, 3),
            "verdict": None if self.verdict is None else self.verdict.to_json(),
            "final": final,
            "coefficients": self.fits_note or None,
            "alternatives": None if self.alternatives is None else self.alternatives.to_json(),
            "calibration": None if self.calibration is None else self.calibration.to_json(),
            "measures": {measured.name: measured.to_json() for measured in self.measures},
            "private": self.private,
            "noise": self.noise,
            "guarantee": self.guarantee,
            "privacy_card": (card := self.privacy_card) and card.to_json(),
            "ended_by": self.ended_by,
            "spent_at": list(self.spent_at),
            "privacy": self.spending(),
            "inherited": inherited if len(inherited := self.inherited) <= 100 else len(inherited),
            "notes": self.notes,
            "warnings": list(self.warnings),
        }

    def spending(self) -> dict[str, dict[str, float | None]]:
        """Of every figure of the privacy tables, the worst client's and the median client's over all runs."""
        if not self.privacy:
            return {}
        table = {name: np.concatenate([part[name] for part in self.privacy]) for name in self.privacy[0]}
        figures = {name: values for name, values in table.items() if np.issubdtype(values.dtype, np.number)}
        return {
            name: {"worst": _number(values.max()), "median": _number(np.median(values))}
            for name, values in figures.items()
            if name != "run" and len(values)
        }

    def to_dp_event(self, client: str | None = None, run: int = 0) -> DpEvent:
        """Return what a client has released as a `dp_accounting.DpEvent`: of the client that spent most by default.

        Gaussian releases compose exactly to one of their summed cost ρ, so the event has one release. Where the run
        has no guarantee it is a `NonPrivateDpEvent`. Raises `ResultError` for a run without privacy.
        """
        from pgfl.privacy.accounting import to_dp_event

        self.of_run(run)
        if not self.privacy:
            raise ResultError("This run has no privacy account; train with privacy to get one.")
        spent = np.asarray(self.privacy[run]["rho"], dtype=np.float64)
        return to_dp_event(spent.max() if client is None else spent[_look_up(client, self._client_index, "client")])

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the result folder; a folder that already holds a result is refused."""
        from pgfl.results.folder import save

        self.folder = save(self, Path(folder))
        return self.folder

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Result:
        """Read a result folder again."""
        from pgfl.results.folder import load

        return load(Path(folder))


def _look_up(name: str, index: Mapping[str, int], kind: str) -> int:
    if not isinstance(name, str):
        raise ResultError(f"A {kind} is named by its id; got {kind_of(name)}: the first is {next(iter(index))!r}.")
    if name not in index:
        raise ResultError(unknown_name(kind, name, index))
    return index[name]


def _listed(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return ", ".join(names[:MOST_LISTED]) + more


def _number(value: Any) -> float | None:
    """Return a number that JSON has."""
    return float(value) if np.isfinite(value) else None
