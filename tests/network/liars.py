"""Sites and clients that lie, for `make chaos`: they have their own keys, are let in, and say what is not so."""

from __future__ import annotations

import asyncio
from contextlib import closing, suppress
from dataclasses import replace

import numpy as np

from pgfl.algorithms.roles import Answer
from pgfl.network.protocol import identity, messages
from pgfl.network.protocol.identity import Neighbour, SiteCertificate
from pgfl.network.protocol.links import PeerLink, PeerService
from pgfl.network.protocol.messages import encode_answer, encode_publication, read_publication
from pgfl.network.protocol.streams import SiteStream
from pgfl.network.protocol.wire import Limits, encode
from pgfl.network.site.store import STORE, SiteStore

MANY = 10**9


def about_rounds(chance, publication):
    """Far ahead, at the end, or long ago."""
    claimed = chance.choice([publication.round + 50, 100_000, 10**6 - 1, 10**6, 1])
    return replace(publication, round=claimed)


def about_counts(chance, publication):
    """More clients and neighbours than there are people to ask."""
    return replace(publication, degree=MANY, clients=dict.fromkeys(publication.models, MANY))


def about_budgets(chance, publication):
    """Nobody can contribute to anything any more."""
    return replace(publication, able=frozenset(), exhausted=frozenset(publication.models))


SITE_LIES = (about_rounds, about_counts, about_budgets)


async def _heard(liar):
    """Wait until somebody has heard the liar, who may not be let in at once; give up after a minute."""
    before = liar.told
    for _ in range(600):
        if liar.told > before:
            return
        await asyncio.sleep(0.1)


class LyingSite:
    """A neighbour of every site that sends each its own models back, with a lie about them."""

    def __init__(self, network, chance, name="liar"):
        self.network, self.chance, self.name = network, chance, name
        self.home, self.digest = network.folder / name, network.training.digest
        self.certificate = identity.create_site(self.home, name, [])
        self.told = 0

    def tell(self, lie, seconds):
        """Be linked for so long, and lie; then it is unlinked."""
        for site in self.network.federation.server_ids:
            with closing(SiteStore(self.network.home(site) / STORE)) as store:
                store.link(self.certificate, "")
        try:
            asyncio.run(self._tell(lie, seconds))
        finally:
            for site in self.network.federation.server_ids:
                with closing(SiteStore(self.network.home(site) / STORE)) as store:
                    store.unlink(self.name)

    async def _tell(self, lie, seconds):
        shown = self.home / identity.SITE_CERTIFICATE, self.home / identity.SITE_KEY
        training, ports = self.network.training, self.network.ports
        limits = Limits(training.dimension, frozenset(training.clusters))
        known = {
            site: Neighbour(
                SiteCertificate.read(self.network.home(site) / identity.SITE_CERTIFICATE), f"127.0.0.1:{ports[site]}"
            )
            for site in self.network.federation.server_ids
        }
        service = PeerService(lambda: known, limits, lambda peer, frame: self._receive(lie, links[peer], frame))
        links = {
            site: PeerLink(
                self.name, site, neighbour, *shown, service, lambda: self._greeting(lie), lambda *_: None,
                lambda *_: None,
            )
            for site, neighbour in known.items()
        }  # fmt: skip
        for link in links.values():
            link.start()
        await _heard(self)
        await asyncio.sleep(seconds)
        await asyncio.gather(*(link.stop() for link in links.values()))

    def _receive(self, lie, link, frame):
        round = 0
        if isinstance(frame.header, messages.Publication):
            self.told += 1
            publication = lie(self.chance, read_publication(frame))
            round = publication.round
            link.publish(round, encode_publication(self.name, self.digest, publication))
        acknowledged = messages.Acknowledged(
            site=self.name, training=self.digest, round=round, degree=1, finished=False, ready=True
        )
        return encode(acknowledged)

    def _greeting(self, lie):
        round = MANY if lie is about_rounds else 1
        hello = messages.PeerHello(
            site=self.name, training=self.digest, round=round, degree=MANY, heard=0, ready=self.chance.random() < 0.5
        )
        return encode(hello)


class LyingClient:
    """A client that is admitted for a while: answers other rounds than asked, twice, and says that its budget is spent.

    It has a key of its own. Whoever takes another client's key can silence that client, and nobody else: it stops for
    good once its site has accepted an answer that its ledger does not know.
    """

    def __init__(self, network, chance, site, name="lying-client"):
        self.network, self.chance, self.site, self.name, self.told = network, chance, site, name, 0
        self.dimension, home = network.training.dimension, network.folder / name
        self.public = identity.create_client(home, name)
        fingerprint = SiteCertificate.read(network.home(site) / identity.SITE_CERTIFICATE).fingerprint
        self.stream = SiteStream(
            lambda: {fingerprint}, identity.read_client_key(home / identity.CLIENT_KEY), Limits(self.dimension),
            lambda: 0, self._handle, budget="endless",
        )  # fmt: skip

    def tell(self, seconds):
        """Be admitted for so long, and lie; then it is expelled."""

        async def talk():
            while True:
                await self.stream.run(f"127.0.0.1:{self.network.ports[self.site]}")
                await asyncio.sleep(0.2)

        async def for_a_while():
            talking = asyncio.create_task(talk())
            if self.network.training.privacy.trust != "masked":  # where nobody asks whom the roster does not name
                await _heard(self)
            await asyncio.sleep(seconds)
            talking.cancel()
            with suppress(asyncio.CancelledError):
                await talking

        with closing(SiteStore(self.network.home(self.site) / STORE)) as store:
            store.admit(self.name, self.public, self.chance.choice(self.network.training.clusters))
            try:
                asyncio.run(for_a_while())
            finally:
                self.stream.computing.shutdown()
                store.expel(self.name)

    def _handle(self, frame):
        if not isinstance(frame.header, messages.Request):
            return None
        self.told += 1
        asked = frame.header.round
        if self.chance.random() < 0.3:
            return encode(messages.Decline(round=asked, reason="the budget is spent", final=True))
        claimed = self.chance.choice([asked, asked + 1, asked + 1000, max(1, asked - 5), 1])
        model = self.chance.random() * np.ones(self.dimension)
        return encode_answer(Answer(claimed, model, model, clean=self.chance.random() < 0.3), release=MANY)
