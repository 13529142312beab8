"""The Gaussian mechanism for all clients of a simulation at once: who may release, with which noise, and the account.

A `Plan` cannot be made without a sensitivity. It keeps three numbers per client, however many rounds there are.
Charges are public and known ahead, so a look at all accounts tells for how many rounds none of them can meet a limit.

What all clients of a simulation have spent: charges are noted at once, and added up when somebody looks.

A round's charges of a few clients take longer to add to the account than to note. Looking is the only way to the
figures, so nobody sees an account from which a charge is missing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pgfl.arrays import AnyArray, AnyInts, Bools, Floats, Ints
from pgfl.errors import BudgetSpent, PrivacyError
from pgfl.privacy import accounting
from pgfl.privacy.budget import Budget, Guarantee, sigma_for
from pgfl.privacy.card import PrivacyCard
from pgfl.privacy.trust import SharedNoise, Trust

T = TypeVar("T")
NOTED = 2**12  # charges that are noted at most; more than that are added up at once


class Account:
    """The releases of every client, and ρ, the sum of what they spent."""

    def __init__(self, releases: NDArray[np.int32], rho: Floats) -> None:
        self._releases, self._rho = releases, rho
        self._clients, self._phi = np.empty(NOTED, dtype=np.int64), np.empty(NOTED)
        self._noted = 0

    @classmethod
    def empty(cls, clients: int) -> Account:
        """Nobody has released anything."""
        return cls(np.zeros(clients, dtype=np.int32), np.zeros(clients))

    @property
    def releases(self) -> NDArray[np.int32]:
        """How often every client has released."""
        self._add_up()
        return self._releases

    @property
    def rho(self) -> Floats:
        """What every client has spent."""
        self._add_up()
        return self._rho

    def charge(self, clients: AnyInts, phi: Floats | float) -> None:
        """Charge each of `clients` for one release that spends φ."""
        start, end = self._noted, self._noted + len(clients)
        if end > NOTED:
            self._add_up()
            start, end = 0, len(clients)
        if end > NOTED:
            self._add(clients, phi)
        else:
            self._clients[start:end], self._phi[start:end], self._noted = clients, phi, end

    def _add_up(self) -> None:
        """Interrupted between its two steps, this counts charges twice; the other way around they would be lost."""
        if self._noted:
            self._add(self._clients[: self._noted], self._phi[: self._noted])
            self._noted = 0

    def _add(self, clients: AnyInts, phi: Floats | float) -> None:
        """Add charges in the order in which they were made, which decides the last bit of a client's sum."""
        np.add.at(self._rho, clients, phi)
        np.add.at(self._releases, clients, np.int32(1))


AHEAD = 64  # releases of each client that one look ahead covers at most
STATED = ("phi0", "zeta", "index", "delta", "max_releases", "rho_budget")


@dataclass(frozen=True, eq=False)
class Pace:
    """Clients that release less often than others, and the budget that they have for it."""

    slow: Bools
    budget: Budget


@dataclass(eq=False)
class Plan:
    """Sensitivities Δ_k, the budget that every client has, and what each of them has spent.

    In a round an engine asks `charged` who releases and with which noise: `admit`, `sigma` and `spend` in this order,
    before anything is released. A client past its budget takes no part. Rounds count from 1. A plan without a guarantee
    is for reproducing the paper: its sensitivity is only nominal, and its `reason` says why. With a `pace` some clients
    have a budget of their own.
    """

    sensitivity: Floats
    budget: Budget
    guarantee: Guarantee = "required"
    reason: str = ""
    shared: SharedNoise | None = None  # where only the noised sums of pairs are released
    pace: Pace | None = None
    account: Account = field(init=False)
    refusals: NDArray[np.int32] = field(init=False)
    inherited: Bools = field(init=False)  # accounts that began with the largest one of an earlier training

    def __post_init__(self) -> None:
        self.sensitivity = np.atleast_1d(np.asarray(self.sensitivity, dtype=np.float64))
        if self.sensitivity.ndim != 1 or not len(self.sensitivity):
            raise PrivacyError("A privacy plan needs one sensitivity for each client.")
        if not ((self.sensitivity > 0.0) & np.isfinite(self.sensitivity)).all():
            raise PrivacyError("Every sensitivity must be a positive number; without one there is no noise to add.")
        if self.budget.last is None:
            raise PrivacyError("A privacy plan needs a noise schedule with an end; state the number of rounds.")
        if self.guarantee not in ("required", "none"):
            raise PrivacyError(f'guarantee must be "required" or "none", not {self.guarantee!r}.')
        if self.guarantee == "none" and not self.reason:
            raise PrivacyError("A plan without a guarantee must say why it has none.")
        clients = len(self.sensitivity)
        self.account = Account.empty(clients)
        self.refusals = np.zeros(clients, dtype=np.int32)
        self.inherited = np.zeros(clients, dtype=bool)
        self._sure = _Sure()

    @property
    def label(self) -> str:
        """What is promised, for every result and every screen."""
        return self.trust.promise.label if self.guarantee == "required" else f"no guarantee: {self.reason}"

    def card(self, noise: str) -> PrivacyCard:
        """Return the privacy card of a training that starts now: what is promised, and nothing spent."""
        promise, budget = self.trust.promise, self.budget
        most = budget.dearest if budget.max_releases is None else min(budget.max_releases, budget.dearest)
        limit = None if budget.rho_budget is None else budget.rho_budget / (1.0 + accounting.MARGIN)
        return PrivacyCard(
            label=self.label,
            epsilon=0.0 if self.guarantee == "required" else math.inf,
            delta=self.delta,
            unit=promise.unit,
            against=promise.against,
            assuming=promise.assuming,
            not_covered=promise.not_covered,
            releases=0,
            most_releases=most,
            budget=None if limit is None else float(accounting.exact_epsilon(limit, self.delta)),
            noise=noise,
        )

    @property
    def trust(self) -> Trust:
        """Whom the clients trust."""
        return Trust() if self.shared is None else self.shared.trust

    @property
    def releases(self) -> NDArray[np.int32]:
        """How often every client has released."""
        return self.account.releases

    @property
    def rho(self) -> Floats:
        """What every client has spent."""
        return self.account.rho

    @property
    def delta(self) -> float:
        """δ of every stated ε."""
        return self.budget.delta

    def charged(self, clients: Ints, round: int) -> tuple[Ints, Floats]:
        """Who of `clients` releases in this round, and with which deviation; they have been charged for it."""
        if not self._everyone_can_pay(round):
            clients = clients[self.admit(clients, round)]
        elif self.shared is not None:
            clients = clients[self.shared.able(clients)]
        price = self._price(clients, round)
        sigma = self._sigma(clients, price)
        self._charge(clients, round, price, sigma)
        return clients, sigma

    def admit(self, clients: AnyInts, round: int) -> Bools:
        """Who of `clients` can pay for a release in this round; those who cannot are counted as refused.

        Where noise is shared, pairs with too few contributors sit the round out; nobody of them is refused or charged.
        """
        allowed = self._affordable(clients, round)
        if not _all(allowed):
            self.refusals[clients[np.broadcast_to(~np.asarray(allowed), clients.shape)]] += 1
        admitted = np.ones(len(clients), dtype=bool) & allowed
        if self.shared is not None:
            admitted[admitted] = self.shared.able(clients[admitted])
        return admitted

    def sigma(self, clients: AnyInts, round: int) -> Floats:
        """The standard deviation of each client's next release, or of its pair's sum. Ask before `spend`."""
        return self._sigma(clients, self._price(clients, round))

    @property
    def least_sigma(self) -> float:
        """The smallest standard deviation that any client may draw with before its schedule or releases end."""
        budgets = [self.budget] if self.pace is None else [self.budget, self.pace.budget]
        return min(float(budget.sigma(self.sensitivity.min(), budget.dearest)) for budget in budgets)

    def variance_of_means(self, clients: AnyInts, sigma: Floats, share: Floats) -> Floats:
        """What each client's release, with the deviation that it asks for, adds to the variance of its pair's mean.

        `share` is 1/n for n contributors.
        """
        if self.shared is None:
            return np.asarray((share * sigma) ** 2)
        return self.shared.variance_of_means(clients, sigma, share)

    def spend(self, clients: AnyInts, round: int) -> None:
        """Count one release of each of `clients`, before it is released; all of them or none.

        Where noise is shared, these must be the clients of `sigma`: what the noise of a pair hides is what they pay.
        """
        if not _all(self._affordable(clients, round)):
            raise BudgetSpent(f"A client of round {round} has spent its privacy budget; ask admit before a release.")
        price = self._price(clients, round)
        self._charge(clients, round, price, self._sigma(clients, price))

    def spent_if_any(self, round: int) -> Bools | None:
        """`spent`, or None if nobody is: mostly known without a look at every client."""
        if self._everyone_can_pay(round):
            return self._never_able
        spent = self.spent(round)
        return spent if spent.any() else None

    def spent(self, round: int) -> Bools:
        """Which clients can never release again, from this round on; it follows from public numbers."""
        spent = np.broadcast_to(self.budget.spent(self.rho, self.releases, round), self.releases.shape)
        spent = self._paced(
            spent, np.arange(len(spent)), lambda budget, slow: budget.spent(self.rho, self.releases, round, slow)
        )
        return spent if self.shared is None else ~self.shared.ever_able(~spent)

    @cached_property
    def _never_able(self) -> Bools | None:
        """Clients whose pair is too small even if all of it can pay, or None."""
        spent = None if self.shared is None else ~self.shared.ever_able(np.ones(len(self.sensitivity), dtype=bool))
        return None if spent is None or not spent.any() else spent

    def state(self) -> dict[str, AnyArray]:
        """What a checkpoint must hold."""
        return {"releases": self.releases.copy(), "rho": self.rho.copy(), "refusals": self.refusals.copy()}

    def restore(self, state: Mapping[str, AnyArray]) -> None:
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
        self.account = Account(releases.astype(np.int32), rho.astype(np.float64))
        self.refusals = refusals.astype(np.int32)
        self._sure = _Sure()

    def table(self, round: int | None = None) -> dict[str, AnyArray]:
        """The account, one row per client. Without a guarantee ρ and ε are infinite: no finite figure would be true.

        `next_phi` is what the next release would spend (by round: the one after `round`); NaN if it would be refused.
        """
        everyone = np.arange(len(self.releases))
        ahead = 1 if round is None else round + 1
        able = self._affordable(everyone, ahead) & (True if self.shared is None else ~self.spent(ahead))
        kept = self.guarantee == "required"
        endless = np.full(len(everyone), np.inf)
        return {
            "releases": self.releases.copy(),
            "rho": self.rho.copy() if kept else endless,
            "epsilon": accounting.exact_epsilon(self.rho, self.delta) if kept else endless,
            "epsilon_paper": accounting.paper_epsilon(self.rho, self.delta) if kept else endless,
            "next_phi": np.full(
                len(everyone),
                np.where(able, self._prices(everyone, ahead), np.nan),
            ),
            "refused": self.refusals.copy(),
            "inherited": self.inherited.copy(),
            "guarantee": np.full(len(everyone), kept),
        }

    def summary(self, table: Mapping[str, AnyArray] | None = None) -> dict[str, Any]:
        """The run's figures for people and JSON: worst and median client, and what is promised."""
        columns = self.table() if table is None else table
        figures: dict[str, Any] = {
            "label": self.label,
            "guarantee": self.guarantee == "required",
            **{name: getattr(self.budget, name) for name in STATED},
            **self._stated_trust(),
            "clients": len(self.releases),
            "refused": int(np.sum(columns["refused"], dtype=np.int64)),
        }
        for name in ("releases", "rho", "epsilon", "epsilon_paper"):
            worst, median = float(np.max(columns[name])), float(np.median(columns[name]))
            figures[name] = {"worst": worst, "median": median} if math.isfinite(worst) else None
        return figures

    def _stated_trust(self) -> dict[str, Any]:
        trust = self.trust
        numbers = ("contributors", "colluders", "dropouts") if trust.level == "masked" else ("contributors",)
        return {"trust": trust.level} | {name: getattr(trust, name) for name in numbers if trust.aggregates}

    def _price(self, clients: AnyInts, round: int) -> Floats | float:
        """φ of each client's next release. Where the round decides, no account is looked at."""
        price = self._prices(clients, round)
        if not (math.isfinite(price) if isinstance(price, float) else np.isfinite(price).all()):
            raise BudgetSpent(f"The noise schedule ends at {self.budget.index} {self.budget.last}.")
        return price

    def _prices(self, clients: AnyInts, round: int) -> Floats | float:
        made = 0 if self.budget.index == "round" else self.releases
        price = self.budget.price(made, round, clients)
        return self._paced(price, clients, lambda budget, slow: budget.price(self.releases, round, slow))

    def _can_pay(self, clients: AnyInts, round: int) -> Bools | bool:
        can = self.budget.affordable(self.rho, self.releases, round, clients)
        return self._paced(can, clients, lambda budget, slow: budget.affordable(self.rho, self.releases, round, slow))

    def _paced(self, found: T, clients: AnyInts, of: Callable[[Budget, AnyInts], Any]) -> T | Any:
        """What was found for `clients`, but for those with a budget of their own what `of` finds."""
        if self.pace is None:
            return found
        slow, every = self.pace.slow[clients], np.array(np.broadcast_to(np.asarray(found), clients.shape))
        every[slow] = of(self.pace.budget, clients[slow])
        return every

    def _sigma(self, clients: AnyInts, price: Floats | float) -> Floats:
        sensitivity = self.sensitivity[clients]
        if self.shared is not None:
            return self.shared.sigma(clients, sensitivity, price)
        return sigma_for(sensitivity, price)

    def _charge(self, clients: AnyInts, round: int, price: Floats | float, sigma: Floats) -> None:
        """Charge clients that can pay. Where noise is shared, σ decides, which may be larger than a client asks for."""
        if np.count_nonzero(clients[1:] <= clients[:-1]) and len(np.unique(clients)) != len(clients):
            raise PrivacyError(f"A client would release twice in round {round}; a retry must resend what was released.")
        if self.shared is not None:
            price = self.shared.charges(clients, self.sensitivity[clients], sigma)
        self.account.charge(clients, price)
        self._sure.releases -= 1

    def _affordable(self, clients: AnyInts, round: int) -> Bools | bool:
        return self._everyone_can_pay(round) or self._can_pay(clients, round)

    def _everyone_can_pay(self, round: int) -> bool:
        """Whether all clients can surely pay for a release in this round; no is no answer for any one of them.

        Nobody releases more often than `spend` is called, φ never falls, and nothing is given back. So the largest
        account answers for all, and for several releases at once; and once it is unsure, it stays so.
        """
        if self.pace is not None:
            return False
        sure = self._sure
        if sure.releases < 1 or not 1 <= round <= sure.last_round:
            if sure.never_again or round < 1:
                return False
            rho, releases = float(self.rho.max()), int(self.releases.max())
            times = AHEAD
            while times and not self.budget.surely_affordable(rho, releases, round, times):
                times //= 2
            self._sure = sure = _Sure(times, round + times - 1, never_again=not times)
        return sure.releases > 0


@dataclass
class _Sure:
    """For how many releases of each client, up to which round, no account can meet a limit."""

    releases: int = 0
    last_round: int = 0
    never_again: bool = False


def _all(answer: Bools | bool) -> bool:
    return answer if isinstance(answer, bool) else bool(answer.all())
