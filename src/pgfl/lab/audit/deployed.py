"""A real client under attack: the bytes that leave its stream against what its ledger says they cost.

A `Participant` starts as `pgfl client join` starts it, from a folder with client.toml, a table and a key, and a site
talks to it in frames. Only the network between them is replaced, by a queue. The site asks for every round twice, ends
the client and starts it again before the last round, and asks once more when the budget is spent. It averages the two
answers of a round, so that a second draw counts, and keeps every answer, so that a single clean one is seen.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from pgfl.algorithms.roles import Accepted, Answer, RoundRequest
from pgfl.arrays import Floats
from pgfl.errors import PrivacyError
from pgfl.lab.audit.cases import ROUNDS, Case
from pgfl.lab.audit.subjects import PUSH, SERVER_CLIENTS, Integers, LyingServer, Mechanism, Played
from pgfl.network.agreement import Training, task_of
from pgfl.network.client.accounts import PrivateAccount
from pgfl.network.client.client import Participant
from pgfl.network.client.samples import Samples, load_samples
from pgfl.network.client.settings import load_client
from pgfl.network.local import csv_of
from pgfl.network.protocol import identity, messages
from pgfl.network.protocol.messages import encode_request, read_answer
from pgfl.network.protocol.wire import Frame, Header, Limits, decode, encode
from pgfl.network.settings import toml_of
from pgfl.privacy.ledger.ledger import Ledger
from pgfl.registry import config_keys

CLIENT, SITE, CLUSTER = "ann", "north", "q"
MOST_ANSWERS = 2 * (ROUNDS + 1)
IN_MEMORY = Path("/dev/shm")  # a disk whose syncs cost nothing, so that thousands of ledgers can be written


def play(case: Case, mechanism: Mechanism, worlds: Integers, seed: int) -> Played:
    """One client per trial; ρ is the largest sum of the φ in a ledger."""
    whole = LyingServer(case, 0, SERVER_CLIENTS)
    servers: list[LyingServer] = []
    answers = np.full((len(worlds), MOST_ANSWERS, len(case.centre)), np.nan)
    samples: dict[int, Samples] = {}
    rho = 0.0
    place = IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="pgfl-audit-", dir=place) as folder:
        shared = _Shared.made_in(Path(folder), case)
        for trial, world in enumerate(worlds.tolist()):
            home = shared.client_home(Path(folder) / str(trial), world)
            settings, site = load_client(home / "client.toml"), _Site(shared)
            samples[world] = samples.get(world) or load_samples(settings)
            for rounds in (range(1, ROUNDS), range(ROUNDS, ROUNDS + 2)):
                _talk(Participant(settings, samples[world]), site, rounds, mechanism)
            servers.append(site.server)
            answers[trial, : len(site.answers)] = site.answers
            with Ledger.read(home / "ledger.db") as ledger:
                rho = max(rho, sum(row.phi for row in ledger.rows()))
    whole.released = [np.concatenate(parts) for parts in zip(*(server.released for server in servers), strict=True)]
    whole.implied = [np.concatenate(parts) for parts in zip(*(server.implied for server in servers), strict=True)]
    whole.answers = answers
    return whole, rho


def _talk(participant: Participant, site: _Site, rounds: Iterable[int], mechanism: Mechanism) -> None:
    """Let the site talk to the client over these rounds, and end it."""
    account = participant.account
    try:
        assert isinstance(account, PrivateAccount)
        account.noise = mechanism.disturb(account.noise)
        outbox: SimpleQueue[bytes | None] = SimpleQueue()
        ended = participant.stream.converse(site.frames(rounds, outbox), site.shared.certificate, outbox.put)
    finally:
        account.close()
    if ended.how != "stopped":
        raise PrivacyError(f"The audited client ended its stream ({ended.reason}); it cannot be audited.")


@dataclass(frozen=True)
class _Shared:
    """What all trials have in common: the site's certificate, the client's key, the training, the tables."""

    case: Case
    certificate: identity.SiteCertificate
    key: bytes
    training: Training
    tables: tuple[str, str]

    @classmethod
    def made_in(cls, folder: Path, case: Case) -> _Shared:
        certificate = identity.create_site(folder / SITE, SITE, ["localhost"])
        identity.create_client(folder / CLIENT, CLIENT)
        key = (folder / CLIENT / identity.CLIENT_KEY).read_bytes()
        tables = tuple(_table(case, world) for world in (0, 1))
        return cls(case, certificate, key, training_of(case), (tables[0], tables[1]))

    def client_home(self, home: Path, world: int) -> Path:
        """A new client's folder in one of the worlds."""
        home.mkdir()
        (home / "data.csv").write_text(self.tables[world])
        (home / "client.toml").write_text(toml_of(_client_settings(self.case, self.certificate.fingerprint)))
        with os.fdopen(os.open(home / identity.CLIENT_KEY, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
            file.write(self.key)
        return home


@dataclass
class _Site:
    """The lying site of one game. It outlives the client's restarts."""

    shared: _Shared
    server: LyingServer = field(init=False)
    accepted: Accepted | None = None
    answers: list[Floats] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.server = LyingServer(self.shared.case, 1, SERVER_CLIENTS)
        self._limits = Limits(len(self.shared.case.centre))

    def frames(self, rounds: Iterable[int], outbox: SimpleQueue[bytes | None]) -> Iterator[bytes]:
        """What the site sends over one stream; each frame is chosen when the one before has been answered."""
        nonce = secrets.token_bytes(32)
        yield encode(messages.Challenge(site=SITE, nonce=nonce.hex()))
        self._received(outbox, messages.Hello)
        yield encode(self._welcome())
        for number in rounds:
            request = RoundRequest(number, SERVER_CLIENTS, self.server.message()[0], self.accepted)
            answers = []
            for _ in range(2):
                yield encode_request(request)
                frame = self._received(outbox, messages.Answer, messages.Decline)
                answers += [read_answer(frame)] if isinstance(frame.header, messages.Answer) else []
            self._write_down(number, answers)
        yield encode(messages.Stop(reason="the audit is over"))

    def _write_down(self, number: int, answers: list[Answer]) -> None:
        self.answers += [answer.model for answer in answers]
        if number > ROUNDS:
            return
        if not answers:
            raise PrivacyError("The audited client declined a round that it has a budget for.")
        if self.accepted is not None:
            self.server.see_dual(answers[0].dual[None])
        released = np.mean([answer.model for answer in answers], axis=0)
        self.server.receive(released[None])
        self.accepted = Accepted(number, released + PUSH)
        self.server.expect_dual(self.accepted.model[None])

    def _welcome(self) -> messages.Welcome:
        made = len(self.server.released)
        training = self.shared.training.text
        return messages.Welcome(client=CLIENT, cluster=CLUSTER, training=training, releases=made, round=made)

    def _received(self, outbox: SimpleQueue[bytes | None], *expected: type[Header]) -> Frame:
        try:
            data = outbox.get_nowait()
        except Empty:
            data = None
        if data is None:
            raise PrivacyError("The audited client left a frame unanswered; it cannot be audited.")
        return decode(data, self._limits, expected)


def training_of(case: Case) -> Training:
    """The training in which a case is attacked."""
    objective, algorithm = case.objective, case.algorithm
    loss: dict[str, Any] = {"kind": objective.kind, "lam": objective.lam, "tolerance": objective.tolerance}
    loss |= objective.own_settings()
    method: dict[str, Any] = {"kind": algorithm.kind}
    method |= {name: getattr(algorithm, name) for name in config_keys(type(algorithm)) if name not in ("tau", "mixing")}
    return Training.model_validate(
        {
            "rounds": ROUNDS + 1,
            "dimension": len(case.centre),
            "clusters": (CLUSTER,),
            "objective": loss,
            "algorithm": method,
        }
    )


def _client_settings(case: Case, fingerprint: str) -> dict[str, Any]:
    privacy = case.privacy
    return {
        "name": CLIENT,
        "data": "data.csv",
        "intercept": case.intercept,
        "task": task_of(case.objective.kind),
        "site": {"address": "localhost:1", "fingerprint": fingerprint},
        "privacy": {
            "enabled": True,
            "phi1": privacy.phi1,
            "zeta": privacy.zeta,
            "delta": privacy.delta,
            "max_releases": ROUNDS,
            "x_norm": privacy.x_norm,
            "y_bound": privacy.y_bound,
            "w_norm": privacy.w_norm,
        },
    }


def _table(case: Case, world: int) -> str:
    """The raw records of a world, as their owner has them; an intercept is the client's own doing."""
    federation = case.federation(np.array([world]))
    features = federation.features[:, :-1] if case.intercept else federation.features
    return csv_of(features, federation.targets)
