"""`full_records`: steps in proportion to records, what they lead to, and what one record can do to them."""

from importlib.util import find_spec

import numpy as np
import pytest

from pgfl import PGFL, ExactMixing, FedAvg, Huber, Privacy, Ridge, synthetic_regression, train
from pgfl.algorithms.roles import Client, RoundRequest
from pgfl.config import parse
from pgfl.errors import ConfigError

SHAPE = {"servers": 3, "clients_per_server": 6, "clusters": 2, "dimension": 4, "samples": (5, 20), "graph": "ring"}
FEDERATION = synthetic_regression(**SHAPE, x_norm=2.0, seed=6)
FULL = 12  # some clients have fewer records, some more
RELEASES = [("local", "admm"), ("local", "gradient"), ("site", "gradient"), ("masked", "gradient")]
"""Every kind of release: under which trust, of which client rule."""


@pytest.mark.parametrize("engine", ["numba", "jax"])
def test_engines_and_devices_take_the_same_steps(engine):
    assert find_spec(engine)
    algorithm, objective = PGFL(rho=9.0, tau=0.1, client="gradient", full_records=FULL), Huber(lam=0.1)
    plain, compiled = (
        train(FEDERATION, algorithm, objective, rounds=7, engine=name, threads=1) for name in ("numpy", engine)
    )
    np.testing.assert_allclose(compiled.models[0].clients, plain.models[0].clients, atol=1e-10)
    ends = [(0, 1), (FEDERATION.size - 1, FEDERATION.size)]
    for first, _ in ends:
        rows = slice(FEDERATION.offsets[first], FEDERATION.offsets[first + 1])
        device = Client(objective, algorithm, FEDERATION.features[rows], FEDERATION.targets[rows])
        answer = device.answer(RoundRequest(1, 6, np.ones(4)), release=lambda model: model)
        gradient = objective.gradient(
            np.ones((1, 4)), FEDERATION.features[rows][None], FEDERATION.targets[rows][None],
            np.array([float(FEDERATION.counts[first])]),
        )[0] + 2 * 0.1 / 6  # fmt: skip
        share = min(1.0, FEDERATION.counts[first] / FULL)
        np.testing.assert_allclose(answer.model, 1.0 - share * gradient / 9.0, atol=1e-12)


@pytest.mark.proof
def test_every_record_counts_alike_where_nobody_has_more():
    """With exact mixing the fixed point is the least-squares fit of all records of a cluster together."""
    algorithm = ExactMixing(rho=8.0, client="gradient", full_records=20)
    result = train(FEDERATION, algorithm, Ridge(lam=0.0), rounds=4000)
    cluster = np.repeat(FEDERATION.client_cluster, FEDERATION.counts)
    for q in range(2):
        own = cluster == q
        pooled = np.linalg.lstsq(FEDERATION.features[own], FEDERATION.targets[own], rcond=None)[0]
        models = result.models[0]
        for row in np.flatnonzero(models.pair_cluster == q):
            np.testing.assert_allclose(models.servers[row], pooled, atol=1e-8)


def test_with_it_all_clients_of_a_pair_ask_for_the_same_noise():
    privacy = Privacy(epsilon=1.0, x_norm=2.0, trust="site", max_releases=5, index="release")
    spent = {}
    for full in (1, 20):
        algorithm = PGFL(rho=9.0, client="gradient", full_records=full)
        deltas = privacy.sensitivity(Huber(), algorithm, FEDERATION.counts, np.full(FEDERATION.size, 9.0), 0.0)
        assert deltas == pytest.approx(4.0 * 2.0 / 9.0 / np.maximum(FEDERATION.counts, full))
        result = train(FEDERATION, algorithm, Huber(), rounds=8, privacy=privacy)
        spent[full] = result.privacy[0]["rho"]
    assert np.ptp(spent[20]) == pytest.approx(0.0, abs=1e-12)  # nobody adds noise that only another one needs
    assert np.ptp(spent[1]) > 0.01
    assert spent[20].max() <= spent[1].max() * (1 + 1e-9)


def pooled_fit(federation, q):
    own = np.repeat(federation.client_cluster, federation.counts) == q
    return np.linalg.lstsq(federation.features[own], federation.targets[own], rcond=None)[0]


@pytest.mark.parametrize("engine", ["numpy", "numba"])
def test_counting_records_solves_the_pooled_problem(engine):
    """ADMM with exact mixing ends at the fit of all records of a cluster together; counting clients does not."""
    fits = {}
    for count in ("clients", "records"):
        algorithm = ExactMixing(rho="auto", count=count)
        fits[count] = train(FEDERATION, algorithm, Ridge(lam=0.0), rounds=600, engine=engine, metrics=[])
    for q, name in enumerate(FEDERATION.cluster_ids):
        pooled = pooled_fit(FEDERATION, q)
        np.testing.assert_allclose(fits["records"].cluster(name), pooled, atol=1e-7)
        assert np.abs(fits["clients"].cluster(name) - pooled).max() > 1e-3


@pytest.mark.parametrize(("trust", "client"), RELEASES)
def test_counting_records_charges_every_client_for_the_same_share_of_a_record(trust, client):
    privacy = Privacy(
        epsilon=1.0,
        x_norm=2.0,
        trust=trust,
        max_releases=5,
        index="release",
        contributors=2,
        colluders=0,
        noise="seeded",
    )
    algorithm = PGFL(rho=9.0, client=client, count="records")
    result = train(FEDERATION, algorithm, Huber(lam=0.0), rounds=5, privacy=privacy, metrics=[])
    assert np.ptp(result.privacy[0]["rho"]) == pytest.approx(0.0, abs=1e-12)
    stated = PGFL(rho=9.0, client=client, full_records=int(FEDERATION.counts.max()))
    same = train(FEDERATION, stated, Huber(lam=0.0), rounds=5, privacy=privacy, metrics=[])
    np.testing.assert_array_equal(same.models[0].servers, result.models[0].servers)


def test_a_solver_s_sensitivity_has_the_larger_of_its_records_and_those_that_count_in_full():
    privacy, algorithm = Privacy(epsilon=1.0, x_norm=2.0), PGFL(rho=9.0, full_records=12)
    modulus = algorithm.client_rule.modulus(0.0, 6, FEDERATION.counts.astype(float))
    deltas = privacy.sensitivity(Huber(lam=0.0), algorithm, FEDERATION.counts, modulus, 0.0)
    assert deltas == pytest.approx(4.0 * 2.0 / 9.0 / np.maximum(FEDERATION.counts, 12))


def test_what_is_counted_is_clients_or_records():
    with pytest.raises(ConfigError, match=r"full_records"):
        PGFL(rho=1.0, client="gradient", full_records=0)
    with pytest.raises(ConfigError, match=r'"clients" or "records"'):
        PGFL(count="rows")
    with pytest.raises(ConfigError, match=r"leave one of them out"):
        FedAvg(count="records", full_records=5)
    with pytest.raises(ConfigError, match=r"leave one of them out"):
        parse({"algorithm": {"count": "records", "full_records": 5}})
    with pytest.raises(ConfigError, match=r"give full_records here"):
        Client(Ridge(), PGFL(rho=1.0, count="records"), [[1.0]], [1.0]).answer(
            RoundRequest(1, 6, np.ones(1)), release=lambda model: model
        )
    assert parse({"algorithm": {"full_records": 5}}).algorithm.full_records == 5
    assert parse({"algorithm": {"kind": "fedavg", "count": "records"}}).algorithm.count == "records"
