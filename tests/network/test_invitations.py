"""Invitations: a code that admits one key, once, in time; a file that nobody can change; an owner who is asked."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from contextlib import closing
from types import SimpleNamespace

import numpy as np
import pytest

from pgfl.errors import NetworkError
from pgfl.network.client.client import CODE, Participant
from pgfl.network.client.samples import load_samples
from pgfl.network.client.settings import load_client
from pgfl.network.invitation import Invitation
from pgfl.network.memory import MemoryTransport
from pgfl.network.protocol import identity
from pgfl.network.protocol.messages import Introduction
from pgfl.network.protocol.streams import AuthenticationFailed
from pgfl.network.site import store as site_store
from pgfl.network.site.admission import Admission, GuessLimit
from pgfl.network.site.backup import back_up, restore
from pgfl.network.site.introduction import pending_invitation
from pgfl.network.site.set_up import SETTINGS, Guest, invite
from pgfl.network.site.settings import load_site
from pgfl.network.site.site import Site
from pgfl.network.site.store import STORE, InvitationRefused, SiteStore, UnknownCode
from pgfl.privacy.ledger.ledger import Ledger
from tests.command_line import refused, run

TRAINING = ("--rounds", "2", "--dimension", "2", "--cluster", "adults", "--set", "timing.pace=0")


def done(*arguments):
    code, out, err = run(*arguments)
    assert code == 0, err
    return out


@pytest.fixture
def north(tmp_path):
    """A site that invites ann, and the site south."""
    init = ("site", "init", "north", "--host", "127.0.0.1", "--home", tmp_path / "north")
    done(*init, *TRAINING, "--invite", "ann", "--invite-site", "south")
    return tmp_path / "north"


@pytest.fixture
def table(tmp_path):
    x = np.random.default_rng(0).uniform(-0.5, 0.5, size=(40, 2))
    np.savetxt(tmp_path / "rows.csv", np.column_stack([x, x @ [1.0, -2.0]]), delimiter=",", header="a,b,y", comments="")
    return tmp_path / "rows.csv"


def key_of(folder, name="ann"):
    return identity.create_client(folder, name)


def guests(home):
    with closing(SiteStore.of_site(home)) as store:
        return [(each.kind, each.name, each.cluster) for each in store.invitations()]


# the code -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def store(north):
    with closing(SiteStore(north / STORE)) as opened:
        yield opened


def code_for(store, name="bob", seconds=60.0):
    return store.invite("client", name, "adults", time.time() + seconds)


def test_a_code_admits_one_key_once(store, tmp_path):
    code, key = code_for(store), key_of(tmp_path / "bob")
    assert store.redeem_client(code, key) == "bob"
    assert store.clients()["bob"].key == key
    with pytest.raises(InvitationRefused, match="used before"):
        store.redeem_client(code, key_of(tmp_path / "eve"))
    with pytest.raises(InvitationRefused, match="used before"):
        store.redeem_client(code, key)
    assert [client.key for client in store.clients().values()] == [key]


def test_an_expelled_client_does_not_come_back_with_its_code(store, tmp_path):
    code, key = code_for(store), key_of(tmp_path / "bob")
    store.redeem_client(code, key)
    store.expel("bob")
    with pytest.raises(InvitationRefused, match="used before"):
        store.redeem_client(code, key)
    assert "bob" not in store.clients()


def test_an_expired_code_admits_nobody(store, tmp_path, monkeypatch):
    code, key, now = code_for(store, seconds=60.0), key_of(tmp_path / "bob"), time.time()
    monkeypatch.setattr(site_store.time, "time", lambda: now + 61.0)
    assert ("client", "bob") not in store.membership().invited
    with pytest.raises(InvitationRefused, match="expired"):
        store.redeem_client(code, key)
    assert store.client_of(key) is None


def test_a_revoked_code_admits_nobody_and_neither_does_one_that_was_replaced(store, tmp_path):
    first = code_for(store)
    second = code_for(store)
    store.revoke("bob")
    for code in (first, second):
        with pytest.raises(InvitationRefused, match="revoked before"):
            store.redeem_client(code, key_of(tmp_path / code[:4]))
    with pytest.raises(NetworkError, match="no open invitation for bob"):
        store.revoke("bob")


def test_a_code_of_a_client_links_no_site_and_a_code_of_a_site_admits_no_client(store, tmp_path):
    client, site = code_for(store), store.invite("site", "west", "", time.time() + 60.0)
    west = identity.create_site(tmp_path / "west", "west", [])
    with pytest.raises(UnknownCode):
        store.redeem_client(site, key_of(tmp_path / "bob"))
    with pytest.raises(UnknownCode):
        store.redeem_site(client, west, "")
    with pytest.raises(InvitationRefused, match="is for west"):
        store.redeem_site(site, identity.create_site(tmp_path / "eve", "eve", []), "")
    store.redeem_site(site, west, "west:9094")
    assert store.neighbours()["west"].certificate == west


def test_a_site_keeps_no_code(store):
    code = code_for(store)
    assert len(code) == 32
    with closing(sqlite3.connect(store.path)) as database:
        assert code not in "\n".join(database.iterdump())


def test_a_name_that_is_taken_is_not_invited(store, tmp_path):
    store.admit("carl", key_of(tmp_path / "carl", "carl"), "adults")
    store.expel("carl")
    with pytest.raises(NetworkError, match="There is a client carl already"):
        code_for(store, "carl")
    code = code_for(store)
    store.admit("bob", key_of(tmp_path / "bob"), "adults")
    with pytest.raises(InvitationRefused, match="given to another key meanwhile"):
        store.redeem_client(code, key_of(tmp_path / "eve"))


def test_codes_of_a_backup_are_good_no_more(north, tmp_path):
    back_up(north, tmp_path / "north.tgz")
    restore(tmp_path / "north.tgz", tmp_path / "again")
    assert guests(north) == [("client", "ann", "adults"), ("site", "south", "")]
    assert guests(tmp_path / "again") == []


# guesses --------------------------------------------------------------------------------------------------------------


def test_a_stranger_who_guesses_is_stopped_and_others_are_not(store, tmp_path):
    now, changes = [0.0], []
    admission = Admission(SimpleNamespace(store=store), lambda: changes.append(1), GuessLimit(5, 60.0, lambda: now[0]))
    code, key = code_for(store), key_of(tmp_path / "bob")

    def said(code, host):
        with pytest.raises(AuthenticationFailed) as why:
            admission.admit(code, key, host)
        return str(why.value)

    for guess in range(5):
        assert "not one of this site" in said(f"{guess:032x}", "192.0.2.7")
    assert "too many wrong invitation codes" in said(code, "192.0.2.7"), "it is not even looked at"
    now[0] = 61.0
    assert "not one of this site" in said("ff" * 16, "192.0.2.7"), "a minute later it is"
    assert not changes
    admission.admit(code, key, "192.0.2.8")
    assert (list(store.clients()), changes) == (["bob"], [1])


def test_the_memory_of_guesses_is_bounded():
    guesses = GuessLimit()
    for number in range(10_000):
        guesses.count(str(number))
    assert len(guesses._wrong) <= 4096


def test_an_introduction_needs_the_key_of_the_certificate(store, north, tmp_path):
    code, nonce = store.invite("site", "west", "", time.time() + 60.0), bytes(32)
    west, own = identity.create_site(tmp_path / "west", "west", []), identity.SiteCertificate.read(north / "site.crt")
    admission = Admission(SimpleNamespace(store=store, certificate=own), lambda: None)

    def introduce(nonce, address="west:1", certificate=west):
        signature = identity.sign_introduction(tmp_path / "west" / "site.key", own.fingerprint, bytes(32), "west:1")
        header = Introduction(
            invitation=code, certificate=certificate.pem.decode(), address=address, signature=signature.hex()
        )
        admission.introduce(header, nonce, "192.0.2.7")

    for wrong in ({"nonce": bytes(31)}, {"nonce": nonce, "address": "eve:1"}, {"nonce": nonce, "certificate": own}):
        with pytest.raises(AuthenticationFailed, match="signature"):
            introduce(**wrong)
    assert not store.neighbours()
    introduce(nonce)
    introduce(nonce)  # it did not hear that it was linked
    assert store.neighbours()["west"].address == "west:1"


# the file -------------------------------------------------------------------------------------------------------------


def invitation(north, guest="ann"):
    return north / f"{guest}-invitation.pgfl"


def test_an_invitation_says_all_that_is_needed_and_others_cannot_read_it(north):
    read = Invitation.read(invitation(north), "client")
    assert (read.name, read.cluster, read.site, read.address) == ("ann", "adults", "north", "127.0.0.1:9094")
    assert read.shown == identity.SiteCertificate.read(north / "site.crt")
    assert read.agreed == load_site(north / SETTINGS).training
    assert invitation(north).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("address", "eve.example.org:9094"),
        ("cluster", "children"),
        ("name", "eve"),
        ("expires", 9e9),
        ("code", "00" * 16),
        ("site", "eve"),
    ],
)
def test_an_edited_invitation_is_refused(north, key, value):
    path = invitation(north)
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(NetworkError, match="was changed after site"):
        Invitation.read(path, "client")


def test_an_invitation_with_another_training_or_certificate_is_refused(north, tmp_path):
    path = invitation(north)
    stated = json.loads(path.read_text())
    eve = identity.create_site(tmp_path / "eve", "north", [])
    for change in (
        {"certificate": eve.pem.decode()}, {"training": stated["training"].replace('"rounds":2', '"rounds":3')}
    ):  # fmt: skip
        path.write_text(json.dumps({**stated, **change}))
        with pytest.raises(NetworkError, match="was changed after site north had signed it"):
            Invitation.read(path, "client")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", "ann\x1b[2J"),
        ("name", 'ann"\n[privacy]\nenabled = false'),
        ("cluster", "adults\r  fingerprint  00"),
        ("address", 'north:1"  #:9094'),
        ("address", "http://north:9094"),
    ],
)
def test_an_invitation_shows_and_writes_nothing_but_what_it_is_for(north, key, value):
    """Also one that a hostile site has signed."""
    path = invitation(north)
    forged = Invitation.read(path, "client").model_copy(update={key: value}).signed(north / "site.key")
    path.write_text(forged.text())
    with pytest.raises(NetworkError, match="is not an invitation"):
        Invitation.read(path, "client")


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"\xff", b"[1]", b'{"pgfl_invitation": 2}', b"[" * 5000, b" " * 2_000_000]
)
def test_what_is_no_invitation_is_one_sentence(tmp_path, content, table):
    (tmp_path / "x.pgfl").write_bytes(content)
    assert "is not an invitation" in refused("client", "join", tmp_path / "x.pgfl", "--table", table)
    assert "cannot be read" in refused("client", "join", tmp_path / "none.pgfl", "--table", table)


def test_mistakes_with_invitations_are_one_sentence(north, tmp_path, table):
    join = ("client", "join", "--home", tmp_path / "ann")
    assert "use it with `pgfl site init --neighbour`" in refused(*join, invitation(north, "south"), "--table", table)
    init = ("site", "init", "south", "--home", tmp_path / "south", "--neighbour")
    assert "use it with `pgfl client join`" in refused(*init, invitation(north))
    assert "invites site south, not west" in refused(
        "site", "init", "west", "--home", tmp_path / "west", "--neighbour", invitation(north, "south")
    )
    assert "leave out training.rounds=3" in refused(*init, invitation(north, "south"), "--rounds", "3")
    assert "--table is missing" in refused(*join, invitation(north))
    assert "no column 'z'" in refused(*join, invitation(north), "--table", table, "--target", "z")
    wide = tmp_path / "wide.csv"
    wide.write_text("a,b,c,d,y\n1,2,3,4,5\n")
    assert "dimension 2, but" in refused(*join, invitation(north), "--table", wide)
    assert "limits.rounds" in refused(*join, invitation(north), "--table", table, "--set", "limits.rounds=1")
    nonsense = ("--set", "privacy.max_releases=4000")
    assert "set max_releases = 2." in refused(*join, invitation(north), "--table", table, *nonsense)
    assert not (tmp_path / "ann").exists()
    assert not (tmp_path / "south").exists()
    assert "no cluster 'x'" in refused("site", "invite", "bob", "--cluster", "x", "--home", north)
    assert "give --address" in refused_invitation(tmp_path)
    assert "no open invitation" in refused("site", "revoke", "nobody", "--home", north)


def refused_invitation(tmp_path):
    done("site", "init", "lost", "--home", tmp_path / "lost", *TRAINING)
    return refused("site", "invite", "bob", "--home", tmp_path / "lost")


def test_an_expired_file_is_refused_before_anybody_is_called(north, tmp_path, table, monkeypatch):
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 8 * 86_400.0)
    said = refused("client", "join", invitation(north), "--table", table, "--home", tmp_path / "ann")
    assert "expired at" in said


def test_the_operator_sees_and_revokes_who_is_invited(north):
    status = json.loads(done("site", "status", "--json", "--home", north))
    assert [(each["kind"], each["name"]) for each in status["invitations"]] == [("client", "ann"), ("site", "south")]
    assert "invited: client ann, until" in done("site", "status", "--home", north)
    assert "is revoked" in done("site", "revoke", "ann", "--home", north)
    assert guests(north) == [("site", "south", "")]


# the owner ------------------------------------------------------------------------------------------------------------


def test_nothing_is_written_before_the_owner_agrees(north, tmp_path, table, monkeypatch):
    home = tmp_path / "ann"
    monkeypatch.setattr(Participant, "run", lambda self: "it took part")
    for answer in ("n\n", "", "\n"):
        monkeypatch.setattr("sys.stdin", __import__("io").StringIO(answer))
        code, out, err = run("client", "join", invitation(north), "--table", table, "--home", home)
        assert code == 2
        assert "Not accepted: nothing was written, sent or charged" in err
        for shown in ("fingerprint", "pgfl (rho 5) with huber", "epsilon 4 at delta", "your limits", "features a, b"):
            assert shown in out
        assert "the noise of the first release is" in out
        assert not home.exists()


def set_up(north, home, table, *more):
    """A client that has accepted, without the part that takes part."""
    from pgfl.network.client import set_up as setting_up

    read = Invitation.read(invitation(north, home.name), "client")
    return load_client(setting_up.set_up(setting_up.propose(read, home, table, more), home))


def test_what_is_accepted_is_what_was_shown_and_no_more(north, tmp_path, table):
    settings = set_up(north, tmp_path / "ann", table, "privacy.epsilon=2")
    assert settings.limits.objectives == ("huber",)
    assert settings.limits.algorithms == ("pgfl",)
    assert (settings.limits.rounds, settings.limits.dimension) == (2, 2)
    assert (settings.privacy.epsilon, settings.privacy.max_releases, settings.privacy.trust) == (2.0, 2, "local")
    assert (tmp_path / "ann" / CODE).stat().st_mode & 0o077 == 0
    assert (tmp_path / "ann" / "client.toml").stat().st_mode & 0o077 == 0


def test_an_intercept_follows_from_the_dimension(north, tmp_path):
    one = tmp_path / "one.csv"
    one.write_text("a,y\n1,2\n2,3\n")
    assert set_up(north, tmp_path / "ann", one).intercept


# together -------------------------------------------------------------------------------------------------------------


def played(sites, clients, seconds=60.0):
    """Why each of them ended, over a transport in memory."""
    joint = MemoryTransport()

    async def all_together():
        places = [Site(load_site(home / SETTINGS), joint) for home in sites]
        devices = [Participant(settings, load_samples(settings), joint) for settings in clients]
        async with asyncio.timeout(seconds):
            works = [*(place.run() for place in places), *(device.join() for device in devices)]
            return await asyncio.gather(*works, return_exceptions=True)

    return asyncio.run(all_together())


@pytest.fixture
def south(north, tmp_path):
    done(
        "site", "init", "south", "--home", tmp_path / "south", "--host", "127.0.0.1", "--port", "9095",
        "--neighbour", invitation(north, "south"), "--invite", "bob", "--set", "timing.pace=0",
    )  # fmt: skip
    return tmp_path / "south"


def test_two_sites_and_two_clients_train_by_their_invitations_alone(north, south, tmp_path, table):
    clients = [set_up(north, tmp_path / "ann", table), set_up(south, tmp_path / "bob", table)]
    assert played([north, south], clients) == ["all rounds are done"] * 4
    for here, there, client in ((north, "south", "ann"), (south, "north", "bob")):
        with closing(SiteStore.of_site(here)) as store:
            assert list(store.neighbours()) == [there]
            assert [(one.name, one.releases) for one in store.clients().values()] == [(client, 2)], "nobody was late"
            assert not store.invitations()
            assert pending_invitation(store, there) is None
    assert not (tmp_path / "ann" / CODE).exists()


def test_a_code_that_was_used_ends_a_second_client_with_one_sentence(north, tmp_path, table):
    other = set_up(north, tmp_path / "thief" / "ann", table)
    with closing(SiteStore.of_site(north)) as store:
        store.redeem_client((tmp_path / "thief" / "ann" / CODE).read_text(), key_of(tmp_path / "ann"))

    async def again():
        joint = MemoryTransport()
        site = Site(load_site(north / SETTINGS), joint)
        running = asyncio.create_task(site.run())
        await asyncio.sleep(0.05)
        try:
            return await Participant(other, load_samples(other), joint).join()
        finally:
            site.stop("enough")
            await running

    with pytest.raises(NetworkError, match="refuses this client: its invitation was used before"):
        asyncio.run(again())


def test_a_training_that_changed_since_the_invitation_is_refused_with_what_changed(north, tmp_path, table):
    done("site", "revoke", "south", "--home", north)
    ann = set_up(north, tmp_path / "ann", table)
    path = north / SETTINGS
    path.write_text(path.read_text().replace("rho = 5.0", "rho = 6.0"))

    async def joined():
        joint = MemoryTransport()
        site = Site(load_site(path), joint)
        running = asyncio.create_task(site.run())
        await asyncio.sleep(0.05)
        try:
            return await Participant(ann, load_samples(ann), joint).join()
        finally:
            site.stop("enough")
            await running

    with pytest.raises(NetworkError, match=r"changed the training \(algorithm.rho: 5.0 -> 6.0\)"):
        asyncio.run(joined())
    with Ledger.read(tmp_path / "ann" / "ledger.db") as ledger:
        assert ledger.count == 0


def test_the_first_round_waits_for_those_who_are_invited(north, tmp_path, table):
    """A site with a client of its own does not begin while its neighbour, or another client, can still come."""
    ann = set_up(north, tmp_path / "ann", table)
    invite(north, Guest("client", "carl", "adults"))

    async def begun():
        joint = MemoryTransport()
        site = Site(load_site(north / SETTINGS), joint)
        running = asyncio.create_task(site.run())
        await asyncio.sleep(0.05)
        device = asyncio.create_task(Participant(ann, load_samples(ann), joint).join())
        while "ann" not in site.rounds.connected:
            await asyncio.sleep(0.05)
        found = [(site.rounds.round, site.rounds.ready)]
        for name in ("carl", "south"):
            with closing(SiteStore.of_site(north)) as store:
                store.revoke(name)
            site._poll_membership()
            found.append((site.rounds.phase, site.rounds.ready))
        await asyncio.gather(running, device)
        return found, site.rounds.round

    found, last = asyncio.run(begun())
    assert found[0] == (0, False)
    assert [ready for _, ready in found[1:]] == [True, True]
    assert found[1][0] == "waiting", "for the neighbour that is invited"
    assert last == 2
