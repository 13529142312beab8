"""A client's side of masked rounds on the network: its secrets are in memory, its charges in its ledger.

A request is judged by public quantities and by what the client itself knows: its training, its site, its cluster, the
model that came with it. Then it is charged, durably, before anything is computed; the masked bytes are stored; only
then do they leave. A client that was restarted sends the same masked bytes again, but reveals nothing for them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from pgfl.algorithms.accuracy import EPS, Refusal
from pgfl.algorithms.roles import RoundRequest
from pgfl.arrays import Floats
from pgfl.errors import BudgetSpent, PrivacyError
from pgfl.masking.member import Member, noised_update
from pgfl.masking.primitives import Words
from pgfl.masking.terms import Declined, Reason, RoundTerms, centre_digest, require
from pgfl.network.client.accounts import PrivateAccount
from pgfl.network.client.rounds import STATE, ClientRounds, decline, pack_state
from pgfl.network.protocol import masked_messages as masked
from pgfl.network.protocol import messages
from pgfl.network.protocol.masked_messages import MARGIN, centre_of, reach_of, update_bound
from pgfl.network.protocol.wire import Frame, Limits, Malformed, decode, encode
from pgfl.objectives import Bounds
from pgfl.privacy import lattice
from pgfl.privacy.lattice import Points
from pgfl.privacy.trust import sum_sigma

log = logging.getLogger(__name__)


@dataclass
class MaskedRounds:
    """The state machine around `Member` and the client's own rounds."""

    rounds: ClientRounds
    account: PrivateAccount
    member: Member
    site: str  # its name, as in its certificate
    cluster: str
    bounds: Bounds
    server_clients: int = 1  # |C_s|, as the last request had it
    noised: Callable[[Floats, RoundTerms], Points] = noised_update
    _dimension: int = field(init=False)
    _plain_sensitivity: dict[int, float] = field(default_factory=dict)  # by |C_s|; nothing else of it changes
    _prices: dict[int, float] = field(default_factory=dict)  # of the next release, by how many were made

    def __post_init__(self) -> None:
        self._dimension = len(self.rounds.role.dual)

    def handle(self, frame: Frame) -> bytes | None:
        """The reply to a frame, if it is one of masked sums and there is one."""
        header = frame.header
        match header:
            case masked.Prepare() | masked.CohortKeys() | masked.Delivery():
                try:
                    return self._prepared(header)
                except PrivacyError as error:
                    log.warning("this client takes no part in masked sums now: %s", error)
                    reason = error.reason if isinstance(error, Declined) else Refusal.SPENT
                    return encode(masked.Unprepared(batch=header.batch, reason=str(reason)))
            case masked.MaskedRequest(round=round):
                return self._declining(round, lambda: self._answer(frame, header))
            case masked.Survivors(round=round, survivors=survivors):
                return self._declining(round, lambda: self._consent(round, survivors))
            case masked.Consents(round=round):
                return self._declining(round, lambda: self._reveal(header))
        return None

    def _prepared(self, header: masked.Prepare | masked.CohortKeys | masked.Delivery) -> bytes:
        if isinstance(header, masked.Prepare):
            announced = self.member.announce(header.batch, header.slots)
            return encode(masked.AnnouncedKeys(batch=header.batch, announced=masked.keys_of(announced)))
        if isinstance(header, masked.CohortKeys):
            boxes = self.member.share(masked.cohort_of(header))
            return encode(masked.SealedShares(batch=header.batch, boxes=masked.hex_by_name(boxes)))
        unopened = self.member.receive(header.batch, masked.boxes_of(header))
        if unopened:
            log.warning("shares of %s could not be opened", ", ".join(sorted(unopened)))
        sigma = self._next_sigma()
        if sigma is None:
            raise BudgetSpent("The budget is spent.")
        reach = self._reach(self.server_clients)
        return encode(masked.Ready(batch=header.batch, unopened=sorted(unopened), sigma=sigma, reach=reach))

    def _declining(self, round: int, reply: Callable[[], bytes]) -> bytes:
        try:
            return reply()
        except Declined as error:
            log.info("masked round %d is declined: %s", round, error.reason)
            return encode(messages.Decline(round=round, reason=str(error.reason), final=False))
        except Malformed as error:
            log.warning("the site sent %s: refused", error)
            return decline(round, Refusal.UNBOUNDED)

    def _consent(self, round: int, survivors: list[str]) -> bytes:
        tags = self.member.consent(round, survivors)
        return encode(masked.Consent(round=round, tags=masked.joined_tags(tags, self.member.others(round))))

    def _reveal(self, header: masked.Consents) -> bytes:
        consents = masked.tags_of(header, self.member.others(header.round))
        return masked.reveal_frame(header.round, self.member.reveal(header.round, consents))

    # One contribution -------------------------------------------------------------------------------------------------

    def _answer(self, frame: Frame, header: masked.MaskedRequest) -> bytes:
        about = (self.rounds.training, self.site, self.cluster, self._dimension)
        request, terms = masked.read_masked_request(frame, *about)
        known = self.account.find(self.rounds.key(request.round))
        if refusal := self.rounds.rejection_by_round(request, known):
            return decline(request.round, refusal)
        if known is not None:
            return self._again(request, terms, known.payload)
        self.rounds.confirm(None if request.accepted is None else request.accepted.round)
        self.server_clients = request.server_clients
        require(
            header.terms == terms.digest, Reason.OTHER_VIEW
        )  # else it would be charged for bytes that nobody can use
        self._check(header.batch, request, terms)
        refusal = self.rounds.role.refusal(request)
        return decline(request.round, refusal) if refusal else self._release(header.batch, request, terms)

    def _again(self, request: RoundRequest, terms: RoundTerms, payload: bytes) -> bytes:
        """The stored bytes, if they were made on these very terms: a changed group would be another release."""
        if payload:
            stored = decode(payload, Limits(self._dimension), (messages.Answer, masked.MaskedAnswer)).header
            if isinstance(stored, masked.MaskedAnswer) and stored.terms == terms.digest:
                return payload
        return decline(request.round, Refusal.LOST_ROUND)

    def _check(self, batch: str, request: RoundRequest, terms: RoundTerms) -> None:
        """Decline what this client cannot accept, before anything is charged; all of it is public."""
        centre = centre_of(request.model, self._dimension)
        require(terms.centre == centre_digest(centre), Reason.OTHER_VIEW)
        role = self.rounds.role
        own = update_bound(role.algorithm, role.objective, self._reach(request.server_clients), centre,
                           request.server_clients)  # fmt: skip
        require(terms.bound >= own, Reason.OTHER_VIEW)
        self.member.check(batch, terms)
        try:
            needed = self._needed_sigma(self._sensitivity(request.server_clients, centre, terms.bound))
        except BudgetSpent:
            return  # the ledger says so in a moment, and that this is final
        require(terms.sigma >= needed, Reason.TOO_LITTLE_NOISE)

    def _release(self, batch: str, request: RoundRequest, terms: RoundTerms) -> bytes:
        role, key = self.rounds.role, self.rounds.key(request.round)
        centre = centre_of(request.model, self._dimension)
        sensitivity = self._sensitivity(request.server_clients, centre, terms.bound)
        before = role.state()
        made: list[Words] = []
        try:
            with self.account.reserve_masked(key, sensitivity, terms.sigma) as slot:

                def release(model: Floats) -> Floats:
                    noised = self.noised(model - centre, terms)
                    self.account.record(slot.number, model, centre + lattice.from_lattice(noised))
                    made.append(self.member.contribute(batch, terms, noised))
                    return centre  # the noise of one share protects nothing, so what was noised is kept nowhere

                role.answer(request, release)
                slot.payload = payload = masked.masked_answer_frame(
                    request.round, slot.number, terms, self._next_sigma(), made[0]
                )
                slot.state[STATE] = pack_state(self.rounds.training, role.state(), request.model, clean=True)
            return payload
        except BudgetSpent:
            return decline(request.round, Refusal.SPENT, final=True)
        except BaseException:
            role.restore(before)
            raise

    # Public quantities ------------------------------------------------------------------------------------------------

    def _reach(self, server_clients: int) -> float:
        role = self.rounds.role
        gradient = role.objective.gradient_bound(self.bounds)
        if gradient is None:
            raise PrivacyError("This training has no bounded gradient under this client's bounds.")
        return reach_of(role.algorithm, role.objective, gradient, server_clients)

    def _sensitivity(self, server_clients: int, centre: Floats, bound: float) -> float:
        """Δ of an update on the lattice; that it is a difference and clipped can round it a little further."""
        plain = self._sensitivity_of_model(server_clients)
        return plain + 16.0 * EPS * (float(np.linalg.norm(centre)) + bound)

    def _sensitivity_of_model(self, server_clients: int) -> float:
        if server_clients not in self._plain_sensitivity:
            self._plain_sensitivity = {server_clients: self.account.sensitivity(self.rounds.role, server_clients)}
        return self._plain_sensitivity[server_clients]

    def _needed_sigma(self, sensitivity: float) -> float:
        made = self.account.releases
        if made not in self._prices:
            self._prices = {made: self.account.ledger.next_phi}
        return float(sum_sigma(sensitivity, self._prices[made]))

    def _next_sigma(self) -> float | None:
        """The σ that the next release needs, with a margin for rounding; None if the budget is spent."""
        try:
            return self._needed_sigma(self._sensitivity_of_model(self.server_clients)) * (1.0 + MARGIN)
        except BudgetSpent:
            return None
