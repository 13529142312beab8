"""Mistakes planted in one part of the mechanism each: all of them must be found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pgfl.algorithms.algorithms import Algorithm, ClientStep, Pair, Problem, Release
from pgfl.algorithms.client_rules import LinearisedStep, ProximalStep
from pgfl.arrays import Array, Floats
from pgfl.federation.federation import Federation
from pgfl.lab.audit.subjects import Mechanism
from pgfl.objectives import Huber
from pgfl.objectives.interface import Prepared
from pgfl.privacy.noise import NoiseSource
from pgfl.privacy.request import Privacy

Plant = Callable[[Mechanism], Mechanism]


class _HalvedSensitivity(Privacy):
    def sensitivity(self, *given: Any) -> Floats:
        return 0.5 * super().sensitivity(*given)


class _Unclipped(Privacy):
    def bounded(self, federation: Federation, dtype: Any = None) -> Federation:
        return federation


class _SumForMean(Huber):
    def prepare(self, features: Array, targets: Array, counts: Array, modulus: Array) -> Prepared:
        return super().prepare(features, targets, counts, modulus / counts)

    def gradient(self, w: Array, features: Array, targets: Array, counts: Array) -> Array:
        return super().gradient(w, features, targets, counts) * counts[..., None]


class _CleanDual(ProximalStep):
    """Remembers the clean model and builds the dual from it."""

    def step(self, problem: Problem, server_model: Array, dual: Array, release: Release) -> ClientStep:
        step = super().step(problem, server_model, dual, release)
        self.__dict__["clean"] = step.model
        return step

    def settle(self, dual: Array, server_model: Array, released: Array) -> Array:
        return super().settle(dual, server_model, self.__dict__["clean"].reshape(released.shape))


class _Unprojected(LinearisedStep):
    """Takes its gradient wherever the server's model is."""

    def step(self, problem: Problem, server_model: Array, dual: Array, release: Release) -> ClientStep:
        return super().step(_WithoutDomain(problem), server_model, dual, release)


class _WithoutDomain:
    """A problem whose objective is taken to have no domain."""

    def __init__(self, problem: Problem) -> None:
        self.modulus, self.update_norm, self.records = problem.modulus, problem.update_norm, problem.records
        self.solve, self.gradient = problem.solve, problem.gradient

    def projected(self, w: Array) -> Array:
        return w


class _Wrapped:
    """A noise source around another one."""

    def __init__(self, source: NoiseSource) -> None:
        self.source, self.label = source, source.label

    def widen(self, sensitivity: ArrayLike) -> Floats:
        return self.source.widen(sensitivity)

    def check(self, sigma: ArrayLike) -> None:
        self.source.check(sigma)


class _Disturbed(_Wrapped):
    """A noise source whose σ is multiplied, or whose round stands still."""

    def __init__(
        self, source: NoiseSource, factor: Callable[[int], float] = lambda round: 1.0, *, frozen: bool = False
    ) -> None:
        super().__init__(source)
        self.factor, self.frozen = factor, frozen

    def release(self, models: ArrayLike, sigma: ArrayLike, clients: Any, round: int) -> Floats:
        return self.source.release(models, np.asarray(sigma) * self.factor(round), clients, 1 if self.frozen else round)


class _Bare(_Wrapped):
    """A noise source that leaves some coordinates, or all, without noise."""

    def __init__(self, source: NoiseSource, coordinates: slice) -> None:
        super().__init__(source)
        self.coordinates = coordinates

    def release(self, models: ArrayLike, sigma: ArrayLike, clients: Any, round: int) -> Floats:
        released = self.source.release(models, sigma, clients, round)
        released[:, self.coordinates] = np.asarray(models)[:, self.coordinates]
        return released


def sensitivity_halved(mechanism: Mechanism) -> Mechanism:
    """Δ/2, as if one record could move a model to one side only."""
    return replace(mechanism, privacy=_as(_HalvedSensitivity, mechanism.privacy))


def variance_halved(mechanism: Mechanism) -> Mechanism:
    """σ² = Δ²/(4φ)."""
    return replace(mechanism, disturb=lambda source: _Disturbed(source, lambda round: 0.5**0.5))


def deviation_decayed(mechanism: Mechanism) -> Mechanism:
    """σ is multiplied by ζ every round, where σ² should be."""
    zeta = mechanism.privacy.zeta
    return replace(mechanism, disturb=lambda source: _Disturbed(source, lambda round: zeta ** (0.5 * round)))


def rows_unclipped(mechanism: Mechanism) -> Mechanism:
    """Rows are trusted to be within x_norm."""
    return replace(mechanism, privacy=_as(_Unclipped, mechanism.privacy))


def sum_for_mean(mechanism: Mechanism) -> Mechanism:
    """The loss is summed over records, the sensitivity that of the mean."""
    return replace(mechanism, objective=_as(_SumForMean, mechanism.objective))


def noise_reused(mechanism: Mechanism) -> Mechanism:
    """Every round has the first round's draw."""
    return replace(mechanism, disturb=lambda source: _Disturbed(source, frozen=True))


def clean_dual(mechanism: Mechanism) -> Mechanism:
    """The dual is built from the clean model."""
    return replace(mechanism, algorithm=_with_rule(_CleanDual, mechanism.algorithm))


def model_unprojected(mechanism: Mechanism) -> Mechanism:
    """A linearised step starts from the server's model, however long it is."""
    return replace(mechanism, algorithm=_with_rule(_Unprojected, mechanism.algorithm))


def no_noise(mechanism: Mechanism) -> Mechanism:
    """The clean model is released."""
    return replace(mechanism, disturb=lambda source: _Bare(source, slice(None)))


def noise_a_millionth(mechanism: Mechanism) -> Mechanism:
    """σ · 10⁻⁶."""
    return replace(mechanism, disturb=lambda source: _Disturbed(source, lambda round: 1e-6))


def last_coordinate_clean(mechanism: Mechanism) -> Mechanism:
    """All coordinates but the last have noise."""
    return replace(mechanism, disturb=lambda source: _Bare(source, slice(-1, None)))


def _named(*plants: Plant) -> dict[str, Plant]:
    return {plant.__name__.replace("_", " "): plant for plant in plants}


PLANTED: dict[str, Plant] = _named(
    sensitivity_halved,
    variance_halved,
    deviation_decayed,
    rows_unclipped,
    sum_for_mean,
    noise_reused,
    clean_dual,
    model_unprojected,
)
IN_THE_FIELD: dict[str, Plant] = _named(no_noise, noise_a_millionth, last_coordinate_clean)  # in a deployed client


def _with_rule(kind: type[Any], algorithm: Algorithm) -> Algorithm:
    """The same algorithm with its client rule under another class."""
    return Pair(_as(kind, algorithm.client_rule), algorithm.server_rule, algorithm.tau, algorithm.mixing)


def _as(kind: type[Any], part: Any) -> Any:
    """The same settings under another class."""
    return kind(**{field.name: getattr(part, field.name) for field in fields(part)})
