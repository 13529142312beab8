"""The lying server, and the real code that it drives: a client's role as on a device, and the simulator."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from pgfl import equations as eq
from pgfl.algorithms.accuracy import Terms
from pgfl.algorithms.algorithms import Algorithm
from pgfl.algorithms.roles import Accepted, Client, RoundRequest
from pgfl.algorithms.schedules import Library
from pgfl.arrays import AnyFloats, Floats, Ints
from pgfl.lab.audit.cases import ROUNDS, Case
from pgfl.objectives import Objective
from pgfl.privacy.ledger.ledger import Ledger
from pgfl.privacy.ledger.rows import Policy
from pgfl.privacy.mechanism import Plan
from pgfl.privacy.noise import NoiseSource, SecureNoise, SeededNoise
from pgfl.privacy.request import Privacy
from pgfl.privacy.trust import Contributions, PairNoise, SharedNoise, masked_contributions
from pgfl.simulate.observers import Observer
from pgfl.simulate.options import Performance, TrainingOptions
from pgfl.simulate.simulator import Simulator
from pgfl.streams import Purpose, stream


class LyingServer:
    """Plays against many clients at once, one row per client. Every round it sends what puts the centre where it wants.

    With c = (model + dual)·ρ/m and a dual that it knows, that model is c·m/ρ − dual.
    """

    def __init__(self, case: Case, trials: int, server_clients: int) -> None:
        self.case = case
        self.dual: Floats = np.zeros((trials, len(case.centre)))
        self.released: list[Floats] = []
        self.implied: list[Floats] = []
        self.answers: Floats | None = None  # (trials, answers, d): everything received, NaN where nothing was
        assert case.algorithm.client_rule.full_records == 1  # the message below is for ρ itself
        self._weight = eq.strong_convexity(case.algorithm.rho, case.objective.lam, server_clients)

    def message(self) -> Floats:
        """The models to send."""
        if not self.case.algorithm.client_rule.has_dual:
            return np.tile(self.case.centre, (len(self.dual), 1))
        return np.asarray(self._weight / self.case.algorithm.rho * self.case.centre - self.dual)

    def receive(self, released: Floats) -> None:
        """Record what the clients released in a round."""
        self.released.append(released.copy())

    def expect_dual(self, accepted: Floats) -> None:
        """The dual that the clients should have once they receive the models of the round."""
        self._before, self._accepted = self.dual, accepted
        if self.case.algorithm.client_rule.has_dual:
            self.dual = eq.client_dual_update(self.dual, accepted, self.released[-1])

    def see_dual(self, dual: Floats) -> None:
        """The dual that they do have reveals the model that it was built from."""
        if self.case.algorithm.client_rule.has_dual:
            self.implied.append(self._accepted - (dual - self._before))
            self.dual = dual.copy()


Integers = Ints
SERVER_CLIENTS = 5  # |C_s| as the server claims it on a device
PUSH = 0.7  # how far an accepted model is from the released one, so that duals are not zero
Played = tuple[LyingServer, float]
"""The server with its transcript, and the ρ that the worst client's account says was spent."""


@dataclass(frozen=True)
class Mechanism:
    """The parts that a private release is made of."""

    objective: Objective
    algorithm: Algorithm
    privacy: Privacy
    disturb: Callable[[NoiseSource], NoiseSource] = lambda source: source
    disturb_pairs: Callable[[PairNoise], PairNoise] = lambda source: source  # where the clients of a pair share noise
    account: Callable[[SharedNoise], SharedNoise] = lambda shared: shared
    contributions: Contributions = masked_contributions
    spoil_masked: Callable[[Any], None] = lambda client: None  # breaks a part of a real client of masked sums

    @classmethod
    def shipped(cls, case: Case) -> Self:
        """As the package has them."""
        return cls(case.privacy.constrained(case.objective), case.algorithm, case.privacy)

    def client(self, features: AnyFloats, targets: AnyFloats) -> Client:
        """A device's client for data that is already within bounds."""
        terms = Terms(self.privacy.bounds)
        return Client(self.objective, deepcopy(self.algorithm), features, targets, self.privacy.update_norm, terms)

    def sensitivity(self, client: Client, counts: Integers) -> Floats:
        """Δ as a device calibrates it."""
        modulus = np.full(len(counts), client.strong_convexity(SERVER_CLIENTS))
        tolerance = client.tolerance(SERVER_CLIENTS)
        return self.privacy.sensitivity(self.objective, self.algorithm, counts, modulus, tolerance)


def clean_models(case: Case, mechanism: Mechanism, server_clients: int) -> tuple[Floats, Floats]:
    """What a client computes in either world at the centre that the server forces: the attacker knows the code."""
    federation = mechanism.privacy.bounded(case.federation(np.array([0, 1])))
    message = LyingServer(case, 1, server_clients).message()[0]
    found = []
    for world in (0, 1):
        client = mechanism.client(*federation.rows(world * case.contributors))
        found.append(client.answer(RoundRequest(1, server_clients, message), release=lambda model: model).model)
    return found[0], found[1]


def on_devices(case: Case, mechanism: Mechanism, worlds: Integers, seed: int) -> Played:
    """One client role per trial; the server also lies about which models came out of a round."""
    return _on_devices(case, mechanism, worlds, SeededNoise(_Normals(seed, len(worlds))))


def with_safe_noise(case: Case, mechanism: Mechanism, worlds: Integers, seed: int) -> Played:
    """The same with float-safe noise, which has no seed."""
    return _on_devices(case, mechanism, worlds, SecureNoise(len(case.centre)))


def _on_devices(case: Case, mechanism: Mechanism, worlds: Integers, source: NoiseSource) -> Played:
    federation = mechanism.privacy.bounded(case.federation(worlds))
    clients = [mechanism.client(*federation.rows(trial)) for trial in range(len(worlds))]
    noise = mechanism.disturb(source)
    deltas = noise.widen(mechanism.sensitivity(clients[0], federation.counts))
    plan, everyone = mechanism.privacy.plan(deltas, ROUNDS), np.arange(len(worlds))
    server = LyingServer(case, len(worlds), SERVER_CLIENTS)
    accepted: Floats | None = None
    for number in range(1, ROUNDS + 1):
        sigma = _paid(plan, everyone, number)
        message = server.message()
        released, dual = np.empty_like(message), np.empty_like(message)
        for trial, client in enumerate(clients):
            confirmed = None if accepted is None else Accepted(number - 1, accepted[trial])
            request = RoundRequest(number, SERVER_CLIENTS, message[trial], confirmed)
            answer = client.answer(request, _release(noise, sigma[trial], trial, number))
            released[trial], dual[trial] = answer.model, answer.dual
        if accepted is not None:
            server.see_dual(dual)
        server.receive(released)
        accepted = released + PUSH
        server.expect_dual(accepted)
    return server, float(plan.rho.max())


def with_ledgers(case: Case, mechanism: Mechanism, worlds: Integers, seed: int) -> Played:
    """A whole device: float-safe noise, and a ledger file that is written before anything leaves it."""
    federation = mechanism.privacy.bounded(case.federation(worlds))
    noise = mechanism.disturb(SecureNoise(len(case.centre)))
    whole = LyingServer(case, 0, SERVER_CLIENTS)
    played: list[LyingServer] = []
    rho = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for trial in range(len(worlds)):
            client = mechanism.client(*federation.rows(trial))
            delta = float(noise.widen(mechanism.sensitivity(client, federation.counts[:1]))[0])
            with Ledger.create(Path(folder) / f"{trial}.ledger", str(trial), _policy(mechanism.privacy)) as ledger:
                played.append(_with_ledger(case, client, noise, ledger, delta))
                rho = max(rho, ledger.rho)
    whole.released = [np.concatenate(parts) for parts in zip(*(s.released for s in played), strict=True)]
    whole.implied = [np.concatenate(parts) for parts in zip(*(s.implied for s in played), strict=True)]
    return whole, rho


def _with_ledger(case: Case, client: Client, noise: NoiseSource, ledger: Ledger, delta: float) -> LyingServer:
    server, accepted = LyingServer(case, 1, SERVER_CLIENTS), None
    for number in range(1, ROUNDS + 1):
        request = RoundRequest(number, SERVER_CLIENTS, server.message()[0], accepted)
        with ledger.reserve(str(number), delta) as slot:
            answer = client.answer(request, _release(noise, slot.sigma, 0, number))
            slot.payload = np.stack([answer.model, answer.dual]).tobytes()
        model, dual = np.frombuffer(slot.payload).reshape(2, 1, -1)
        if accepted is not None:
            server.see_dual(dual)
        server.receive(model)
        accepted = Accepted(number, model[0] + PUSH)
        server.expect_dual(accepted.model[None])
    return server


def _release(noise: NoiseSource, sigma: float, client: int, round: int) -> Callable[[Floats], Floats]:
    """The release of one client in one round."""
    return lambda model: np.asarray(noise.release(model[None], np.array([sigma]), np.array([client]), round)[0])


def in_simulator(case: Case, mechanism: Mechanism, worlds: Integers, seed: int, engine: Library = "numpy") -> Played:
    """The simulator, with one server per trial; the wiretap observes every round and replaces the servers' models."""
    wiretap = _Wiretap(LyingServer(case, len(worlds), 1))
    options = TrainingOptions(
        rounds=ROUNDS, privacy=mechanism.privacy, seed=seed, metrics=(), performance=Performance(engine=engine)
    )
    federation = case.federation(worlds)
    simulator = Simulator([federation], mechanism.algorithm, mechanism.objective, options, observers=[wiretap])
    assert simulator.plan is not None
    simulator.engine.noise = mechanism.disturb(simulator.engine.noise)  # type: ignore[arg-type]
    wiretap.lie(simulator)
    simulator.run()
    simulator.close()
    return wiretap.server, float(simulator.plan.rho.max())


def in_compiled_simulator(case: Case, mechanism: Mechanism, worlds: Integers, seed: int) -> Played:
    """The same with compiled kernels."""
    return in_simulator(case, mechanism, worlds, seed, "numba")


class _Wiretap(Observer):
    """An observer that receives everything sent in a round, and lies before the next."""

    def __init__(self, server: LyingServer) -> None:
        self.server = server

    def on_round(self, simulator: Simulator) -> None:
        """Receive the round, then lie."""
        state = simulator.state
        self.server.receive(np.asarray(state.released))
        self.server.expect_dual(np.asarray(state.server_models))
        self.server.see_dual(np.asarray(state.dual))
        self.lie(simulator)

    def lie(self, simulator: Simulator) -> None:
        """Replace the servers' models."""
        state = simulator.state
        state.servers = state.servers | {"model": self.server.message()}


class _Normals:
    """Standard normals for trials: one draw per round, one row per trial."""

    def __init__(self, seed: int, trials: int) -> None:
        self._seed, self._trials = seed, trials
        self._drawn: tuple[int, Floats] | None = None

    def __call__(self, clients: Integers, round: int, dimension: int) -> Floats:
        if self._drawn is None or self._drawn[0] != round:
            generator = stream(self._seed, 0, Purpose.AUDIT, round=round)
            self._drawn = (round, generator.standard_normal((self._trials, dimension)))
        return np.asarray(self._drawn[1][clients])


def _paid(plan: Plan, clients: Integers, round: int) -> Floats:
    """σ of a round that everyone has paid for."""
    paying, sigma = plan.charged(clients, round)
    assert len(paying) == len(clients)
    return sigma


def _policy(privacy: Privacy) -> Policy:
    assert privacy.phi1 is not None
    return Policy(privacy.phi1 * privacy.zeta, privacy.zeta, privacy.delta, max_releases=ROUNDS)
