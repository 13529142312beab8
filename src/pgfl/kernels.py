"""Small operations that array libraries do differently: batched products, ragged group sums, loops.

The equations never ask which library they run under; these do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy import sparse

Array = Any
GATHER_LIMIT = 4096  # elements of a client's matrix above which copying it costs more than a call for each client


def is_jax(xp: Any) -> bool:
    """Whether an array namespace is JAX's."""
    return bool(xp.__name__.startswith("jax"))


def rows_times(matrices: Array, vectors: Array, index: Array | None = None) -> Array:
    """X_k v_k for every k (of `index`): (n, D, d) and (A, d) to (A, D)."""
    if isinstance(vectors, np.ndarray):
        if index is None:
            return np.matvec(matrices, vectors)
        if matrices[0].size > GATHER_LIMIT:
            out = np.empty((len(index), matrices.shape[1]), dtype=vectors.dtype)
            for row, client in enumerate(index):
                np.dot(matrices[client], vectors[row], out=out[row])
            return out
    xp = vectors.__array_namespace__()
    return xp.matmul(pick(matrices, index), vectors[..., None])[..., 0]


def times_rows(coefficients: Array, matrices: Array, index: Array | None = None) -> Array:
    """X_kᵀ a_k for every k (of `index`): (A, D) and (n, D, d) to (A, d)."""
    if isinstance(coefficients, np.ndarray):
        if index is None:
            return np.vecmat(coefficients, matrices)
        if matrices[0].size > GATHER_LIMIT:
            out = np.empty((len(index), matrices.shape[2]), dtype=coefficients.dtype)
            for row, client in enumerate(index):
                np.dot(coefficients[row], matrices[client], out=out[row])
            return out
    xp = coefficients.__array_namespace__()
    return xp.matmul(coefficients[..., None, :], pick(matrices, index))[..., 0, :]


def iterate(condition: Callable[[Any], Any], body: Callable[[Any], Any], state: Any, xp: Any) -> Any:
    """`while condition(state): state = body(state)`, also where the library compiles it."""
    if is_jax(xp):
        import jax

        return jax.lax.while_loop(condition, body, state)
    while bool(condition(state)):
        state = body(state)
    return state


@dataclass(frozen=True)
class Linear:
    """A sparse matrix in row-compressed form, applied along the first axis: group sums, means, mixing.

    Every row is summed by itself and in order, so a result does not depend on what else is in the matrix.
    """

    indptr: NDArray[np.int64]
    columns: NDArray[np.int64]
    values: NDArray[np.floating]
    width: int

    @classmethod
    def from_entries(cls, rows: Array, columns: Array, values: Array, height: int, width: int) -> Linear:
        """From unordered entries; none may occur twice."""
        order = np.lexsort((columns, rows))
        indptr = np.searchsorted(rows[order], np.arange(height + 1))
        return cls(indptr, columns[order], values[order], width)

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """The row of every entry."""
        return np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))

    def revalued(self, values: NDArray[np.floating]) -> Linear:
        """The same pattern with other values."""
        return Linear(self.indptr, self.columns, values, self.width)

    @cached_property
    def _csr(self) -> sparse.csr_array:
        from scipy import sparse

        return sparse.csr_array((self.values, self.columns, self.indptr), shape=(len(self.indptr) - 1, self.width))

    @cached_property
    def _product(self) -> Callable[[Array], Array]:
        """`_csr @`, by the routine under it if it is there: half of a small product is looking at what was given."""
        try:
            from scipy.sparse._sparsetools import csr_matvecs
        except ImportError:
            return self._csr.__matmul__
        height, values = len(self.indptr) - 1, self.values

        def product(vectors: Array) -> Array:
            if vectors.dtype != values.dtype or not vectors.flags.c_contiguous:
                return self._csr @ vectors
            out = np.zeros((height, vectors.shape[1]), dtype=vectors.dtype)
            parts = (self.indptr, self.columns, values, vectors.reshape(-1), out.reshape(-1))
            csr_matvecs(height, self.width, vectors.shape[1], *parts)
            return out

        return product

    def __call__(self, vectors: Array) -> Array:
        """The product with a (width, d) array."""
        if isinstance(vectors, np.ndarray):
            return self._product(vectors)
        xp = vectors.__array_namespace__()
        if is_jax(xp):
            import jax

            picked = vectors[self.columns] * xp.asarray(self.values, dtype=vectors.dtype)[:, None]
            return jax.ops.segment_sum(picked, self.rows, num_segments=len(self.indptr) - 1, indices_are_sorted=True)
        return xp.matmul(xp.asarray(self._csr.toarray(), dtype=vectors.dtype), vectors)


def column(values: NDArray[Any], xp: Any = np) -> Array:
    """A number a row, as a column; a scalar where they are equal, because that multiplies faster to the same bits."""
    same = len(values) and (values == values[0]).all()
    if same and xp is np:
        return values[0]
    return xp.asarray(values[0] if same else values[:, None])


def put(values: Array, index: Array | slice | None, new: Array) -> Array:
    """`values` with the rows of `index` replaced (all of them if it is None); NumPy's in place."""
    if index is None:
        return new
    xp = values.__array_namespace__()
    if xp is np:
        values[index] = new
        return values
    if is_jax(xp):
        return values.at[index].set(new)
    index = np.arange(values.shape[0])[index]
    spread = Linear.from_entries(index, np.arange(len(index)), np.ones(len(index)), values.shape[0], len(index))
    return values + spread(new - pick(values, index))


def pick(values: Array, index: Array | slice | None) -> Array:
    """The rows of `index`, or all of them; a slice gives a view where the library has views."""
    if index is None:
        return values
    if isinstance(values, np.ndarray):
        return values[index] if isinstance(index, slice) else values.take(index, axis=0)
    xp = values.__array_namespace__()
    return values[index, ...] if isinstance(index, slice) else xp.take(values, xp.asarray(index), axis=0)
