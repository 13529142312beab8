"""A client's side of the rounds, without a network: a request goes in, bytes come out.

The order is what makes it safe. A request is judged by public quantities; then it is charged to the client's own
account, durably, before anything is computed; the bytes are stored there; only then may they leave. A round number
that comes again gets the same bytes, whatever model comes with it, or a refusal if they were lost in a crash. Nothing
that a site sends reaches the account except the round's number.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from pgfl.algorithms.accuracy import Refusal
from pgfl.algorithms.roles import Client, RoundRequest
from pgfl.arrays import Floats
from pgfl.errors import BudgetSpent, SolverError
from pgfl.network.protocol import messages
from pgfl.network.protocol.messages import encode_answer
from pgfl.network.protocol.wire import encode
from pgfl.privacy.ledger.rows import Release

if TYPE_CHECKING:
    from pgfl.network.client.accounts import Account

log = logging.getLogger(__name__)
STATE = "client"  # the name under which the client's state is stored with a release


@dataclass
class ClientRounds:
    """The state machine around `roles.Client`."""

    role: Client
    account: Account
    training: str  # the hash that keys of releases start with
    has_round: Callable[[int], bool] = lambda round: True  # another number would lock the client out of earlier ones

    def __post_init__(self) -> None:
        stored = self.account.state()
        if stored is not None:
            training, state = unpack_state(stored)
            if training == self.training:
                self.role.restore(state)
        self._confirmed: str | None = None

    def key(self, round: int) -> str:
        """A round of one training configuration; the same number in another one is another round."""
        return f"{release_prefix(self.training)}{round}"

    def welcomed(self, releases: int) -> None:
        """Compare with the last release that the site has seen; `LedgerError` if the account knows of fewer."""
        self.account.check_known(releases)

    def answer(self, request: RoundRequest) -> bytes:
        """A frame to send: the answer, the same answer again, or a refusal. `LedgerError` means stop."""
        known = self.account.find(self.key(request.round))
        if refusal := self.rejection_by_round(request, known):
            return decline(request.round, refusal)
        if known is not None:
            return known.payload or decline(request.round, Refusal.LOST_ROUND)
        self.confirm(None if request.accepted is None else request.accepted.round)
        refusal = self.role.refusal(request) or self.account.refusal(self.role, request.server_clients)
        return decline(request.round, refusal) if refusal else self._release(request)

    def rejection_by_round(self, request: RoundRequest, known: Release | None) -> Refusal | None:
        """Return why a round's number alone rules out an answer; `known` is what was released for it before."""
        if not self.has_round(request.round):
            return Refusal.BEYOND
        passed = self.role.sent is not None and request.round <= self.role.sent[0]
        return Refusal.OLD_ROUND if passed and known is None else None

    def _release(self, request: RoundRequest) -> bytes:
        before = self.role.state()
        try:
            with self.account.reserve(self.key(request.round), self.role, request.server_clients) as slot:
                answer = self.role.answer(request, lambda model: self.account.perturb(slot, model))
                answer = replace(answer, clean=self.account.clean)
                slot.payload = payload = encode_answer(answer, slot.number)
                slot.state[STATE] = pack_state(self.training, self.role.state(), request.model, self.account.clean)
            return payload
        except BudgetSpent:
            return decline(request.round, Refusal.SPENT, final=True)
        except SolverError:  # only where nothing is promised, so where privacy is off
            self.role.restore(before)
            return decline(request.round, Refusal.UNSOLVED)
        except BaseException:
            self.role.restore(before)
            raise

    def confirm(self, round: int | None) -> None:
        """Note that the site accepted the answer to this round, as it says with a request and at the end."""
        if round is not None and self.key(round) != self._confirmed:
            self.account.confirm(self.key(round))
            self._confirmed = self.key(round)


def release_prefix(training: str) -> str:
    """What the keys of all releases to one training begin with."""
    return f"{training[:16]}/"


def decline(round: int, reason: StrEnum, final: bool = False) -> bytes:
    """The frame of a refusal. Its text is one of a few constants, so that it cannot carry anything of the data."""
    log.info("round %d is declined: %s", round, reason)
    return encode(messages.Decline(round=round, reason=str(reason), final=final))


def pack_state(training: str, state: dict[str, Any], received: Floats | None = None, clean: bool = False) -> bytes:
    """`Client.state()` as bytes: a line of JSON, then the dual, what was sent and the model that was received.

    What was sent clean is not kept here: without a dual nothing is settled with it, and this state is read for others.
    """
    sent_round, sent = state["sent"] or (0, np.zeros_like(state["dual"]))
    about = {"training": training, "sent_round": sent_round, "settled_round": state["settled_round"]}
    about["restarted"], about["vectors"] = state["restarted"], 2 if received is None else 3
    about["clean"] = clean
    rows = [state["dual"], np.zeros_like(sent) if clean else sent, *([] if received is None else [received])]
    return json.dumps(about).encode() + b"\n" + np.stack(rows).astype("<f8").tobytes()


def unpack_state(packed: bytes) -> tuple[str, dict[str, Any]]:
    """The inverse, without the model of the request."""
    about, (dual, sent, *_) = _unpacked(packed)
    sent_round = about["sent_round"]
    state = {"dual": dual, "sent": (sent_round, sent) if sent_round else None, "settled_round": about["settled_round"]}
    return about["training"], {**state, "restarted": about.get("restarted", 0)}


def sent_clean(packed: bytes) -> bool:
    """Whether the last release left without noise, to a site that added it."""
    return bool(_unpacked(packed)[0].get("clean", False))


def unpack_received(packed: bytes) -> Floats | None:
    """The model that came with the last request that was answered, if one did."""
    _, vectors = _unpacked(packed)
    return vectors[2] if len(vectors) > 2 else None


def _unpacked(packed: bytes) -> tuple[dict[str, Any], list[Floats]]:
    text, _, raw = packed.partition(b"\n")
    about = json.loads(text)
    vectors = np.frombuffer(raw, dtype="<f8").astype(np.float64).reshape(about.get("vectors", 2), -1)
    return about, list(vectors)
