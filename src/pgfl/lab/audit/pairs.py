"""Attacks on the noised sum of a pair, and mistakes in that noise, all of which must be found."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pgfl.algorithms.schedules import Library
from pgfl.arrays import AnyFloats, AnyInts, Floats
from pgfl.lab.audit.cases import ROUNDS, Case
from pgfl.lab.audit.subjects import Integers, LyingServer, Mechanism, Played
from pgfl.privacy import lattice
from pgfl.privacy.trust import LatticePairNoise, PairNoise, SharedNoise, Trust
from pgfl.simulate.observers import Observer
from pgfl.simulate.options import Performance, TrainingOptions
from pgfl.simulate.simulator import Simulator


def in_simulator(case: Case, mechanism: Mechanism, worlds: Integers, seed: int, engine: Library = "numpy") -> Played:
    """Seeded noise, drawn at once for the whole sum: colluders have nothing of their own to subtract."""
    return _played(case, mechanism, worlds, seed, engine)


def in_compiled_simulator(case: Case, mechanism: Mechanism, worlds: Integers, seed: int) -> Played:
    """The same with compiled kernels."""
    return _played(case, mechanism, worlds, seed, "numba")


def with_safe_noise(case: Case, mechanism: Mechanism, worlds: Integers, seed: int) -> Played:
    """Float-safe sums on the lattice, of which colluders know their own summands."""
    safe = replace(mechanism, privacy=replace(mechanism.privacy, noise="secure"))
    return _played(case, safe, worlds, seed, "numpy")


def _played(case: Case, mechanism: Mechanism, worlds: Integers, seed: int, engine: Library) -> Played:
    colluders = case.privacy.colluders if case.privacy.trust == "masked" and mechanism.privacy.noise == "secure" else 0
    spies = Spies(mechanism, colluders)
    wiretap = _Wiretap(LyingServer(case, len(worlds), case.contributors), spies)
    options = TrainingOptions(
        rounds=ROUNDS, privacy=mechanism.privacy, seed=seed, metrics=(), performance=Performance(engine=engine)
    )
    federation = case.federation(worlds)
    simulator = Simulator([federation], mechanism.algorithm, mechanism.objective, options, observers=[wiretap])
    plan, noise = simulator.plan, simulator.engine.pair_noise
    assert plan is not None
    assert plan.shared is not None
    if mechanism.privacy.noise == "secure":
        noise = LatticePairNoise(plan.shared.trust, plan.shared.least_share, spies)
    plan.shared = mechanism.account(plan.shared)
    simulator.engine.pair_noise = mechanism.disturb_pairs(noise)  # type: ignore[arg-type]
    wiretap.lie(simulator)
    simulator.run()
    simulator.close()
    return wiretap.server, float(plan.rho[:: case.contributors].max())


class Spies:
    """The last contributors of every pair, who tell the server what they hand in."""

    def __init__(self, mechanism: Mechanism, colluders: int) -> None:
        self._mechanism, self.colluders = mechanism, colluders
        self.told: list[Floats] = []

    def __call__(self, trust: Trust, points: lattice.Points, sigma: float) -> lattice.Points:
        """What all contributors of a pair hand in."""
        handed_in = self._mechanism.contributions(trust, points, sigma)
        self.told.append(lattice.from_lattice(handed_in[len(handed_in) - self.colluders :].sum(axis=0)))
        return handed_in


class _Wiretap(Observer):
    """Sees every released aggregate, subtracts what is known of it, and lies before the next round."""

    def __init__(self, server: LyingServer, spies: Spies) -> None:
        self.server, self.spies = server, spies

    def on_round(self, simulator: Simulator) -> None:
        """Receive the round, then lie."""
        contributors, state = self.server.case.contributors, simulator.state
        sums = contributors * np.asarray(state.released)[::contributors]
        known = np.asarray(state.model).reshape(len(sums), contributors, -1)
        honest = contributors - self.spies.colluders
        rest = sums - known[:, 1:honest].sum(axis=1)
        if self.spies.colluders and self.spies.told:
            rest = rest - np.stack(self.spies.told)
        elif self.spies.colluders:
            rest = rest - known[:, honest:].sum(axis=1)
        self.spies.told.clear()
        self.server.receive(rest)
        self.lie(simulator)

    def lie(self, simulator: Simulator) -> None:
        """Replace the servers' models."""
        state = simulator.state
        state.servers = state.servers | {"model": self.server.message()}


@dataclass(frozen=True)
class _Claimed:
    """A source that divides by more contributors than there are: by the number that somebody claims."""

    source: PairNoise
    times: float

    def check(self, sigma: float) -> None:
        self.source.check(sigma)

    def release(
        self, models: AnyFloats, means: AnyFloats, starts: AnyInts, sigma: Floats, pairs: AnyInts, round: int
    ) -> Floats:
        return self.source.release(models, means, starts, sigma / self.times, pairs, round)


@dataclass(frozen=True)
class _Bare:
    """A source that publishes aggregates before they have noise."""

    source: PairNoise

    def check(self, sigma: float) -> None:
        self.source.check(sigma)

    def release(
        self, models: AnyFloats, means: AnyFloats, starts: AnyInts, sigma: Floats, pairs: AnyInts, round: int
    ) -> Floats:
        return np.asarray(means, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class _AnothersSensitivity(SharedNoise):
    """Charges everybody of a pair as if it had the least sensitivity of them all."""

    def charges(self, clients: AnyInts, sensitivity: Floats, sigma: Floats) -> Floats:
        least = np.full(int(self.pair.max()) + 1, np.inf)
        np.minimum.at(least, self.pair[clients], sensitivity)
        return np.asarray(0.5 * (least[self.pair[clients]] / sigma) ** 2)


def count_as_claimed(mechanism: Mechanism) -> Mechanism:
    """The noise of the mean is divided by twice the contributors, as the server claims their number.

    A masked client adds σ²/n, where the server says that n are invited.
    """
    of_invited = _with_terms(lambda terms: replace(terms, required=len(terms.invited), colluders=0))
    return replace(mechanism, disturb_pairs=lambda source: _Claimed(source, 2.0), spoil_masked=of_invited)


def aggregate_before_noise(mechanism: Mechanism) -> Mechanism:
    """Aggregates are published before the site has noised them; a masked client adds no share of the noise."""

    def spoil(client: Any) -> None:
        client.noised = lambda update, terms: lattice.to_lattice(update)

    return replace(mechanism, disturb_pairs=_Bare, spoil_masked=spoil)


def charged_as_another(mechanism: Mechanism) -> Mechanism:
    """A client is charged with the Δ of a companion that has more records."""
    return replace(mechanism, account=lambda shared: _AnothersSensitivity(**vars(shared)))


def shares_too_small(mechanism: Mechanism) -> Mechanism:
    """Each of n contributors adds σ²/n, as if nobody colluded."""

    def contributions(trust: Trust, points: lattice.Points, sigma: float) -> lattice.Points:
        return lattice.with_noise(points, sigma / float(np.sqrt(len(points))))

    of_all = _with_terms(lambda terms: replace(terms, colluders=0))
    return replace(mechanism, contributions=contributions, spoil_masked=of_all)


def second_list_agreed_to(mechanism: Mechanism) -> Mechanism:
    """A masked client consents to another list of survivors when it has revealed what opens the first."""

    def spoil(client: Any) -> None:
        member, consent = client.member, client.member.consent

        def forgetful(round: int, survivors: Collection[str]) -> Any:
            member._open.survivors = None
            return consent(round, survivors)

        member.consent = forgetful

    return replace(mechanism, spoil_masked=spoil)


def _with_terms(other: Callable[[Any], Any]) -> Callable[[Any], None]:
    """A real client of masked sums that draws its share of the noise on other terms than it has checked."""

    def spoil(client: Any) -> None:
        share = client.noised
        client.noised = lambda update, terms: share(update, other(terms))

    return spoil


AT_A_SITE = {
    plant.__name__.replace("_", " "): plant for plant in (count_as_claimed, aggregate_before_noise, charged_as_another)
}
UNDER_MASKS = {"shares too small": shares_too_small}
IN_MASKED_CLIENTS = {
    plant.__name__.replace("_", " "): plant
    for plant in (aggregate_before_noise, shares_too_small, count_as_claimed, second_list_agreed_to)
}
