"""Everyone gets a model: each site its clusters', each client its own and its cluster's, as files that predict."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

from pgfl.demo import demo_federation, demo_privacy, demo_training
from pgfl.network.agreement import Training
from pgfl.network.client.samples import load_samples
from pgfl.network.client.settings import load_client
from pgfl.network.local import LocalNetwork
from pgfl.results.model import Model
from tests.command_line import refused, run
from tests.network.inprocess import train_in_process

ROUNDS = 4


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    federation = demo_federation(2, 2, "huber", seed=3)
    training = demo_training(federation, "huber", ROUNDS)
    network = LocalNetwork(
        tmp_path_factory.mktemp("network"), federation, training, demo_privacy("huber", 20.0, ROUNDS)
    )
    train_in_process(network)
    return network


def written(kind, network, name, out):
    ran = run(kind, "model", network.home(name) / f"{kind}.toml", out)
    assert ran.code == 0, ran.err
    return ran.out, Model.load(out)


def test_a_site_writes_the_models_of_its_clusters_with_the_round_and_the_training(network, tmp_path):
    said, model = written("site", network, "server-0", tmp_path / "model.pgfl")
    assert f"after round {ROUNDS}" in said
    arrays = network.arrays("server-0")[1]
    clusters = json.loads(str(arrays["about"]))["clusters"]
    assert model.cluster_ids == tuple(clusters)
    for row, cluster in enumerate(clusters):
        np.testing.assert_array_equal(model.coefficients(cluster=cluster), arrays["state.model"][row])
        np.testing.assert_array_equal(
            model.coefficients(cluster=cluster, server="server-0"), arrays["state.model"][row]
        )
    assert model.provenance["training"] == network.training.digest
    assert set(model.provenance["privacy"]["releases"].values()) == {ROUNDS}
    assert "already exists" in refused("site", "model", network.home("server-0") / "site.toml", tmp_path / "model.pgfl")


def test_a_sites_model_predicts_a_table_with_numbered_columns(network, tmp_path):
    client = network.clients_of("server-0")[0]
    _, model = written("site", network, "server-0", tmp_path / "model.pgfl")
    table, cluster = network.home(client) / "data.csv", model.cluster_ids[0]
    predicted = run("predict", tmp_path / "model.pgfl", table, "--out", tmp_path / "p.csv", "--cluster", cluster)
    assert predicted.code == 0, predicted.err
    rows = pl.read_csv(table).drop("y").to_numpy()
    expected = rows @ model.coefficients(cluster=cluster)
    np.testing.assert_allclose(pl.read_csv(tmp_path / "p.csv")["prediction"].to_numpy(), expected, atol=1e-9)


def test_a_client_predicts_its_own_table_with_its_own_model_and_with_its_clusters(network, tmp_path):
    client = network.clients_of("server-0")[0]
    said, model = written("client", network, client, tmp_path / "model.pgfl")
    assert f"round {ROUNDS}" in said
    assert model.provenance["private"] is True
    assert 0.0 < model.provenance["privacy"]["epsilon"] <= 20.0
    rows = load_samples(load_client(network.home(client) / "client.toml")).features  # clipped, as in training
    for name, out in (("--client", client), ("--cluster", model.cluster_ids[0])):
        table = tmp_path / f"{out}.csv"
        predicted = run(
            "predict", tmp_path / "model.pgfl", network.home(client) / "data.csv", "--out", table, name, out
        )
        assert predicted.code == 0, predicted.err
        which = {"client": client} if name == "--client" else {"cluster": out}
        expected = rows @ model.coefficients(**which)
        np.testing.assert_allclose(pl.read_csv(table)["prediction"].to_numpy(), expected, atol=1e-9)
    assert (model.coefficients(client=client) != model.coefficients(cluster=model.cluster_ids[0])).all()


def test_what_a_client_writes_was_released_and_is_not_its_clean_model(network, tmp_path):
    """The file may be shared: its own model is the noised one that its site has, bit for bit."""
    from pgfl.network.protocol.messages import BETWEEN_SITE_AND_CLIENT, read_answer
    from pgfl.network.protocol.wire import Limits, decode
    from pgfl.privacy.ledger.ledger import Ledger

    client = network.clients_of("server-1")[0]
    _, model = written("client", network, client, tmp_path / "model.pgfl")
    with Ledger.read(network.home(client) / "ledger.db") as ledger:
        sent = ledger.find(ledger.rows()[-1].round_key).payload
    answer = read_answer(decode(sent, Limits(network.federation.dimension), BETWEEN_SITE_AND_CLIENT))
    np.testing.assert_array_equal(model.coefficients(client=client), answer.model)


def test_one_model_for_all_clusters_is_each_clusters(tmp_path):
    federation = demo_federation(1, 2, "huber", seed=3)
    settings = demo_training(federation, "huber", 2).model_dump()
    settings["algorithm"] = {"kind": "fedavg", "step_size": 0.01}
    network = LocalNetwork(tmp_path / "n", federation, Training.model_validate(settings), {"enabled": False})
    train_in_process(network)
    _, model = written("site", network, "server-0", tmp_path / "model.pgfl")
    assert model.cluster_ids == tuple(federation.cluster_ids)
    np.testing.assert_array_equal(*(model.coefficients(cluster=cluster) for cluster in federation.cluster_ids))


def test_before_the_first_round_there_is_no_model_and_both_say_so(tmp_path):
    federation = demo_federation(1, 1, "huber", seed=3)
    network = LocalNetwork(tmp_path, federation, demo_training(federation, "huber", 2), {"enabled": False})
    network.prepare()
    assert "has no model yet" in refused("site", "model", tmp_path / "server-0" / "site.toml", tmp_path / "m.pgfl")
    assert not (tmp_path / "m.pgfl").exists()
