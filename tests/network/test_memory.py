"""The memory transport: whole trainings without sockets, and the same refusals as over TLS."""

import asyncio
import socket
from types import SimpleNamespace

import pytest

from pgfl.demo import demo_federation, demo_privacy, demo_timing, demo_training, largest_difference
from pgfl.network import memory
from pgfl.network.local import LocalNetwork
from pgfl.network.memory import MemoryTransport
from pgfl.network.protocol import identity
from pgfl.network.protocol.connection import Callee
from pgfl.network.protocol.tls_frames import KEEP_ALIVE, PEER_DISCONNECTED, BadConnection

ADDRESS = "127.0.0.1:7"


@pytest.mark.parametrize(("trust", "clients"), [("local", 2), ("site", 2), ("masked", 4)])
def test_a_training_without_sockets_equals_the_simulator(tmp_path, monkeypatch, trust, clients):
    def forbidden(*_, **__):
        raise AssertionError("a socket was connected")

    federation = demo_federation(2, clients, "huber", seed=0, trust=trust)
    network = LocalNetwork(
        tmp_path, federation, demo_training(federation, "huber", 3, trust), demo_privacy("huber", 20.0, 3, trust),
        demo_timing(), record_noise=True,
    )  # fmt: skip
    network.prepare()
    monkeypatch.setattr(asyncio.BaseEventLoop, "create_connection", forbidden)
    monkeypatch.setattr(socket, "create_server", forbidden)
    ends = memory.train(network)
    assert set(ends.values()) == {"all rounds are done"}
    assert len(ends) == 2 + 2 * clients
    assert largest_difference(network) < 1e-10


class Heard:
    """A conversation that keeps what happens."""

    def __init__(self, fails=False):
        self.frames, self.why, self.connection, self.fails = [], "open", None, fails

    def on_open(self, connection):
        self.connection = connection

    def on_frame(self, frame):
        self.frames.append(frame)
        if self.fails:
            raise KeyError("planted")

    def on_close(self, why):
        self.why = why


class Place:
    """A site that listens in memory, and those who call it."""

    def __init__(self, folder, trusted=b"", fails=False):
        self.known = identity.create_site(folder / "north", "north", [])
        self.callers, self.transport = [], MemoryTransport()
        self.endpoint = SimpleNamespace(
            certificate=folder / "north" / "site.crt", trusted=lambda: trusted, first_bytes=10,
            converse=lambda host: self.callers.append(Heard(fails)) or self.callers[-1],
        )  # fmt: skip

    async def call(self, *, address=ADDRESS, **callee):
        said = Heard()
        callee = callee or {"fingerprints": {self.known.fingerprint}}
        await self.transport.call(Callee(address, **callee), said, 1000, 1000, KEEP_ALIVE)
        await settle()
        return said


async def settle():
    for _ in range(10):
        await asyncio.sleep(0)


def run(place, scenario):
    async def listening():
        port = place.transport.listen(place.endpoint)
        port.open(ADDRESS)
        await scenario(port)

    asyncio.run(listening())


def test_frames_arrive_in_order_and_a_pause_holds_them_back(tmp_path):
    place = Place(tmp_path)

    async def scenario(port):
        said = await place.call()
        (caller,) = place.callers
        assert caller.connection.certificate is None and said.connection.certificate is not None
        caller.connection.pause()
        said.connection.send(b"one")
        said.connection.send(b"two")
        said.connection.close()
        said.connection.send(b"too late")
        await settle()
        assert (caller.frames, caller.why, said.why) == ([], "open", None)
        caller.connection.resume()
        await settle()
        assert (caller.frames, caller.why) == ([b"one", b"two"], PEER_DISCONNECTED)

    run(place, scenario)


def test_a_port_that_is_closed_disconnects_everyone_and_is_free_again(tmp_path):
    place = Place(tmp_path)

    async def scenario(port):
        said = await place.call()
        with pytest.raises(OSError, match="in use"):
            place.transport.listen(place.endpoint).open(ADDRESS)
        await port.close()
        await settle()
        assert said.why == PEER_DISCONNECTED
        with pytest.raises(BadConnection, match="no site"):
            await place.call()
        place.transport.listen(place.endpoint).open(ADDRESS)

    run(place, scenario)


@pytest.mark.parametrize("fails", [False, True])
def test_a_long_frame_or_a_failure_ends_this_connection_only(tmp_path, fails):
    place = Place(tmp_path, fails=fails)

    async def scenario(port):
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        said, other = await place.call(), await place.call()
        said.connection.send(b"12345" if fails else b"longer than ten")
        await settle()
        assert said.why == PEER_DISCONNECTED
        assert ("could not be handled" if fails else "longer than the 10 allowed") in place.callers[0].why
        assert other.why == "open"

    run(place, scenario)


def test_pins_and_links_are_checked_as_over_tls(tmp_path):
    south = identity.create_site(tmp_path / "south", "south", [])
    east = identity.create_site(tmp_path / "east", "east", [])
    place = Place(tmp_path, trusted=south.pem)
    own = {name: tmp_path / name / "site.crt" for name in ("south", "east")}

    async def scenario(port):
        with pytest.raises(BadConnection, match="not the pinned one"):
            await place.call(fingerprints={south.fingerprint})
        with pytest.raises(BadConnection, match="not the pinned one"):
            await place.call(trusted=east.pem, certificate=own["south"])
        with pytest.raises(BadConnection, match="does not trust"):
            await place.call(trusted=place.known.pem, certificate=own["east"])
        await place.call(trusted=place.known.pem, certificate=own["south"])
        assert [caller.connection is not None for caller in place.callers] == [False, False, False, True]
        assert place.callers[-1].connection.certificate is not None
        assert "not linked" in place.callers[2].why

    run(place, scenario)
