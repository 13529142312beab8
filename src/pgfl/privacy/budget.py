"""The privacy contract of a client: what each release spends, what may be spent, and what that amounts to."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from pgfl.arrays import AnyInts, Bools, Floats
from pgfl.errors import PrivacyError
from pgfl.privacy import accounting

if TYPE_CHECKING:
    from dp_accounting import DpEvent

Index = Literal["round", "release"]
Guarantee = Literal["required", "none"]


def sigma_for(sensitivity: ArrayLike, phi: ArrayLike) -> Floats:
    """σ = Δ/√(2φ), Theorem III. (The proof's last line, Δ/(2δ²), is a slip: it is not free of units.)"""
    root = math.sqrt(2.0 * phi) if isinstance(phi, float) else np.sqrt(2.0 * np.asarray(phi))
    return np.asarray(np.asarray(sensitivity, dtype=np.float64) / root)


@dataclass(frozen=True)
class Budget:
    """A noise schedule φ(n) = φ(0)/ζⁿ, and the limits on what one client may spend of it.

    The index n is the round, or the client's own count of releases; it starts at 1 and ends at `last`. A schedule
    by release without `last` ends with `max_releases` or `rho_budget`. The variance is σ² = Δ²/(2φ) (Theorem III), so
    it is multiplied by ζ from one index to the next.

    >>> Budget(phi0=1e-3, zeta=0.99, delta=1e-5, index="round", last=300).phi(1)
    array(0.0010101...)
    """

    phi0: float
    zeta: float
    delta: float
    max_releases: int | None = None
    rho_budget: float | None = None
    index: Index = "release"
    last: int | None = None

    def __post_init__(self) -> None:
        if self.index not in ("round", "release"):
            raise PrivacyError(f'index must be "round" or "release", not {self.index!r}.')
        if self.index == "round" and self.last is None:
            raise PrivacyError("A noise schedule by round needs the number of rounds.")
        accounting.check_delta(self.delta)
        if self.max_releases is not None and self.max_releases < 1:
            raise PrivacyError(f"max_releases must be at least 1, not {self.max_releases}.")
        if self.rho_budget is not None and not (self.rho_budget > 0.0 and math.isfinite(self.rho_budget)):
            raise PrivacyError(f"The budget in rho must be a positive number, not {self.rho_budget!r}.")
        accounting.check_schedule(self.phi0, self.zeta, (self.max_releases or 1) if self.last is None else self.last)

    @classmethod
    def from_schedule(
        cls,
        *,
        zeta: float,
        delta: float,
        rounds: int,
        phi0: float | None = None,
        phi1: float | None = None,
        index: Index = "round",
        max_releases: int | None = None,
        epsilon_cap: float | None = None,
    ) -> Self:
        """The paper's schedule, by φ(0) or by the first release's φ(1); optionally capped by releases or by ε at δ."""
        accounting.check_zeta(zeta)
        if phi0 is None and phi1 is not None:
            accounting.check_positive("phi1", phi1)
            phi0 = phi1 * zeta
        elif phi0 is None or phi1 is not None:
            raise PrivacyError("Give either phi0 or phi1 (= phi0 / zeta, the first release), not both and not neither.")
        rho = None if epsilon_cap is None else accounting.exact_rho(epsilon_cap, delta)
        return cls(phi0, zeta, delta, max_releases, rho, index, rounds)

    @classmethod
    def from_target(
        cls,
        *,
        epsilon: float,
        delta: float,
        zeta: float,
        max_releases: int,
        index: Index = "release",
        rounds: int | None = None,
    ) -> Self:
        """The least noise with which any `max_releases` releases stay within (ε, δ).

        By release, those are numbers 1 to `max_releases`. By round, a client may take part in any of the `rounds`
        rounds, so the last and dearest ones are assumed.
        """
        if index == "round" and rounds is None:
            raise PrivacyError("A target by round needs the number of rounds: the last, dearest ones are assumed.")
        possible = max_releases if rounds is None else min(max_releases, rounds)
        last = rounds if index == "round" and rounds is not None else possible
        rho = accounting.exact_rho(epsilon, delta)
        accounting.check_schedule(1.0, zeta, possible)
        accounting.check_schedule(1.0, zeta, last)
        phi0 = rho / float(accounting.growth(zeta, last - possible + 1, last))
        if phi0 < np.finfo(float).tiny:
            raise PrivacyError(
                f"epsilon = {epsilon:g} over {possible} releases at zeta = {zeta:g} cannot be met: the first release "
                "would need endless noise; raise epsilon or zeta, or allow fewer releases."
            )
        return cls(phi0, zeta, delta, max_releases, rho * (1.0 + accounting.MARGIN), index, last)

    def at_pace(self, rounds: int) -> Budget:
        """The budget of a client that answers once in so many rounds.

        A release spends what those rounds would have cost, so all of them together spend no more than this budget. Of
        (ε, δ) over N releases at ζ it is the target over N/rounds releases at ζ to the power of `rounds`, by release.

        >>> Budget.from_target(epsilon=1.0, delta=1e-5, zeta=0.99, max_releases=80).at_pace(4).max_releases
        20
        """
        ends = [end for end in (self.last, self.max_releases) if end is not None]
        rounds = min([rounds, *ends])
        return replace(
            self,
            phi0=self.phi0 * self.zeta**rounds * float(accounting.growth(self.zeta, 1, rounds)),
            zeta=self.zeta**rounds,
            max_releases=None if self.max_releases is None else self.max_releases // rounds,
            last=None if self.last is None else self.last // rounds,
            index="release",
        )

    def phi(self, n: ArrayLike) -> Floats:
        """What index n spends."""
        at = np.asarray(n)
        if not ((at >= 1) & (at <= (np.inf if self.last is None else self.last))).all():
            raise PrivacyError(f"The noise schedule covers indices 1 to {self.last}; one outside it was asked for.")
        return accounting.phi(self.phi0, self.zeta, at)

    def sigma(self, sensitivity: ArrayLike, n: ArrayLike) -> Floats:
        """The standard deviation of the noise at index n: Δ/√(2φ(n))."""
        return sigma_for(sensitivity, self.phi(n))

    def price(self, releases: AnyInts | int, round: int = 0, clients: AnyInts | None = None) -> Floats | float:
        """φ of the next release of accounts with so many `releases`; infinite past the schedule's end.

        Where the round decides, it is one number for all. `clients` selects some of many accounts.
        """
        if self.index == "round":
            return float(self._prices[-1 if self._over(round) else round - 1])
        made = _of(releases, clients)
        return float(self.phi(made + 1)) if self.last is None else np.asarray(self._prices[made], dtype=np.float64)

    def affordable(
        self, rho: Floats | float, releases: AnyInts | int, round: int = 0, clients: AnyInts | None = None
    ) -> Bools | bool:
        """Whether accounts that spent `rho` in `releases` releases can pay for the next one.

        Where only the schedule decides, it is one answer for all. `clients` selects some of many accounts.
        """
        allowed: Bools | bool = self.index == "release" or not self._over(round)
        most = self.max_releases if self.index == "round" else self._last_release
        if most is not None:
            allowed = allowed & (_of(releases, clients) < most)
        if self.rho_budget is not None:
            allowed = allowed & (_of(rho, clients) + self.price(releases, round, clients) <= self.rho_budget)
        return allowed

    def surely_affordable(self, rho: float, releases: int, round: int, times: int) -> bool:
        """Whether any account that spent up to `rho` in up to `releases` releases can pay for `times` more of them.

        There may be one in each of the rounds from `round` on, or of those before. Each is taken to cost as much as
        the dearest; what is left for rounding is far more than sums in another order differ by.
        """
        end = round + times - 1
        most = self.max_releases if self.index == "round" else self._last_release
        if (self.index == "round" and self._over(end)) or (most is not None and releases + times > most):
            return False
        dearest = float(self.price(releases + times - 1, end))
        return self.rho_budget is None or rho + times * dearest <= self.rho_budget * (1.0 - accounting.MARGIN)

    def spent(
        self, rho: Floats | float, releases: AnyInts | int, round: int = 0, clients: AnyInts | None = None
    ) -> Bools:
        """Whether accounts can never pay for a release again, from this round on.

        φ never falls (ζ ≤ 1) and limits are never raised, so what cannot be paid now cannot be paid later either.
        """
        return np.logical_not(self.affordable(rho, releases, round, clients))

    @property
    def dearest(self) -> int:
        """The last index that a release may have: its noise is the least."""
        last = self.last if self.index == "round" else self._last_release
        if last is None:
            raise PrivacyError("This budget has no last release; set max_releases.")
        return last

    def figures(self, rho: float | None = None) -> dict[str, Any]:
        """What the budget amounts to, for people and JSON: ρ and ε of the dearest releases that it allows.

        A target states its own `rho`, which the sum over its schedule meets up to rounding.
        """
        last = self.dearest
        most = last if self.max_releases is None else min(self.max_releases, last)
        if rho is None:
            rho = float(accounting.rho_total(self.phi0, self.zeta, most, first=last - most + 1))
        extent: dict[str, Any] = {"rounds": last}
        if self.max_releases is not None:
            extent = {"index": self.index, "max_releases": most, "last_phi": float(self.phi(last))}
        return {
            "phi0": self.phi0,
            "phi1": self.phi0 / self.zeta,
            "zeta": self.zeta,
            **extent,
            "delta": self.delta,
            "rho": rho,
            "epsilon": float(accounting.exact_epsilon(rho, self.delta)),
            "epsilon_paper": float(accounting.paper_epsilon(rho, self.delta)),
        }

    def to_dp_event(self) -> DpEvent:
        """Return the dearest releases that the budget allows as a `dp_accounting.DpEvent`, to check ε independently."""
        last = self.dearest
        most = last if self.max_releases is None else min(self.max_releases, last)
        return accounting.to_dp_event(self.phi(np.arange(last - most + 1, last + 1)))

    def _over(self, round: int) -> bool:
        """Whether the schedule has ended before this round."""
        if round < 1:
            raise PrivacyError(f"Rounds count from 1, so there is no noise for round {round}.")
        return self.last is not None and round > self.last

    @cached_property
    def _last_release(self) -> int | None:
        """The number of a client's last release, where its index counts them."""
        return min((end for end in (self.last, self.max_releases) if end is not None), default=None)

    @cached_property
    def _prices(self) -> Floats:
        """φ of every index, and what nobody can pay past the last one."""
        assert self.last is not None
        return np.append(self.phi(np.arange(1, self.last + 1)), np.inf)


def _of(values: Any, clients: AnyInts | None) -> Any:
    """The accounts of some clients, or of all."""
    return values if clients is None else values[clients]
