"""A network whose every call goes through tinyproxy, an HTTP proxy of Debian, which wants a password."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess

import pytest

from pgfl.demo import Scenario
from pgfl.network import processes
from tests.command_line import wait_for

pytestmark = pytest.mark.proof
ADVICE = (
    "This test needs tinyproxy, and it was not found. Install it (Debian: sudo apt-get install tinyproxy-bin), or run "
    "the test as root, which does so."
)
CONFIG = """
Port {port}
Listen 127.0.0.1
Timeout 600
MaxClients 50
LogFile "{log}"
LogLevel Connect
BasicAuth ann secret
"""


def tinyproxy():
    """The program, installed where that is possible."""
    if not shutil.which("tinyproxy") and hasattr(os, "getuid") and os.getuid() == 0 and shutil.which("apt-get"):
        quiet = {"stdout": subprocess.DEVNULL, "env": {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}}
        subprocess.run(["apt-get", "update", "-qq"], check=False, **quiet)
        install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "tinyproxy-bin"]
        subprocess.run(install, check=False, **quiet)
    found = shutil.which("tinyproxy")
    if found is None:
        raise RuntimeError(ADVICE)
    return found


@pytest.fixture
def proxy(tmp_path):
    """A running proxy: its address, and its log."""
    port, log = processes.free_port(), tmp_path / "proxy.log"
    (tmp_path / "proxy.conf").write_text(CONFIG.format(port=port, log=log))
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    running = subprocess.Popen([tinyproxy(), "-d", "-c", tmp_path / "proxy.conf"], **quiet)
    try:
        wait_for(lambda: listens(port), 60)
        yield f"127.0.0.1:{port}", log
    finally:
        running.terminate()
        running.wait(10)


def listens(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def lead_through(network, url):
    """Write the proxy into every site's and client's settings."""
    for name in (*network.federation.server_ids, *network.federation.client_ids):
        kind = "site" if name in network.federation.server_ids else "client"
        path = network.home(name) / f"{kind}.toml"
        path.write_text(f'proxy = "{url}"\n{path.read_text()}')


def test_a_network_trains_through_a_proxy_with_a_password_and_not_without(tmp_path, proxy):
    address, log = proxy
    network = Scenario(sites=2, clients=1, rounds=3).network(tmp_path / "net")
    network.prepare()
    lead_through(network, f"http://ann:secret@{address}")
    everyone = (*network.federation.server_ids, *network.federation.client_ids)
    shut_out = network.federation.client_ids[0]
    path = network.home(shut_out) / "client.toml"
    right = path.read_text()
    path.write_text(right.replace("ann:secret@", ""))
    try:
        network.start(*everyone)
        wait_for(lambda: "wants a name and a password" in network.log(shut_out), 120)
        network.terminate(shut_out)
        path.write_text(right)
        network.start(shut_out)
        network.wait(lambda: len(network.ended()) == len(everyone), 200, "the end of training")
        assert set(network.ended().values()) == {0}
        assert [network.round_of(site) for site in network.federation.server_ids] == [3, 3]
    finally:
        network.stop()
    said = log.read_text(errors="replace")
    for site in network.federation.server_ids:
        assert f"CONNECT 127.0.0.1:{network.ports[site]}" in said, "every site is called through the proxy"
    assert all("secret" not in network.log(name) for name in everyone)
