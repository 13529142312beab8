"""A client's policy is its own: a site can neither lower the noise, nor raise the budget, nor charge twice."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from pgfl.algorithms.accuracy import Refusal, Terms
from pgfl.algorithms.algorithms import PGFL
from pgfl.algorithms.roles import Accepted, Client, RoundRequest
from pgfl.config import PrivacySettings
from pgfl.errors import LedgerError, PrivacyError
from pgfl.network.agreement import Training
from pgfl.network.client.accounts import OpenAccount, PrivateAccount
from pgfl.network.client.rounds import ClientRounds, pack_state, unpack_received, unpack_state
from pgfl.network.protocol.messages import BETWEEN_SITE_AND_CLIENT, encode_request, read_answer, read_request
from pgfl.network.protocol.wire import Kind, Limits, decode
from pgfl.objectives import Bounds, Huber, Ridge
from pgfl.privacy.ledger.ledger import Ledger
from pgfl.privacy.noise import SecureNoise

TRAINING, FRAMES, LIMITS = "cd" * 32, BETWEEN_SITE_AND_CLIENT, Limits(3)
RHO, LAM, X_NORM, KAPPA, SAMPLES, MOST = 2.0, 0.1, 1.5, 1.0, 8, 5
SETTINGS = PrivacySettings(enabled=True, phi0=1e-3, zeta=0.9, max_releases=MOST, x_norm=X_NORM)


def data(seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(SAMPLES, 3))
    return rows * np.minimum(1.0, X_NORM / np.linalg.norm(rows, axis=1))[:, None], rng.normal(size=SAMPLES)


class Device:
    """A client's process: opens its ledger, can be killed and started again."""

    def __init__(self, path, settings=SETTINGS, objective=None, seed=0):
        self.path, self.settings, self.objective = path, settings, objective or Huber(lam=LAM, kappa=KAPPA)
        self.seed = seed
        self.start()

    def start(self):
        self.account = PrivateAccount.open(self.path, "ann", self.settings, SAMPLES, 3)
        self.rounds = ClientRounds(self.role(), self.account, TRAINING)

    def role(self):
        return Client(self.objective, PGFL(rho=RHO), *data(self.seed), terms=Terms(Bounds(x_norm=X_NORM)))

    def restart(self):
        self.account.close()
        self.start()

    def ask(self, round, server_clients=4, model=None, accepted=None):
        """Over the wire and back, as a site would."""
        request = RoundRequest(round, server_clients, np.zeros(3) if model is None else model, accepted)
        return self.rounds.answer(read_request(decode(encode_request(request), LIMITS, FRAMES)))


class Watched:
    """A source of noise, with all that it is asked for and gives."""

    def __init__(self, source):
        self.source, self.label, self.seen = source, source.label, []
        self.widen, self.check = source.widen, source.check

    def release(self, models, sigma, clients, round):
        given = self.source.release(models, sigma, clients, round)
        self.seen.append((models.copy(), sigma.copy(), given.copy()))
        return given


@pytest.fixture
def device(tmp_path):
    device = Device(tmp_path / "ledger.db")
    yield device
    device.account.close()


def kind(data):
    return decode(data, LIMITS, FRAMES).kind


def test_a_repeated_round_gets_the_same_bytes_whatever_comes_with_it(device):
    first = device.ask(1)
    assert device.ask(1, server_clients=99, model=np.full(3, 1e5)) == first
    device.restart()
    assert device.ask(1, model=np.ones(3)) == first
    assert device.account.releases == 1


def test_the_noise_follows_releases_and_not_the_sites_round_number(device):
    for release, round in enumerate((1, 1_000_000, 2**52), start=1):
        assert kind(device.ask(round)) is Kind.ANSWER
        row = device.account.ledger.rows()[-1]
        phi = 1e-3 / 0.9**release
        m = RHO + 2 * LAM / 4
        plain = 4 * KAPPA * X_NORM / (SAMPLES * m)
        assert row.phi == pytest.approx(phi)
        assert row.sensitivity >= plain
        assert row.sigma == pytest.approx(plain / np.sqrt(2 * phi), rel=1e-5)


def test_a_claimed_round_beyond_the_last_is_declined_and_locks_nobody_out(device):
    device.rounds.has_round = Training(rounds=100, dimension=3, clusters=("a",)).has_round
    assert kind(device.ask(1)) is Kind.ANSWER
    for beyond in (101, 1000, 1101, 2**53 - 1):
        frame = decode(device.ask(beyond), LIMITS, FRAMES)
        assert (frame.header.reason, frame.header.final) == (Refusal.BEYOND, False)
    assert kind(device.ask(100)) is Kind.ANSWER
    assert kind(device.ask(1041)) is Kind.ANSWER, "the site was rolled back to round 40"
    assert device.account.releases == 3


@pytest.mark.parametrize("server_clients", [1, 7, 10**9])
def test_the_noise_is_calibrated_for_the_problem_that_is_solved(device, server_clients):
    device.ask(1, server_clients=server_clients)
    m = RHO + 2 * LAM / server_clients
    exact = 4 * KAPPA * X_NORM / (SAMPLES * m)
    assert exact * (1 + 1e-6) < device.account.ledger.rows()[0].sensitivity < exact * (1 + 1e-5)


def test_what_leaves_is_what_float_safe_noise_gave_for_the_sigma_that_is_paid(device):
    """Bit for bit, in every round, the first and the one after a restart included."""
    clean = device.role().answer(RoundRequest(1, 4, np.zeros(3)), lambda model: model).model
    for round, starts_again in ((3, False), (4, False), (700, True), (701, False)):
        if starts_again:
            device.restart()
        source = getattr(device.account.noise, "source", device.account.noise)
        assert type(source) is SecureNoise
        device.account.noise = watched = Watched(source)
        answer = read_answer(decode(device.ask(round), LIMITS, FRAMES))
        ((model, sigma, given),) = watched.seen
        assert (model == clean).all()
        assert sigma.tolist() == [device.account.ledger.rows()[-1].sigma]
        assert (answer.model == given).all()
        assert (answer.model != clean).all()


def test_the_first_release_spends_phi1_where_its_owner_states_it(tmp_path):
    device = Device(tmp_path / "l.db", SETTINGS.model_copy(update={"phi0": None, "phi1": 2e-3}))
    for round in (1, 2):
        device.ask(round)
    assert [row.phi for row in device.account.ledger.rows()] == pytest.approx([2e-3, 2e-3 / 0.9], rel=1e-14)
    device.account.close()


def test_the_lattice_of_the_noise_is_counted_in_the_sensitivity(device):
    device.ask(1)
    inexact = 4 * KAPPA * X_NORM / (SAMPLES * (RHO + 2 * LAM / 4)) + 2 * device.rounds.role.tolerance(4)
    slack = device.account.ledger.rows()[0].sensitivity - inexact
    assert slack == pytest.approx(np.sqrt(3) * 2.0**-40, rel=0.1)


def test_the_budget_ends_and_stays_ended(device):
    frames = [decode(device.ask(round), LIMITS, FRAMES) for round in range(1, MOST + 3)]
    assert [frame.kind for frame in frames] == [Kind.ANSWER] * MOST + [Kind.DECLINE] * 2
    assert frames[-1].header.final is True
    device.restart()
    assert kind(device.ask(MOST + 9)) is Kind.DECLINE
    assert device.account.releases == MOST


@pytest.mark.parametrize("ends", [KeyboardInterrupt, MemoryError, OSError])
def test_what_is_paid_stays_paid_whatever_happens_then(device, monkeypatch, ends):
    """A crash between the charge and the answer: the round is lost, and no other answer is ever made for it."""

    def crash(*_):
        raise ends

    monkeypatch.setattr(device.account.noise, "release", crash)
    with pytest.raises(ends):
        device.ask(1)
    monkeypatch.undo()
    for _ in range(2):
        assert device.account.releases == 1
        frame = decode(device.ask(1, model=np.ones(3)), LIMITS, FRAMES)
        assert (frame.kind, frame.header.reason) == (Kind.DECLINE, Refusal.LOST_ROUND)
        device.restart()
    assert kind(device.ask(2)) is Kind.ANSWER
    assert [row.void for row in device.account.ledger.rows()] == [True, False]


def test_the_charge_is_on_disk_before_data_is_touched(device, monkeypatch):
    seen = []

    def looking(self, *_):
        with Ledger.read(device.path) as ledger:
            seen.append(ledger.count)
        raise np.linalg.LinAlgError

    monkeypatch.setattr(Huber, "prepare", looking)
    assert kind(device.ask(1)) is Kind.ANSWER, "the fallback does not need what the fast solver prepares"
    assert seen == [1]


def test_noise_finer_than_the_lattice_is_refused_before_it_is_charged(tmp_path):
    device = Device(tmp_path / "l.db", SETTINGS.model_copy(update={"phi0": 1e30}))
    frame = decode(device.ask(1), LIMITS, FRAMES)
    assert (frame.kind, frame.header.reason) == (Kind.DECLINE, Refusal.TOO_LITTLE_NOISE)
    assert device.account.releases == 0
    device.account.close()


def test_refusals_are_the_same_bytes_whatever_the_data_is(tmp_path):
    """A refusal costs nothing, so its text must not tell anything."""
    worlds = []
    for seed in (0, 1):
        device = Device(tmp_path / f"{seed}.db", seed=seed)
        refused = [device.ask(1, model=np.full(3, 1e8))]
        answered = [device.ask(round) for round in range(2, MOST + 2)]
        refused += [device.ask(1), device.ask(MOST + 2)]
        device.account.close()
        assert {kind(frame) for frame in answered} == {Kind.ANSWER}
        worlds.append(refused)
    reasons = [decode(frame, LIMITS, FRAMES).header.reason for frame in worlds[0]]
    assert reasons == [Refusal.TOO_LONG, Refusal.OLD_ROUND, Refusal.SPENT]
    assert worlds[0] == worlds[1]


def test_an_old_round_is_declined_and_spends_nothing(device):
    device.ask(5)
    frame = decode(device.ask(3), LIMITS, FRAMES)
    assert (frame.kind, frame.header.final) == (Kind.DECLINE, False)
    assert device.account.releases == 1


def test_the_dual_advances_only_on_confirmed_acceptance_and_once(device):
    first = read_answer(decode(device.ask(1), LIMITS, FRAMES))
    lost = read_answer(decode(device.ask(2), LIMITS, FRAMES))  # round 1 was not accepted
    assert (first.dual == 0).all()
    assert (lost.dual == 0).all()
    model = np.array([1.0, 2.0, 3.0])
    third = read_answer(decode(device.ask(3, accepted=Accepted(2, model)), LIMITS, FRAMES))
    np.testing.assert_allclose(third.dual, model - lost.model)
    device.restart()
    fourth = read_answer(decode(device.ask(4, accepted=Accepted(2, model)), LIMITS, FRAMES))
    np.testing.assert_allclose(fourth.dual, third.dual, err_msg="settled again after a restart")
    device.restart()
    assert [row.accepted for row in device.account.ledger.rows()] == [False, True, False, False]


def test_a_restored_ledger_is_exposed(device, tmp_path):
    """With its anchor put back too, so that only the site knows better."""
    files = [device.path, device.path.with_name("ledger.db.anchor")]
    device.ask(1)
    device.account.close()
    backups = [shutil.copy(path, tmp_path / f"backup of {path.name}") for path in files]
    device.start()
    device.ask(2)
    device.account.close()
    for backup, path in zip(backups, files, strict=True):
        shutil.copy(backup, path)
    device.start()
    with pytest.raises(LedgerError, match="backup"):
        device.rounds.welcomed(2)
    with pytest.raises(LedgerError):
        device.ask(3, accepted=Accepted(2, np.zeros(3)))
    assert device.account.releases == 1


def test_two_processes_cannot_share_a_ledger(device):
    with pytest.raises(LedgerError, match="in use"):
        PrivateAccount.open(device.path, "ann", SETTINGS, SAMPLES, 3)


def test_another_policy_needs_another_ledger(device):
    device.account.close()
    with pytest.raises(LedgerError, match="policy"):
        Device(device.path, SETTINGS.model_copy(update={"phi0": 1.0}))
    device.start()


def test_ridge_without_its_bounds_is_refused_before_anything_leaves(tmp_path):
    device = Device(tmp_path / "l.db", objective=Ridge())
    assert kind(device.ask(1)) is Kind.DECLINE
    with pytest.raises(PrivacyError):
        device.account.sensitivity(device.rounds.role, 1)
    assert device.account.releases == 0
    device.account.close()


def test_a_hostile_model_cannot_break_the_client(device):
    kinds = [kind(device.ask(round, model=np.full(3, size))) for round, size in enumerate((1e8, 1e-300, 0.0), start=1)]
    assert kinds == [Kind.DECLINE, Kind.ANSWER, Kind.ANSWER]
    assert device.account.releases == 2


def test_a_failed_save_releases_nothing_and_forgets_nothing(device, monkeypatch):
    device.ask(1)
    before = device.rounds.role.state()

    def full(*_, **__):
        raise LedgerError("the disk is full")

    monkeypatch.setattr(device.account.ledger, "reserve", full)
    with pytest.raises(LedgerError, match="full"):
        device.ask(2, accepted=Accepted(1, np.ones(3)))
    after = device.rounds.role.state()
    assert (after["dual"] == before["dual"]).all()
    assert after["settled_round"] == before["settled_round"]


def test_another_training_starts_its_own_rounds(device):
    device.ask(1)
    other = ClientRounds(Client(device.objective, PGFL(rho=RHO), *data()), device.account, "ef" * 32)
    assert other.role.sent is None
    request = RoundRequest(1, 4, np.zeros(3))
    assert kind(other.answer(request)) is Kind.ANSWER
    assert device.account.releases == 2, "it is charged like any release"


def test_states_come_back_as_they_were():
    state = {"dual": np.array([0.1, -0.0]), "sent": (3, np.array([1.0, 1 / 3])), "settled_round": 2, "restarted": 1}
    training, back = unpack_state(pack_state("ff", state))
    assert (training, back["sent"][0], back["settled_round"], back["restarted"]) == ("ff", 3, 2, 1)
    assert (back["dual"] == state["dual"]).all()
    assert (back["sent"][1] == state["sent"][1]).all()
    assert unpack_state(pack_state("ff", {**state, "sent": None}))[1]["sent"] is None
    assert unpack_received(pack_state("ff", state)) is None
    packed = pack_state("ff", state, np.array([7.0, 8.0]))
    assert unpack_received(packed).tolist() == [7.0, 8.0]
    assert (unpack_state(packed)[1]["dual"] == state["dual"]).all()


def test_the_state_of_an_older_client_is_read():
    older = {"training": "ff", "sent_round": 3, "settled_round": 2}
    packed = json.dumps(older).encode() + b"\n" + np.arange(4.0).tobytes()
    training, back = unpack_state(packed)
    assert (training, back["sent"][1].tolist(), back["restarted"]) == ("ff", [2.0, 3.0], 0)
    assert unpack_received(packed) is None


def test_privacy_off_and_on_again_is_infinite_for_good(device):
    """Clean models had left, and the ledger said 0.28."""
    device.ask(1)
    device.account.close()
    account = OpenAccount.open(device.path, "ann")
    rounds = ClientRounds(Client(device.objective, PGFL(rho=RHO), *data()), account, TRAINING)
    assert kind(rounds.answer(RoundRequest(2, 1, np.zeros(3)))) is Kind.ANSWER
    account.close()
    device.start()
    assert device.account.epsilon == np.inf
    frame = decode(device.ask(3), LIMITS, FRAMES)
    assert (frame.kind, frame.header.final) == (Kind.DECLINE, True)


def test_without_privacy_answers_are_stored_all_the_same(tmp_path):
    path = tmp_path / "journal.db"
    account = OpenAccount.open(path, "ann")
    rounds = ClientRounds(Client(Ridge(), PGFL(rho=RHO), *data()), account, TRAINING)
    answers = [rounds.answer(RoundRequest(round, 1, np.zeros(3))) for round in (1, 2, 3)]
    account.close()
    account = OpenAccount.open(path, "ann")
    rounds = ClientRounds(Client(Ridge(), PGFL(rho=RHO), *data()), account, TRAINING)
    assert rounds.answer(RoundRequest(3, 1, np.ones(3))) == answers[-1]
    assert rounds.answer(RoundRequest(1, 1, np.ones(3))) == answers[0]
    assert (account.releases, account.epsilon) == (3, np.inf)
    with pytest.raises(LedgerError):
        account.check_known(4)
    account.close()


def test_the_ledger_says_what_the_client_spent(device):
    device.ask(1)
    with Ledger.read(device.path) as ledger:
        assert ledger.summary()["releases"] == 1
        assert device.account.epsilon == pytest.approx(ledger.epsilon())
