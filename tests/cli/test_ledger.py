"""`pgfl ledger show|verify`."""

import json
import sqlite3

import pytest

from pgfl.errors import BudgetSpent
from pgfl.privacy.ledger.ledger import Ledger
from pgfl.privacy.ledger.rows import Policy
from tests.command_line import refused, run


@pytest.fixture
def ledger(tmp_path):
    """A ledger whose budget of three releases is spent."""
    path = tmp_path / "ann.ledger"
    with Ledger.create(path, "ann", Policy(phi0=1e-3, zeta=0.9, delta=1e-5, max_releases=3)) as open_ledger:
        for n in range(1, 4):
            with open_ledger.reserve(f"t/{n}", 0.5) as slot:
                slot.payload = b"bytes"
        open_ledger.confirm("t/1")
        with pytest.raises(BudgetSpent), open_ledger.reserve("t/4", 0.5):
            pytest.fail("a release past the budget")
    return path


@pytest.fixture
def mixed(tmp_path):
    """A ledger with a release, a void one, and then one without noise."""
    path = tmp_path / "bob.ledger"
    with Ledger.create(path, "bob", Policy(phi0=1e-3, zeta=0.9, delta=1e-5, max_releases=3)) as open_ledger:
        with open_ledger.reserve("t/1", 0.5) as slot:
            slot.payload = b"bytes"
        with open_ledger.reserve("t/2", 0.5):
            pass
        with open_ledger.reserve_unprotected("t/3") as slot:
            slot.payload = b"bytes"
    return path


def altered(path, statement):
    with sqlite3.connect(path) as connection:
        connection.execute(statement)
    connection.close()


def test_show_tells_policy_spending_and_rows(ledger):
    code, out, err = run("ledger", "show", ledger, "--json")
    assert (code, err) == (0, "")
    reported = json.loads(out)
    assert (reported["client"], reported["releases"], reported["accepted"], reported["spent"]) == ("ann", 3, 1, True)
    assert reported["rho"] == pytest.approx(1e-3 * (1 / 0.9 + 1 / 0.81 + 1 / 0.729))
    assert [row["round_key"] for row in reported["rows"]] == ["t/1", "t/2", "t/3"]
    assert "payload" not in reported["rows"][0]
    code, out, _ = run("ledger", "show", ledger)
    assert code == 0
    for text in ("ann", "3 of at most 3, 1 accepted", "spent", "t/3"):
        assert text in out


def strict_json(text):
    """What any reader of JSON accepts: no Infinity, no NaN."""
    return json.loads(text, parse_constant=pytest.fail)


def test_void_and_unprotected_releases_are_shown_and_infinity_is_said(mixed):
    reported = strict_json(run("ledger", "show", mixed, "--json")[1])
    assert (reported["rho"], reported["epsilon"], reported["epsilon_paper"], reported["spent"]) == (
        None,
        None,
        None,
        True,
    )
    assert "An infinite figure" in reported["note"]
    assert (reported["releases"], reported["void"], reported["unprotected"]) == (3, 1, 1)
    assert [(row["void"], row["unprotected"]) for row in reported["rows"]] == [
        (False, False),
        (True, False),
        (False, True),
    ]
    assert [row["rho"] for row in reported["rows"]][-1] is None
    code, out, _ = run("ledger", "show", mixed)
    assert code == 0
    for text in ("1 void, 1 without noise", "∞ at δ = 1e-05", "spent"):
        assert text in " ".join(out.split())
    rows = [line.split() for line in out.splitlines() if "t/" in line]
    assert [row[-1] for row in rows] == ["no", "void", "noise"]


def test_verify_says_void_and_infinite(mixed):
    code, out, _ = run("ledger", "verify", mixed)
    assert code == 0
    assert "3 releases of client bob, 1 void, 1 without noise, ρ ∞." in " ".join(out.split())
    reported = strict_json(run("ledger", "verify", mixed, "--json")[1])
    assert reported["epsilon"] is None
    assert "An infinite figure" in reported["note"]


def test_a_ledger_without_a_policy_is_shown(tmp_path):
    with Ledger.create(tmp_path / "off.ledger", "cid", None) as open_ledger:
        for key in ("t/1", "t/2"):
            code, out, _ = run("ledger", "show", tmp_path / "off.ledger")
            assert code == 0
            assert ("∞" in out) == (key == "t/2")
            with open_ledger.reserve_unprotected(key) as slot:
                slot.payload = b"bytes"
    assert strict_json(run("ledger", "show", tmp_path / "off.ledger", "--json")[1])["policy"] is None


def test_an_older_copy_is_not_shown_as_the_account(ledger, tmp_path):
    altered(ledger, "DELETE FROM releases WHERE number = 3")
    altered(ledger, "UPDATE head SET releases = 2")
    for command in ("show", "verify"):
        assert "its anchor says 3" in refused("ledger", command, ledger)
    (tmp_path / "ann.ledger.anchor").unlink()
    for command in ("show", "verify"):
        assert "lacks its anchor" in refused("ledger", command, ledger)


def test_verify_accepts_a_whole_ledger(ledger):
    code, out, _ = run("ledger", "verify", ledger, "--client", "ann")
    assert code == 0
    assert "is whole: 3 releases of client ann" in " ".join(out.split())
    assert json.loads(run("ledger", "verify", ledger, "--json")[1])["whole"] is True


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE releases SET phi = phi / 2 WHERE number = 2", "release 2 was altered"),
        ("UPDATE releases SET payload = x'00' WHERE number = 3", "release 3 was altered"),
        ("UPDATE releases SET sigma = 1.0 WHERE number = 1", "release 1 was altered"),
        ("DELETE FROM releases WHERE number = 2", "release 2 is missing"),
        ("DELETE FROM releases WHERE number = 3", "missing"),
        ("UPDATE about SET client = 'bob'", "name or policy was altered"),
        ("UPDATE head SET releases = 2", "missing"),
    ],
)
@pytest.mark.parametrize("command", ["show", "verify"])
def test_tampering_is_found(ledger, statement, words, command):
    altered(ledger, statement)
    assert words in refused("ledger", command, ledger)


@pytest.mark.parametrize("command", ["show", "verify"])
def test_ledgers_that_cannot_be_read_are_refused(ledger, tmp_path, command):
    assert "There is no ledger at" in refused("ledger", command, tmp_path / "none")
    assert "ledger of client ann, not of bob" in refused("ledger", command, ledger, "--client", "bob")
    text = tmp_path / "text"
    text.write_text("phi0 = 1\n" * 200)
    assert "text" in refused("ledger", command, text)
    other = tmp_path / "other.db"
    altered(other, "CREATE TABLE shoes (size INTEGER)")
    assert "not a pgfl ledger" in refused("ledger", command, other)
    ledger.write_bytes(ledger.read_bytes()[:5000])
    assert str(ledger) in refused("ledger", command, ledger)
    assert str(tmp_path) in refused("ledger", command, tmp_path)


def test_without_a_command_there_is_help():
    code, out, err = run("ledger")
    assert code == 2
    assert "verify" in out + err
