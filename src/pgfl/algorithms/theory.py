"""The quantities in the theorems: the exact cluster optimum, η, and the bound of Theorem II."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from pgfl.algorithms.schedules import Tau, tau_at
from pgfl.arrays import Bools, Floats
from pgfl.errors import ConfigError
from pgfl.federation.federation import Federation
from pgfl.metrics import squared_norm
from pgfl.objectives import MarginObjective, Objective

NEWTON_STEPS = 100
GRADIENT = 1e-9  # of the mean risk, per coordinate, at an optimum that L-BFGS finds


def cluster_objective(federation: Federation, objective: MarginObjective, cluster: int) -> ClusterObjective:
    """Σ_{k∈C_(q)} f_k of one cluster, all rows stacked."""
    clients = np.flatnonzero(federation.client_cluster == cluster)
    rows = np.concatenate([np.arange(*federation.offsets[k : k + 2]) for k in clients])
    share = np.repeat(1.0 / federation.counts[clients], federation.counts[clients])
    ridge = objective.lam * (1.0 / federation.server_sizes[federation.client_server[clients]]).sum()
    targets = federation.weighted_targets(rows).astype(float)
    return ClusterObjective(objective, federation.features[rows].astype(float), targets, share, ridge)


def cluster_optimum(federation: Federation, objective: Objective, cluster: int) -> Floats:
    """The minimiser of Σ_{k∈C_(q)} f_k, for any smooth objective."""
    if isinstance(objective, MarginObjective):
        return cluster_objective(federation, objective, cluster).minimiser()
    from scipy.optimize import minimize

    clients = np.flatnonzero(federation.client_cluster == cluster)
    data = [federation.rows(int(k)) for k in clients]
    ridge = objective.lam * (1.0 / federation.server_sizes[federation.client_server[clients]]).sum()

    def risk(w: Floats) -> tuple[float, Floats]:
        value, gradient = ridge * float(w @ w), 2.0 * ridge * w
        for features, targets in data:
            loss, slope = objective.value_and_gradient(w, features, targets, np.float64(len(targets)))
            value, gradient = value + float(loss), gradient + np.asarray(slope, dtype=float)
        return value / len(clients), gradient / len(clients)

    options = {"maxiter": 10_000, "maxfun": 20_000, "ftol": 0.0, "gtol": GRADIENT, "maxcor": 30}
    start = np.zeros(objective.model_length(federation.dimension))
    found = minimize(risk, start, jac=True, method="L-BFGS-B", options=options)  # type: ignore[call-overload]
    return np.asarray(found.x)


class ClusterObjective:
    r"""Σ_{k∈C_(q)} (1/D_k) Σ ℓ + λ Σ_k ‖w‖²/|C_s|, \label{ERM_global} (1) and \label{ERM_servers} (2) with τ = 0.

    Each client weighs its regulariser by 1/|C_s|, as its primal update does.
    """

    def __init__(
        self, objective: MarginObjective, features: Floats, targets: Floats, share: Floats, ridge: float
    ) -> None:
        self._objective, self._features, self._targets = objective, features, targets
        self._share, self._ridge = share, ridge

    def with_ridge(self, ridge: float) -> ClusterObjective:
        """The same losses with another weight of ‖w‖²."""
        return ClusterObjective(self._objective, self._features, self._targets, self._share, ridge)

    def value(self, w: Floats) -> float:
        """The cluster's risk at w."""
        losses = self._objective.scalar_loss(self._features @ w, self._targets)
        return float(self._share @ losses + self._ridge * (w @ w))

    def gradient(self, w: Floats) -> Floats:
        """∇ at w."""
        slopes = self._share * self._objective.slope(self._features @ w, self._targets)
        return np.asarray(self._features.T @ slopes + 2.0 * self._ridge * w)

    def minimiser(self) -> Floats:
        """The exact optimum, by damped Newton; the least-norm one if the problem is singular."""
        w = np.zeros(self._features.shape[1])
        for _ in range(NEWTON_STEPS):
            gradient = self.gradient(w)
            bend = self._share * self._objective.curvature(self._features @ w, self._targets)
            hessian = (self._features.T * bend) @ self._features + 2.0 * self._ridge * np.eye(len(w))
            direction = -np.linalg.lstsq(hessian, gradient, rcond=None)[0]
            step, value, slope = 1.0, self.value(w), float(gradient @ direction)
            while self.value(w + step * direction) > value + 1e-4 * step * slope and step > 1e-12:
                step *= 0.5
            moved = step * direction
            w = w + moved
            if np.abs(moved).max() <= 1e-15 * (1.0 + np.abs(w).max()):
                break
        return w


def summed_products(federation: Federation, clients: Bools) -> Floats:
    """Σ_k X_kᵀX_k/D_k over some clients: times the loss's curvature, the sum of their Hessians at most."""
    share = np.repeat(clients / federation.counts, federation.counts)
    rows = federation.features[share > 0].astype(float)
    rows *= np.sqrt(share[share > 0])[:, None]
    return np.asarray(rows.T @ rows)


def least_steady_rho(products: Floats, clients: int, curvature: float) -> float:
    """L/2, from `summed_products` of a cluster's clients: with a smaller ρ, steps of length 1/ρ overshoot for ever."""
    return 0.5 * curvature * float(np.linalg.eigvalsh(products)[-1]) / max(clients, 1)


def steady_decay(curvature: float, rho: float, releases_per_round: float = 1.0) -> float:
    """ζ that wastes nothing: what a round of linearised steps leaves of an error, a = 1 − μ/ρ, per release.

    Noise of round n reaches the last model times aᴺ⁻ⁿ. Of all schedules that spend Σ φ⁽ⁿ⁾ = ρ_z, the sum of
    a²⁽ᴺ⁻ⁿ⁾/φ⁽ⁿ⁾ is least for φ⁽ⁿ⁾ ∝ a⁻ⁿ, the paper's schedule with ζ = a. A client that takes part in a share of the
    rounds only sees a¹ᐟˢʰᵃʳᵉ from one release to the next. Where the loss is linear, as Huber's is beyond κ, errors do
    not shrink geometrically, and a schedule must not begin with more noise than κ can undo.

    >>> round(steady_decay(curvature=1 / 30, rho=0.5), 4)
    0.9333
    """
    if not 0.0 < curvature < rho:
        raise ConfigError(f"The curvature must be above 0 and below rho = {rho:g}; got {curvature:g}.")
    return float((1.0 - curvature / rho) ** (1.0 / releases_per_round))


def maximum_cluster_distance(optima: Sequence[Floats] | Floats) -> float:
    """η = max_{q,r} ‖w_q* − w_r*‖² of Theorem II, w_q* the cluster optima."""
    return max((float(squared_norm(a - b)) for a, b in combinations(optima, 2)), default=0.0)


def theorem_two_bound(tau: Tau, rounds: int, eta: float) -> Floats:
    r"""The bound \label{Recursion} (27) after rounds 0 … n; it equals η (1 − Π_j (1 − τ⁽ʲ⁾)).

    >>> theorem_two_bound(0.5, 2, 4.0)
    array([0., 2., 3.])
    """
    kept = np.cumprod([1.0, *(1.0 - tau_at(tau, n) for n in range(1, rounds + 1))])
    return np.asarray(eta * (1.0 - kept))
