"""The training is the owner's to accept: limits, the declared task, and what was pinned at the first join."""

from __future__ import annotations

import numpy as np
import pytest

from pgfl.errors import DataError, NetworkError, PrivacyError
from pgfl.network.agreement import Training
from pgfl.network.client import accounts as acceptance
from pgfl.network.client.accounts import Offer
from pgfl.network.client.client import Participant
from pgfl.network.client.samples import load_samples
from pgfl.network.client.settings import TrainingLimits, load_client
from pgfl.network.doctor import examine_client
from pgfl.network.protocol.identity import SITE_CERTIFICATE, SiteCertificate
from pgfl.network.protocol.messages import Welcome
from pgfl.network.protocol.wire import Frame
from tests.command_line import refused, run
from tests.network.client_folders import PRIVACY, client_folder

HUBER = {"rounds": 5, "dimension": 2, "clusters": ["a", "b"], "objective": {"kind": "huber"}}


def training(**changes):
    return Training.model_validate_json(Training.model_validate({**HUBER, "clusters": ("a", "b"), **changes}).text)


def welcome(offered, cluster="a"):
    return Frame(Welcome(client="ann", cluster=cluster, training=offered.text, releases=0, round=0))


@pytest.fixture
def joined(tmp_path):
    path = client_folder(tmp_path)
    settings = load_client(path)
    participant = Participant(settings, load_samples(settings))
    participant.stream.shown = SiteCertificate.read(tmp_path / "site" / SITE_CERTIFICATE)
    yield participant
    participant.account.close()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"algorithm": {"rho": 1e-200}}, "limits.rho"),
        ({"algorithm": {"rho": 1e9}}, "limits.rho"),
        ({"objective": {"kind": "huber", "lam": 1e9}}, "limits.lam"),
        ({"objective": {"kind": "huber", "kappa": 1e-9}}, "limits.kappa"),
        ({"objective": {"kind": "huber", "clusters": {"a": {"kappa": 1e-9}}}}, "limits.kappa"),
        ({"algorithm": {"kind": "fedavg", "step_size": 1e-12}}, "limits.step_size"),
        ({"algorithm": {"kind": "fedavg", "local_steps": 10**6}}, "limits.local_steps"),
        ({"rounds": 10**8}, "limits.rounds"),
        ({"dimension": 10**7}, "limits.dimension"),
    ],
)
def test_a_training_outside_the_limits_is_refused_by_its_key(joined, change, words):
    with pytest.raises(NetworkError, match=words):
        joined._handle(welcome(training(**change)))
    assert joined.rounds is None


def test_a_budget_that_trains_on_noise_is_refused_before_anything_is_spent_and_the_doctor_says_so(tmp_path):
    path = client_folder(tmp_path, privacy={**PRIVACY, "zeta": 0.99, "max_releases": 4000})
    settings = load_client(path)
    participant = Participant(settings, load_samples(settings))
    participant.stream.shown = SiteCertificate.read(tmp_path / "site" / SITE_CERTIFICATE)
    try:
        with pytest.raises(PrivacyError, match="most rounds train on noise; set zeta = "):
            participant._handle(welcome(training(rounds=4000)))
        assert participant.account.releases == 0
    finally:
        participant.account.close()
    (finding,) = [each for each in examine_client(settings) if "the noise of the first release" in each.what]
    assert "set zeta = " in finding.advice


def test_kinds_are_limited_too():
    assert "limits.objectives" in TrainingLimits(objectives=("logistic",)).refused(training(), "a")
    assert "limits.algorithms" in TrainingLimits(algorithms=("fedavg",)).refused(training(), "a")
    assert TrainingLimits().refused(training(), "a") is None


@pytest.mark.parametrize("labels", [(0.0, 1.0), (0.0, 0.5)])
def test_another_task_is_refused_by_declarations_whatever_the_labels_are(tmp_path, labels):
    """Asking for logistic regression used to tell whether a label was not 0 or 1."""
    settings = load_client(client_folder(tmp_path, labels=labels))
    participant = Participant(settings, load_samples(settings))
    with pytest.raises(NetworkError, match="task") as refused:
        participant._handle(welcome(training(objective={"kind": "logistic"})))
    participant.account.close()
    assert "0.5" not in str(refused.value)


def test_labels_that_do_not_suit_the_declared_task_end_the_client_before_it_speaks(tmp_path):
    settings = load_client(client_folder(tmp_path, labels=(0.0, 0.5), task="classification"))
    with pytest.raises(DataError, match="data row 2"):
        load_samples(settings)


def test_the_first_training_is_pinned_and_another_one_needs_the_owner(joined, tmp_path):
    joined._handle(welcome(training()))
    joined._handle(welcome(training()))
    other = training(algorithm={"rho": 2.0})
    with pytest.raises(NetworkError, match=r"algorithm.rho: 5.0 -> 2.0.*pgfl client accept"):
        joined._handle(welcome(other))
    assert joined.rounds.training == training().digest
    code, said, _ = run("client", "accept", tmp_path / "client.toml")
    assert code == 0
    assert "algorithm.rho: 5.0 -> 2.0" in said
    joined._handle(welcome(other))
    assert joined.rounds.training == other.digest
    assert "no changed training" in refused("client", "accept", tmp_path / "client.toml")


def test_an_offer_that_the_site_took_back_cannot_be_accepted(joined, tmp_path):
    joined._handle(welcome(training()))
    with pytest.raises(NetworkError, match="pgfl client accept"):
        joined._handle(welcome(training(algorithm={"rho": 2.0})))
    joined._handle(welcome(training()))
    assert "no changed training" in refused("client", "accept", tmp_path / "client.toml")


def test_another_cluster_needs_the_owner_too(joined):
    joined._handle(welcome(training()))
    with pytest.raises(NetworkError, match="cluster: a -> b"):
        joined._handle(welcome(training(), cluster="b"))


def test_a_damaged_pin_is_not_an_invitation(tmp_path):
    (tmp_path / acceptance.PINNED).write_text('{"cluster": "a"')
    with pytest.raises(NetworkError, match="cannot be read"):
        acceptance.check_accepted(tmp_path, Offer(training(), "a"))


def test_the_sites_tolerance_is_not_used(joined):
    joined._handle(welcome(training(objective={"kind": "huber", "tolerance": 1e-5})))
    assert joined.rounds.role.objective.tolerance == 1e-10
    assert joined.rounds.role.tolerance(1) < 1e-5


def test_rows_and_labels_are_within_bounds_after_the_intercept_is_added(tmp_path):
    settings = load_client(client_folder(tmp_path, labels=(1e20, -1e20), intercept=True))
    samples = load_samples(settings)
    assert (np.linalg.norm(samples.features, axis=1) <= 1.0).all()
    assert samples.features.shape == (2, 3)
    assert np.abs(samples.targets).max() == 1e6
