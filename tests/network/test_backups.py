"""Backups come back whole, and an account never comes back with fewer releases than it has made."""

from __future__ import annotations

import io
import shutil
import tarfile
from contextlib import closing

import pytest

from pgfl.demo import demo_federation, demo_training
from pgfl.network.local import LocalNetwork
from pgfl.network.processes import exclusive_lock
from pgfl.network.site.store import STORE, SiteStore
from pgfl.privacy.ledger.ledger import Ledger
from pgfl.privacy.request import Privacy
from tests.command_line import run
from tests.network.inprocess import participant, train_in_process

POLICY = {"enabled": True, "phi0": 1e-6, "zeta": 1.0, "max_releases": 50, "x_norm": 3.0}
SITE, CLIENT, ROUNDS = "server-0", "client-0", 3


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    federation = demo_federation(1, 1, "huber", seed=0)
    network = LocalNetwork(folder, federation, demo_training(federation, "huber", ROUNDS), POLICY)
    train_in_process(network)
    return network


@pytest.fixture
def network(trained, tmp_path):
    shutil.copytree(trained.folder, tmp_path / "net")
    federation = trained.federation
    return LocalNetwork(tmp_path / "net", federation, trained.training, POLICY, ports=trained.ports)


def test_after_a_complete_training_all_releases_are_confirmed(network):
    """The last one too, although no further request tells the client so."""
    status = said("client", "status", network.home(CLIENT) / "client.toml")
    assert f"{ROUNDS} releases, {ROUNDS} of them confirmed by the site" in status


def release_once_more(home):
    with Ledger.open(home / "ledger.db", CLIENT) as ledger:
        with ledger.reserve(f"later/{ledger.count}", 0.1) as slot:
            slot.payload = b"bytes"
        return ledger.count


def said(*arguments, code=0):
    outcome = run(*map(str, arguments))
    assert outcome.code == code, outcome.err
    return outcome.out if code == 0 else outcome.err


def test_an_account_moves_with_all_its_releases_and_leaves_a_note_that_stops_its_old_folder(network, tmp_path):
    home, archive, new = network.home(CLIENT), tmp_path / "a.tgz", tmp_path / "new"
    assert f"its account of {ROUNDS} releases has moved" in said(
        "client", "backup", home / "client.toml", archive, "--move"
    )
    assert archive.stat().st_mode & 0o077 == 0
    assert not (home / "ledger.db").exists()
    assert "moved to the backup a.tgz" in said("client", "join", home / "client.toml", code=2)
    assert f"with {ROUNDS} releases" in said("client", "restore", archive, "--home", new)
    assert (new / "client.key").stat().st_mode & 0o077 == 0
    with Ledger.open(new / "ledger.db", CLIENT) as ledger:
        ledger.verify()
        assert ledger.count == ROUNDS
    assert "never replaced" in said("client", "restore", archive, "--home", new, code=2)


def test_an_older_backup_of_an_account_that_moved_again_is_refused(network, tmp_path):
    home, old, new = network.home(CLIENT), tmp_path / "old.tgz", tmp_path / "new.tgz"
    said("client", "backup", home / "client.toml", old, "--move")
    said("client", "restore", old, "--home", home)
    assert release_once_more(home) == ROUNDS + 1
    said("client", "backup", home / "client.toml", new, "--move")
    assert "older than new.tgz" in said("client", "restore", old, "--home", home, code=2)
    said("client", "restore", new, "--home", home)
    with Ledger.open(home / "ledger.db", CLIENT) as ledger:
        assert ledger.count == ROUNDS + 1


def test_a_backup_without_the_account_has_no_ledger_that_could_be_stale(network, tmp_path):
    home, archive, new = network.home(CLIENT), tmp_path / "a.tgz", tmp_path / "new"
    assert "its account stays here" in said("client", "backup", home / "client.toml", archive)
    assert (home / "ledger.db").exists()
    with tarfile.open(archive) as members:
        assert not [name for name in members.getnames() if "ledger" in name]
    assert "without an account" in said("client", "restore", archive, "--home", new)
    assert "never replaces another" in said("client", "backup", home / "client.toml", archive, code=2)


def test_an_account_restored_elsewhere_twice_is_exposed_by_the_site(network, tmp_path):
    """The archive was used, releases were made, and the same archive is restored on another machine."""
    home, archive = network.home(CLIENT), tmp_path / "a.tgz"
    said("client", "backup", home / "client.toml", archive, "--move")
    said("client", "restore", archive, "--home", home)
    with closing(SiteStore(network.home(SITE) / STORE)) as store:
        store.record_release(CLIENT, release_once_more(home))
        known = store.clients()[CLIENT].releases
    data = (home / "data.csv").read_bytes()
    shutil.rmtree(home)
    home.mkdir()
    (home / "data.csv").write_bytes(data)
    said("client", "restore", archive, "--home", home)
    again = participant(network, CLIENT)
    with pytest.raises(Exception, match="backup"):
        again.account.check_known(known)
    again.account.close()


def test_a_site_comes_back_from_a_backup_with_its_members_and_its_round(network, tmp_path):
    archive, new = tmp_path / "s.tgz", tmp_path / "new"
    assert f"as of round {ROUNDS}" in said("site", "backup", archive, "--home", network.home(SITE))
    assert f"as of round {ROUNDS}" in said("site", "restore", archive, "--home", new)
    with closing(SiteStore(new / STORE)) as store:
        assert list(store.clients()) == [CLIENT]
        assert store.clients()[CLIENT].releases == ROUNDS
    assert "exists, with round 3" in said("site", "restore", archive, "--home", new, code=2)
    assert "no backup of a client has" in said("client", "restore", archive, "--home", tmp_path / "x", code=2)


def charge_at_the_site(home, client="ann"):
    """One more release on the account that the site keeps for a client that trusts it."""
    (home / "ledgers").mkdir(exist_ok=True)
    policy = Privacy(epsilon=2.0, max_releases=50, x_norm=3.0).policy()
    with Ledger.open_or_create(home / "ledgers" / f"{client}.db", client, policy) as ledger:
        with ledger.reserve(f"round/{ledger.count}", 0.1) as slot:
            slot.payload = b"bytes"
        return ledger.count


def test_a_backup_of_a_running_site_leaves_the_accounts_of_its_clients_out(network, tmp_path):
    home, archive, new = network.home(SITE), tmp_path / "s.tgz", tmp_path / "new"
    charge_at_the_site(home)
    said("site", "backup", archive, "--home", home)
    said("site", "restore", archive, "--home", new)
    assert not (new / "ledgers").exists(), "a copy would be stale with the next sum"


def test_a_site_moves_with_the_accounts_that_it_keeps_and_its_old_folder_serves_no_more(network, tmp_path):
    home, archive, new = network.home(SITE), tmp_path / "s.tgz", tmp_path / "new"
    charge_at_the_site(home)
    charge_at_the_site(home)
    with exclusive_lock(home / "site.lock", "Site"):
        assert "stop it first" in said("site", "backup", archive, "--move", "--home", home, code=2)
    assert "moved there (accounts of clients: 1)" in said("site", "backup", archive, "--move", "--home", home)
    assert "moved to the backup s.tgz" in said("site", "serve", home / "site.toml", code=2)
    assert not [path for path in (home / "ledgers").iterdir() if path.suffix != ".lock"]
    assert "(accounts of clients: 1)" in said("site", "restore", archive, "--home", new)
    with Ledger.open(new / "ledgers" / "ann.db", "ann") as ledger:
        ledger.verify()
        assert ledger.count == 2
    assert {path.stat().st_mode & 0o077 for path in new.rglob("*") if path.is_file() and path.suffix != ".lock"} == {0}


def test_a_site_never_comes_back_with_fewer_releases_on_an_account_than_it_moved_with(network, tmp_path):
    home, old, new = network.home(SITE), tmp_path / "old.tgz", tmp_path / "new.tgz"
    charge_at_the_site(home)
    said("site", "backup", old, "--move", "--home", home)
    said("site", "restore", old, "--home", home)
    assert charge_at_the_site(home) == 2
    said("site", "backup", new, "--move", "--home", home)
    assert "older than new.tgz" in said("site", "restore", old, "--home", home, code=2)
    said("site", "restore", new, "--home", home)
    assert charge_at_the_site(home) == 3


@pytest.mark.parametrize("name", ["../evil", "/evil", "site.db-wal", "evil", "ledgers/../evil.db", "ledgers/.db"])
def test_an_archive_with_anything_else_in_it_writes_nothing(tmp_path, name):
    archive = tmp_path / "evil.tgz"
    with tarfile.open(archive, "w:gz") as members:
        entry = tarfile.TarInfo(name)
        entry.size = 1
        members.addfile(entry, io.BytesIO(b"x"))
    assert "do not use it" in said("site", "restore", archive, "--home", tmp_path / "new", code=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["evil.tgz"]
    (tmp_path / "no.tgz").write_bytes(b"no archive")
    assert "damaged" in said("site", "restore", tmp_path / "no.tgz", code=2)
