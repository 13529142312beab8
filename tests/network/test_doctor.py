"""The doctor finds what keeps a site or a client from working, and says what to do."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import closing, suppress

import pytest

from pgfl.network import doctor
from pgfl.network.doctor import _shown, examine_client, examine_site
from pgfl.network.protocol import identity
from pgfl.network.protocol import identity as pinned_tls
from pgfl.network.site.settings import load_site
from pgfl.network.site.store import STORE, SiteStore
from tests.command_line import run
from tests.network.client_folders import client_folder
from tests.network.test_site_alive import SITE, network_of


def advice(findings):
    return {found.what: found.advice for found in findings if not found.good}


@pytest.fixture
def site(tmp_path):
    network = network_of(tmp_path, sites=2)
    return network.home(SITE)


def test_a_site_in_order_with_a_neighbour_that_does_not_run(site):
    findings = examine_site(load_site(site / "site.toml"))
    (unreached,) = advice(findings).values()
    assert "is it running" in unreached
    said = run("site", "doctor", site / "site.toml")
    assert said.code == 1
    assert "ok    pgfl" in said.out
    assert "FIX   neighbour server-1" in said.out
    assert said.err == ""
    assert len(json.loads(run("site", "doctor", "--json", site / "site.toml").out)) == len(findings)


def test_a_site_out_of_order(site):
    settings = load_site(site / "site.toml")
    (site / "site.key").chmod(0o644)
    with socket.create_server(("127.0.0.1", settings.listen.port)):
        found = advice(examine_site(settings.model_copy(update={"name": "west"})))
    assert f"chmod 600 {site / 'site.key'}" in found.values()
    assert any("change listen.port" in say for say in found.values())
    assert any("calls this site west" in say for say in found.values())
    with closing(SiteStore(site / STORE)) as store:
        store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = bytearray((site / STORE).read_bytes())
    place = content.index(b"127.0.0.1:")
    content[place] ^= 1
    (site / STORE).write_bytes(content)
    assert any("is damaged" in say for say in advice(examine_site(settings)).values())


def test_a_client_in_order_but_for_its_site(tmp_path, monkeypatch):
    from pgfl.network.client.settings import load_client

    monkeypatch.setattr(doctor, "_REPLY_SECONDS", 0.05)
    path = client_folder(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        text = path.read_text().replace("127.0.0.1:1", f"127.0.0.1:{listening.getsockname()[1]}")
        path.write_text(text)
        assert advice(examine_client(load_client(path))) == {}
        assert run("client", "doctor", path).code == 0
    path.write_text(text.replace('"y"', '"z"') if '"y"' in text else f'target = "z"\n{text}')
    found = advice(examine_client(load_client(path)))
    assert any("is not reached" in what for what in found)
    assert any("z" in say for what, say in found.items() if what == "data")


@pytest.mark.parametrize("pinned", [True, False])
def test_a_site_that_shows_another_certificate_is_named(tmp_path, pinned):
    from pgfl.network.client.settings import load_client

    settings = load_client(client_folder(tmp_path))
    folder = tmp_path / ("site" if pinned else "other")
    if not pinned:
        identity.create_site(folder, "north", [])
    tls = pinned_tls.server_context(folder / identity.SITE_CERTIFICATE, folder / identity.SITE_KEY)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer():
            with suppress(OSError), tls.wrap_socket(listening.accept()[0], server_side=True) as caller:
                caller.recv(1)

        threading.Thread(target=answer, daemon=True).start()
        site = settings.site.model_copy(update={"address": f"127.0.0.1:{listening.getsockname()[1]}"})
        (finding,) = _shown(settings.model_copy(update={"site": site}))
    assert finding.good is pinned
    assert "certificate" in finding.what
