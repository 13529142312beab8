"""A client's side of the rounds, without a network: a request goes in, bytes come out.

The order is what makes it safe. What an answer needs is checked and paid for in the client's own account first; the
bytes are stored there in the same transaction; only then they may leave. A round number that comes again gets the same
bytes, whatever model comes with it. Nothing that a site sends reaches the account except the round's number.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from pgfl.deploy.wire import Kind, encode
from pgfl.errors import BudgetSpent, DataError, LedgerError, PrivacyError, SolverError
from pgfl.roles import Answer, Client, RoundRequest, Vector

log = logging.getLogger(__name__)
ROUND_LOST = "this round was paid for, but its answer was lost; it is not made again"
Perturb = Callable[[Vector], Vector]
Make = Callable[[int, Perturb], tuple[bytes, bytes]]


class Account(Protocol):
    """Where a client writes down what it releases: its ledger, or a plain journal where its owner wants no noise."""

    @property
    def releases(self) -> int:
        """How many releases were made."""
        ...

    def find(self, key: str) -> bytes | None:
        """The bytes that were released under this key."""
        ...

    def release(self, key: str, client: Client, server_clients: int, make: Make) -> bytes:
        """Pay, call `make(number, perturb) → (bytes, state)`, store both, and only then give the bytes."""
        ...

    def confirm(self, key: str) -> None:
        """The site took what was released under this key; a key that is not known means a ledger from a backup."""
        ...

    def check_known(self, releases: int) -> None:
        """Raise if the site has seen more releases than are written here."""
        ...

    def state(self) -> bytes | None:
        """The state stored with the last release."""
        ...


@dataclass
class ClientRounds:
    """The state machine around `roles.Client`."""

    role: Client
    account: Account
    training: str  # the hash that keys of releases start with

    def __post_init__(self) -> None:
        stored = self.account.state()
        if stored is not None:
            training, state = unpack_state(stored)
            if training == self.training:
                self.role.restore(state)
        self._confirmed: str | None = None

    def key(self, round: int) -> str:
        """A round of one training configuration; the same number in another one is another round."""
        return f"{self.training[:16]}/{round}"

    def welcomed(self, releases: int) -> None:
        """The site says how many releases it has heard of; `LedgerError` if the account knows of fewer."""
        self.account.check_known(releases)

    def answer(self, request: RoundRequest) -> bytes:
        """A frame to send: the answer, the same answer again, or a refusal. `LedgerError` means stop."""
        stored = self.account.find(self.key(request.round))
        if stored is not None:
            return stored or decline(request.round, ROUND_LOST)
        last = 0 if self.role.sent is None else self.role.sent[0]
        if request.round <= last:
            return decline(request.round, f"round {last} was answered already")
        before = self.role.state()
        try:
            self._confirm(request)
            return self.account.release(
                self.key(request.round), self.role, request.server_clients, lambda *given: self._make(request, *given)
            )
        except LedgerError:
            self.role.restore(before)
            raise
        except BudgetSpent as error:
            self.role.restore(before)
            return decline(request.round, str(error), final=True)
        except (PrivacyError, SolverError, DataError, ArithmeticError, np.linalg.LinAlgError) as error:
            self.role.restore(before)
            log.warning("round %d is declined: %s", request.round, error)
            return decline(request.round, str(error))

    def _confirm(self, request: RoundRequest) -> None:
        if request.accepted is not None:
            key = self.key(request.accepted.round)
            if key != self._confirmed:
                self.account.confirm(key)
                self._confirmed = key

    def _make(self, request: RoundRequest, number: int, perturb: Perturb) -> tuple[bytes, bytes]:
        answer = self.role.answer(request, perturb)
        return encode_answer(answer, number), pack_state(self.training, self.role.state())


def encode_answer(answer: Answer, number: int) -> bytes:
    """The frame of an answer."""
    header = {"round": answer.round, "release": number}
    return encode(Kind.ANSWER, header, np.stack([answer.model, answer.dual]))


def decline(round: int, reason: str, final: bool = False) -> bytes:
    """The frame of a refusal."""
    return encode(Kind.DECLINE, {"round": round, "reason": reason[:300], "final": final})


def pack_state(training: str, state: dict[str, Any]) -> bytes:
    """`Client.state()` as bytes: a line of JSON, then the dual and what was sent as raw float64."""
    sent_round, sent = state["sent"] or (0, np.zeros_like(state["dual"]))
    about = {"training": training, "sent_round": sent_round, "settled_round": state["settled_round"]}
    return json.dumps(about).encode() + b"\n" + np.stack([state["dual"], sent]).astype("<f8").tobytes()


def unpack_state(packed: bytes) -> tuple[str, dict[str, Any]]:
    """The inverse."""
    text, _, raw = packed.partition(b"\n")
    about = json.loads(text)
    dual, sent = np.frombuffer(raw, dtype="<f8").astype(np.float64).reshape(2, -1)
    sent_round = about["sent_round"]
    state = {"dual": dual, "sent": (sent_round, sent) if sent_round else None, "settled_round": about["settled_round"]}
    return about["training"], state
