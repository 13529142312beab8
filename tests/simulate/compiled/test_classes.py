"""Compiled gradient steps of softmax regression are those of the NumPy engine."""

import numpy as np
import pytest

from pgfl import PGFL, FedAvg, Privacy, Softmax, synthetic_regression, train

PRIVACY = Privacy(epsilon=5.0, delta=1e-5, max_releases=6, x_norm=1.0, noise="seeded")


def federation(dimension, seed=2):
    """Rows of three classes; clients have 3 to 9 of them."""
    made = synthetic_regression(
        servers=3, clients_per_server=4, dimension=dimension, samples=(3, 9), seed=seed, graph="line"
    )
    return made.replace(targets=(np.abs(made.targets * 7).astype(int) % 3).astype(float), truth=None)


@pytest.mark.proof
@pytest.mark.parametrize("dimension", [3, 21])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    ("algorithm", "privacy"),
    [
        (PGFL(client="gradient", rho=2.0, tau=0.1, full_records=5), None),
        (PGFL(client="gradient", rho=2.0), PRIVACY),
        (FedAvg(step_size=0.1, local_steps=3), None),
    ],
    ids=["clean", "private", "fedavg"],
)
def test_engines_agree(dimension, dtype, algorithm, privacy):
    made, results = federation(dimension), []
    for engine in ("numpy", "numba"):
        results.append(
            train(
                made, algorithm, Softmax(classes=3, lam=0.1), rounds=6, privacy=privacy, engine=engine, dtype=dtype,
                metrics=("objective",), participants=2,
            )
        )  # fmt: skip
    one, other = results
    assert other.summary()["engine"] == "numba"
    for cluster in made.cluster_ids:
        assert other.cluster(cluster) == pytest.approx(one.cluster(cluster), abs=1e-12 if dtype is np.float64 else 1e-5)
    if privacy is None:
        assert other.history["objective"] == pytest.approx(one.history["objective"], rel=1e-5)


def test_rows_of_single_precision_are_trained_where_they_lie():
    """No copy of the rows, neither in double precision nor in single: the kernels read the federation's own."""
    from pgfl.simulate.compiled.blocks import prepare
    from pgfl.simulate.layout import lay_out

    made = federation(21)
    made = made.replace(features=made.features.astype(np.float32), targets=made.targets.astype(np.float32))
    bounded = Privacy(x_norm=1e9, phi0=1e-3).bounded(made, np.float32)
    assert bounded.features is made.features
    (block,) = prepare(lay_out([bounded]), Softmax(classes=3), 2.0, np.float32, None, False, 1)
    assert block.problems.features is made.features
