"""What operators and owners type, up to the point where processes would start."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from contextlib import closing

import pytest

from pgfl.demo import demo_federation, demo_training
from pgfl.network.client.settings import load_client
from pgfl.network.local import LocalNetwork
from pgfl.network.processes import exclusive_lock
from pgfl.network.protocol import identity
from pgfl.network.site.reports import LIVE
from pgfl.network.site.settings import load_site
from pgfl.network.site.site import Site
from pgfl.network.site.store import LOCK, STORE, SiteStore
from tests.command_line import process, refused, run


def done(*arguments):
    """What a command that succeeds prints."""
    code, out, err = run(*arguments)
    assert code == 0, err
    return out


def test_a_site_is_set_up_with_a_few_commands(tmp_path):
    north, south, ann = tmp_path / "north", tmp_path / "south", tmp_path / "ann"
    for command in (
        ("site", "init", "north", "--host", "north.example.org", "--home", north),
        ("site", "init", "south", "--home", south),
        ("client", "init", "ann", "--home", ann),
        ("site", "link", south / "site.crt", "--address", "south:9094", "--home", north),
        ("site", "admit", ann / "client.pub", "--cluster", "adults", "--home", north),
    ):
        assert done(*command).count("fingerprint") == 1
    status = json.loads(done("site", "status", "--json", "--home", north))
    assert status["clients"] == [
        {"name": "ann", "cluster": "adults", "releases": 0, "accepted": None}
        | {"trust": "local", "epsilon": None, "delta": None, "spent": None, "epsilon_left": None, "answers": {}}
    ]
    assert status["neighbours"] == [{"name": "south", "address": "south:9094"}]
    assert status["running"] is False
    assert "ann" in done("site", "status", "--home", north)
    done("site", "expel", "ann", "--home", north)


def test_a_port_in_use_is_one_sentence(tmp_path):
    done("site", "init", "north", "--home", tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        written = (tmp_path / "site.toml").read_text().replace("port = 9094", f"port = {port}")
        (tmp_path / "site.toml").write_text(written.replace("0.0.0.0", "127.0.0.1"))
        ended = process("site", "serve", tmp_path / "site.toml")
    assert ended.returncode == 2
    assert f"pgfl: Port {port} cannot be listened on" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(("sites", "clients", "clusters"), [(1, 1, 1), (1, 2, 2), (4, 1, 2)])
def test_the_demo_fits_any_size(sites, clients, clusters):
    federation = demo_federation(sites, clients, "huber", seed=0)
    assert len(demo_training(federation, "huber", 3).clusters) == clusters


def test_the_templates_are_valid(tmp_path):
    done("site", "init", "north", "--home", tmp_path)
    assert "the noise of the first release is" in done("client", "init", "ann", "--home", tmp_path)
    assert load_site(tmp_path / "site.toml").name == "north"
    assert load_client(tmp_path / "client.toml").privacy.enabled
    site = Site(load_site(tmp_path / "site.toml"))
    assert site.role.usual.most == 10.0, "clients and neighbours are bounded by default"
    site.store.close()


def test_a_settings_file_means_its_folder_wherever_it_stands(tmp_path):
    done("site", "init", "north", "--home", tmp_path)
    folder, file = ("--home", tmp_path), tmp_path / "site.toml"
    said = {done("site", "status", *home) for home in (folder, ("--home", file), (f"--home={file}",), (file,))}
    assert len(said) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("site", "status", "--home", "nowhere"), "not a site's folder"),
        (("site", "serve", "nowhere.toml"), "cannot be read"),
        (("client", "join", "nowhere.toml"), "cannot be read"),
        (("site", "init", "no/good"), "letters, digits"),
        (("network", "demo", "--objective", "lasso"), "huber, ridge or logistic"),
    ],
)
def test_a_mistake_is_one_sentence_and_code_2(tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert words in refused(*arguments)


def test_a_cluster_that_is_not_trained_is_refused_at_once_and_stops_a_site_that_no_longer_trains_it(tmp_path):
    done("site", "init", "north", "--home", tmp_path)
    done("client", "init", "ann", "--home", tmp_path)
    admit = ("site", "admit", tmp_path / "client.pub", "--home", tmp_path, "--cluster")
    said = refused(*admit, "adult")
    assert "There is no cluster 'adult' (did you mean adults?)." in said
    settings = tmp_path / "site.toml"
    Site(load_site(settings)).store.close()
    moved = settings.rename(tmp_path / "elsewhere.toml")
    assert "There is no cluster 'adult'" in refused(*admit, "adult"), "as the site remembers from its last start"
    assert "applied when the site starts" in done(*admit, "adults")
    settings.write_text(moved.read_text().replace('"adults", ', ""))
    code, _, err = run("site", "serve", settings)
    assert code == 2
    assert "cluster adults, which training.clusters does not name" in err


def test_a_running_site_acknowledges_every_change_and_one_mistake_does_not_hold_up_the_others(tmp_path, caplog):
    federation = demo_federation(1, 1, "huber", seed=0)
    network = LocalNetwork(tmp_path, federation, demo_training(federation, "huber", 10**6), {"enabled": False})
    network.prepare()
    home, ann = tmp_path / "server-0", tmp_path / "ann"
    done("client", "init", "ann", "--home", ann)
    stranger = identity.create_client(tmp_path / "typo", "typo")

    def operate():
        said = [done("site", "admit", ann / "client.pub", "--cluster", "cluster-0", "--home", home)]
        with closing(SiteStore(home / STORE)) as store:
            store.admit("typo", stranger, "martians")  # as an older pgfl accepted it
        return [*said, done("site", "expel", "ann", "--home", home)]

    async def serve():
        site = Site(load_site(home / "site.toml"))
        running = asyncio.create_task(site.run())
        said = await asyncio.to_thread(operate)
        site.stop("enough")
        await running
        return said, site.rounds.admitted

    with exclusive_lock(home / LOCK, "site"):
        said, admitted = asyncio.run(serve())
    assert [text.count("applied from round 1.") for text in said] == [1, 1]
    assert admitted == set(federation.client_ids)
    assert "client typo is in cluster martians, which is not trained" in caplog.text


@pytest.mark.parametrize("garbage", [b"", b"{", b"[1]", b"\xff\xfe", b"null", b'{"budgets": 3}', b'{"up": 7}'])
def test_status_survives_whatever_is_in_the_live_file(tmp_path, garbage):
    done("site", "init", "north", "--home", tmp_path)
    (tmp_path / LIVE).write_bytes(garbage)
    with exclusive_lock(tmp_path / LOCK, "site"):
        assert json.loads(done("site", "status", "--json", "--home", tmp_path))["running"] is True


def test_neighbours_with_another_training_configuration_are_refused_by_name(tmp_path, caplog):
    federation = demo_federation(2, 1, "huber", seed=0)
    network = LocalNetwork(tmp_path, federation, demo_training(federation, "huber", 5), {"enabled": False})
    network.prepare()
    path = tmp_path / "server-1" / "site.toml"
    path.write_text(path.read_text().replace("rounds = 5", "rounds = 6"))

    async def both():
        sites = [Site(load_site(tmp_path / name / "site.toml")) for name in federation.server_ids]
        running = [asyncio.create_task(site.run()) for site in sites]
        for _ in range(4000):
            await asyncio.sleep(0.05)
            if all(site.peers.service.refused["refused"] for site in sites):
                break
        up = [set(site.rounds.up) for site in sites]
        for site in sites:
            site.stop("enough")
        await asyncio.gather(*running)
        return up

    with caplog.at_level(logging.WARNING):
        assert asyncio.run(both()) == [set(), set()]
    for name in federation.server_ids:
        assert f"site {name}: refused, it has another training configuration" in caplog.text
