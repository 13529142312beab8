"""What leaves a client inside Flower is noised and charged or a constant, whatever the ServerApp says."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from pgfl.algorithms.accuracy import Refusal
from pgfl.algorithms.roles import RoundRequest
from pgfl.errors import ConfigError
from pgfl.flower import client
from pgfl.flower.client import CLIENTS, Trouble
from pgfl.flower.letters import REQUEST, WELCOME
from pgfl.network.agreement import Training
from pgfl.network.client.backup import LOCK
from pgfl.network.processes import exclusive_lock
from pgfl.network.protocol.messages import Answer, Decline, Welcome, encode_request, read_answer
from pgfl.network.protocol.wire import Limits, decode, encode
from pgfl.privacy.ledger.ledger import Ledger
from tests.command_line import run
from tests.network.client_folders import PRIVACY, client_folder

ROUNDS, BEYOND = 5, 10**6


def training(**changes):
    table = {"rounds": ROUNDS, "dimension": 2, "clusters": ("a", "b"), "objective": {"kind": "huber"}, **changes}
    return Training.model_validate(table)


class Owner:
    """A client's folder, and what a ServerApp may send to its node."""

    def __init__(self, folder, **settings):
        self.path = client_folder(folder, **settings)
        self.home, self.config = folder, {"client": str(self.path)}

    def bytes_for(self, round=1, offered=None, releases=0, name="ann", cluster="a", **request):
        welcome = encode(
            Welcome(client=name, cluster=cluster, training=(offered or training()).text, releases=releases, round=0)
        )
        model = request.get("model", np.zeros(2))
        asked = encode_request(RoundRequest(round, request.get("server_clients", 4), model, request.get("accepted")))
        return client.answer(self.config, {WELCOME: welcome, REQUEST: asked, **request.get("parts", {})})

    def ask(self, round=1, **message):
        return decode(self.bytes_for(round, **message), Limits(2), (Answer, Decline))

    def rows(self):
        if not (self.home / "ledger.db").exists():
            return []
        with Ledger.read(self.home / "ledger.db") as ledger:
            ledger.verify()
            return ledger.rows()


@pytest.fixture
def owner(tmp_path):
    return Owner(tmp_path)


def refused(frame, why, final=False):
    return isinstance(frame.header, Decline) and (frame.header.reason, frame.header.final) == (why, final)


def test_what_leaves_is_noised_as_it_is_charged(tmp_path):
    owner = Owner(tmp_path, record_noise="noise")
    for number, round in enumerate((1, 2, 4), start=1):
        frame = owner.ask(round)
        answer, row = read_answer(frame), owner.rows()[-1]
        clean, released = np.load(tmp_path / "noise" / f"{number:06d}.npy")
        assert (answer.model == released).all() and not (released == clean).any()
        assert not answer.clean and row.sigma > 0.0 and frame.header.release == row.number == number


def test_a_repeated_round_gets_the_same_bytes_and_is_charged_once(owner):
    first = owner.bytes_for(1)
    assert owner.bytes_for(1) == first
    assert owner.bytes_for(1, model=np.full(2, 1e5), server_clients=77) == first
    assert len(owner.rows()) == 1


def test_a_round_beyond_the_last_is_refused_and_locks_nobody_out(owner):
    owner.ask(1)
    for beyond in (ROUNDS + 1, BEYOND, 2**53 - 1):
        assert refused(owner.ask(beyond), Refusal.BEYOND)
    assert len(owner.rows()) == 1
    assert isinstance(owner.ask(2).header, Answer)


@pytest.mark.parametrize(
    "message",
    [
        {"offered": training(algorithm={"rho": 2.0})},
        {"offered": training(rounds=BEYOND)},
        {"offered": training(algorithm={"rho": 1e9})},
        {"offered": training(dimension=3)},
        {"offered": training(objective={"kind": "logistic"})},
        {"cluster": "b"},
        {"cluster": "nowhere"},
        {"name": "ben"},
    ],
    ids=str,
)
def test_another_training_is_refused_until_the_owner_accepts_it(owner, message):
    owner.ask(1)
    assert refused(owner.ask(2, **message), Trouble.UNACCEPTED)
    assert len(owner.rows()) == 1
    assert isinstance(owner.ask(2).header, Answer), "the accepted training goes on"


def test_the_owner_accepts_a_changed_training(owner):
    other = training(algorithm={"rho": 2.0})
    owner.ask(1)
    assert refused(owner.ask(1, offered=other), Trouble.UNACCEPTED)
    assert run("client", "accept", owner.path).code == 0
    assert isinstance(owner.ask(1, offered=other).header, Answer)
    assert len(owner.rows()) == 2, "another training's round is another release"


GOOD = encode_request(RoundRequest(1, 4, np.zeros(2)))
GARBAGE = {
    "nothing": b"",
    "zeros": bytes(200),
    "text": b"PGFL" + b"x" * 300,
    "cut": GOOD[:-1],
    "longer": GOOD + bytes(8),
    "not a number": encode_request(RoundRequest(1, 4, np.array([np.nan, 0.0]))),
    "infinite": encode_request(RoundRequest(1, 4, np.array([np.inf, 0.0]))),
    "too long": encode_request(RoundRequest(1, 4, np.array([1e10, 0.0]))),
    "another dimension": encode_request(RoundRequest(1, 4, np.zeros(3))),
    "no round": GOOD.replace(b'"round":1', b'"round":0'),
    "nobody at the server": GOOD.replace(b'"server_clients":4', b'"server_clients":0'),
    "another kind": encode(Decline(round=1, reason="", final=False)),
}


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("part", [REQUEST, WELCOME])
def test_garbage_is_refused_and_costs_nothing(owner, garbage, part):
    frame = owner.ask(parts={part: GARBAGE[garbage]})
    assert refused(frame, Trouble.UNREADABLE)
    assert owner.rows() == []


def test_a_missing_part_is_garbage(owner):
    frame = decode(client.answer(owner.config, {}), Limits(2), (Answer, Decline))
    assert refused(frame, Trouble.UNREADABLE)


@pytest.mark.parametrize("trust", ["site", "masked"])
def test_a_client_that_trusts_its_site_trusts_no_serverapp(tmp_path, trust):
    """With the trust of its own network it would send clean contributions."""
    settings = {"privacy": {**PRIVACY, "trust": trust}}
    owner = Owner(tmp_path, **settings, **({"roster": {"file": "roster.json"}} if trust == "masked" else {}))
    offered = training(privacy={"trust": trust}, algorithm={"client": "gradient", "rho": 8.0})
    assert refused(owner.ask(1, offered=offered), Trouble.UNACCEPTED)
    assert client.introduce(owner.config) == b""
    assert owner.rows() == []


def test_a_training_with_another_trust_gets_noised_answers(owner):
    offered = training(privacy={"trust": "site"}, algorithm={"client": "gradient", "rho": 8.0})
    assert read_answer(owner.ask(1, offered=offered)).clean is False
    assert owner.rows()[0].sigma > 0.0


def test_a_spent_budget_is_final(tmp_path):
    owner = Owner(tmp_path, privacy={**PRIVACY, "max_releases": 2})
    assert all(isinstance(owner.ask(round).header, Answer) for round in (1, 2))
    assert refused(owner.ask(3), Refusal.SPENT, final=True)
    assert len(owner.rows()) == 2


def test_an_older_ledger_stops(owner, tmp_path):
    """Put back with its anchor, so that only the server knows better."""
    owner.ask(1)
    files = [owner.home / "ledger.db", owner.home / "ledger.db.anchor"]
    kept = [shutil.copy(file, tmp_path / f"kept-{file.name}") for file in files]
    owner.ask(2)
    for file, copy in zip(files, kept, strict=True):
        shutil.copy(copy, file)
    assert refused(owner.ask(3, releases=2), Trouble.ACCOUNT, final=True)
    assert len(owner.rows()) == 1


def test_no_exception_says_anything_of_the_data(owner, monkeypatch):
    """Flower sends the text of an exception to the ServerApp."""

    def fails(*_):
        raise ValueError("row 3 has y = 0.12345")

    constant = {}
    for where in ("load_samples", "ClientCore", "load_client"):
        with monkeypatch.context() as patched:
            patched.setattr(client, where, fails)
            constant[where] = owner.bytes_for(1)
            assert client.introduce(owner.config) == (b"" if where == "load_client" else b"ann")
    assert len(set(constant.values())) == 1
    assert refused(decode(constant["ClientCore"], Limits(2), (Decline,)), Trouble.FAILED)
    (owner.home / "data.csv").write_text("y,x1,x2\n0.12345,?,1\n")
    assert b"0.12345" not in owner.bytes_for(1)
    assert owner.rows() == []


def test_refusals_are_the_same_bytes_whatever_the_data_is(tmp_path):
    worlds = []
    for number, labels in enumerate(((0.5, -1.0), (-0.9, 1.0))):
        owner = Owner(tmp_path / str(number), labels=labels, privacy={**PRIVACY, "max_releases": 1})
        said = [owner.bytes_for(BEYOND), owner.bytes_for(1, parts={REQUEST: b"?"}), owner.bytes_for(1, name="ben")]
        said.append(owner.bytes_for(1, model=np.full(2, 1e8)))
        owner.ask(2)
        worlds.append([*said, owner.bytes_for(3), owner.bytes_for(1), owner.bytes_for(2, offered=training(seed=1))])
    assert worlds[0] == worlds[1]


def test_a_client_that_runs_already_is_not_run_twice(owner):
    with exclusive_lock(owner.home / LOCK, "ann"):
        assert refused(owner.ask(1), Trouble.UNACCEPTED)
    assert isinstance(owner.ask(1).header, Answer)


def test_whose_client_a_node_is_follows_from_its_owners_words_alone(tmp_path, monkeypatch):
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "client.toml").touch()
    own = {"client": "/home/ann/client.toml", "partition-id": 1}
    monkeypatch.delenv(CLIENTS, raising=False)
    assert client.settings_file(own) == Path(own["client"])
    for nobody in ({}, {"partition-id": 0}, {"client": 3}):
        with pytest.raises(ConfigError, match="--node-config"):
            client.settings_file(nobody)
    monkeypatch.setenv(CLIENTS, str(tmp_path))
    assert client.settings_file(own) == Path(own["client"])
    assert client.settings_file({"partition-id": 0}) == tmp_path / "a" / "client.toml"
    assert client.settings_file({"partition-id": 1}) == tmp_path / "b" / "client.toml"
    with pytest.raises(ConfigError, match="2 found"):
        client.settings_file({"partition-id": 2})
