"""A site's side of masked sums, without I/O: cohorts prepared ahead, and one sum per pair in a round.

A *pair* is a cluster at this site, or all of its clients where models are not personalised. While rounds use one
cohort, the next one is prepared. Whoever is absent when a round opens is not invited; whoever leaves later is
recovered, if enough stay. The site learns nothing about a pair below its threshold, and the round goes on without it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from pgfl.algorithms.roles import RoundRequest
from pgfl.arrays import Floats
from pgfl.masking.collector import CohortGathering, Stage, SumCollector, disputed
from pgfl.masking.preparation import Cohort
from pgfl.masking.primitives import Words
from pgfl.masking.terms import Roster, RoundTerms, centre_digest, threshold_for
from pgfl.network.agreement import Training
from pgfl.network.protocol import masked_messages as masked
from pgfl.network.protocol.masked_messages import MARGIN, centre_of, update_bound
from pgfl.network.protocol.messages import RequestFrames
from pgfl.network.protocol.wire import Frame, encode
from pgfl.network.site.effects import Note, Send
from pgfl.privacy.trust import over_cap

MOST_SLOTS, LEAST_SLOTS = 32, 4
_SHARE_WORK = 20_000  # slots times clients squared: how much sharing a client does at a time
_REFILL = 4  # the next cohort is prepared when a quarter of the slots is left

Effects = list[Send | Note]


def slots_for(clients: int) -> int:
    """For how many rounds a cohort of so many is prepared at a time.

    >>> slots_for(5), slots_for(20), slots_for(50), slots_for(500)
    (32, 32, 8, 4)
    """
    return max(LEAST_SLOTS, min(MOST_SLOTS, _SHARE_WORK // clients**2))


@dataclass(frozen=True)
class MaskedSum:
    """The sum of a pair's updates with its noise, the model that they start from, and whose they are."""

    total: Floats
    centre: Floats
    contributors: tuple[str, ...]

    @property
    def sum(self) -> Floats:
        """The sum of the models."""
        return len(self.contributors) * self.centre + self.total


@dataclass
class _Cohort:
    """A cohort that is ready: who of it can be invited, and the next slot."""

    gathered: CohortGathering
    ready: set[str]
    slot: int = 0

    @property
    def left(self) -> int:
        return self.gathered.slots - self.slot

    @property
    def whole(self) -> Cohort:
        assert self.gathered.cohort is not None
        return self.gathered.cohort


@dataclass
class _Gathering:
    """A cohort under way: its keys, then its shares, then who has them."""

    gathered: CohortGathering
    until: float
    ready: dict[str, set[str]] = field(default_factory=dict)  # who has its shares, and whose it could not open
    delivered: bool = False


@dataclass
class _Pair:
    cohort: _Cohort | None = None
    gathering: _Gathering | None = None
    not_before: float = 0.0  # after a failed preparation
    round: SumCollector | None = None
    centre: Floats | None = None


@dataclass
class MaskedPairs:
    """All pairs of a site in one training."""

    training: Training
    site: str  # its name
    pair_of: Callable[[str], str]  # of an admitted client
    cluster_of: Callable[[str], str | None]  # None for a client that is not admitted any more
    keys: Callable[[], Mapping[str, str]]  # the admitted clients' identity keys
    patience: float = 30.0
    members: set[str] = field(default_factory=set)  # clients that take part in masked sums
    sums: dict[str, MaskedSum] = field(default_factory=dict)  # of the round under way
    _missed: dict[str, tuple[int, str]] = field(default_factory=dict)  # pairs without a sum: the round, and why
    _pairs: dict[str, _Pair] = field(default_factory=dict)
    _sigma: dict[str, float] = field(default_factory=dict)
    _reach: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.trust = self.training.privacy.level
        self.algorithm = self.training.build_algorithm()

    # Before rounds ----------------------------------------------------------------------------------------------------

    def set_member(self, client: str, masks: bool) -> None:
        """Note whether a client takes part in masked sums, which is its own choice."""
        (self.members.add if masks else self.members.discard)(client)

    def prepare(self, able: Collection[str], now: float) -> Effects:
        """Begin to prepare the pairs of these clients that need it; to be called when a round could open."""
        effects: Effects = []
        for name, clients in self._by_pair(set(able) & self.members).items():
            pair = self._pairs.setdefault(name, _Pair())
            if pair.gathering is None and self._wanting(pair, clients) and now >= pair.not_before:
                effects += self._begin(pair, clients, now)
        return effects

    def proceed(self, able: Collection[str], now: float) -> Effects:
        """Continue preparations with no connected client pending, or whose time is over."""
        under_way = [(name, pair) for name, pair in self._pairs.items() if pair.gathering is not None]
        if not under_way:
            return []
        effects: Effects = []
        present = self._by_pair(set(able) & self.members)
        for name, pair in under_way:
            effects += self._continue(pair, present.get(name, set()), now)
        return effects

    def preparing(self, able: Collection[str]) -> float | None:
        """Return until when a round waits for a pair without a cohort; None if it need not wait."""
        first = [
            pair.gathering.until
            for name, clients in self._by_pair(set(able) & self.members).items()
            if (pair := self._pairs.get(name)) is not None
            and pair.gathering is not None
            and not self._could_invite(pair, clients)
        ]
        return max(first, default=None)

    def on_preparation_frame(self, client: str, frame: Frame) -> Effects:
        """Handle a message of the preparation."""
        header = frame.header
        assert isinstance(header, masked.AnnouncedKeys | masked.SealedShares | masked.Ready | masked.Unprepared)
        pair = self._pair(client)
        under_way = None if pair is None else pair.gathering
        if under_way is None or header.batch != under_way.gathered.batch:
            return []
        match header:
            case masked.AnnouncedKeys(announced=keys):
                if not self._announced(under_way.gathered, client, keys):
                    return [Note(f"client {client} announced keys that it did not sign", about=f"unsigned {client}")]
            case masked.SealedShares():
                under_way.gathered.add_shares(client, masked.boxes_of(header))
            case masked.Ready(unopened=unopened, sigma=sigma, reach=reach):
                self._sigma[client], self._reach[client] = sigma, reach
                under_way.ready[client] = set(unopened)
            case masked.Unprepared(reason=reason):
                under_way.gathered.exclude(client)
                return [Note(f"client {client} takes no part in masked sums: {reason}", about=f"unprepared {client}")]
        return []

    def _announced(self, gathered: CohortGathering, client: str, keys: list[str]) -> bool:
        """Take a client's keys, unless others would refuse them; once, as checking them takes a while.

        A client whose signature is wrong takes no part in this batch, or it could have one checked again and again.
        """
        if not gathered.awaits_keys(client):
            return True
        announced = masked.announcement_of(gathered.batch, client, keys)
        known = self.keys().get(client)
        if known is None or not Roster({client: known}).signed_by(client, announced.signature, announced.digest):
            gathered.exclude(client)
            return False
        gathered.add_keys(client, announced)
        return True

    def _wanting(self, pair: _Pair, clients: set[str]) -> bool:
        """Whether a cohort is needed: there is none, it is nearly used up, or somebody is not in it."""
        if not self._enough(len(clients)):
            return False
        cohort = pair.cohort
        return cohort is None or cohort.left * _REFILL <= cohort.gathered.slots or not clients <= cohort.ready

    def _enough(self, clients: int) -> bool:
        return self.trust.takes_part(clients) and clients >= threshold_for(clients, self.trust.colluders)

    def _begin(self, pair: _Pair, clients: set[str], now: float) -> Effects:
        gathered = CohortGathering(frozenset(clients), self.trust.colluders, slots_for(len(clients)))
        pair.gathering = _Gathering(gathered, now + self.patience)
        frame = encode(masked.Prepare(batch=gathered.batch, slots=gathered.slots))
        return [Send(client, frame) for client in sorted(clients)]

    def _continue(self, pair: _Pair, clients: set[str], now: float) -> Effects:
        """From one step of a preparation to the next, once nobody who is here is waited for, or time is up."""
        under_way, effects = pair.gathering, list[Send | Note]()
        assert under_way is not None
        gathered, over = under_way.gathered, now >= under_way.until
        if gathered.cohort is None:
            if gathered.pending & clients and not over:
                return []
            if not self._enough(len(gathered.expected - gathered.pending)):
                return self._postponed(pair, now)
            cohort, under_way.until = gathered.fix_cohort(), now + self.patience
            return [Send(client, masked.cohort_frame(cohort)) for client in cohort.names]
        if not under_way.delivered:
            if gathered.pending & clients and not over:
                return []
            under_way.delivered, under_way.until = True, now + self.patience
            for client in sorted(gathered.ready):
                boxes = masked.hex_by_name(gathered.delivery(client))
                effects.append(Send(client, encode(masked.Delivery(batch=gathered.batch, boxes=boxes))))
            return effects
        if (gathered.ready - under_way.ready.keys()) & clients and not over:
            return []
        ready, effects = _without_disputes(under_way.ready)
        if not self._enough(len(ready)):
            return effects + self._postponed(pair, now)
        pair.cohort, pair.gathering = _Cohort(gathered, ready), None
        if effects:  # whoever was left out would be again: others need not prepare anew at once
            pair.not_before = now + self.patience
        return [*effects, Note(f"{len(ready)} clients have prepared {gathered.slots} masked rounds", about="prepared")]

    def _postponed(self, pair: _Pair, now: float) -> Effects:
        pair.gathering, pair.not_before = None, now + self.patience
        return [Note("too few clients prepared masked rounds; they are asked again later", about="postponed")]

    # One round --------------------------------------------------------------------------------------------------------

    def eligible(self, chosen: Iterable[str]) -> list[str]:
        """Filter out clients whose pair cannot make a sum now: they would pay for nothing."""
        chosen = list(chosen)
        invitable = {
            name: self._could_invite(self._pairs.get(name), clients)
            for name, clients in self._by_pair(set(chosen) & self.members).items()
        }
        return [c for c in chosen if c not in self.members or c in invitable[self.pair_of(c)]]

    def _could_invite(self, pair: _Pair | None, clients: set[str]) -> set[str]:
        """Those of some clients whom a round of this pair can invite; nobody if they are too few."""
        if pair is None or pair.cohort is None or not pair.cohort.left:
            return set()
        here = (clients & pair.cohort.ready & self._sigma.keys()) - self._demanding(pair.cohort.ready)
        enough = self._enough(len(here)) and len(here) >= pair.cohort.whole.threshold
        return here if enough else set()

    def _demanding(self, ready: Collection[str]) -> set[str]:
        """Who asks for more noise, or states a longer update, than the agreed training allows."""
        return set().union(
            *(
                over_cap({name: stated[name] for name in ready if name in stated}, self.training.privacy.noise_cap)
                for stated in (self._sigma, self._reach)
            )
        )

    @property
    def over_cap(self) -> set[str]:
        """The clients that state too much, and so are not invited."""
        return set().union(*(self._demanding(pair.cohort.ready) for pair in self._pairs.values() if pair.cohort))

    def stuck(self, able: Collection[str]) -> bool:
        """Whether all of these clients take part in masked sums, and none of their pairs can make one now."""
        under_way = any(pair.gathering is not None for pair in self._pairs.values())
        return bool(able) and not under_way and not self.eligible(able)

    def forget(self) -> None:
        """Forget the sums of the round, which is over."""
        self.sums = {}
        for pair in self._pairs.values():
            pair.round = pair.centre = None

    @property
    def contributors(self) -> tuple[str, ...]:
        """The clients in the sums of the round."""
        return tuple(client for each in self.sums.values() for client in each.contributors)

    def sat_out(self, round: int) -> dict[str, str]:
        """The pairs that were asked for a sum in a round and made none, and why."""
        return {name: why for name, (missed, why) in self._missed.items() if missed == round}

    def open(self, asked: Mapping[str, RoundRequest]) -> dict[str, bytes]:
        """The requests of a round to the members of pairs that can make a sum, as frames."""
        frames: dict[str, bytes] = {}
        for name, clients in self._by_pair(set(asked) & self.members).items():
            pair = self._pairs.setdefault(name, _Pair())
            invited = self._could_invite(pair, clients)
            if not invited:
                continue
            assert pair.cohort is not None
            cohort, slot = pair.cohort.whole, pair.cohort.slot
            pair.cohort.slot += 1
            pair.centre = centre_of(asked[min(invited)].model, self.training.dimension)
            terms = self._terms(name, cohort, slot, {client: asked[client] for client in sorted(invited)})
            pair.round = SumCollector(cohort, terms)
            requests = RequestFrames(partial(masked.masked_request_frame, batch=cohort.batch, terms=terms))
            frames |= {client: requests.of(asked[client]) for client in terms.invited}
        return frames

    def _terms(self, pair: str, cohort: Cohort, slot: int, asked: Mapping[str, RoundRequest]) -> RoundTerms:
        names, request = tuple(asked), next(iter(asked.values()))
        centre = centre_of(request.model, self.training.dimension)
        reach = max(self._reach[client] for client in names)
        clusters = {self.cluster_of(client) or "" for client in names}
        objectives = [self.training.build_objective(cluster) for cluster in clusters]
        lengths = [update_bound(self.algorithm, each, reach, centre, request.server_clients) for each in objectives]
        return RoundTerms(
            training=self.training.digest,
            site=self.site,
            cluster=pair,
            round=request.round,
            cohort=cohort.digest,
            holders=len(cohort.names),
            slot=slot,
            invited=names,
            required=self.trust.required(len(names)),
            colluders=self.trust.colluders,
            sigma=max(self._sigma[client] for client in names),
            bound=max(lengths) * (1.0 + MARGIN),
            centre=centre_digest(centre),
            dimension=self.training.dimension,
        )

    def add_contribution(self, client: str, header: masked.MaskedAnswer, words: Words) -> bool:
        """Add a masked contribution; return False if it is not what was asked for."""
        collector = self._collector(client)
        if collector is None or header.terms != collector.terms.digest:
            return False
        if header.sigma is None:
            self._sigma.pop(client, None)
        else:
            self._sigma[client] = header.sigma
        return collector.add_contribution(client, words)

    def on_unmasking_frame(self, client: str, frame: Frame) -> Effects:
        """Handle a consent, or what a client reveals."""
        header, collector = frame.header, self._collector(client)
        assert isinstance(header, masked.Consent | masked.Reveal)
        if collector is not None and header.round == collector.terms.round:
            if isinstance(header, masked.Consent):
                collector.add_consent(client, masked.tags_of(header, _others(collector.survivors, client)))
            else:
                collector.add_reveal(client, masked.revealed_of(header))
        return []

    def drop(self, client: str, unprepared: bool = False) -> None:
        """Stop waiting for a client that declines; one that lost its secrets must prepare again."""
        pair = self._pair(client)
        if pair is None:
            return
        if pair.round is not None:
            pair.round.drop(client)
        if unprepared and pair.cohort is not None:
            pair.cohort.ready.discard(client)

    @property
    def busy(self) -> bool:
        """Whether a sum is under way."""
        return any(pair.round is not None for pair in self._pairs.values())

    def advance(self, connected: Collection[str], over: bool) -> Effects:
        """Close stages with no connected client pending, or every stage if the time is over."""
        effects: Effects = []
        for name, pair in sorted(self._pairs.items()):
            collector = pair.round
            if collector is None or not (over or collector.pending.isdisjoint(connected)):
                continue
            stage = collector.close()
            round, survivors = collector.terms.round, collector.survivors
            if stage is Stage.CONSENTING:
                frame = encode(masked.Survivors(round=round, survivors=list(survivors)))
                effects += [Send(client, frame) for client in survivors]
            elif stage is Stage.REVEALING:
                for client in survivors:
                    tags = masked.joined_tags(collector.consents_for(client), _others(survivors, client))
                    effects.append(Send(client, encode(masked.Consents(round=round, tags=tags))))
            else:
                effects += self._ended(name, pair, collector)
        return effects

    def _ended(self, name: str, pair: _Pair, collector: SumCollector) -> Effects:
        pair.round = None
        if collector.total is None or pair.centre is None:
            self._missed[name] = collector.terms.round, collector.why
            text = f"round {collector.terms.round} goes on without the masked sum of {name}: {collector.why}"
            return [Note(text, about=f"masked {name}")]
        self.sums[name] = MaskedSum(collector.total, pair.centre, collector.survivors)
        return []

    def _pair(self, client: str) -> _Pair | None:
        """The pair of a client that takes part in masked sums."""
        here = client in self.members and self.cluster_of(client) is not None
        return self._pairs.get(self.pair_of(client)) if here else None

    def _collector(self, client: str) -> SumCollector | None:
        pair = self._pair(client)
        return None if pair is None else pair.round

    def _by_pair(self, clients: Collection[str]) -> dict[str, set[str]]:
        found: defaultdict[str, set[str]] = defaultdict(set)
        for client in clients:
            found[self.pair_of(client)].add(client)
        return dict(found)


def _without_disputes(ready: Mapping[str, set[str]]) -> tuple[set[str], Effects]:
    """Of those who have their shares, those who can all contribute together."""
    among = {name: unopened & ready.keys() - {name} for name, unopened in ready.items()}
    out = disputed(among)
    notes: Effects = [
        Note(f"client {name} could not open the shares of {', '.join(sorted(unopened))}", about=f"unopened {name}")
        for name, unopened in sorted(among.items())
        if unopened
    ]
    notes += [Note(f"client {name} is not asked for these masked rounds", about=f"disputed {name}") for name in out]
    return ready.keys() - out, notes


def _others(names: Iterable[str], name: str) -> list[str]:
    return [each for each in names if each != name]
