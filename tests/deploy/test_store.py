"""What a site must not forget."""

from __future__ import annotations

import numpy as np
import pytest

from pgfl.deploy import identity
from pgfl.deploy.processes import only_one
from pgfl.deploy.site.site_store import SiteStore
from pgfl.errors import NetworkError


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
    with pytest.raises(NetworkError, match="another key"):
        store.admit("ann", key(tmp_path, "bob"), "a")
    store.expel("ann")
    with pytest.raises(NetworkError, match="No client"):
        store.expel("ann")


def test_the_largest_release_number_is_remembered_whatever_became_of_it(store, tmp_path):
    ann = key(tmp_path, "ann")
    store.admit("ann", ann, "a")
    store.admit("bob", key(tmp_path, "bob"), "a")
    for number in (3, 7, 5):
        store.saw_release("ann", number)
    store.save_round(1, {}, ["ann", "bob"], {})
    again = SiteStore(store.path)  # as after a kill: the first was not closed
    assert {name: client.releases for name, client in again.clients().items()} == {"ann": 7, "bob": 0}
    again.expel("ann")
    again.admit("anna", ann, "b")
    assert again.clients()["anna"].releases == 7, "an expulsion is no way to spend again"
    again.saw_release("anna", 9)
    again.expel("anna")
    again.admit("ann", ann, "a")
    assert again.clients()["ann"].releases == 9
    again.close()


def test_only_what_a_round_makes_durable_goes_without_a_sync(store, tmp_path):
    store.admit("ann", key(tmp_path, "ann"), "a")
    levels = []

    def note(statement):
        if statement == "COMMIT":
            levels.append(store._db.execute("PRAGMA synchronous").fetchone()[0])

    store._db.set_trace_callback(note)
    store.saw_release("ann", 1)
    store.save_round(1, {}, ["ann"], {})
    store._db.set_trace_callback(None)
    assert levels == [1, 2], "NORMAL for the number, FULL for the round"


def test_tokens_are_stored_as_digests_and_replaced(store, tmp_path):
    store.admit("ann", key(tmp_path, "ann"), "a")
    assert not store.takes_token("ann", "")
    store.give_token("ann", "one")
    assert store.takes_token("ann", "one")
    assert store.takes_token("ann", "one"), "again, after a break"
    assert not store.takes_token("ann", "two")
    assert not store.takes_token("nobody", "one")
    assert b"one" not in store.path.read_bytes()
    store.give_token("ann", "two")
    assert store.takes_token("ann", "one"), "an invitation that did not arrive must not lock the client out"
    assert store.takes_token("ann", "two")
    assert not store.takes_token("ann", "one")


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


def test_only_one_process_works_on_a_folder(tmp_path):
    with (
        only_one(tmp_path / "lock", "Site north"),
        pytest.raises(NetworkError, match="runs already"),
        only_one(tmp_path / "lock", "Site north"),
    ):
        pass
    with only_one(tmp_path / "lock", "Site north"):
        pass


def test_arrays_with_pickles_are_not_loaded(store):
    import io

    packed = io.BytesIO()
    np.savez(packed, evil=np.array([object()], dtype=object))
    store._db.execute("INSERT INTO state VALUES (1, 1, ?)", (packed.getvalue(),))
    with pytest.raises(ValueError, match="pickle"):
        store.load_state()
