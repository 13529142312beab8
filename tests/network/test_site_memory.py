"""A site sends a returning client the largest release number it has ever received from it; an older ledger stops."""

from __future__ import annotations

import shutil
import struct
from types import SimpleNamespace

import numpy as np
import pytest

from pgfl.algorithms.roles import RoundRequest
from pgfl.demo import demo_federation, demo_training
from pgfl.errors import LedgerError, NetworkError
from pgfl.network.local import LocalNetwork
from pgfl.network.protocol.messages import BETWEEN_SITE_AND_CLIENT, Answer, encode_request
from pgfl.network.protocol.streams import _ClientStream, _Dialogue
from pgfl.network.protocol.wire import MAGIC, VERSION, Limits, decode, encode
from pgfl.network.site.sessions import ClientSessions
from pgfl.network.site.settings import load_site
from pgfl.network.site.state import SiteState
from tests.network.inprocess import participant

POLICY = {"enabled": True, "phi0": 1e-7, "zeta": 1.0, "max_releases": 9, "x_norm": 3.0}
SITE = "server-0"
FILES = ("ledger.db", "ledger.db.anchor")


class Quiet:
    """A site's real store, rounds and handling of clients, without sockets: what it would send is kept."""

    def __init__(self, settings):
        state, self.sent, self.failed = SiteState(settings), [], []
        self.store, self.rounds = state.store, state.rounds
        self.sessions = ClientSessions(state, lambda event: event(), self.failed.append, on_change=lambda: None)
        self.sessions._save_timer = SimpleNamespace(cancel=lambda: None)  # as if it were set: there is no loop
        self.streams = self.sessions.streams
        self.sessions.streams = SimpleNamespace(send=lambda client, data: self.sent.append(data))

    def welcome(self, client):
        self.sessions._stream_opened(client)
        return self.sent.pop()


@pytest.fixture
def network(tmp_path):
    federation = demo_federation(1, 1, "huber", seed=0)
    network = LocalNetwork(tmp_path, federation, demo_training(federation, "huber", 9), POLICY)
    network.prepare()
    return network


@pytest.fixture
def client(network):
    return network.federation.client_ids[0]


@pytest.fixture
def site(network):
    site = Quiet(load_site(network.home(SITE) / "site.toml"))
    yield site
    site.store.close()


def read(network, data):
    return decode(data, Limits(network.federation.dimension), BETWEEN_SITE_AND_CLIENT)


def asked(network, device, round):
    request = RoundRequest(round, 1, np.zeros(network.federation.dimension))
    return read(network, device.stream.handle(read(network, encode_request(request))))


def copy(network, client, here, there):
    for name in FILES:
        shutil.copy(network.home(client) / here / name, network.home(client) / there / name)


def test_an_answer_that_is_not_accepted_is_remembered_and_an_older_ledger_stops(network, site, client):
    """Nobody asked for these answers, so none is accepted; each carries the number of its release all the same."""
    (network.home(client) / "older").mkdir()
    participant(network, client).account.close()
    copy(network, client, ".", "older")
    device = participant(network, client)
    device.stream.handle(read(network, site.welcome(client)))
    for round in (7, 8):
        site.sessions._frame(client, asked(network, device, round))
    device.account.close()
    assert site.rounds.refused["late"] == 2
    assert site.store.clients()[client].accepted is None
    again = Quiet(load_site(network.home(SITE) / "site.toml"))  # the first was killed: nothing was closed or saved
    welcome = read(network, again.welcome(client))
    again.store.close()
    assert welcome.header.releases == 2
    device = participant(network, client)
    device.stream.handle(welcome)
    device.account.close()
    copy(network, client, "older", ".")
    device = participant(network, client)
    with pytest.raises(LedgerError, match=r"has 0 releases but the site has received 2.*backup"):
        device.stream.handle(welcome)
    device.account.close()


@pytest.mark.parametrize("damage", ["not a number", "too long", "a vector less", "another field"])
def test_the_release_behind_a_malformed_answer_is_remembered_and_an_older_ledger_stops(network, site, client, damage):
    device = participant(network, client)
    device.stream.handle(read(network, site.welcome(client)))
    frame = asked(network, device, 1)
    device.account.close()
    vectors = {"not a number": frame.vectors * np.nan, "too long": 1e300 * (frame.vectors + 1.0)}
    data = encode(frame.header, vectors.get(damage, frame.vectors))
    data = {"a vector less": data[:-8], "another field": data.replace(b'"clean"', b'"cleaN"')}.get(damage, data)
    stream = _ClientStream(site.streams, "192.0.2.1")
    stream._client = client
    stream.on_frame(data)
    assert site.streams.refused == {"malformed": 1}
    again = Quiet(load_site(network.home(SITE) / "site.toml"))  # the first was killed: nothing was closed or saved
    welcome = read(network, again.welcome(client))
    again.store.close()
    assert welcome.header.releases == 1
    for name in FILES:
        (network.home(client) / name).unlink()
    device = participant(network, client)
    with pytest.raises(LedgerError, match=r"has 0 releases but the site has received 1"):
        device.stream.handle(welcome)
    device.account.close()


def test_a_number_that_no_release_can_have_is_not_remembered(network, site, client):
    """Nor is one of a frame whose header cannot be read: nobody knows what it says."""
    stream = _ClientStream(site.streams, "192.0.2.1")
    stream._client = client
    for release in ("-1", "true", "2.0", "null", '"7"', str(2**53)):
        text = f'{{"round":1,"release":{release},"clean":false}}'.encode()
        stream.on_frame(struct.pack("<4sBBI", MAGIC, VERSION, Answer.kind, len(text)) + text)
    stream.on_frame(struct.pack("<4sBBI", MAGIC, VERSION, Answer.kind, 14) + b'{"release": 7,')
    assert site.streams.refused == {"malformed": 7}
    assert site.store.clients()[client].releases == 0


def test_what_a_client_reports_in_its_hello_is_remembered(network, site, client):
    """An answer may be lost on the way, or refused as malformed; the next hello reports it."""
    device = participant(network, client)
    device.stream.handle(read(network, site.welcome(client)))
    asked(network, device, 1)
    nonce = bytes(32)
    hello = read(network, _Dialogue(device.stream, device.site)._hello(nonce)).header
    assert site.sessions._authenticate(hello, nonce) == client
    assert read(network, site.welcome(client)).header.releases == 1
    device.account.close()


def test_a_site_that_cannot_remember_stops(network, site, client):
    device = participant(network, client)
    device.stream.handle(read(network, site.welcome(client)))
    site.store._db.execute(
        "CREATE TRIGGER full BEFORE UPDATE ON clients BEGIN SELECT RAISE(ABORT, 'disk is full'); END"
    )
    site.sessions._frame(client, asked(network, device, 1))
    site.sessions.save_releases()  # as the timer does
    assert [type(error) for error in site.failed] == [NetworkError]
    assert not site.rounds.refused
    device.account.close()
