"""Products in lanes equal NumPy's for every length of a row, also where registers overlap, and use nothing else."""

import numpy as np
import pytest

from pgfl import PGFL, Huber, Ridge, synthetic_regression
from pgfl.simulate.compiled import kind, products
from pgfl.simulate.compiled.cache import compiled
from pgfl.simulate.compiled.lanes import lanes_of
from pgfl.simulate.options import Performance, TrainingOptions
from pgfl.simulate.simulator import Simulator

LENGTHS = (1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 60, 64, 70)
FENCE = 40  # numbers around every array that would spoil a result


@compiled
def _all_products(x, at, rows, values, moves, dimension, image, out, sums):
    lanes = lanes_of(x)
    one = x.dtype.type(1.0)
    vector = np.zeros(products.padded_length(dimension, lanes), x.dtype)
    products.pack_padded(values, FENCE, one, dimension, lanes, vector)
    products.rows_times(x, at, rows, vector, dimension, lanes, image)
    products.add_rows(x, at, rows, moves, dimension, lanes, vector)
    products.unpack_padded(vector, one, dimension, lanes, out, FENCE)
    products.add_difference(out, FENCE, values, FENCE, dimension, lanes, sums, FENCE)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 9])
def test_products_equal_numpy_at_every_length(dtype, rows):
    rng = np.random.default_rng(rows)
    for dimension in LENGTHS:
        x, values, moves = (rng.normal(size=n).astype(dtype) for n in (rows * dimension, dimension, rows))
        fence = np.full(FENCE, np.nan, dtype=dtype)
        fenced = [np.concatenate([fence, inner, fence]) for inner in (x, values)]
        image = np.zeros(rows + 3, dtype=dtype)
        out, sums = (np.concatenate([fence, np.zeros(dimension, dtype=dtype), fence]) for _ in range(2))
        _all_products(fenced[0], FENCE, rows, fenced[1], moves, dimension, image, out, sums)
        matrix, tolerance = x.reshape(rows, dimension).astype(float), 1e-12 if dtype is np.float64 else 1e-4
        np.testing.assert_allclose(image[:rows], matrix @ values, rtol=tolerance, atol=tolerance)
        expected = values + moves.astype(float) @ matrix
        np.testing.assert_allclose(out[FENCE:-FENCE], expected, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(sums[FENCE:-FENCE], expected - values, rtol=tolerance, atol=tolerance)
        for written in (out, sums):
            assert np.isnan(written[:FENCE]).all() and np.isnan(written[-FENCE:]).all(), "nothing beside is written"


@compiled
def _chosen_products(x, chosen, rows, values, moves, dimension, image, out):
    lanes, one = lanes_of(x), x.dtype.type(1.0)
    vector = np.zeros(products.padded_length(dimension, lanes), x.dtype)
    products.pack_padded(values, 0, one, dimension, lanes, vector)
    products.chosen_rows_times(x, chosen, 2, rows, vector, dimension, lanes, image)
    products.add_chosen_rows(x, chosen, 2, rows, moves, dimension, lanes, vector)
    products.unpack_padded(vector, one, dimension, lanes, out, 0)


@pytest.mark.parametrize("rows", [1, 3, 4, 9])
def test_rows_that_do_not_lie_side_by_side_have_the_same_products(rows):
    rng = np.random.default_rng(rows)
    for dimension in LENGTHS:
        x, values, moves = rng.normal(size=(20, dimension)), rng.normal(size=dimension), rng.normal(size=rows + 2)
        chosen = rng.permutation(20)[: rows + 2]
        image, out = np.zeros(rows + 3), np.zeros(dimension)
        _chosen_products(x.reshape(-1), chosen, rows, values, moves, dimension, image, out)
        own = x[chosen[2:]]
        np.testing.assert_allclose(image[:rows], own @ values, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(out, values + moves[2:] @ own, rtol=1e-12, atol=1e-12)


@compiled
def _symmetric(matrix, rows, vector, targets, image, out):
    lanes = lanes_of(matrix)
    products.symmetric_times(matrix, 0, rows, vector, lanes, out)
    return products.residual(targets, 0, rows, image, lanes)


@pytest.mark.parametrize("rows", [1, 2, 7, 8, 9, 16, 17, 21, 32, 33, 70])
def test_the_product_with_the_factor_and_the_residual_ignore_what_lies_behind(rows):
    rng = np.random.default_rng(rows)
    half, vector, targets, image = (rng.normal(size=shape) for shape in ((rows, rows), rows, rows, rows))
    behind, matrix = np.full(8, np.nan), half + half.T
    found = np.zeros(rows + 8)
    away = np.concatenate([image, behind])
    square = _symmetric(
        np.concatenate([matrix.ravel(), behind]), rows, vector, np.concatenate([targets, behind]), away, found
    )
    np.testing.assert_allclose(found[:rows], matrix @ vector, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(away[:rows], targets - image, rtol=1e-15)
    assert square == pytest.approx(((targets - image) ** 2).sum(), rel=1e-12)


def _federation(**changes):
    return synthetic_regression(
        **{"servers": 4, "clients_per_server": 6, "dimension": 13, "samples": (2, 11), "seed": 2} | changes
    )


def _played(objective, look=lambda simulator: None, engine="numba", threads=1, **settings):
    options = TrainingOptions(rounds=12, **settings, performance=Performance(engine=engine, threads=threads))
    simulator = Simulator([_federation()], PGFL(tau=0.2), objective, options)
    for _ in range(12):
        simulator.run_round()
        look(simulator)
    return simulator


@pytest.mark.parametrize("objective", [Ridge(), Huber()], ids=["ridge", "huber"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_compiled_rounds_equal_numpy_where_registers_overlap(objective, dtype):
    found, expected = (_played(objective, engine=engine, dtype=dtype).state for engine in ("numba", "numpy"))
    tolerance = 1e-12 if dtype is np.float64 and isinstance(objective, Ridge) else 1e-4 if dtype is np.float32 else 1e-9
    for name in ("model", "dual", "server_models"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=tolerance, atol=tolerance)


def test_looking_at_the_duals_changes_no_bit():
    seen = []
    looked = _played(Ridge(), lambda simulator: seen.append(simulator.state.dual.copy()))
    unseen = _played(Ridge())
    assert "dual" in unseen.state.deferred, "the last round's dual update is put off"
    np.testing.assert_array_equal(unseen.state.dual, seen[-1])
    assert "dual" not in unseen.state.deferred
    np.testing.assert_array_equal(unseen.state.model, looked.state.model)
    assert not np.array_equal(seen[-1], seen[-2])


def test_ridge_clients_have_the_same_bits_beside_clients_of_another_objective(monkeypatch):
    monkeypatch.setattr(kind, "COPIED", 0)  # orthogonal rows are other numbers
    federation = _federation(clusters=2)
    objectives = {"cluster-0": Ridge(), "cluster-1": Huber()}
    options = TrainingOptions(rounds=1, performance=Performance(engine="numba"))
    alone, mixed = (Simulator([federation], PGFL(tau=0.0), given, options) for given in (Ridge(), objectives))
    assert alone.engine.blocks[0].ridge and not mixed.engine.blocks[0].ridge
    order = alone.layout.runs[0].order
    ridge = federation.client_cluster[order] == 0
    for simulator in (alone, mixed):
        simulator.run_round()
    np.testing.assert_array_equal(alone.state.model[ridge], mixed.state.model[ridge])
