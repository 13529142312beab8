"""What stands in front of a site's port: limits on connections and on handshakes."""

from __future__ import annotations

import socket
import time

import pytest

from pgfl.network.protocol import identity
from tests.command_line import wait_for
from tests.network.test_streams import Host, ended, stream


@pytest.mark.proof
def test_a_thousand_idle_connections_do_not_lock_a_client_out(tmp_path):
    """All from the address of the client itself, which is the worst place: they are gone after a handshake's time."""
    key = identity.create_client(tmp_path / "ann", "ann")
    private = identity.read_client_key(tmp_path / "ann" / identity.CLIENT_KEY)
    with Host(tmp_path / "site", key) as host:
        idle = [socket.create_connection(("127.0.0.1", host.port)) for _ in range(1000)]

        def welcome():
            time.sleep(0.1)
            return ended(stream(host, private), host.port).how == "stopped"

        assert wait_for(welcome)
        for connection in idle:
            connection.close()
    assert host.site_port.refused["connections"] >= 700
