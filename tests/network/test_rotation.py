"""New certificates and keys while training runs: nobody is stopped, and what was before is trusted no more."""

from __future__ import annotations

import asyncio
import json

import pytest

from pgfl.errors import NetworkError
from pgfl.network.protocol import identity
from pgfl.network.protocol.identity import SiteCertificate
from pgfl.network.rotation import PINS, RotatedFile, SitePins, next_of, prepare_site, switch_site
from tests.command_line import run
from tests.network.test_site_alive import SITE, network_of, site_of, taking_part, until


def said(*arguments, code=0):
    outcome = run(*map(str, arguments))
    assert outcome.code == code, outcome.err
    return outcome.out if code == 0 else outcome.err


def certificate(network, site):
    return SiteCertificate.read(network.home(site) / identity.SITE_CERTIFICATE)


@pytest.mark.proof
def test_a_site_and_a_client_rotate_while_training_runs(tmp_path):
    network = network_of(tmp_path, sites=2, quorum={})
    here, there = network.federation.server_ids
    client = network.clients_of(here)[0]
    home, device = network.home(here), network.home(client)
    settings = device / "client.toml"
    before, key = certificate(network, here), (device / identity.CLIENT_KEY).read_bytes()
    pins = SitePins(device / PINS, before.fingerprint)

    def rotate():
        assert "hand it out" in said("site", "rotate", "--home", home)
        coming = next_of(home / identity.SITE_CERTIFICATE)
        assert "may switch" in said("site", "trust", coming, "--home", network.home(there), "--wait", 0)
        assert "may switch" in said("client", "trust", settings, coming)
        said("client", "rotate", settings)
        assert f"{client} has the key" in said("site", "rekey", device / "client.rotation", "--home", home, "--wait", 0)

    async def scenario():
        sites = [site_of(network, name) for name in (here, there)]
        running = [asyncio.create_task(site.run()) for site in sites]

        async def more_rounds():
            start = max(site.rounds.round for site in sites)
            await until(lambda: all(site.rounds.round > start + 3 for site in sites))

        with taking_part(network, *network.federation.client_ids) as ends:
            await more_rounds()
            await asyncio.to_thread(rotate)
            await until(lambda: sites[1].peers.neighbours[here].coming is not None)
            await more_rounds()
            said("site", "rotate", "--switch", "--home", home)
            await until(lambda: sites[0].state.certificate.certificate == certificate(network, here) != before)
            await until(lambda: sites[1].peers.neighbours[here].coming is None)
            await more_rounds()
            sites[0].sessions.streams.close(client)  # the link breaks, and the client comes back
            await until(
                lambda: not next_of(device / identity.CLIENT_KEY).exists() and before.fingerprint not in pins.accepted()
            )
            await more_rounds()
            assert not ends, "nobody ended"
        for site in sites:
            site.stop("enough")
        await asyncio.gather(*running)
        return sites

    sites = asyncio.run(scenario())
    assert pins.accepted() == {certificate(network, here).fingerprint}
    assert (device / identity.CLIENT_KEY).read_bytes() != key
    assert sites[1].peers.neighbours[here].certificate == certificate(network, here)
    assert set(network.history(here)[-1]["accepted"]) == set(network.clients_of(here))
    assert network.history(here)[-1]["neighbours"] == [there]


def test_a_key_that_the_present_one_did_not_sign_is_refused(tmp_path):
    network = network_of(tmp_path)
    home, client = network.home(SITE), network.clients_of(SITE)[0]
    said("client", "rotate", network.home(client) / "client.toml")
    path = network.home(client) / "client.rotation"
    rotation = json.loads(path.read_text())
    stranger = identity.create_client(tmp_path / "stranger", "stranger")
    for wrong, words in (
        ({**rotation, "new": stranger.line}, "not signed"),
        ({**rotation, "signature": "00"}, "not signed"),
        ({}, "not a client's rotation"),
    ):
        path.write_text(json.dumps(wrong))
        assert words in said("site", "rekey", path, "--home", home, code=2)
    path.write_text(json.dumps(rotation))
    said("site", "rekey", path, "--home", home)
    assert "No client with the key" in said("site", "rekey", path, "--home", home, code=2)


def test_only_the_next_certificate_of_a_linked_site_is_trusted(tmp_path):
    network = network_of(tmp_path)
    identity.create_site(tmp_path / "other", "other", [])
    assert "No site other is linked" in said(
        "site", "trust", tmp_path / "other" / "site.crt", "--home", network.home(SITE), code=2
    )


OLD, NEW, NEWER = "aa" * 32, "bb" * 32, "cc" * 32


def test_a_client_accepts_the_next_fingerprint_beside_the_present_until_it_is_shown(tmp_path):
    pins = SitePins(tmp_path / "pins", OLD)
    assert pins.accepted() == {OLD}
    assert not pins.saw(OLD)
    pins.trust(NEW)
    assert pins.accepted() == {OLD, NEW}
    assert not pins.saw(OLD), "it has not switched yet"
    assert pins.saw(NEW)
    assert pins.accepted() == {NEW}, "the one before is trusted no more"
    assert not pins.saw(NEW)
    pins.trust(NEWER)
    assert pins.accepted() == {NEW, NEWER}
    assert pins.saw(NEWER)
    assert SitePins(tmp_path / "pins", OLD).accepted() == {NEWER}, "kept"
    assert SitePins(tmp_path / "pins", NEW).accepted() == {NEW}, "what the owner writes into client.toml counts"


@pytest.mark.parametrize("text", ["", "[]", "{}", f'{{"written": "{OLD}"}}'])
def test_a_damaged_file_of_pins_is_one_sentence(tmp_path, text):
    (tmp_path / "pins").write_text(text)
    with pytest.raises(NetworkError, match="delete it and write"):
        SitePins(tmp_path / "pins", OLD).accepted()


def test_a_switch_that_was_interrupted_is_finished_by_another(tmp_path):
    identity.create_site(tmp_path, "north", [])
    coming = prepare_site(tmp_path, [])
    assert prepare_site(tmp_path, []) == coming, "made once"
    next_of(tmp_path / identity.SITE_KEY).replace(tmp_path / identity.SITE_KEY)  # and then the power failed
    assert switch_site(tmp_path) == coming
    with pytest.raises(Exception, match="no next certificate"):
        switch_site(tmp_path)


def test_the_present_file_is_tried_first_and_replaced_only_by_one_that_worked(tmp_path):
    present = tmp_path / "key"
    present.write_text("old")
    files = RotatedFile(present)
    assert not files.try_other()
    assert not files.worked()
    next_of(present).write_text("new")
    assert files.try_other()
    assert files.path == next_of(present)
    assert not files.try_other(), "back to the present one"
    assert files.path == present
    assert files.try_other()
    assert files.worked()
    assert (present.read_text(), next_of(present).exists()) == ("new", False)
