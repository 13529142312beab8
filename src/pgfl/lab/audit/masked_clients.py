"""Real clients of a masked sum, attacked by their site and two contributors who work with it.

The clients are what `pgfl client join` runs, without its stream: frames go in and come out, their ledgers are files,
their secrets are those of `Member`. The site opens sums with the collector of `pgfl site serve`. It asks for the least
noise that its clients accept, asks for every round twice, and lists one honest contributor as gone although its vector
is here, so that no more shares of the noise are in the sum than the ledgers count on. It subtracts what its colluders
handed in, noise and all, and what the other honest client computes, whose data it knows. Then it shows those who may
still agree a second list, without the victim: with shares of the victim's key it would open that vector alone. In the
end the victim is started again and asked for the last round once more, and for one that its budget does not cover.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec

from pgfl.algorithms.roles import RoundRequest
from pgfl.arrays import AnyFloats, Floats
from pgfl.config import PrivacySettings
from pgfl.errors import PrivacyError
from pgfl.federation.federation import Federation
from pgfl.lab.audit.cases import ROUNDS, Case
from pgfl.lab.audit.deployed import CLUSTER, IN_MEMORY, SITE, training_of
from pgfl.lab.audit.subjects import Integers, LyingServer, Mechanism, Played
from pgfl.masking import primitives
from pgfl.masking.collector import CohortGathering, Stage, SumCollector
from pgfl.masking.member import Member, Revealed, signed_mask
from pgfl.masking.preparation import Cohort, pairwise_key
from pgfl.masking.primitives import Words
from pgfl.masking.terms import Demands, Roster, RoundTerms, centre_digest, identity_line
from pgfl.network.agreement import AgreedPrivacy, Training
from pgfl.network.client.accounts import PrivateAccount
from pgfl.network.client.masked_rounds import MaskedRounds
from pgfl.network.client.rounds import ClientRounds
from pgfl.network.protocol import masked_messages as masked
from pgfl.network.protocol import messages
from pgfl.network.protocol.masked_messages import MARGIN, update_bound
from pgfl.network.protocol.wire import Expected, Frame, Header, Limits, decode, encode
from pgfl.objectives import Bounds
from pgfl.privacy import lattice

VICTIM, KNOWN, GONE = "ann", "bob", "cleo"
HONEST: Final = (VICTIM, KNOWN, GONE)
SPIES: Final = ("eve", "mallory")
EVERYONE: Final = (*HONEST, *SPIES)
_ROUNDING = 1e-9  # relative, by which the least noise that a client states can be too little in double precision
_TO_SITE: Expected = (messages.Decline, *masked.TO_SITE)


def play(case: Case, mechanism: Mechanism, worlds: Integers, seed: int) -> Played:
    """One group of clients per trial; ρ is the largest sum of charges in a victim's ledger."""
    assert (case.contributors, case.privacy.colluders) == (len(EVERYONE), len(SPIES))
    whole, rho = LyingServer(case, len(worlds), case.contributors), 0.0
    received = np.empty((ROUNDS, len(worlds), len(case.centre)))
    place = IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else None
    federation = mechanism.privacy.bounded(case.federation(worlds))
    with tempfile.TemporaryDirectory(prefix="pgfl-audit-", dir=place) as folder:
        for trial in range(len(worlds)):
            group = _Group.made_in(Path(folder) / str(trial), case, mechanism, federation, trial)
            received[:, trial] = group.attacked(case.centre)
            rho = max(rho, sum(row.phi for row in group.clients[VICTIM].account.ledger.rows()))
            group.close()
    for released in received:
        whole.receive(released)
    whole.answers = received.transpose(1, 0, 2)
    return whole, rho


@cache
def _identities() -> dict[str, ec.EllipticCurvePrivateKey]:
    return {name: ec.generate_private_key(ec.SECP384R1()) for name in EVERYONE}


@cache
def _roster() -> Roster:
    return Roster({name: identity_line(key) for name, key in _identities().items()})


@dataclass
class _Group:
    """Three honest clients and two spies, and the site's side of their rounds."""

    home: Path
    training: Training
    settings: PrivacySettings
    mechanism: Mechanism
    rows: dict[str, tuple[AnyFloats, AnyFloats]]  # of the honest clients
    clients: dict[str, MaskedRounds] = field(default_factory=dict)
    spies: dict[str, Member] = field(default_factory=dict)
    asking: dict[str, float] = field(default_factory=dict)  # the σ that every honest client needs
    reach: float = 0.0
    batch: str = field(init=False)
    cohort: Cohort = field(init=False)
    last: Words = field(init=False)  # the victim's last vector

    @classmethod
    def made_in(cls, home: Path, case: Case, mechanism: Mechanism, federation: Federation, trial: int) -> _Group:
        privacy = mechanism.privacy
        agreed = AgreedPrivacy(trust="masked", contributors=privacy.contributors, colluders=privacy.colluders)
        wanted = {name: getattr(privacy, name) for name in PrivacySettings.model_fields if name != "enabled"}
        settings = PrivacySettings(**wanted | {"enabled": True, "max_releases": ROUNDS})
        rows = {name: federation.rows(trial * case.contributors + place) for place, name in enumerate(HONEST)}
        training = training_of(case).model_copy(update={"privacy": agreed})
        home.mkdir()
        group = cls(home, training, settings, mechanism, rows)
        for name in HONEST:
            group.start(name)
        demands = Demands(settings.contributors, settings.colluders)
        group.spies = {name: Member(name, _identities()[name], _roster(), demands) for name in SPIES}
        group.batch, group.cohort = group.prepared()
        return group

    def start(self, name: str) -> None:
        """A client as it starts, with its ledger and without any secrets."""
        role, settings = self.mechanism.client(*self.rows[name]), self.settings
        account = PrivateAccount.open(self.home / f"{name}.db", name, settings, role.records, len(role.dual))
        rounds = ClientRounds(role, account, self.training.digest, self.training.has_round)
        member = Member(name, _identities()[name], _roster(), Demands(settings.contributors, settings.colluders))
        bounds = Bounds(settings.x_norm, settings.y_bound, settings.w_norm)
        client = MaskedRounds(rounds, account, member, SITE, CLUSTER, bounds, server_clients=len(EVERYONE))
        self.mechanism.spoil_masked(client)
        self.clients[name] = client

    def close(self) -> None:
        for client in self.clients.values():
            client.account.close()

    # talking ----------------------------------------------------------------------------------------------------------

    def ask(self, name: str, data: bytes) -> Frame:
        """What a client replies to a frame."""
        limits = Limits(self.training.dimension, frozenset({CLUSTER}))
        reply = self.clients[name].handle(decode(data, limits, masked.TO_CLIENT))
        if reply is None:
            raise PrivacyError("An audited client left a frame unanswered; it cannot be audited.")
        return decode(reply, limits, _TO_SITE)

    def said(self, name: str, header: Header) -> Header:
        return self.ask(name, encode(header)).header

    def prepared(self) -> tuple[str, Cohort]:
        """A cohort of everyone, for all rounds of the game."""
        gathered = CohortGathering(frozenset(EVERYONE), len(SPIES), ROUNDS + 1)
        batch = gathered.batch
        for name, spy in self.spies.items():
            gathered.add_keys(name, spy.announce(batch, gathered.slots))
        for name in HONEST:
            keys = self.said(name, masked.Prepare(batch=batch, slots=gathered.slots))
            assert isinstance(keys, masked.AnnouncedKeys)
            gathered.add_keys(name, masked.announcement_of(batch, name, keys.announced))
        cohort = gathered.fix_cohort()
        for name, spy in self.spies.items():
            gathered.add_shares(name, spy.share(cohort))
        for name in HONEST:
            shares = self.ask(name, masked.cohort_frame(cohort)).header
            assert isinstance(shares, masked.SealedShares)
            gathered.add_shares(name, masked.boxes_of(shares))
        for name, spy in self.spies.items():
            spy.receive(batch, gathered.delivery(name))
        for name in HONEST:
            boxes = masked.hex_by_name(gathered.delivery(name))
            ready = self.said(name, masked.Delivery(batch=batch, boxes=boxes))
            assert isinstance(ready, masked.Ready)
            self.asking[name], self.reach = ready.sigma, max(self.reach, ready.reach)
        return batch, cohort

    # the attack -------------------------------------------------------------------------------------------------------

    def attacked(self, centre: Floats) -> list[Floats]:
        """What the site makes of the victim's model in every round."""
        known = self._computed(KNOWN, centre) - centre
        found = []
        for number in range(1, ROUNDS + 1):
            terms = self._terms(number, centre)
            total, alone = self._round(terms, centre)
            found.append(centre + (total - known if alone is None else alone))
        self.clients[VICTIM].account.close()
        self.start(VICTIM)
        found[-1] += 0.5 * lattice.from_lattice(self._drawn_anew(terms, centre))
        beyond = self.ask(VICTIM, self._request(self._terms(ROUNDS + 1, centre), centre)).header
        if not isinstance(beyond, messages.Decline):
            raise PrivacyError("The audited client contributed to a round that its budget does not cover.")
        return found

    def _computed(self, name: str, centre: Floats) -> Floats:
        """What a client computes, whose data the site knows."""
        role, request = self.mechanism.client(*self.rows[name]), RoundRequest(1, len(EVERYONE), centre)
        return role.answer(request, release=lambda model: model).model

    def _terms(self, number: int, centre: Floats) -> RoundTerms:
        """The least that these clients accept."""
        parts = self.mechanism.algorithm, self.mechanism.objective
        length = update_bound(*parts, self.reach, centre, len(EVERYONE))
        return RoundTerms(
            training=self.training.digest,
            site=SITE,
            cluster=CLUSTER,
            round=number,
            cohort=self.cohort.digest,
            holders=len(EVERYONE),
            slot=number - 1,
            invited=self.cohort.names,
            required=self.settings.contributors,
            colluders=self.settings.colluders,
            sigma=max(self.asking.values()) / (1.0 + MARGIN) * (1.0 + _ROUNDING),
            bound=length * (1.0 + MARGIN),
            centre=centre_digest(centre),
            dimension=self.training.dimension,
        )

    def _round(self, terms: RoundTerms, centre: Floats) -> tuple[Floats, Floats | None]:
        """The sum over the list without what the spies know of it, and the victim's own update if it can be opened."""
        nothing = np.zeros(terms.dimension, dtype=np.int64)
        collector = SumCollector(self.cohort, terms)
        vectors = {name: self._contribution(name, terms, centre) for name in HONEST}
        collector.add_contribution(VICTIM, vectors[VICTIM])
        collector.add_contribution(KNOWN, vectors[KNOWN])
        for name, spy in self.spies.items():
            collector.add_contribution(name, spy.contribute(self.batch, terms, nothing))
        collector.close()
        for name in (VICTIM, KNOWN):
            collector.add_consent(name, self._consent(name, terms, collector.survivors))
        for name, spy in self.spies.items():
            collector.add_consent(name, spy.consent(terms.round, collector.survivors))
        collector.close()
        for name, spy in self.spies.items():
            collector.add_reveal(name, spy.reveal(terms.round, collector.consents_for(name)))
        seed = b""
        for name in (KNOWN, VICTIM):
            given = self._revealed(name, terms, collector.survivors, collector.consents_for(name))
            if given is not None:
                collector.add_reveal(name, given)
                seed = given.own_seed
        if collector.close() is not Stage.DONE or collector.total is None:
            raise PrivacyError(f"The audited clients opened no sum ({collector.why}); they cannot be audited.")
        anew = self._drawn_anew(terms, centre, vectors[VICTIM])
        return collector.total + 0.5 * lattice.from_lattice(anew), self._alone(terms, vectors[VICTIM], seed)

    def _request(self, terms: RoundTerms, centre: Floats) -> bytes:
        return masked.masked_request_frame(RoundRequest(terms.round, len(EVERYONE), centre), self.batch, terms)

    def _contribution(self, name: str, terms: RoundTerms, centre: Floats) -> Words:
        frame = self.ask(name, self._request(terms, centre))
        if not isinstance(frame.header, masked.MaskedAnswer):
            raise PrivacyError("An audited client declined a round that it has a budget for.")
        if frame.header.sigma is not None:
            self.asking[name] = frame.header.sigma
        return np.asarray(frame.words[0], dtype=np.uint64)

    def _consent(self, name: str, terms: RoundTerms, survivors: Sequence[str]) -> dict[str, bytes]:
        """A client's tags for a list; none if it declines."""
        header = self.said(name, masked.Survivors(round=terms.round, survivors=list(survivors)))
        return masked.tags_of(header, _without(name, survivors)) if isinstance(header, masked.Consent) else {}

    def _revealed(
        self, name: str, terms: RoundTerms, survivors: Sequence[str], consents: Mapping[str, bytes]
    ) -> Revealed | None:
        tags = masked.joined_tags(consents, _without(name, survivors))
        header = self.said(name, masked.Consents(round=terms.round, tags=tags))
        return masked.revealed_of(header) if isinstance(header, masked.Reveal) else None

    def _drawn_anew(self, terms: RoundTerms, centre: Floats, first: Words | None = None) -> lattice.Points:
        """How the victim's vector changes if it is asked again: by nothing, unless it draws noise anew."""
        first = self.last if first is None else first
        self.last = self._contribution(VICTIM, terms, centre)
        return (self.last - first).view(np.int64)

    def _alone(self, terms: RoundTerms, vector: Words, seed: bytes) -> Floats | None:
        """The victim's update with its share of the noise, if those whom it does without agree to a second list."""
        others = sorted(set(EVERYONE) - {VICTIM})
        message = terms.list_digest(others)
        consents = {name: self._consent(name, terms, others) for name in (KNOWN, GONE)}
        for name, spy in self.spies.items():
            keys = spy._batches[self.batch].consents
            consents[name] = {other: primitives.tag(keys[other], name, message) for other in _without(name, others)}
        shares = {name: _of_victim(spy) for name, spy in self.spies.items()}
        for name in (KNOWN, GONE):
            shown = {sender: tags[name] for sender, tags in consents.items() if name in tags}
            given = self._revealed(name, terms, others, shown)
            if given is not None and VICTIM in given.key_shares:
                shares[name] = given.key_shares[VICTIM]
        if len(shares) < terms.threshold or not seed:
            return None
        held = [(self.cohort.place(name), share) for name, share in shares.items()]
        own = primitives.mask_key_pair(primitives.combined(held[: terms.threshold]))
        bare = vector - primitives.mask(primitives.self_mask_key(seed), terms.dimension)
        for other in others:
            key = pairwise_key(self.cohort, terms.slot, own, VICTIM, other)
            bare = bare - signed_mask(VICTIM, other, key, terms)
        return lattice.from_lattice(bare.view(np.int64))


def _of_victim(spy: Member) -> bytes:
    """The share of the victim's key that a spy keeps for the round under way."""
    assert spy._open is not None
    return spy._open.secrets.key_shares[VICTIM]


def _without(name: str, names: Sequence[str]) -> list[str]:
    return [each for each in names if each != name]
