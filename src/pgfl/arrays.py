"""The array types of the package, and the operations that array libraries implement differently."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

if TYPE_CHECKING:
    from scipy import sparse


Array: TypeAlias = Any
"""An array of any library that follows the array API standard: NumPy, JAX or array-api-strict."""

Namespace: TypeAlias = Any
"""The module of such a library, for instance `numpy`."""

Floats: TypeAlias = NDArray[np.float64]
AnyFloats: TypeAlias = NDArray[np.floating[Any]]
Ints: TypeAlias = NDArray[np.int64]
AnyInts: TypeAlias = NDArray[np.integer[Any]]
Bools: TypeAlias = NDArray[np.bool_]
AnyArray: TypeAlias = NDArray[Any]

__all__ = ["AnyArray", "AnyFloats", "AnyInts", "Array", "Bools", "DTypeLike", "Floats", "Ints", "Namespace"]


GATHER_LIMIT = 4096  # elements of a client's matrix above which copying costs more than one call per client
SPARSE = 0.25  # share of non-zero elements below which a sparse product is faster


def is_jax(xp: Namespace) -> bool:
    """Whether an array namespace is JAX's."""
    return bool(xp.__name__.startswith("jax"))


Product = Callable[[Array, Array], object]  # of a fixed matrix with a vector, into an array of zeros


@dataclass(frozen=True)
class OwnRows:
    """Large matrices, multiplied one client at a time without copying participants or padding.

    The rows of a client that are mostly zeros (images are) are kept in row-compressed form. This is decided for each
    client by itself, so that it does not depend on the batch.
    """

    shape: tuple[int, int, int]
    products: list[tuple[Product, Product]]  # with the matrix and with its transpose

    @classmethod
    def of(cls, matrices: Array, counts: Array) -> OwnRows:
        """From (n, D, d) matrices; rows past a client's `counts` are padding."""
        rows = counts.astype(int).tolist()
        own = [_products(matrix, count) for matrix, count in zip(matrices, rows, strict=True)]
        return cls(matrices.shape, own)

    def times(self, vectors: Array, index: Array | None) -> Array:
        """X_k v_k."""
        out = np.zeros((len(vectors), self.shape[1]), dtype=vectors.dtype)
        for (product, _), vector, made in zip(self._chosen(index), vectors, out, strict=True):
            product(vector, made)
        return out

    def transposed_times(self, coefficients: Array, index: Array | None) -> Array:
        """X_kᵀ a_k, in reverse order: the rows read last by the previous product are still in the cache."""
        out = np.zeros((len(coefficients), self.shape[2]), dtype=coefficients.dtype)
        for (_, product), a, made in zip(self._chosen(index)[::-1], coefficients[::-1], out[::-1], strict=True):
            product(a, made)
        return out

    def _chosen(self, index: Array | None) -> list[tuple[Product, Product]]:
        return self.products if index is None else [self.products[client] for client in index.tolist()]


def _products(padded: Array, count: int) -> tuple[Product, Product]:
    """X v and Xᵀ a for one client, skipping zeros if most elements of its `count` rows are."""
    matrix = padded[:count]
    if np.count_nonzero(matrix) > SPARSE * matrix.size:
        return (
            lambda vector, out: np.dot(matrix, vector, out=out[:count]),
            lambda a, out: np.dot(a[:count], matrix, out=out),
        )
    from scipy import sparse

    kept = sparse.csr_array(padded)
    try:
        from scipy.sparse._sparsetools import csc_matvec, csr_matvec
    except ImportError:
        turned = kept.T
        return lambda vector, out: np.copyto(out, kept @ vector), lambda a, out: np.copyto(out, turned @ a)
    rows, columns = padded.shape
    parts = kept.indptr, kept.indices, kept.data
    return partial(csr_matvec, rows, columns, *parts), partial(csc_matvec, columns, rows, *parts)


def own_rows(matrices: Array, counts: Array) -> Array | OwnRows:
    """Matrices prepared for `rows_times` and `times_rows` of some clients in every round."""
    if isinstance(matrices, np.ndarray) and matrices[0].size > GATHER_LIMIT:
        return OwnRows.of(matrices, counts)
    return matrices


def rows_times(matrices: Array | OwnRows, vectors: Array, index: Array | None = None) -> Array:
    """X_k v_k for every k (of `index`): (n, D, d) and (A, d) to (A, D)."""
    if isinstance(matrices, OwnRows):
        return matrices.times(vectors, index)
    if isinstance(vectors, np.ndarray) and index is None:
        return np.matvec(matrices, vectors)
    xp = vectors.__array_namespace__()
    return xp.matmul(pick(matrices, index), vectors[..., None])[..., 0]


def times_rows(coefficients: Array, matrices: Array | OwnRows, index: Array | None = None) -> Array:
    """X_kᵀ a_k for every k (of `index`): (A, D) and (n, D, d) to (A, d)."""
    if isinstance(matrices, OwnRows):
        return matrices.transposed_times(coefficients, index)
    if isinstance(coefficients, np.ndarray) and index is None:
        return np.vecmat(coefficients, matrices)
    xp = coefficients.__array_namespace__()
    return xp.matmul(coefficients[..., None, :], pick(matrices, index))[..., 0, :]


State = tuple[Array, ...]


def iterate(body: Callable[[State], State], state: State, limit: int, xp: Namespace) -> State:
    """Repeat `body` at most `limit` times, while any element of the state's first entry is true.

    The loop is also compilable under JAX.
    """
    if is_jax(xp):
        import jax

        played = jax.lax.while_loop(
            lambda s: xp.any(s[0][0]) & (s[1] < limit), lambda s: (body(s[0]), s[1] + 1), (state, 0)
        )
        return played[0]  # type: ignore[no-any-return]
    for _ in range(limit):
        if not (state[0].any() if xp is np else xp.any(state[0])):
            break
        state = body(state)
    return state


@dataclass(frozen=True)
class Linear:
    """A sparse matrix in row-compressed form, applied along the first axis: group sums, means, mixing.

    Every row is summed by itself and in order, so a result does not depend on the other rows.
    """

    indptr: Ints
    columns: Ints
    values: AnyFloats
    width: int

    @classmethod
    def from_entries(cls, rows: Array, columns: Array, values: Array, height: int, width: int) -> Linear:
        """From unordered entries; none may occur twice."""
        order = np.lexsort((columns, rows))
        indptr = np.searchsorted(rows[order], np.arange(height + 1))
        return cls(indptr, columns[order], values[order], width)

    @cached_property
    def rows(self) -> Ints:
        """The row of every entry."""
        return np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))

    def revalued(self, values: AnyFloats) -> Linear:
        """The same pattern with other values."""
        return Linear(self.indptr, self.columns, values, self.width)

    @cached_property
    def _csr(self) -> sparse.csr_array:
        from scipy import sparse

        return sparse.csr_array((self.values, self.columns, self.indptr), shape=(len(self.indptr) - 1, self.width))

    @cached_property
    def _product(self) -> Callable[[Array], Array]:
        """`_csr @`, by its underlying routine if available, without the checks that slow down small products."""
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


def column(values: AnyArray, xp: Namespace = np) -> Array:
    """One number per row, as a column; a scalar if all are equal, which is faster and gives the same bits."""
    same = len(values) and (values == values[0]).all()
    if same and xp is np:
        return values[0]
    return xp.asarray(values[0] if same else values[:, None])


def keep_rows(values: Array, kept: Array) -> Array:
    """The rows where the column `kept` is 1, and zeros where it is 0."""
    return values * kept


def put(values: Array, index: Array | slice | None, new: Array) -> Array:
    """`values` with the rows of `index` replaced (all of them if it is None); in place under NumPy."""
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
    """The rows of `index`, or all of them; a slice gives a view if the library has views."""
    if index is None:
        return values
    if isinstance(values, np.ndarray):
        return values[index] if isinstance(index, slice) else values.take(index, axis=0)
    xp = values.__array_namespace__()
    return values[index, ...] if isinstance(index, slice) else xp.take(values, xp.asarray(index), axis=0)
