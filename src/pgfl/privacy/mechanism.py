"""The Gaussian mechanism for all clients of a simulation at once: calibration, budget, and the account.

A `Plan` cannot be made without a sensitivity. What it has spent is three numbers a client, whatever the rounds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pgfl.errors import BudgetSpent, PrivacyError
from pgfl.privacy import accounting
from pgfl.privacy.accounting import Floats, Index

Guarantee = Literal["required", "none"]
Integers = NDArray[np.integer[Any]]

RECORD_GUARANTEE = "zCDP for one replaced record, against everyone who sees all messages"


@dataclass(frozen=True)
class NoiseSchedule:
    """φ(n) = φ(0)/ζⁿ for n = 1 … `last`, with n the round, or the client's own count of releases.

    The variance is σ² = Δ²/(2φ) (Theorem III), so it is multiplied by ζ from one index to the next.

    >>> NoiseSchedule(phi0=1e-3, zeta=0.99, index="round", last=300).phi(1)
    array(0.0010101...)
    """

    phi0: float
    zeta: float
    index: Index
    last: int

    def __post_init__(self) -> None:
        if self.index not in ("round", "release"):
            raise PrivacyError(f'index must be "round" or "release", not {self.index!r}.')
        accounting.check_schedule(self.phi0, self.zeta, self.last)

    def phi(self, n: ArrayLike) -> Floats:
        """What index n spends."""
        at = np.asarray(n)
        if not ((at >= 1) & (at <= self.last)).all():
            raise PrivacyError(f"The noise schedule covers indices 1 to {self.last}; one outside it was asked for.")
        return accounting.phi(self.phi0, self.zeta, at)

    def sigma(self, sensitivity: ArrayLike, n: ArrayLike) -> Floats:
        """The standard deviation of the noise at index n: Δ/√(2φ(n))."""
        return sigma_for(sensitivity, self.phi(n))


def sigma_for(sensitivity: ArrayLike, phi: ArrayLike) -> Floats:
    """σ = Δ/√(2φ), Theorem III. (The proof's last line, Δ/(2δ²), is a slip: it is not free of units.)"""
    return np.asarray(np.asarray(sensitivity, dtype=np.float64) / np.sqrt(2.0 * np.asarray(phi)), dtype=np.float64)


@dataclass(eq=False)
class Plan:
    """Sensitivities Δ_k, the schedule, the budget, and what each client has spent.

    In a round an engine asks `admit` who may still release, `sigma` for their noise, and `spend`s before anything is
    released. A client past its budget takes no part. Rounds count from 1. Without a budget (`max_releases` and
    `rho_budget` None) nobody is refused, but everything is counted.
    """

    sensitivity: Floats
    schedule: NoiseSchedule
    delta: float
    max_releases: int | None = None
    rho_budget: float | None = None
    guarantee: Guarantee = "required"
    reason: str = ""
    releases: NDArray[np.int32] = field(init=False)
    rho: Floats = field(init=False)
    refusals: NDArray[np.int32] = field(init=False)

    def __post_init__(self) -> None:
        self.sensitivity = np.atleast_1d(np.asarray(self.sensitivity, dtype=np.float64))
        if self.sensitivity.ndim != 1 or not len(self.sensitivity):
            raise PrivacyError("A privacy plan needs one sensitivity for each client.")
        if not ((self.sensitivity > 0.0) & np.isfinite(self.sensitivity)).all():
            raise PrivacyError("Every sensitivity must be a positive number; without one there is no noise to add.")
        accounting.check_delta(self.delta)
        if self.max_releases is not None and self.max_releases < 1:
            raise PrivacyError(f"max_releases must be at least 1, not {self.max_releases}.")
        if self.rho_budget is not None and not self.rho_budget > 0.0:
            raise PrivacyError(f"The budget in rho must be positive, not {self.rho_budget!r}.")
        if self.guarantee not in ("required", "none"):
            raise PrivacyError(f'guarantee must be "required" or "none", not {self.guarantee!r}.')
        if self.guarantee == "none" and not self.reason:
            raise PrivacyError("A plan without a guarantee must say why it has none.")
        clients = len(self.sensitivity)
        self.releases = np.zeros(clients, dtype=np.int32)
        self.refusals = np.zeros(clients, dtype=np.int32)
        self.rho = np.zeros(clients)
        steps = np.arange(1, self.schedule.last + 1)
        self._phi = np.append(self.schedule.phi(steps), np.inf)  # past the schedule's end nothing can be paid

    @classmethod
    def from_paper(
        cls,
        sensitivity: ArrayLike,
        *,
        phi0: float,
        zeta: float,
        rounds: int,
        delta: float,
        index: Index = "round",
        max_releases: int | None = None,
        epsilon_budget: float | None = None,
    ) -> Self:
        """The paper's φ(0) and ζ; optionally capped by a number of releases or by ε at δ."""
        budget = None if epsilon_budget is None else accounting.exact_rho(epsilon_budget, delta)
        schedule = NoiseSchedule(phi0, zeta, index, rounds)
        return cls(_floats(sensitivity), schedule, delta, max_releases, budget)

    @classmethod
    def from_target(
        cls,
        sensitivity: ArrayLike,
        *,
        epsilon: float,
        delta: float,
        max_releases: int,
        rounds: int,
        zeta: float,
        index: Index = "round",
    ) -> Self:
        """The least noise with which any `max_releases` releases among `rounds` rounds stay within (ε, δ)."""
        found = accounting.schedule_for_target(
            epsilon=epsilon, delta=delta, zeta=zeta, max_releases=min(max_releases, rounds), index=index, rounds=rounds
        )
        last = rounds if index == "round" else min(max_releases, rounds)
        schedule = NoiseSchedule(float(found["phi0"]), zeta, index, last)
        budget = accounting.exact_rho(epsilon, delta) * (1.0 + accounting.MARGIN)
        return cls(_floats(sensitivity), schedule, delta, max_releases, budget)

    @classmethod
    def without_guarantee(
        cls,
        nominal_sensitivity: ArrayLike,
        *,
        phi0: float,
        zeta: float,
        rounds: int,
        delta: float,
        reason: str,
        index: Index = "round",
        max_releases: int | None = None,
    ) -> Self:
        """Noise as in the paper, on a sensitivity that is only nominal: for reproduction, and labelled so.

        `reason` is one sentence; the paper's ridge regression has an unbounded gradient, which breaks its Assumption 3.
        """
        schedule = NoiseSchedule(phi0, zeta, index, rounds)
        return cls(_floats(nominal_sensitivity), schedule, delta, max_releases, None, "none", reason)

    @property
    def label(self) -> str:
        """What is promised, for every result and every screen."""
        return RECORD_GUARANTEE if self.guarantee == "required" else f"no guarantee: {self.reason}"

    def admit(self, clients: Integers, round: int) -> NDArray[np.bool_]:
        """Who of `clients` can pay for a release in this round; those who cannot are counted as refused."""
        allowed = self._can_pay(clients, round)
        if not _all(allowed):
            self.refusals[clients[np.broadcast_to(~np.asarray(allowed), clients.shape)]] += 1
        return np.ones(len(clients), dtype=bool) & allowed

    def sigma(self, clients: Integers, round: int) -> Floats:
        """The standard deviation of each client's next release. Ask before `spend`."""
        price = self._price(clients, round)
        if not _all(_finite(price)):
            raise BudgetSpent(f"The noise schedule ends at {self.schedule.index} {self.schedule.last}.")
        return sigma_for(self.sensitivity[clients], price)

    @property
    def least_sigma(self) -> float:
        """The smallest standard deviation that any client may draw with before its schedule or releases end."""
        last = self.schedule.last
        if self.schedule.index == "release" and self.max_releases is not None:
            last = min(last, self.max_releases)
        return float(self.schedule.sigma(self.sensitivity.min(), last))

    def spend(self, clients: Integers, round: int) -> None:
        """Count one release of each of `clients`, before it is released; all of them or none."""
        if not _all(self._can_pay(clients, round)):
            raise BudgetSpent(f"A client of round {round} has spent its privacy budget; ask admit before a release.")
        if (clients[1:] <= clients[:-1]).any() and len(np.unique(clients)) != len(clients):
            raise PrivacyError(f"A client would release twice in round {round}; a retry must resend what was released.")
        self.rho[clients] += self._price(clients, round)
        self.releases[clients] += 1

    def state(self) -> dict[str, NDArray[Any]]:
        """What a checkpoint must hold."""
        return {"releases": self.releases.copy(), "rho": self.rho.copy(), "refusals": self.refusals.copy()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from `state()`. A state that spent less than this plan already has is refused."""
        if missing := {"releases", "rho", "refusals"} - set(state):
            raise PrivacyError(f"The checkpoint's privacy account lacks {', '.join(sorted(missing))}.")
        releases, rho, refusals = (np.asarray(state[name]) for name in ("releases", "rho", "refusals"))
        if not releases.shape == rho.shape == refusals.shape == self.releases.shape:
            raise PrivacyError("The checkpoint's privacy account is for another number of clients.")
        if (releases < self.releases).any() or not (rho >= self.rho).all():
            raise PrivacyError(
                "The checkpoint's privacy account has spent less than is already spent; nothing is undone."
            )
        self.releases = releases.astype(np.int32)
        self.refusals = refusals.astype(np.int32)
        self.rho = rho.astype(np.float64)

    def table(self, round: int | None = None) -> dict[str, NDArray[Any]]:
        """The account, a row a client. Without a guarantee ρ and ε are infinite: no finite figure would be true.

        `next_phi` is what the next release would spend (by round: the one after `round`); NaN if it would be refused.
        """
        everyone = np.arange(len(self.releases))
        ahead = 1 if round is None else round + 1
        kept = self.guarantee == "required"
        endless = np.full(len(everyone), np.inf)
        return {
            "releases": self.releases.copy(),
            "rho": self.rho.copy() if kept else endless,
            "epsilon": accounting.exact_epsilon(self.rho, self.delta) if kept else endless,
            "epsilon_paper": accounting.paper_epsilon(self.rho, self.delta) if kept else endless,
            "next_phi": np.full(
                len(everyone), np.where(self._can_pay(everyone, ahead), self._price(everyone, ahead), np.nan)
            ),
            "refused": self.refusals.copy(),
            "guarantee": np.full(len(everyone), kept),
        }

    def summary(self, table: Mapping[str, NDArray[Any]] | None = None) -> dict[str, Any]:
        """The run's figures for people and JSON: worst and median client, and what is promised."""
        columns = self.table() if table is None else table
        figures: dict[str, Any] = {
            "label": self.label,
            "guarantee": self.guarantee == "required",
            "phi0": self.schedule.phi0,
            "zeta": self.schedule.zeta,
            "index": self.schedule.index,
            "delta": self.delta,
            "max_releases": self.max_releases,
            "rho_budget": self.rho_budget,
            "clients": len(self.releases),
            "refused": int(np.sum(columns["refused"], dtype=np.int64)),
        }
        for name in ("releases", "rho", "epsilon", "epsilon_paper"):
            worst, median = float(np.max(columns[name])), float(np.median(columns[name]))
            figures[name] = {"worst": worst, "median": median} if math.isfinite(worst) else None
        return figures

    def _price(self, clients: Integers, round: int) -> Floats | float:
        """φ of each client's next release: one number for all where the round decides."""
        if self.schedule.index == "release":
            return np.asarray(self._phi[self.releases[clients]], dtype=np.float64)
        if round < 1:
            raise PrivacyError(f"Rounds count from 1, so there is no noise for round {round}.")
        return float(self._phi[min(round - 1, self.schedule.last)])

    def _can_pay(self, clients: Integers, round: int) -> NDArray[np.bool_] | bool:
        """Who can pay for a release in this round: one answer for all where only the schedule decides."""
        price = self._price(clients, round)
        allowed = _finite(price)
        if self.max_releases is not None:
            allowed = allowed & (self.releases[clients] < self.max_releases)
        if self.rho_budget is not None:
            allowed = allowed & (self.rho[clients] + price <= self.rho_budget)
        return allowed


def _finite(price: Floats | float) -> NDArray[np.bool_] | bool:
    return math.isfinite(price) if isinstance(price, float) else np.isfinite(price)


def _all(answer: NDArray[np.bool_] | bool) -> bool:
    return answer if isinstance(answer, bool) else bool(answer.all())


def _floats(values: ArrayLike) -> Floats:
    return np.asarray(values, dtype=np.float64)
