"""Attacks on the noised sum of a pair, as the simulator makes it, by the adversary that each level of trust names.

At a site it is a neighbour, who sees aggregates alone. Masked it is the server with the colluding contributors, who
know what they handed in. Both know the data of all clients but one, and subtract whatever they know from the sum.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pgfl.array_types import Floats
from pgfl.audit.cases import ROUNDS, Case
from pgfl.audit.lying_server import LyingServer
from pgfl.audit.subjects import Integers, Mechanism, Played
from pgfl.core.training_defaults import Library
from pgfl.privacy import lattice
from pgfl.privacy.shared_noise import LatticePairNoise
from pgfl.privacy.trust import Trust
from pgfl.simulate.simulator import Simulator
from pgfl.simulate.training_options import TrainingOptions


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
    options = TrainingOptions(rounds=ROUNDS, privacy=mechanism.privacy, seed=seed, metrics=(), engine=engine)
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


class _Wiretap:
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
