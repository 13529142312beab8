"""Calls through an HTTP proxy, and connections that a load balancer announces."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import Counter
from contextlib import suppress
from ipaddress import ip_network

import pytest

from pgfl.errors import ConfigError
from pgfl.network.client.settings import load_client
from pgfl.network.protocol import identity
from pgfl.network.protocol.connection import TlsTransport
from pgfl.network.protocol.listener import ConnectionLimits, Listener
from pgfl.network.protocol.proxies import DIRECT, Proxies, Proxy
from pgfl.network.protocol.proxy_header import SIGNATURE, BadHeader, is_among, source_of
from pgfl.network.settings import toml_of
from pgfl.network.site.settings import load_site
from tests.network.connect_proxy import ConnectProxy
from tests.network.test_settings import CLIENT, SITE, written
from tests.network.test_streams import Host, stream

AWAY = "north.example.org:9094"  # which nobody but the proxy of a test can reach


def place(tmp_path, questions=2):
    """A site, and a client that it admits."""
    key = identity.create_client(tmp_path / "ann", "ann")
    private = identity.read_client_key(tmp_path / "ann" / identity.CLIENT_KEY)
    return Host(tmp_path / "site", key, questions), private


async def called(host, private, proxies, address=AWAY, handle=lambda frame: None):
    """How a client's stream to an address ends, through these proxies."""
    calling = stream(host, private, handle)
    calling.transport = TlsTransport(proxies)
    try:
        return await calling.run(address)
    finally:
        calling.computing.shutdown()


@pytest.mark.parametrize("secret", [None, "ann:s%40c%3Aret"])
def test_a_client_takes_part_through_a_proxy_with_and_without_a_password(tmp_path, secret):
    host, private = place(tmp_path, questions=0)

    async def scenario():
        async with host.here() as address, ConnectProxy(secret=secret and "ann:s@c:ret") as proxy:
            proxy.ways[AWAY] = int(address.rpartition(":")[2])
            ended = await called(host, private, Proxies.stated(proxy.url(secret), None, {}))
            return ended, proxy.asked

    ended, asked = asyncio.run(scenario())
    assert (ended.how, ended.reason) == ("stopped", "done")
    assert [head.split(b"\r\n")[0] for head in asked] == [b"CONNECT north.example.org:9094 HTTP/1.1"]


def test_the_certificate_is_pinned_through_a_proxy(tmp_path):
    """A proxy that leads to another site learns nothing but the address: no hello is ever said."""
    host, private = place(tmp_path)
    (tmp_path / "other").mkdir()
    impostor, _ = place(tmp_path / "other")

    async def scenario():
        async with impostor.here() as address, ConnectProxy() as proxy:
            proxy.ways[AWAY] = int(address.rpartition(":")[2])
            return await called(host, private, Proxies.stated(proxy.url(), None, {}))

    ended = asyncio.run(scenario())
    assert (ended.how, ended.reason) == ("lost", "the certificate that it shows is not the pinned one")
    assert not impostor.answers
    assert impostor.streams.refused["stream"] == 0, "nobody got as far as a hello"


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (None, r"does not open the way to north.example.org:9094 \(status 403\)"),
        (b"HTTP/1.1 407 no\r\n\r\n", "wants a name and a password"),
        (b"SSH-2.0-x\r\n\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\n\r\nand more", "before the other end was asked"),
        (b"HTTP/1.1 200 OK\r\n", "disconnected"),
        (b"x" * 20_000, "does not speak HTTP"),
        (b"HTTP/1.1 502 <script>\r\n\r\n", r"\(status 502\)"),
    ],
)
def test_a_proxy_that_does_not_lead_on_is_one_reason_without_its_words_or_the_password(tmp_path, reply, words):
    host, private = place(tmp_path)

    async def scenario():
        async with ConnectProxy(reply=reply) as proxy:
            return await called(host, private, Proxies.stated(proxy.url("ann:secret"), None, {}))

    ended = asyncio.run(scenario())
    assert ended.how == "lost"
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(ended.reason)
    assert "secret" not in ended.reason
    assert "script" not in ended.reason


def test_a_proxy_that_is_not_there_is_named(tmp_path):
    host, private = place(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    ended = asyncio.run(called(host, private, Proxies.stated(f"http://127.0.0.1:{port}", None, {})))
    assert f"the proxy 127.0.0.1:{port} is not reached" in ended.reason


def test_the_environment_is_heeded_unless_a_key_says_otherwise():
    outside = {"https_proxy": "http://here:3128", "no_proxy": ".example.org, 10.0.0.0/8,::1"}

    def proxy_of(address, proxy=None, no_proxy=None, environment=outside):
        return Proxies.stated(proxy, no_proxy, environment).of(address)

    assert str(proxy_of("north.example.com:1")) == "the proxy here:3128"
    assert proxy_of("north.example.org:1") is proxy_of("example.org:1") is proxy_of("10.1.2.3:1") is None
    assert proxy_of("badexample.org:1") is not None
    assert proxy_of("127.0.0.1:1") is proxy_of("localhost:1") is proxy_of("[::1]:1") is None, "this machine"
    assert proxy_of("127.0.0.1:1", proxy="http://key:1").host == "key", "who states a proxy means it"
    assert proxy_of("north.example.com:1", proxy="") is None
    assert proxy_of("north.example.org:1", no_proxy=()) is not None
    assert proxy_of("anything:1", environment={**outside, "no_proxy": "*"}) is None
    assert proxy_of("north.example.com:1", environment={}) is None
    assert DIRECT.of("north.example.com:1") is None


def test_a_password_is_never_shown():
    proxy = Proxy.parse("http://ann:secret@here:3128", "proxy")
    assert proxy.authorization is not None
    assert all("secret" not in text and proxy.authorization not in text for text in (str(proxy), repr(proxy)))
    with pytest.raises(ConfigError) as refused:
        Proxy.parse("socks5://ann:secret@here:3128", "proxy")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("url", ["socks5://here:1", "https://here:1", "http://", "http://here:port", "http://h:1/path"])
def test_a_wrong_proxy_in_a_file_is_one_sentence(tmp_path, url):
    for load, table in ((load_client, CLIENT), (load_site, SITE)):
        with pytest.raises(ConfigError, match="`proxy` must be http://host:port") as refused:
            load(written(tmp_path, {**table, "proxy": url}))
        assert "\n" not in str(refused.value)


def test_both_files_state_a_proxy(tmp_path):
    stated = {"proxy": "http://ann:secret@here:3128", "no_proxy": ["south"]}
    for load, table in ((load_client, CLIENT), (load_site, SITE)):
        (tmp_path / "x.toml").write_text(toml_of({**stated, **table}))
        proxies = load(tmp_path / "x.toml").proxies()
        assert proxies.of("south:9094") is None
        assert proxies.of("west:9094").authorization is not None


# load balancers -------------------------------------------------------------------------------------------------------


def header(source="192.0.2.7", command=0x21, more=b""):
    """A header as a balancer writes it."""
    family = socket.AF_INET6 if ":" in source else socket.AF_INET
    address = socket.inet_pton(family, source)
    content = address + address + struct.pack(">HH", 1234, 9094) + more
    return SIGNATURE + struct.pack(">BBH", command, 0x21 if ":" in source else 0x11, len(content)) + content


async def visits(balancers, *said, limits=None):
    """Who visits a port, as it counts them, with the first bytes that follow; and what is refused."""
    seen = []

    async def visit(connection, host):
        with connection:
            seen.append((host, await asyncio.wait_for(asyncio.get_running_loop().sock_recv(connection, 100), 5)))

    listener = Listener(visit, Counter(), limits or ConnectionLimits(), balancers=tuple(map(ip_network, balancers)))
    port = listener.open("127.0.0.1:0")
    for data in said:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data)
        writer.write_eof()
        with suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), 5)  # until it is closed there
        writer.close()
    left = listener._open.total()
    await listener.close()
    return seen, dict(listener.refused), left


def test_a_stated_balancer_says_who_calls_and_nothing_of_what_follows_is_read():
    said = [
        header() + b"hello",
        header("2001:db8:1:2::9", more=b"\x04\0\1x") + b"six",
        header(command=0x20) + b"local",
    ]
    seen, refused, left = asyncio.run(visits(["127.0.0.0/8"], *said))
    assert seen == [("192.0.2.7", b"hello"), ("2001:db8:1:2::/64", b"six"), ("127.0.0.1", b"local")]
    assert (refused, left) == ({}, 0)


@pytest.mark.parametrize("balancers", [[], ["192.0.2.0/24"]])
def test_nobody_else_is_believed(balancers):
    seen, _, _ = asyncio.run(visits(balancers, header() + b"hello"))
    assert [host for host, _ in seen] == ["127.0.0.1"]
    assert seen[0][1].startswith(SIGNATURE), "it is left for TLS to refuse"


@pytest.mark.parametrize(
    "said",
    [b"", b"hello, this is no header at all", SIGNATURE, header()[:-3], header(command=0x31), header(more=b"x" * 5000)],
)
def test_a_balancer_that_does_not_say_who_calls_is_refused(said):
    seen, refused, left = asyncio.run(visits(["127.0.0.1/32"], said))
    assert (seen, refused, left) == ([], {"proxy header": 1}, 0)


def test_a_balancer_that_says_nothing_is_refused_in_time():
    async def scenario():
        listener = Listener(None, Counter(), ConnectionLimits(handshake=0.05), balancers=(ip_network("127.0.0.1/32"),))
        port = listener.open("127.0.0.1:0")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()
        await listener.close()
        return listener.refused

    assert asyncio.run(scenario()) == {"proxy header": 1}


def test_limits_are_those_of_the_callers_behind_a_balancer():
    async def scenario():
        hosts, over = [], asyncio.Event()

        async def visit(connection, host):
            hosts.append(host)
            with connection:
                await over.wait()

        limits, balancers = ConnectionLimits(per_address=2), (ip_network("127.0.0.1/32"),)
        listener = Listener(visit, Counter(), limits, balancers=balancers)
        port = listener.open("127.0.0.1:0")
        writers = []
        for source in ("192.0.2.7", "192.0.2.7", "192.0.2.7", "192.0.2.8", "192.0.2.8", "192.0.2.9"):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(header(source))
            writers.append(writer)
        while len(hosts) + listener.refused["connections"] < len(writers):
            await asyncio.sleep(0.01)
        over.set()
        for writer in writers:
            writer.close()
        await listener.close()
        return Counter(hosts), listener.refused["connections"], listener._open.total()

    hosts, refused, left = asyncio.run(scenario())
    assert hosts == {"192.0.2.7": 2, "192.0.2.8": 2, "192.0.2.9": 1}
    assert (refused, left) == (1, 0)


def test_what_a_header_can_say():
    assert source_of(0x21, 0x00, b"") is None, "the balancer does not know"
    assert source_of(0x20, 0x11, b"x") is None
    with pytest.raises(BadHeader):
        source_of(0x21, 0x21, b"x" * 20)
    assert is_among("::ffff:10.0.0.7", (ip_network("10.0.0.0/8"),))
    assert not is_among("fe80::1%3", (ip_network("10.0.0.0/8"),))


def test_a_site_listens_behind_a_balancer_where_its_operator_says_so(tmp_path):
    listening = load_site(written(tmp_path, {**SITE, "listen": {"balancers": ["10.1.0.7", "fd00::/8"]}})).listen
    assert [str(one) for one in listening.networks()] == ["10.1.0.7/32", "fd00::/8"]
    assert load_site(written(tmp_path, SITE)).listen.networks() == ()
    with pytest.raises(ConfigError, match=r"`listen.balancers` must be addresses"):
        load_site(written(tmp_path, {**SITE, "listen": {"balancers": ["router"]}}))
