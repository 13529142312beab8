"""One policy of exit codes: what a restart may mend ends with 1, what a person must look at with 2."""

from __future__ import annotations

import errno
import sqlite3

import pytest

from pgfl.errors import LedgerError, NetworkError, exit_code, is_damage


def caused(error, cause):
    error.__cause__ = cause
    return error


def sqlite_error(name):
    error = sqlite3.DatabaseError(name)
    error.sqlite_errorname = name
    return error


@pytest.mark.parametrize("kind", [NetworkError, LedgerError])
@pytest.mark.parametrize("cause", [OSError(errno.ENOSPC, "full"), OSError(errno.EDQUOT, "full"), "SQLITE_FULL"])
def test_a_full_disk_is_worth_a_restart_wherever_it_was_met(kind, cause):
    error = caused(kind("It cannot be written."), sqlite_error(cause) if isinstance(cause, str) else cause)
    assert exit_code(error) == 1


@pytest.mark.parametrize("cause", [OSError(errno.EACCES, "no"), "SQLITE_CORRUPT", "SQLITE_NOTADB", None])
def test_anything_else_needs_a_person(cause):
    error = caused(NetworkError("It cannot be read."), sqlite_error(cause) if isinstance(cause, str) else cause)
    assert exit_code(error) == 2
    assert is_damage(error) == isinstance(cause, str)


def test_a_damaged_ledger_is_damage():
    assert is_damage(LedgerError("Its chain is broken."))
