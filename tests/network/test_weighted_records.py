"""Weights of records on a network: capped by the training, named in limits, and in the noise of every client."""

from dataclasses import replace

import numpy as np
import pytest

from pgfl.algorithms.roles import Client, RoundRequest
from pgfl.demo import demo_federation, largest_difference
from pgfl.errors import ConfigError, DataError, NetworkError
from pgfl.network.agreement import SiteTerms, Training
from pgfl.network.client.accounts import Offer
from pgfl.network.client.core import ClientCore
from pgfl.network.client.samples import load_samples
from pgfl.network.client.settings import TrainingLimits, load_client
from pgfl.network.local import LocalNetwork
from tests.network.client_folders import PRIVACY, client_folder
from tests.network.inprocess import train_in_process

LOGISTIC = {"kind": "logistic", "lam": 0.01}


def training(dimension=2, clusters=("a",), **more):
    settings = {
        "rounds": 3,
        "dimension": dimension,
        "clusters": clusters,
        "objective": {"kind": "huber", "lam": 0.01},
        "algorithm": {"kind": "pgfl", "rho": 8.0, "tau": 0.0},
    }
    return Training.model_validate({**settings, **more})


def weighing(folder, weights=(0.5, 40.0), labels=(0.5, -1.0), cap=5.0, **settings):
    """A client whose table has the column w."""
    path = client_folder(folder, labels, weight="w", limits={"weight_cap": cap}, **settings)
    lines = (folder / "data.csv").read_text().splitlines()
    rows = [f"{line},{weight!r}" for line, weight in zip(lines[1:], weights, strict=True)]
    (folder / "data.csv").write_text("\n".join([f"{lines[0]},w", *rows]) + "\n")
    return load_client(path)


@pytest.fixture
def core(tmp_path):
    opened = []

    def made(settings):
        opened.append(ClientCore(settings, load_samples(settings)))
        return opened[-1]

    yield made
    for one in opened:
        one.account.close()


def test_sites_agree_on_weights_by_hash_and_trainings_without_them_keep_theirs():
    plain, capped, other = (training(weight_cap=cap) for cap in (None, 5.0, 6.0))
    labels = training(objective=LOGISTIC, class_weight={"1": 9.0})
    assert len({plain.digest, capped.digest, other.digest, labels.digest}) == 4
    assert "weight" not in plain.text and Training.parse(labels.text) == labels
    assert "weights of records up to 5" in capped.describe("a") and "weights" not in plain.describe("a")
    assert any("weight_cap" in line for line in capped.differences(plain))
    assert [one.largest_weight for one in (plain, capped, labels)] == [None, 5.0, 9.0]
    with pytest.raises(ValueError, match="is for labels 0 and 1"):
        training(class_weight={"1": 9.0})


def test_a_client_takes_part_up_to_its_own_limit_and_by_default_with_records_that_count_alike():
    own, wide = TrainingLimits(), TrainingLimits(weight_cap=5.0)
    assert own.refused(training(), "a") is None and own.refused(training(weight_cap=1.0), "a") is None
    assert "weights of records up to 5, but `limits.weight_cap` allows up to 1" in own.refused(
        training(weight_cap=5.0), "a"
    )
    assert wide.refused(training(weight_cap=5.0), "a") is None
    labels = training(objective=LOGISTIC, class_weight={"1": 9.0})
    assert "up to 9, but `limits.weight_cap` allows up to 5" in wide.refused(labels, "a")


def test_weights_are_clipped_to_the_training_s_cap(tmp_path):
    samples = load_samples(weighing(tmp_path))
    assert samples.features.shape == (2, 2)
    assert samples.targets_for(training(weight_cap=5.0)).tolist() == [[0.5, 0.5], [-1.0, 5.0]]
    assert samples.targets_for(training()).tolist() == [0.5, -1.0]


@pytest.mark.parametrize(("cap", "expected"), [(None, [1.0, 9.0]), (4.0, [1.0, 4.0]), (0.5, [0.5, 0.5])])
def test_weights_of_labels_need_no_column_and_keep_to_a_cap(tmp_path, cap, expected):
    samples = load_samples(load_client(client_folder(tmp_path, (0.0, 1.0), task="classification")))
    found = samples.targets_for(training(objective=LOGISTIC, class_weight={"1": 9.0}, weight_cap=cap))
    assert found[:, 1].tolist() == expected


def test_the_noise_of_a_device_and_of_a_trusted_site_grows_with_the_cap(tmp_path, core):
    settings, deltas = weighing(tmp_path / "weighing"), []
    plain, device = core(load_client(client_folder(tmp_path / "plain"))), core(settings)
    for one, own in ((plain, training()), (device, training(weight_cap=5.0))):
        role = one._begin(Offer(own, "a")).role
        deltas.append(one.account.sensitivity(role, 1))
    assert deltas[1] == pytest.approx(5.0 * deltas[0], rel=1e-5)
    terms = SiteTerms(2, settings.privacy.request().policy())
    by_site = [
        terms.sensitivity(own.build_objective("a"), own.build_algorithm(), 1, 2)
        for own in (training(), training(weight_cap=5.0))
    ]
    assert by_site[1] == pytest.approx(5.0 * by_site[0], rel=1e-5)


@pytest.mark.parametrize("objective", [{"kind": "huber", "lam": 0.01}, LOGISTIC], ids=lambda one: one["kind"])
@pytest.mark.parametrize("client", ["admm", "gradient"])
def test_no_replaced_record_whatever_its_weight_moves_an_answer_further_than_is_charged(
    tmp_path, core, objective, client
):
    own = training(objective=objective, weight_cap=5.0, algorithm={"kind": "pgfl", "rho": 20.0, "client": client})
    task = "regression" if objective["kind"] == "huber" else "classification"
    settings = weighing(tmp_path, labels=(0.0, 1.0), weights=(1.0, 1.0), task=task)
    device = core(settings)
    delta = device.account.sensitivity(device._begin(Offer(own, "a")).role, 1)
    rng, furthest = np.random.default_rng(0), 0.0
    for _ in range(30):
        ends = []
        for _ in range(2):
            row = rng.normal(size=2)
            row /= max(1.0, float(np.linalg.norm(row)))
            features = np.array([[0.6, 0.0], row])
            label, weight = rng.choice([0.0, 1.0]), rng.choice([0.0, 1.0, 1e6])
            samples = replace(
                device.samples, features=features, targets=np.array([0.0, label]), weights=np.array([1.0, weight])
            )
            role = Client(own.build_objective("a"), own.build_algorithm(), features, samples.targets_for(own))
            ends.append(role.answer(RoundRequest(1, 1, None), lambda model: model).model)
        furthest = max(furthest, float(np.linalg.norm(ends[0] - ends[1])))
    assert 0.2 * delta < furthest <= delta


def test_mistakes_are_one_sentence_before_anything_is_sent(tmp_path, core):
    with pytest.raises(DataError, match="the weight w is below 0; weights are numbers from 0 up"):
        load_samples(weighing(tmp_path / "below", weights=(1.0, -2.0)))
    with pytest.raises(ConfigError, match=r"the largest one that you accept is `limits\.weight_cap`"):
        load_client(client_folder(tmp_path / "own", privacy=PRIVACY | {"weight_cap": 2.0}))
    device = core(weighing(tmp_path / "unasked"))
    with pytest.raises(NetworkError, match="the site's training has no weights"):
        device._check(Offer(training(), "a"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("trust", ["local", "site"])
def test_a_network_trains_on_weighted_records_as_the_simulator_does(tmp_path, trust):
    raw = demo_federation(2, 2, "huber", seed=2)
    made = raw.replace(weights=np.random.default_rng(0).uniform(0.0, 4.0, len(raw.targets)))
    own = training(
        raw.dimension,
        tuple(raw.cluster_ids),
        weight_cap=2.0,
        algorithm={"kind": "pgfl", "rho": 8.0, "tau": 0.2, "client": "gradient"},
        privacy={"trust": trust, "contributors": 1} if trust == "site" else {},
    )
    privacy = {"enabled": True, "epsilon": 20.0, "delta": 1e-5, "max_releases": 3, "zeta": 0.99, "x_norm": 1.5}
    privacy |= {"trust": trust, "contributors": 1} if trust == "site" else {}
    network = LocalNetwork(
        tmp_path, made, own, privacy, record_noise=True, limits={"weight_cap": 2.0, "objectives": ["huber"]}
    )
    assert set(train_in_process(network).values()) == {"all rounds are done"}
    capped = made.replace(weights=np.minimum(made.weights, 2.0))
    assert largest_difference(replace(network, federation=capped)) <= 1e-10
    assert largest_difference(replace(network, federation=made)) > 1e-3
