"""What a site must not forget."""

from __future__ import annotations

import random
import sqlite3
import time
from contextlib import closing

import numpy as np
import pytest

from pgfl.errors import NetworkError
from pgfl.network.processes import exclusive_lock, uptime
from pgfl.network.protocol import identity
from pgfl.network.site.store import SiteStore
from tests.contest import Contest


@pytest.fixture
def store(tmp_path):
    store = SiteStore(tmp_path / "site.db")
    yield store
    store.close()


def key(tmp_path, name):
    return identity.create_client(tmp_path / name, name)


def test_a_round_is_saved_whole_and_found_by_the_next_start(store, tmp_path):
    store.admit("ann", key(tmp_path, "ann"), "a")
    store.save_round(3, {"w": np.arange(4.0)}, ["ann"], {"late": []})
    again = SiteStore(store.path)
    round, arrays = again.load_state()
    assert (round, arrays["w"].tolist()) == (3, [0, 1, 2, 3])
    assert again.clients()["ann"].accepted == 3
    assert again.history()[-1]["round"] == 3
    again.close()


def test_what_a_thread_saves_waits_for_what_another_one_is_saving(store, tmp_path):
    for name in ("ann", "bob"):
        store.admit(name, key(tmp_path, name), "a")
    contest, inside = Contest(store._lock, lambda: store.record_release("bob", 5)), store._save_progress
    store._lock = contest
    store._save_progress = lambda *given: (contest.begin(), inside(*given))[1]
    store.save_round(1, {"w": np.zeros(2)}, ["ann"], {})
    contest.finish()
    assert store.last_round() == 1
    assert (store.clients()["ann"].accepted, store.clients()["bob"].releases) == (1, 5)


@pytest.mark.parametrize("also", [(), ("-wal", "-shm")], ids=["file", "file and log"])
def test_a_deleted_record_is_refused_and_the_sentence_says_the_way_out(tmp_path, also):
    """An empty one in its place would welcome clients with 0 releases."""
    path = tmp_path / "site.db"
    with closing(SiteStore(path)) as store:
        store.admit("ann", key(tmp_path, "ann"), "a")
        store.record_release("ann", 7)
    for ending in ("", *also):
        path.with_name(path.name + ending).unlink(missing_ok=True)
    for _ in range(2):
        with pytest.raises(
            NetworkError, match=r"site\.db is missing.*backup.*new home folder.*remove .*site\.db\.made"
        ):
            SiteStore(path)
        assert not path.exists(), "nothing is begun in its place"
    (tmp_path / "site.db.made").unlink()
    with closing(SiteStore(path)) as store:
        assert not store.clients()


def test_a_record_of_an_older_pgfl_is_marked_when_it_is_opened(tmp_path):
    path = tmp_path / "site.db"
    SiteStore(path).close()
    (tmp_path / "site.db.made").unlink()
    SiteStore(path).close()
    path.unlink()
    with pytest.raises(NetworkError, match="is missing"):
        SiteStore(path)


def test_a_save_that_fails_half_way_changes_nothing(store, tmp_path):
    store.admit("ann", key(tmp_path, "ann"), "a")
    store.save_round(1, {"w": np.zeros(2)}, ["ann"], {})
    store._db.execute("CREATE TRIGGER full BEFORE INSERT ON rounds BEGIN SELECT RAISE(ABORT, 'disk is full'); END")
    with pytest.raises(NetworkError, match="intact"):
        store.save_round(2, {"w": np.ones(2)}, ["ann"], {})
    assert store.last_round() == 1
    assert store.clients()["ann"].accepted == 1


def test_a_full_disk_is_one_sentence_and_loses_nothing(store, tmp_path):
    store.admit("ann", key(tmp_path, "ann"), "a")
    store.save_round(1, {"w": np.zeros(2)}, ["ann"], {})
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(NetworkError, match="full"):
        store.save_round(2, {"w": np.zeros(100_000)}, ["ann"], {})
    assert store.load_state()[0] == 1


def test_a_key_has_one_name_and_a_name_one_key(store, tmp_path):
    ann = key(tmp_path, "ann")
    store.admit("ann", ann, "a")
    store.admit("ann", ann, "b")
    assert store.clients()["ann"].cluster == "b"
    with pytest.raises(NetworkError, match="one name"):
        store.admit("anna", ann, "a")
    bob = key(tmp_path, "bob")
    with pytest.raises(NetworkError, match="another key"):
        store.admit("ann", bob, "a")
    store.expel("ann")
    with pytest.raises(NetworkError, match="another key, also after an expulsion"):
        store.admit("ann", bob, "a")
    with pytest.raises(NetworkError, match="No client"):
        store.expel("ann")


def test_the_largest_release_number_is_remembered_whatever_became_of_it(store, tmp_path):
    ann = key(tmp_path, "ann")
    store.admit("ann", ann, "a")
    store.admit("bob", key(tmp_path, "bob"), "a")
    for number in (3, 7, 5):
        store.record_release("ann", number)
    store.save_round(1, {}, ["ann", "bob"], {})
    again = SiteStore(store.path)  # as after a kill: the first was not closed
    assert {name: client.releases for name, client in again.clients().items()} == {"ann": 7, "bob": 0}
    again.expel("ann")
    again.admit("anna", ann, "b")
    assert again.clients()["anna"].releases == 7, "an expulsion is no way to spend again"
    again.record_release("anna", 9)
    again.expel("anna")
    again.admit("ann", ann, "a")
    assert again.clients()["ann"].releases == 9
    again.close()


def test_a_release_that_is_saved_with_a_round_counts_like_any_other(store, tmp_path):
    """Accepted or not, and after an expulsion or with a new key; a smaller number that comes later changes nothing."""
    keys = {name: key(tmp_path, name) for name in ("ann", "bob", "cem")}
    for name, own in keys.items():
        store.admit(name, own, "a")
    store.save_round(1, {}, ["ann"], {}, {"ann": 7, "bob": 4})
    store.save_round(2, {}, ["bob"], {}, {"ann": 5, "bob": 3})
    store.record_release("bob", 2)
    again = SiteStore(store.path)
    assert {name: (client.releases, client.accepted) for name, client in again.clients().items()} == {
        "ann": (7, 1), "bob": (4, 2), "cem": (0, None),
    }  # fmt: skip
    again.expel("ann")
    again.admit("anna", keys["ann"], "b")
    assert again.clients()["anna"].releases == 7, "an expulsion is no way to spend again"
    again.rekey(keys["bob"], key(tmp_path, "bobby"))
    assert again.clients()["bob"].releases == 4
    again.expel("bob")
    again.admit("robert", keys["bob"], "b")
    assert again.clients()["robert"].releases == 4, "nor is an older key"
    again.close()


def test_only_what_a_round_makes_durable_goes_without_a_sync(store, tmp_path):
    store.admit("ann", key(tmp_path, "ann"), "a")
    levels = []

    def note(statement):
        if statement == "COMMIT":
            levels.append(store._db.execute("PRAGMA synchronous").fetchone()[0])

    store._db.set_trace_callback(note)
    store.record_release("ann", 1)
    store.save_round(1, {}, ["ann"], {})
    store._db.set_trace_callback(None)
    assert levels == [1, 2], "NORMAL for the number, FULL for the round"


def test_another_training_configuration_does_not_continue_this_one(store):
    store.bind_training("aa")
    store.bind_training("bb")
    store.save_round(1, {}, [], {})
    with pytest.raises(NetworkError, match="another training"):
        store.bind_training("cc")


def test_a_damaged_file_is_one_sentence(tmp_path):
    (tmp_path / "site.db").write_bytes(b"not a database, but long enough to look at" * 50)
    with pytest.raises(NetworkError, match="cannot be read"):
        SiteStore(tmp_path / "site.db")


def test_links_keep_the_exact_certificate(store, tmp_path):
    certificate = identity.create_site(tmp_path / "s", "south", ["south.example.org", "10.0.0.7"])
    store.link(certificate, "10.0.0.7:9094")
    assert store.neighbours()["south"].certificate == certificate


@pytest.mark.parametrize("jump", [3.2e8, -3.2e8])
def test_a_clock_that_jumps_does_not_change_how_long_a_site_was_away(store, monkeypatch, jump):
    """Else a single neighbour's claim about rounds would be plausible."""
    assert store.idle() == 0.0, "no round is completed"
    store.save_round(3, {"w": np.zeros(1)}, [], {})
    now = time.time()
    monkeypatch.setattr("pgfl.network.site.store.time.time", lambda: now + jump)
    started, seconds = uptime()
    assert started, "this test is for Linux"
    assert 0.0 <= store.idle() < 60.0
    monkeypatch.setattr("pgfl.network.site.store.uptime", lambda: ("another start", seconds))
    assert store.idle() == pytest.approx(max(0.0, jump), abs=60.0), "the machine was off: its clock is all there is"


def test_only_one_process_works_on_a_folder(tmp_path):
    with (
        exclusive_lock(tmp_path / "lock", "Site north"),
        pytest.raises(NetworkError, match="runs already"),
        exclusive_lock(tmp_path / "lock", "Site north"),
    ):
        pass
    with exclusive_lock(tmp_path / "lock", "Site north"):
        pass


def test_arrays_with_pickles_are_not_loaded(store):
    import io

    packed = io.BytesIO()
    np.savez(packed, evil=np.array([object()], dtype=object))
    store._db.execute("INSERT INTO state (only, round, arrays) VALUES (1, 1, ?)", (packed.getvalue(),))
    with pytest.raises(ValueError, match="pickle"):
        store.load_state()


def test_a_name_of_an_older_file_is_bound_too(store, tmp_path):
    """A file from before names were bound and rows were sealed is upgraded when it is opened."""
    store.admit("ann", key(tmp_path, "ann"), "a")
    store.save_round(1, {"w": np.ones(3)}, ["ann"], {})
    store.close()
    with closing(sqlite3.connect(store.path)) as older:
        older.execute("DROP TABLE names")
        for table in ("facts", "clients", "expelled", "neighbours", "state", "rounds"):
            older.execute(f"ALTER TABLE {table} DROP COLUMN seal")
        older.execute("PRAGMA user_version = 0")
        older.commit()
    with closing(SiteStore(store.path)) as upgraded:
        assert upgraded.load_state()[1]["w"].tolist() == [1.0, 1.0, 1.0]
        upgraded.expel("ann")
        with pytest.raises(NetworkError, match="another key"):
            upgraded.admit("ann", key(tmp_path, "bob"), "a")


def contents(path):
    """Everything that a site reads from its file."""
    with closing(SiteStore(path)) as store:
        round, arrays = store.load_state()
        known = store.membership()
        arrays = {name: array.tolist() for name, array in arrays.items()}
        return known, round, arrays, store.history(), store.clusters(), store.informed()


def test_a_bit_that_changes_on_the_disk_is_noticed_or_harmless(store, tmp_path):
    """One flip at a time, all over the file: one sentence, or the same contents as before; never another link."""
    certificate = identity.create_site(tmp_path / "s", "south", [])
    for name in ("ann", "bob"):
        store.admit(name, key(tmp_path, name), "a")
    store.expel("bob")
    store.link(certificate, "10.0.0.7:9094")
    store.bind_training("aa", ["a"])
    for round in range(1, 4):
        store.save_round(round, {"w": np.arange(40.0), "about": np.array("{}")}, ["ann"], {"neighbours": ["south"]})
    store.close()
    whole, before = store.path.read_bytes(), contents(store.path)
    chance, refused, written = random.Random(0), 0, [place for place, byte in enumerate(whole) if byte]
    for _ in range(400):
        damaged = bytearray(whole)
        damaged[chance.choice(written)] ^= 1 << chance.randrange(8)
        for leftover in tmp_path.glob("copy.db*"):
            leftover.unlink()
        (tmp_path / "copy.db").write_bytes(damaged)
        try:
            assert contents(tmp_path / "copy.db") == before
        except NetworkError:
            refused += 1
    assert refused > 200, "else the flips hit nothing"


def test_only_the_owner_can_read_what_a_site_keeps(store):
    store.remember("some", "thing")
    assert {oct(path.stat().st_mode & 0o777) for path in store.path.parent.glob("site.db*")} == {"0o600"}
