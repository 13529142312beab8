"""What estimators are given: places, bounds, ρ, known arguments of other models, and the account of several fits."""

from __future__ import annotations

import os
from threading import Lock

import numpy as np
from numpy.typing import ArrayLike

from pgfl.arrays import AnyArray, Floats
from pgfl.errors import BudgetSpent, PrivacyError
from pgfl.federation.federation import ClientData, Federation
from pgfl.federation.graphs import build
from pgfl.privacy.accounting import MARGIN, exact_epsilon, exact_rho

INSTEAD: dict[str, str] = {
    "alpha": "use lam: with D rows it is Ridge's alpha / D, in units of the scaled columns",
    "C": "use lam: with D rows it is 1 / (2·C·D), in units of the scaled columns",
    "penalty": "the penalty is λ‖w‖², and lam is its λ",
    "l1_ratio": "the penalty is λ‖w‖², and lam is its λ",
    "max_iter": "use rounds",
    "tol": "use rounds; a fit that has not converged gives a ConvergenceWarning",
    "solver": "use algorithm and objective",
    "multi_class": "more than two classes are learnt by softmax",
    "sample_weight": "pass it to fit",
    "n_jobs": "use engine",
}
INSTEAD_IN_FIT: dict[str, str] = {
    "clients": "name it client, one name per row",
    "servers": "name it server, one name per row",
    "clusters": "name it cluster, one name per row",
    "groups": "name it client, one name per row",
}


Bounds = tuple[float, float] | list[tuple[float, float]] | ArrayLike
"""One pair (low, high) for all columns, or one pair per column."""


def spanned(values: Floats) -> tuple[float, float]:
    """Bounds of a column's values; a constant gets room on both sides."""
    low, high = float(values.min()), float(values.max())
    room = max(1.0, abs(low))
    return (low, high) if high - low > 1e-12 * room else (low - room, high + room)


def stated_bounds(bounds: Bounds, columns: int) -> list[tuple[float, float]]:
    """Return one pair (low, high) per column."""
    try:
        pairs = np.asarray(bounds, dtype=np.float64)
    except (TypeError, ValueError):
        pairs = np.empty(0)
    pairs = np.tile(pairs, (columns, 1)) if pairs.shape == (2,) else pairs
    if pairs.shape != (columns, 2) or not np.isfinite(pairs).all() or not (pairs[:, 0] < pairs[:, 1]).all():
        raise ValueError(f"Bounds are one pair (low, high) or {columns} of them, with low < high; got {bounds!r}.")
    return [(float(low), float(high)) for low, high in pairs]


SERVER, CLUSTER = "server", "all"


def federation_of(
    features: Floats,
    targets: Floats,
    client: ArrayLike | None,
    server: ArrayLike | None,
    cluster: ArrayLike | None,
    graph: str | list[tuple[str, str]],
    weights: Floats | None = None,
) -> Federation:
    """The rows as a federation; without names there is one server, one cluster, and one client per pair of them."""
    rows = len(features)
    servers, clusters = names_of("server", server, rows, SERVER), names_of("cluster", cluster, rows, CLUSTER)
    everyone = (
        np.char.add(np.char.add(servers, "/"), clusters) if client is None else names_of("client", client, rows, "")
    )
    clients = {}
    for name in np.unique(everyone):
        mine = np.flatnonzero(everyone == name)
        for what, places in (("server", servers), ("cluster", clusters)):
            if len(found := np.unique(places[mine])) > 1:
                raise ValueError(
                    f"Client {name} has rows in {what} {found[0]} and in {what} {found[1]}; a client belongs to one."
                )
        own = None if weights is None else weights[mine]
        places_of = str(servers[mine[0]]), str(clusters[mine[0]])
        clients[str(name)] = ClientData(*places_of, features[mine], targets[mine], own)
    if isinstance(graph, str):
        return Federation.from_clients(clients, graph=build(graph, len(np.unique(servers))))
    return Federation.from_clients(clients, edges=graph)


def names_of(what: str, names: ArrayLike | None, rows: int, default: str) -> AnyArray:
    """Return one name per row, as text."""
    if names is None:
        return np.full(rows, default)
    given = np.asarray(names)
    found = np.full(rows, given[()]) if given.ndim == 0 else given
    if found.shape != (rows,):
        raise ValueError(f"There are {rows} rows but {found.size} entries in {what}; give one per row.")
    missing = np.array([name is None or name != name for name in found.tolist()])
    if missing.any():
        raise ValueError(f"Row {int(np.argmax(missing))} has no {what}; name one.")
    return found.astype(str)


def balanced(numbers: Floats, classes: int) -> dict[int, float]:
    """Return scikit-learn's balanced weights of labels 0 … C − 1: rows / (C · rows of the label)."""
    counts = np.bincount(numbers.astype(np.int64), minlength=classes)
    return {label: len(numbers) / (classes * count) for label, count in enumerate(counts.tolist()) if count}


class PrivacyAccount:
    """Adds up what fits on the same records spend: ρ adds up, and ε follows from the sum at `delta`.

    Pass one account to an estimator as `account=`; clones of the estimator share it. A fit is charged what it may spend
    before anything is computed, and a charge is never given back. With `epsilon`, a fit that would pass it is refused.
    Scores on held-out rows, by which a search chooses, are exact functions of these rows and not protected.

    >>> account = PrivacyAccount(epsilon=8.0)
    >>> for _ in range(3):
    ...     account.charge(2.0)
    >>> account.fits, round(account.epsilon, 3)
    (3, 3.722)
    """

    def __init__(self, epsilon: float | None = None, delta: float = 1e-5) -> None:
        self.limit, self.delta = epsilon, delta
        self._most = None if epsilon is None else exact_rho(epsilon, delta) * (1.0 + MARGIN)
        self.fits, self.rho = 0, 0.0
        self._process, self._lock = os.getpid(), Lock()

    @property
    def epsilon(self) -> float:
        """ε at `delta` of all fits together, for every record that was in some of them."""
        return float(exact_epsilon(self.rho, self.delta))

    def charge(self, epsilon: float, delta: float | None = None) -> None:
        """Charge a fit that promises (ε, δ); δ is the account's own unless it is given."""
        if self._process != os.getpid():
            raise PrivacyError(
                "This privacy account is a copy from another process, which cannot add up what is spent; fit with "
                "n_jobs=1 or with the threading backend of joblib."
            )
        rho = exact_rho(epsilon, self.delta if delta is None else delta)
        with self._lock:
            if self._most is not None and self.rho + rho > self._most:
                raise BudgetSpent(
                    f"This fit would carry the account past epsilon = {self.limit:g} ({self.fits} fits have spent "
                    f"{self.epsilon:.3g}); search over fewer settings, or lower the estimator's epsilon."
                )
            self.rho, self.fits = self.rho + rho, self.fits + 1

    def __repr__(self) -> str:
        limit = "" if self.limit is None else f" of {self.limit:g}"
        return f"<PrivacyAccount: {self.fits} fits, ε = {self.epsilon:.4g}{limit} at δ = {self.delta:g}>"

    def __sklearn_clone__(self) -> PrivacyAccount:
        return self

    def __copy__(self) -> PrivacyAccount:
        return self

    def __deepcopy__(self, memo: object) -> PrivacyAccount:
        return self

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_process": None, "_lock": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state, _lock=Lock())
