"""The commands of a client say in one sentence that its ledger is damaged, whatever the damage is."""

from __future__ import annotations

import struct

import pytest

from pgfl.privacy.ledger.ledger import Ledger
from pgfl.privacy.ledger.rows import Policy
from tests.command_line import refused, run
from tests.network.client_folders import client_folder

POLICY = Policy(phi0=1e-3, zeta=0.9, delta=1e-5, max_releases=3)


@pytest.fixture
def client(tmp_path):
    """The settings of a client with one release in its ledger."""
    path = client_folder(tmp_path)
    with Ledger.create(tmp_path / "ledger.db", "ann", POLICY) as account, account.reserve("r1", 1.0) as slot:
        slot.payload = b"bytes"
    return path


def replace_bytes(path, old, new):
    whole = path.read_bytes()
    assert old in whole
    path.write_bytes(whole.replace(old, new))


def test_commands_refuse_a_byte_that_no_text_has_with_the_code_for_damage(client, tmp_path):
    replace_bytes(tmp_path / "ledger.db", b"tablestatestate", b"tablest\xffte" + b"state")
    assert "is damaged" in refused("client", "status", client)
    for command in ("show", "verify"):
        assert "is damaged" in refused("ledger", command, tmp_path / "ledger.db")
    joined = run("client", "join", client)
    assert joined.code == 2
    assert "is damaged" in joined.err.splitlines()[-1]
    assert "Traceback" not in joined.err
    said = run("client", "doctor", client)
    assert (said.code, said.err) == (2, ""), "as join and status: a restart does not mend it"
    assert "is damaged" in " ".join(said.out.split())


def test_a_changed_figure_is_not_shown_as_the_account(client, tmp_path):
    assert "1 releases" in run("client", "status", client).out
    charged = POLICY.budget.phi(1)
    replace_bytes(tmp_path / "ledger.db", struct.pack(">d", charged), struct.pack(">d", charged / 4))
    assert "was altered" in refused("client", "status", client)
