"""Sites and clients of a `LocalNetwork` in this process, over real TLS sockets: quick to start."""

from __future__ import annotations

from pgfl.network import memory
from pgfl.network.client.settings import load_client
from pgfl.network.protocol.connection import TLS
from pgfl.network.protocol.identity import SITE_CERTIFICATE, SiteCertificate


def train_in_process(network, seconds=400.0, peer_address=None, client_port=int):
    """Prepare a `LocalNetwork` and train it here; returns why each site and client ended.

    `peer_address(from, to)` and `client_port(port)` lead links and streams another way.
    """
    network.prepare(peer_address)
    addresses = {client: address(network, client, client_port) for client in network.federation.client_ids}
    return memory.train(network, TLS, seconds, addresses)


def participant(network, client, client_port=int):
    """A client; `client_port(port)` leads its stream another way."""
    joining = memory.participant(network, client, address=address(network, client, client_port))
    home = next(network.home(site) for site in network.federation.server_ids if client in network.clients_of(site))
    joining.stream.shown = SiteCertificate.read(home / SITE_CERTIFICATE)  # for tests without a stream
    return joining


def address(network, client, client_port):
    host, _, port = load_client(network.home(client) / "client.toml").site.address.rpartition(":")
    return f"{host}:{client_port(int(port))}"
