"""The JAX backend: the same blocks and equations, with each phase of a round compiled as a whole."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pgfl import equations as eq
from pgfl.algorithms.algorithms import Algorithm, ServerState
from pgfl.arrays import Array, Linear, Namespace, keep_rows, pick, put
from pgfl.objectives import MarginObjective
from pgfl.objectives.interface import Prepared
from pgfl.objectives.margins import OnMargins
from pgfl.objectives.ridge import ConstrainedRidge, RidgeInFeatures, RidgeInSamples
from pgfl.objectives.softmax import OnClasses
from pgfl.registry import is_pure
from pgfl.simulate.engine import Engine, Part, Participation
from pgfl.simulate.neighbourhoods import NeighbourhoodOfPairs
from pgfl.simulate.problems import Block, BlockProblem, Bucket

COMPILED = (RidgeInSamples, RidgeInFeatures, ConstrainedRidge, OnMargins, OnClasses)
FIXED = ("objective", "radius", "tolerance", "uses_newton")


@cache
def namespace() -> Namespace:
    """jax.numpy in double precision; what a round is computed from becomes pytrees, so that rounds can be compiled."""
    jax.config.update("jax_enable_x64", True)
    for kind in (*COMPILED, Compiled, Bucket, NeighbourhoodOfPairs):
        names = [f.name for f in fields(kind)]
        fixed = [name for name in names if name in FIXED]
        jax.tree_util.register_dataclass(kind, [name for name in names if name not in fixed], fixed)
    jax.tree_util.register_pytree_node(BlockProblem, _problem_parts, _problem)
    jax.tree_util.register_pytree_node(Linear, _linear_parts, _linear)
    return jnp


def _problem_parts(problem: BlockProblem) -> tuple[tuple[Any, ...], float | None]:
    block = problem.block
    return (block.buckets, block.modulus, block.ridge_penalty, block.records, problem.active), block.update_norm


def _problem(update_norm: float | None, parts: tuple[Any, ...]) -> BlockProblem:
    """Return the problem again; where its clients lie and how exactly they must be solved is the engine's business."""
    buckets, modulus, ridge_penalty, records, active = parts
    block = Block(slice(0), slice(0), buckets, modulus, ridge_penalty, records, update_norm, np.empty(0), 0.0)
    return BlockProblem(block, active)


def _linear_parts(operator: Linear) -> tuple[tuple[Array, ...], int]:
    return (operator.indptr, operator.columns, operator.values, operator.rows), operator.width


def _linear(width: int, parts: tuple[Array, ...]) -> Linear:
    indptr, columns, values, rows = parts
    operator = Linear(indptr, columns, values, width)
    operator.__dict__["rows"] = rows  # cannot be worked out from traced arrays
    return operator


@jax.jit
def _solve(prepared: Prepared, centre: Array, index: Array | None) -> tuple[Array, Array]:
    return prepared.solve(centre, index)


@dataclass(frozen=True)
class Compiled:
    """A prepared batch whose `solve` runs compiled."""

    prepared: Prepared

    def solve(self, centre: Array, index: Array | None = None) -> tuple[Array, Array]:
        """As the solver's own."""
        model, error = _solve(self.prepared, centre, index)
        return model, error


def compiled(prepared: Prepared) -> Prepared:
    """Return the compiled twin of a solver, or the solver itself where it cannot be compiled (a user's objective)."""
    return Compiled(prepared) if isinstance(prepared, COMPILED) else prepared


@partial(jax.jit, static_argnums=0)
def _client_phase(
    algorithm: Algorithm, problem: BlockProblem, server_models: Array, dual: Array, pair: Array, index: Array | None
) -> tuple[Array, Array]:
    """Return the clean models of those who take part, and their certified errors."""
    received, own_dual = pick(server_models, pair), pick(dual, index)
    step = algorithm.client_rule.step(problem, received, own_dual, release=lambda model: model)
    return step.model, step.error


@partial(jax.jit, static_argnums=0)
def _contributions(algorithm: Algorithm, released: Array, dual: Array, index: Array | None, mean: Linear) -> Array:
    return eq.server_aggregation(algorithm.client_rule.contribution(released, pick(dual, index)), mean)


@partial(jax.jit, static_argnums=(0, 1))
def _server_phase(
    algorithm: Algorithm,
    pairs: tuple[int, int],
    servers: ServerState,
    means: Array,
    contributing: Array,
    neighbourhood: NeighbourhoodOfPairs,
    known: Array,
    tau: Array,
) -> ServerState:
    """`Engine.server_phase`; of `pairs` alone anyone contributes."""
    own, models = slice(*pairs), servers["model"]
    aggregate = put(models, own, jnp.where(contributing, means, pick(models, own)))
    servers, published = algorithm.server_rule.publish(servers, aggregate, neighbourhood)
    servers = algorithm.server_rule.combine(servers, published, neighbourhood, tau)
    return {**servers, "model": keep_rows(servers["model"], known)}


@partial(jax.jit, static_argnums=0)
def _settled(
    algorithm: Algorithm, dual: Array, server_models: Array, released: Array, pair: Array, index: Array | None
) -> Array:
    settled = algorithm.client_rule.settle(pick(dual, index), pick(server_models, pair), pick(released, index))
    return put(dual, index, settled)


class JaxEngine(Engine):
    """`Engine` in four compiled pieces; between the first two the host checks the solutions and adds noise.

    Clients that JAX cannot compile, or whose number in each of several buckets changes every round, are computed step
    by step. So are rules that do not declare themselves pure.
    """

    _last_neighbourhood: tuple[NeighbourhoodOfPairs, NeighbourhoodOfPairs] | None = None

    @property
    def _pure(self) -> bool:
        return is_pure(self.algorithm.client_rule) and is_pure(self.algorithm.server_rule)

    def client_phase(self, part: Part, number: int) -> Array:
        """As `Engine.client_phase`, compiled where it can be."""
        if not (len(part.flat) and self._pure and _compilable(part.problem)):
            return super().client_phase(part, number)
        state, index = self.state, part.index
        model, error = _client_phase(self.algorithm, part.problem, state.server_models, state.dual, part.pair, index)
        self.check_solved(error, lambda: model, part)
        state.model, released = _put(state.model, index, model), model
        if self.pair_noise is not None:
            means = _contributions(self.algorithm, model, state.dual, index, part.mean)
            return self.release_means(part, model, means, number)
        if self.noise is None:
            state.released = state.model
        else:
            released = jnp.asarray(self.noise.release(np.asarray(model), part.sigma, part.flat, number))
            state.released = _put(state.released, index, released)
        return _contributions(self.algorithm, released, state.dual, index, part.mean)

    def server_phase(self, participation: Participation, means: list[Array], tau: float) -> ServerState:
        """As `Engine.server_phase`, compiled where it can be."""
        if means[0] is None or not self._pure:
            return super().server_phase(participation, means, tau)
        neighbourhood = self._on_device(self.network.neighbourhood(participation.contributing))
        known, (part,) = self.network.known.astype(self.dtype), participation.parts
        pairs, contributing = (part.block.pairs.start, part.block.pairs.stop), part.contributing[:, None]
        return _server_phase(
            self.algorithm, pairs, self.state.servers, means[0], contributing, neighbourhood, known[:, None], tau
        )

    def settle(self, part: Part) -> None:
        """As `Engine.settle`, compiled where it can be."""
        state = self.state
        if not self._pure:
            super().settle(part)
        elif len(part.flat):
            state.dual = _settled(
                self.algorithm, state.dual, state.server_models, state.released, part.pair, part.index
            )

    def _on_device(self, neighbourhood: NeighbourhoodOfPairs) -> NeighbourhoodOfPairs:
        if self._last_neighbourhood is None or self._last_neighbourhood[0] is not neighbourhood:
            self._last_neighbourhood = (neighbourhood, jax.tree.map(jnp.asarray, neighbourhood))
        return self._last_neighbourhood[1]


_put = jax.jit(put)


def _compilable(problem: BlockProblem) -> bool:
    buckets = problem.block.buckets
    known = all(_traceable(bucket) for bucket in buckets)
    return known and (len(buckets) == 1 or problem.active is None)


def _traceable(bucket: Bucket) -> bool:
    """Return whether JAX can compile what a step needs: a known solver, or a known gradient if none is solved."""
    if bucket.prepared is None:
        return isinstance(bucket.objective, MarginObjective)
    return isinstance(bucket.prepared, Compiled)
