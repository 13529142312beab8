"""Rows as bytes: products of whole rows up to rounding, for clients whose own rows are such, whoever else there is."""

import numpy as np
import pytest

from pgfl import PGFL, Huber, Logistic, Privacy, Ridge, mnist_federation, synthetic_regression, train
from pgfl.simulate.compiled import products
from pgfl.simulate.compiled import sparse as numba_rows
from pgfl.simulate.compiled.cache import compiled
from pgfl.simulate.compiled.lanes import lanes_of
from pgfl.simulate.compiled.sparse import SPARSE_SHARE, byte_rows
from pgfl.simulate.memory import Shape
from pgfl.simulate.options import Performance, TrainingOptions
from pgfl.simulate.simulator import Simulator

EVERYONE = np.array([0]), np.array([5])


def images(rows, dimension, largest=255, share=0.02, seed=0, dtype=np.float64):
    """Rows of whole numbers, each divided by its norm; the last number of each is not zero."""
    random = np.random.default_rng(seed)
    pixels = random.integers(1, largest + 1, (rows, dimension)) * (random.random((rows, dimension)) < share)
    pixels[:, -1], pixels[:, dimension // 3] = random.integers(1, largest + 1, rows), largest
    return (pixels / np.linalg.norm(pixels, axis=1, keepdims=True)).astype(dtype)


def expand(in_bytes, rows, dimension):
    """The numbers that bytes stand for, as whole rows."""
    _, begins, places, values, scale = in_bytes
    lanes, out = len(values) // max(len(places), 1), np.zeros((rows, dimension), dtype=scale.dtype)
    for row in range(rows):
        for e in range(begins[row], begins[row + 1]):
            at = min(places[e], dimension - lanes)
            out[row, at : at + lanes] = values[e * lanes : (e + 1) * lanes] * scale[row]
    return out


@pytest.mark.parametrize("dimension", [256, 300, 784])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("largest", [255, 128, 17, 1])
def test_bytes_are_the_rows_and_never_more(dimension, dtype, largest):
    x = images(5, dimension, largest, dtype=dtype)
    found = expand(byte_rows(x, *EVERYONE), 5, dimension)
    np.testing.assert_allclose(found, x, rtol=8 * np.finfo(dtype).eps, atol=0)
    assert (found.astype(np.float64) <= x).all(), "a bound on the norm holds for what is computed with"
    *_, scale = byte_rows(x, *EVERYONE)
    exactly = np.rint(x / scale[:, None]) * scale.astype(np.longdouble)[:, None]
    assert (exactly <= x.astype(np.longdouble)).all(), "before rounding, too"


@compiled
def _products(x, forms, k, start, rows, values, moves, dimension, image, out):
    flat, lanes, one = x.reshape(-1), lanes_of(x), x.dtype.type(1.0)
    vector, once = products.padded_zeros(flat, dimension, lanes), products.padded_zeros(flat, dimension, lanes)
    products.pack_padded(values, 0, one, dimension, lanes, vector)
    numba_rows.products_with(flat, forms, k, start, rows, vector, once, dimension, lanes, image)
    numba_rows.add_products_with(flat, forms, k, start, rows, moves, dimension, lanes, vector)
    products.unpack_padded(vector, one, dimension, lanes, out, 0)


@pytest.mark.proof
@pytest.mark.parametrize("dimension", [256, 259, 300, 784])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("rows", [1, 2, 5, 8])
def test_products_are_those_of_whole_rows(dimension, dtype, rows):
    random, x = np.random.default_rng(rows), images(12, dimension, dtype=dtype)
    forms = (None, byte_rows(x, np.array([0, 12 - rows]), np.array([12 - rows, rows])))
    values, moves = (random.normal(size=n).astype(dtype) for n in (dimension, rows))
    image, out = np.zeros(rows + 3, dtype=dtype), np.zeros(dimension, dtype=dtype)
    _products(x, forms, 1, 12 - rows, rows, values, moves, dimension, image, out)
    own, tolerance = x[12 - rows :].astype(float), 1e-13 if dtype is np.float64 else 1e-5
    np.testing.assert_allclose(image[:rows], own @ values, rtol=0, atol=tolerance)
    np.testing.assert_allclose(out, values + moves.astype(float) @ own, rtol=0, atol=tolerance)


def spoiled(change):
    x = images(6, 300)
    change(x)
    return x


@pytest.mark.parametrize(
    "x",
    [
        spoiled(lambda x: x[5].__imul__(np.random.default_rng(0).uniform(1.0, 1.1, 300))),
        spoiled(lambda x: x[4].__setitem__(100, x[4].max() * 1.7)),
        spoiled(lambda x: x[3].__setitem__(np.flatnonzero(x[3])[2], -x[3].max())),
        spoiled(lambda x: x[2].__setitem__(7, np.nan)),
        spoiled(lambda x: x[2].__setitem__(7, np.inf)),
        spoiled(lambda x: x[1].__imul__(1.0 + 1e-13 * np.arange(300))),
        images(6, 300, share=0.9),
        images(6, 300, largest=256)[:, ::-1],
        images(6, 100),
    ],
    ids=["real", "past 255", "negative", "nan", "infinite", "not quite", "full", "256", "short"],
)
def test_other_rows_stay_as_they_are(x):
    """One such row is enough: all of a client's rows are in one form. A client beside it does not mind."""
    x = np.ascontiguousarray(x)
    assert byte_rows(x, np.array([0]), np.array([6])) is None
    if x.shape[1] == 300:
        beside = np.vstack([images(2, 300, seed=3), x])
        whose, begins, *_ = byte_rows(beside, np.array([0, 2]), np.array([2, 6]))
        assert whose.tolist() == [True, False] and begins[2] == begins[-1], "of the other nothing is kept"


def test_rows_of_zeros_and_clients_without_rows_are_bytes():
    x = np.vstack([np.zeros((2, 300)), images(3, 300)])
    whose, begins, *_ = byte_rows(x, np.array([0, 2, 2]), np.array([2, 0, 3]))
    assert whose.tolist() == [True, True, True] and begins[2] == 0 < begins[3]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_bytes_take_no_more_memory_than_is_counted_before_a_training(dtype):
    x = images(500, 784, share=np.dtype(dtype).itemsize / 128, dtype=dtype)
    found = byte_rows(x, np.arange(0, 500, 10), np.full(50, 10))
    assert found[0].all() and found[1][-1] > 0.3 * 500 * x[0].nbytes / 64, "nearly as many as are ever kept"
    shape = {"clients": 50, "rows": 500, "dimension": 784, "pairs": 4, "dtype": np.dtype(dtype).name, "engine": "numba"}
    counted = Shape(**shape, sparse_share=SPARSE_SHARE).kernel_bytes - Shape(**shape).kernel_bytes
    assert sum(part.nbytes for part in found) < 0.5 * counted


def federation(run=0, dimension=300, spoilt=()):
    """Clients with images; those of `spoilt` have rows that no bytes stand for."""
    shape = {"servers": 4, "clients_per_server": 6, "dimension": dimension, "samples": (3, 12)}
    made = synthetic_regression(**shape, seed=5, run=run)
    features = images(len(made.features), dimension, seed=run)
    for client in spoilt:
        features[made.offsets[client]] *= np.random.default_rng(1).uniform(1.0, 1.01, dimension)
    return made.replace(features=features, targets=(made.targets > 0).astype(float))


def played(data, objective=None, engine="numba", client="admm", dtype=np.float64, participants=3, threads=1, **more):
    options = TrainingOptions(
        10, participants, dtype=dtype, **more, performance=Performance(engine=engine, threads=threads)
    )
    simulator = Simulator(data, PGFL(rho=2.0, tau=0.2, client=client), objective or Logistic(), options)
    simulator.run(10)
    return simulator


@pytest.mark.proof
@pytest.mark.parametrize("objective", [Logistic(), Huber(), Ridge()], ids=lambda objective: objective.kind)
@pytest.mark.parametrize("client", ["admm", "gradient"])
@pytest.mark.parametrize("spoilt", [(), (0, 7, 23)], ids=["all", "some"])
@pytest.mark.parametrize("dimension", [256, 300])
def test_rounds_on_bytes_are_those_of_numpy(objective, client, spoilt, dimension):
    data = [federation(dimension=dimension, spoilt=spoilt)]
    found, expected = (played(data, objective, engine, client) for engine in ("numba", "numpy"))
    in_bytes = found.engine.blocks[0].forms[1]
    assert in_bytes is not None and in_bytes[0].sum() == 24 - len(spoilt)
    for name in ("model", "dual", "server_models"):
        np.testing.assert_allclose(getattr(found.state, name), getattr(expected.state, name), rtol=0, atol=1e-12)


@pytest.mark.proof
def test_digits_are_bytes():
    data = mnist_federation("pairs", servers=4, clients_per_server=3, seed=1)
    found, expected = (played([data], engine=engine) for engine in ("numba", "numpy"))
    assert found.engine.blocks[0].forms[1][0].all()
    np.testing.assert_allclose(found.state.model, expected.state.model, rtol=0, atol=1e-12)


@pytest.mark.proof
def test_private_rounds_on_bytes_charge_and_release_as_those_of_numpy():
    privacy, data = Privacy(x_norm=1.0, phi0=1e-2, zeta=0.99, noise="seeded"), federation(spoilt=(7,))
    numba, numpy = (
        train(data, PGFL(), Logistic(), rounds=8, participants=2, privacy=privacy, engine=engine)
        for engine in ("numba", "numpy")
    )
    np.testing.assert_allclose(numba.models[0].released, numpy.models[0].released, rtol=0, atol=1e-9)
    for column in ("releases", "rho", "epsilon", "refused"):
        np.testing.assert_array_equal(numba.privacy[0][column], numpy.privacy[0][column])


@pytest.mark.proof
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("spoilt", [(), (3,)], ids=["all", "some"])
def test_no_bit_depends_on_the_batch_or_the_threads(dtype, spoilt):
    """Beside a run whose rows are no bytes, in several threads, or alone: a client's form is its own."""
    one, other = federation(0, spoilt=spoilt), federation(1, spoilt=range(24))
    alone = played([one], dtype=dtype).state
    for simulator in (played([one, other], dtype=dtype), played([one], dtype=dtype, threads=3)):
        run = simulator.layout.runs[0]
        np.testing.assert_array_equal(simulator.state.model[run.clients], alone.model)
        np.testing.assert_array_equal(simulator.state.server_models[run.pairs], alone.server_models)
