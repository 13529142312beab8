"""Going on with a private training: the account and the budget of the first run stay in force."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace

from pgfl.errors import PrivacyError
from pgfl.privacy import accounting
from pgfl.privacy.budget import Budget
from pgfl.privacy.request import Privacy

KEPT = ("phi0", "phi1", "zeta", "delta", "index", "guarantee", "trust", "colluders")
"""What a continuation cannot change; a larger epsilon has to be stated instead."""


@dataclass(frozen=True)
class ContinuedPrivacy(Privacy):
    """Privacy whose budget is carried over from an earlier run, whatever the number of rounds."""

    carried: Budget | None = None

    def budget(self, rounds: int) -> Budget:
        """The carried one."""
        assert self.carried is not None
        return self.carried


@dataclass(frozen=True)
class Spent:
    """What an earlier run leaves: its request, its budget, its rounds, and the most that any client has spent."""

    asked: Privacy
    budget: Budget
    rounds: int
    rho: float
    releases: int


def continued(spent: Spent, asked: Privacy | None, rounds: int) -> ContinuedPrivacy:
    """The privacy of a training that goes on to round `rounds`.

    It has the schedule and the budget of the first run. Only a larger `epsilon`, stated in `asked`, allows more: what
    is left of it is spread over the new rounds. Bounds may change.
    """
    first = spent.asked
    if asked is None or (asked.epsilon, asked.phi0, asked.phi1) == (first.epsilon, first.phi0, first.phi1):
        request = asked or first
        _check_kept(first, request, (*KEPT, "max_releases"))
        return _carrying(request, _longer(spent.budget, rounds))
    _check_kept(first, asked, KEPT[2:])
    if asked.epsilon is None:
        raise PrivacyError(
            "The noise schedule of the first run stays in force; to spend more, state a larger privacy.epsilon."
        )
    if first.epsilon is not None and asked.epsilon < first.epsilon:
        raise PrivacyError(
            f"The first run promised epsilon = {first.epsilon:g} and may have spent it; {asked.epsilon:g} cannot be "
            "promised any more."
        )
    return _carrying(asked, _larger(spent, asked, rounds))


def _check_kept(first: Privacy, asked: Privacy, names: tuple[str, ...]) -> None:
    for name in names:
        before, now = getattr(first, name), getattr(asked, name)
        if before != now:
            raise PrivacyError(
                f"privacy.{name} was {before} in the first run and is {now}; it cannot change in a continuation."
            )


def _carrying(request: Privacy, budget: Budget) -> ContinuedPrivacy:
    plain = {field.name: getattr(request, field.name) for field in fields(Privacy)}
    return ContinuedPrivacy(**plain, carried=budget)


def _longer(budget: Budget, rounds: int) -> Budget:
    """The same schedule for more rounds; one that was made for a target ends where the target ends."""
    if budget.rho_budget is not None or budget.last is None:
        return budget
    return replace(budget, last=max(budget.last, rounds))


def _larger(spent: Spent, asked: Privacy, rounds: int) -> Budget:
    """A schedule that spends what a larger ε leaves in the new rounds."""
    assert asked.epsilon is not None
    total = accounting.exact_rho(asked.epsilon, asked.delta)
    left, more = total - spent.rho, rounds - spent.rounds
    if not left > 0.0:
        so_far = float(accounting.exact_epsilon(spent.rho, asked.delta))
        raise PrivacyError(f"epsilon = {so_far:.4g} is already spent; state an epsilon above it to go on.")
    made = spent.rounds if asked.index == "round" else spent.releases
    phi0 = left / float(accounting.growth(asked.zeta, made + 1, made + more))
    limit = None if spent.budget.max_releases is None else spent.releases + more
    if asked.max_releases is not None and asked.max_releases != spent.asked.max_releases:
        if asked.max_releases <= spent.releases:
            raise PrivacyError(
                f"A client has released {spent.releases} models already, which privacy.max_releases = "
                f"{asked.max_releases} does not allow; it counts those of all rounds."
            )
        limit = asked.max_releases
    return Budget(phi0, asked.zeta, asked.delta, limit, total * (1.0 + accounting.MARGIN), asked.index, made + more)


def to_json(privacy: Privacy, budget: Budget) -> dict[str, dict[str, object]]:
    """The request and the budget of a run, as JSON holds them."""
    request = {field.name: getattr(privacy, field.name) for field in fields(Privacy)}
    return {"privacy": request, "budget": asdict(budget)}
