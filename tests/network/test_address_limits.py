"""How a port counts addresses: one caller has one address of IPv4, but 2⁶⁴ of IPv6."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter

import pytest

from pgfl.network.protocol.listener import ConnectionLimits, Listener, counted_address

SAME = {
    "192.0.2.7": ["192.0.2.7", "::ffff:192.0.2.7", "::ffff:c000:207"],
    "2001:db8:1:2::/64": ["2001:db8:1:2::", "2001:db8:1:2::1", "2001:db8:1:2:ffff:ffff:ffff:ffff"],
    "::/64": ["::1", "::2"],
    "fe80::/64": ["fe80::1%3", "fe80::ffff:1%2"],
}


def test_addresses_of_one_caller_are_one():
    assert {address: counted_address(address) for many in SAME.values() for address in many} == {
        address: one for one, many in SAME.items() for address in many
    }


def test_neighbouring_addresses_and_networks_are_not_one():
    others = ("192.0.2.8", "2001:db8:1:3::", "2001:db8:1:2::", "2001:db8:1:1:ffff:ffff:ffff:ffff", "::ffff:192.0.2.9")
    assert len({counted_address(address) for address in others}) == len(others)


@pytest.mark.parametrize(
    ("addresses", "refused"),
    [
        ([f"2001:db8:1:2::{number:x}" for number in range(10)], 7),
        ([f"2001:db8:1:{number:x}::1" for number in range(10)], 0),
        (["192.0.2.7", "::ffff:192.0.2.7"] * 5, 7),
    ],
    ids=["one /64", "ten networks", "mapped"],
)
def test_a_port_refuses_what_one_caller_opens_beyond_its_share(addresses, refused):
    async def scenario():
        hosts, hung_up, all_came = [], asyncio.Event(), asyncio.Event()
        coming = iter([(address, 1234, 0, 0) for address in addresses])

        async def visit(connection, host):
            hosts.append(host)
            with connection:
                await hung_up.wait()

        async def accept(listening):
            address = next(coming, None)
            if address is None:
                all_came.set()
                await asyncio.Event().wait()
            return socket.socket(), address

        listener = Listener(visit, Counter(), ConnectionLimits(per_address=3))
        asyncio.get_running_loop().sock_accept = accept
        listener.open("127.0.0.1:0")
        await all_came.wait()
        await asyncio.sleep(0)
        assert (len(hosts), listener.refused["connections"]) == (len(addresses) - refused, refused)
        hung_up.set()
        await listener.close()
        assert not listener._open, "those who left are not counted any more"

    asyncio.run(scenario())
