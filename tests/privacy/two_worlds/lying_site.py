"""A site that lies to the clients of a masked sum at every stage, with a colluder among them.

Each sequence is a number of rounds. Who is told what is drawn from a seed and from what the clients answered, so two
worlds that look the same are lied to in the same way.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from unittest import mock

import numpy as np

from pgfl import synthetic_regression
from pgfl.algorithms.roles import RoundRequest
from pgfl.masking import primitives
from pgfl.masking.member import Member
from pgfl.masking.preparation import Batch, Cohort
from pgfl.masking.terms import RoundTerms, centre_digest, identity_signature
from pgfl.network.protocol import masked_messages as masked
from pgfl.network.protocol import messages
from pgfl.network.protocol.masked_messages import centre_of, update_bound
from pgfl.network.protocol.messages import encode_request
from pgfl.network.protocol.wire import decode, encode
from tests.masking.masked_group import identity, names_of, roster_of
from tests.network.masked_site import DIMENSION, LIMITS, SITE, TO_SITE, Device, training_of
from tests.privacy.two_worlds.unmasking import Contribution, Knowledge

CLIENTS, ROUNDS, VICTIM = 5, 4, "c01"
RECORDS = (20, 30)
THEMES = ("lists", "terms", "keys", "copies", "cohorts", "restarts", "replays")
LIES = ("sigma", "required", "bound", "model", "invited", "slot", "round", "holders", "plain")


class Group:
    """The honest clients of one world, with real ledgers; one record of the victim differs between worlds."""

    def __init__(self, folder, world, colluder, insists):
        self.names, self.training = names_of(CLIENTS), training_of(contributors=2, dropouts=0.0)
        made = synthetic_regression(
            servers=1, clients_per_server=CLIENTS, clusters=1, dimension=DIMENSION, samples=RECORDS, x_norm=3.0
        )
        self.devices, roster = {}, roster_of(self.names)
        for k, name in enumerate(self.names):
            rows, labels = (np.array(part) for part in made.rows(k))
            if name == VICTIM:  # opposite residuals, on a row of full length
                rows[0], labels[0] = 3.0 * np.eye(DIMENSION)[0], 1e6 * (-1.0) ** world
            if name != colluder:
                self.devices[name] = Device(name, roster, (rows, labels), self.training, folder, **insists)

    def close(self):
        for device in self.devices.values():
            device.account.close()


class LyingSite:
    """One sequence in one world."""

    def __init__(self, group, colluder, seed, tape):
        self.group, self.colluder, self.tape = group, colluder, tape
        self.chance = np.random.default_rng(seed)
        self.knows, self.seen, self.said = Knowledge(), [], Counter()
        self.batches, self.sigma, self.reach, self.round = {}, {}, {}, 0
        self.told_terms, self.answers = {}, {}
        self.dropped = {}  # by batch, the clients whose key pairs of its first slot were opened
        self.theme = THEMES[seed[0] % len(THEMES)]

    # helpers ----------------------------------------------------------------------------------------------------------

    def happens(self, probability, theme=None):
        """With a probability, which is less in sequences about other lies: most lies only work if all else is well."""
        return self.chance.random() < probability * (1.0 if theme in (None, self.theme) else 0.15)

    def one_of(self, things):
        return things[int(self.chance.integers(len(things)))]

    @property
    def honest(self):
        return list(self.group.devices)

    def ask(self, name, data):
        """What a client says to a frame; all of it is seen."""
        reply = self.group.devices[name].reply(data)
        self.seen.append((name, reply))
        if reply is None:
            return None
        header = decode(reply, LIMITS, TO_SITE).header
        if isinstance(header, messages.Decline | masked.Unprepared):
            self.said[header.reason] += 1
            return None
        return header

    def restart(self, name):
        self.group.devices[name].restart()
        self.said["restart"] += 1

    def restart_somebody(self, probability):
        if self.happens(probability, "restarts"):
            self.restart(self.one_of(self.honest))

    # preparation ------------------------------------------------------------------------------------------------------

    def prepare(self):
        again = self.happens(0.1, "keys") and self.batches
        name = self.one_of(list(self.batches)) if again else f"{len(self.batches):032x}"
        slots = int(self.chance.integers(1, 4))
        replayed = {}
        if self.dropped and self.happens(0.9, "replays"):
            name, replayed = self._old_announcements()
            slots = self.batches[name]["slots"]
        announced = {}
        for client in self.honest:
            header = self.ask(client, encode(masked.Prepare(batch=name, slots=slots)))
            if header is not None:
                announced[client] = masked.announcement_of(name, client, header.announced)
        announced |= replayed
        own = {self.colluder: Batch.begin(name, self.colluder, identity(self.colluder), slots)}
        announced[self.colluder] = self._announced_by_colluder(own[self.colluder], announced)
        if self.happens(0.5, "keys"):  # somebody invented
            ghost = self.one_of(["ghost", *self.honest])
            own[ghost] = Batch.begin(name, ghost, identity("ghost"), slots)
            announced[ghost] = own[ghost].announcement
            self.said["invented"] += 1
        for batch in own.values():
            self.knows.key_seeds |= {slot.key_seed for slot in batch.slots}
        cohort = Cohort.of(name, 1, announced.values())
        told = dict.fromkeys(self.honest, cohort)
        if self.happens(0.25, "cohorts"):
            self.said["two cohorts"] += 1
            out = self.one_of(self.honest)
            less = Cohort.of(name, self.one_of([0, 1, 2]), [each for each in cohort.announcements if each.name != out])
            told |= {client: less for client in self.honest if self.happens(0.5)}
        boxes = {client: self._boxes(client, told[client]) for client in self.honest}
        self._colluders_read(own, told, boxes)
        sealed_by_own = self._sealed_by(own, cohort)
        for client in self.honest:
            self._deliver(name, client, boxes, sealed_by_own)
        self.restart_somebody(0.2)
        self.batches[name] = {
            "cohort": cohort, "told": told, "slot": 0, "own": own, "slots": slots, "replayed": [*replayed]
        }  # fmt: skip
        return name

    def _old_announcements(self):
        """Of clients that dropped out of a batch, so that their keys of a slot were opened; the others forget it."""
        name = self.one_of(list(self.dropped))
        old, dropped = self.batches[name]["cohort"].by_name, self.dropped.pop(name)
        self.said["replayed"] += 1
        for client in self.honest:
            if self.happens(0.5):
                self.restart(client)
            else:  # two later batches make it forget this one
                for later in range(2):
                    self.ask(client, encode(masked.Prepare(batch=f"{len(self.seen):030x}e{later}", slots=1)))
                self.said["evicted"] += 1
        return name, {client: old[client] for client in dropped if client in old}

    def _announced_by_colluder(self, batch, announced):
        """Its own keys, or somebody else's in another spelling."""
        copied = [each for each in announced.values() if len(each.masks) == len(batch.slots)]
        if not (copied and self.happens(0.7, "copies")):
            return batch.announcement
        self.said["copied key"] += 1
        flipped = tuple(key[:-1] + bytes([key[-1] ^ 0x80]) for key in self.one_of(copied).masks)
        masks = flipped if self.happens(0.8) else self.one_of(copied).masks
        bare = replace(batch.announcement, masks=masks, signature=b"")
        signature = self.tape("colluder", lambda: identity_signature(identity(self.colluder), bare.digest))
        return replace(bare, signature=signature)

    def _boxes(self, client, cohort):
        header = self.ask(client, masked.cohort_frame(cohort))
        return {} if header is None else masked.boxes_of(header)

    def _colluders_read(self, own, told, boxes):
        """Every share that was sealed for a colluder."""
        for sender, sent in boxes.items():
            for name, batch in own.items():
                text = batch._opened(told[sender], sender, sent[name]) if name in sent else None
                for slot in range(0 if text is None else len(text) // 32):
                    for part, kind in enumerate(("self", "key")):
                        share = text[32 * slot + 16 * part : 32 * slot + 16 * part + 16]
                        self.knows.share(kind, sender, told[sender], slot, name, share)

    def _sealed_by(self, own, cohort):
        """What the colluder and those who were invented send; they may well send nothing."""
        sealed = {}
        for name, batch in own.items():
            if not self.happens(0.3, "cohorts"):
                batch.cohort = cohort
                sealed[name] = batch._share_out(cohort)
        return sealed

    def _deliver(self, batch, client, boxes, of_own):
        sent = {
            sender: each[client]
            for sender, each in boxes.items()
            if client in each and not self.happens(0.1, "cohorts")
        }
        sent |= {sender: each[client] for sender, each in of_own.items() if client in each}
        if sent and self.happens(0.2, "cohorts"):
            spoilt = self.one_of(sorted(sent))
            sent[spoilt] = sent[spoilt][:-1] + bytes([sent[spoilt][-1] ^ 1])
        header = self.ask(client, encode(masked.Delivery(batch=batch, boxes=masked.hex_by_name(sent))))
        if header is not None:
            self.sigma[client], self.reach[client] = header.sigma, header.reach

    # one round --------------------------------------------------------------------------------------------------------

    def play(self):
        for _ in range(ROUNDS):
            live = [name for name, batch in self.batches.items() if batch["slot"] < batch["slots"]]
            replays = self.theme == "replays" and self.dropped
            batch = live[-1] if live and self.happens(0.6) and not replays else self.prepare()
            self.round += 1
            self.request(batch)
            self.restart_somebody(0.3)
            self.consent()
            self.restart_somebody(0.2)
            self.reveal()
            if self.happens(0.5, "lists") or self.theme == "restarts":
                if self.happens(0.7, "restarts"):
                    for client in self.honest:
                        self.restart(client)
                self.consent(once_more=True)
                self.reveal()
        return self

    def request(self, batch):
        known = self.batches[batch]
        slot = max(0, known["slot"] - self.happens(0.3, "terms"))  # or one that was used before
        known["slot"] += 1
        model = self.chance.normal(size=DIMENSION) * 10.0 ** self.chance.integers(-2, 2) if self.happens(0.8) else None
        request = RoundRequest(self.round, CLIENTS, model)
        true = self._terms(known["cohort"], slot, request)
        self.told_terms, self.answers = {}, {}
        lied_to = {client for client in self.honest if self.happens(0.1, "terms")}
        lied_to |= {self.one_of(self.honest)} if self.happens(0.6, "terms") else set()
        for client in self.honest:
            terms, asked = (true, request) if client not in lied_to else self._lie(true, request)
            self._ask_for(client, batch, asked, terms)
            if self.happens(0.3, "restarts"):
                self.said["asked again"] += 1
                if self.happens(0.5):
                    self.restart(client)
                again, asked = (terms, asked) if self.happens(0.5) else self._lie(true, request)
                self._ask_for(client, batch, asked, again)

    def _ask_for(self, client, batch, request, terms):
        if terms is None:
            self.said["asked plainly"] += 1
            self.ask(client, encode_request(request))
            return
        header = self.ask(client, masked.masked_request_frame(request, batch, terms))
        if isinstance(header, masked.MaskedAnswer):
            self.answers[client], self.told_terms[client] = header, terms
            if header.sigma is not None:
                self.sigma[client] = header.sigma

    def _terms(self, cohort, slot, request):
        centre, training = centre_of(request.model, DIMENSION), self.group.training
        algorithm, objective = training.build_algorithm(), training.build_objective("q")
        reach = max(self.reach.values(), default=1.0)
        length = update_bound(algorithm, objective, reach, centre, request.server_clients) * (1 + 1e-6)
        return RoundTerms(
            training.digest, SITE, "q", request.round, cohort.digest, len(cohort.names), slot, cohort.names,
            min(self._required(), len(cohort.names)), cohort.colluders, max(self.sigma.values(), default=1.0),
            length, centre_digest(centre), DIMENSION,
        )  # fmt: skip

    def _required(self):
        """How many must contribute; where keys are to be opened first, one may be missing."""
        replayed = any(batch["replayed"] for batch in self.batches.values())
        return self.one_of([4, 5]) if self.theme != "replays" else 5 if replayed else 4

    def _lie(self, true, request):
        """Other terms for one client, or none: it is asked for a plain answer."""
        kind = self.one_of([*LIES, "sigma", "sigma"])
        if kind == "plain":
            return None, request
        if kind == "model":
            other = replace(request, model=self.chance.normal(size=DIMENSION))
            return replace(true, centre=centre_digest(other.model)), other
        if kind == "round":
            earlier = replace(request, round=int(self.chance.integers(1, self.round + 1)))
            return replace(true, round=earlier.round), earlier
        changed = {
            "sigma": {"sigma": true.sigma * self.one_of([0.25, 4.0, 4.0])},
            "required": {"required": max(2, true.required - self.one_of([1, 2]))},
            "bound": {"bound": true.bound * self.one_of([0.1, 1e9, 1e9])},
            "invited": {"invited": tuple(name for name in true.invited if name != self.one_of(true.invited))},
            "slot": {"slot": true.slot + self.one_of([-1, 1]) if true.slot else 1},
            "holders": {"holders": true.holders + self.one_of([-2, -1, 1])},
        }[kind]
        return replace(true, **changed), request

    # the end of a round -----------------------------------------------------------------------------------------------

    def consent(self, once_more=False):
        """Everyone is shown a list; some another one, and some one after the other."""
        own = {
            name
            for batch in self.batches.values()
            for name in (*batch["own"], *batch["replayed"])
            if self._takes_part(batch, name)
        }
        own.add(self.colluder)
        contributed = sorted({*self.answers, *own})
        out = self.one_of(contributed)
        few = sorted([*own, *list(self.chance.permutation(sorted(self.answers)))[: max(0, 4 - len(own))]])
        lists = [contributed, [name for name in contributed if name != out], few]
        two, halves = (self.happens(0.4, "lists"), self.happens(0.4, "lists")) if not once_more else (False, False)
        usual = self.one_of(lists) if self.theme in ("lists", "keys") else contributed
        dropping = self.theme == "replays" and self._required() == 4
        usual = lists[1] if once_more or dropping else usual
        first = [str(name) for name in self.chance.permutation(self.honest)[: len(self.honest) // 2]]
        without = [name for name in contributed if name != first[0]]
        self.agreed = {}
        for client in self.honest:
            shown = [self.one_of(lists) if two and self.happens(0.5) else usual]
            if halves:  # one half is told that somebody of the other half is gone
                shown = [contributed if client in first else without]
            elif self.happens(0.25, "lists"):
                shown.append(self.one_of(lists))
            for survivors in shown:
                header = self.ask(client, encode(masked.Survivors(round=self.round, survivors=survivors)))
                if header is not None:
                    others = sorted(set(survivors) - {client})
                    self.agreed.setdefault(tuple(survivors), {})[client] = masked.tags_of(header, others)
        self.said["two lists"] += two or halves

    def _takes_part(self, batch, name):
        """Whether a participant of the site's own is invited by the terms of this round."""
        return any(
            name in terms.invited and terms.cohort == batch["cohort"].digest for terms in self.told_terms.values()
        )

    def reveal(self):
        """To everyone all consents to some list, and the colluder's under whatever that client was told."""
        for client in self.honest:
            for survivors in [*self.agreed, *([next(iter(self.agreed))] if self.agreed and self.happens(0.2) else [])]:
                consents = {name: tags[client] for name, tags in self.agreed[survivors].items() if client in tags}
                self._reveal_to(client, survivors, consents)

    def _reveal_to(self, client, survivors, consents):
        terms = self.told_terms.get(client)
        if terms is not None:
            for batch in self.batches.values():
                if (cohort := batch["told"][client]).digest == terms.cohort:
                    for name, own in batch["own"].items():
                        key = own._transport_key(cohort, cohort.by_name[client], "consent")
                        consents[name] = primitives.tag(key, name, terms.list_digest(survivors))
        if self.happens(0.2):  # of anybody, for anybody, as somebody else's
            given = [tag for tags in self.agreed[survivors].values() for tag in tags.values()]
            consents |= {name: self.one_of(given) for name in survivors if self.happens(0.3)}
        tags = masked.joined_tags(consents, sorted(set(survivors) - {client}))
        header = self.ask(client, encode(masked.Consents(round=self.round, tags=tags)))
        if isinstance(header, masked.Reveal):
            self.said["revealed"] += 1
            given = masked.revealed_of(header)
            self.knows.self_seeds.add(given.own_seed)
            by_client = [each for each in self.knows.contributions if each.client == client]
            latest = by_client[-1]
            for kind, shares in (("self", given.self_shares), ("key", given.key_shares)):
                for owner, share in shares.items():
                    self.knows.share(kind, owner, latest.cohort, latest.terms.slot, client, share)
            if latest.terms.slot == 0 and given.key_shares.keys() & set(self.honest):
                self.dropped[latest.batch] = given.key_shares.keys() & set(self.honest)

    # what is under the masks ------------------------------------------------------------------------------------------

    def listening(self):
        """Records every contribution of an honest client, with the masks in it."""
        real, site = Member.contribute, self

        def contribute(member, batch, terms, noised):
            known = member._batches.get(batch)
            secrets = known.slots[terms.slot] if known is not None and terms.slot < len(known.slots) else None
            vector = real(member, batch, terms, noised)
            self_key = primitives.self_mask_key(secrets.self_seed)
            masks = Counter([self_key])
            for other in set(terms.invited) - {member.name}:
                key = primitives.common_mask_key(secrets.pairwise[other], terms.digest)
                masks[key] += 1 if member.name < other else -1
            signs, sigma = {key: sign for key, sign in masks.items() if sign}, site.tape.sigma_of(noised)
            site.knows.contributions.append(
                Contribution(member.name, terms, batch, known.cohort, vector, np.array(noised), sigma, signs)
            )
            return vector

        return mock.patch.object(Member, "contribute", contribute)
