"""Errors, as one small hierarchy, each with one sentence that says what to do; and the check for optional libraries."""

import errno
from collections.abc import Callable
from importlib.util import find_spec


class PgflError(Exception):
    """Base of every error that pgfl raises on purpose; the command line prints it and exits."""

    exit_code = 2


class UsageError(PgflError, TypeError):
    """A function was given something else than it takes; the message says how to call it."""


class ConfigError(PgflError):
    """A setting is unknown, of the wrong type, or contradicts another."""


class DataError(PgflError):
    """A table, an array or a data file cannot be used as it is."""


class TopologyError(PgflError):
    """A server graph cannot be built as asked."""


class PrivacyError(PgflError):
    """A guarantee cannot be given as asked; nothing was released."""


class BudgetSpent(PrivacyError):
    """The next release would pass the client's budget; it was refused."""


class LedgerError(PrivacyError):
    """A ledger is damaged, in use, or belongs to another client."""


class ResultError(PgflError):
    """A result folder or a checkpoint cannot be read, written or continued."""


class NetworkError(PgflError):
    """A site or a client cannot be set up, reached or trusted."""


class SiteCrashed(NetworkError):
    """A running site failed; a service manager should start it again, and it goes on from the last completed round."""

    exit_code = 1


class MissingExtra(PgflError):
    """A feature needs an optional library that is not installed."""


class StageError(PgflError):
    """The debug engine found where something failed: the round, the stage and, where there is one, the client."""

    def __init__(self, said: str, round: int, stage: str, client: str | None = None) -> None:
        where = f"round {round}, stage {stage}" + (f", {client}" if client else "")
        super().__init__(f"In {where}: {said}")
        self.round, self.stage, self.client = round, stage, client


class KernelError(PgflError):
    """The compiled kernels cannot be imported, compiled or loaded on this machine."""


class SolverError(PgflError):
    """A primal problem was not solved to its stated tolerance."""

    exit_code = 1


class Diverged(PgflError):
    """Training left the finite numbers or grew without bound."""

    exit_code = 1


class Interrupted(PgflError):
    """The user stopped a run; the message says how to go on."""

    exit_code = 130


def exit_code(error: PgflError | OSError) -> int:
    """The exit code of an error: 1 if a restart may mend it, once a full disk has space again; else the error's own."""
    return 1 if _chain_has(error, is_full_disk) else getattr(error, "exit_code", PgflError.exit_code)


def is_damage(error: BaseException) -> bool:
    """Whether a file was damaged, which no restart mends."""
    return _chain_has(error, _is_damage)


def _is_damage(error: BaseException) -> bool:
    return isinstance(error, LedgerError) or getattr(error, "sqlite_errorname", "") in _DAMAGED


def is_full_disk(error: BaseException) -> bool:
    """Whether a disk, or what a user may have of it, is full."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return getattr(error, "sqlite_errorname", "") == "SQLITE_FULL"


def _chain_has(error: BaseException | None, holds: Callable[[BaseException], bool]) -> bool:
    while error is not None:
        if holds(error):
            return True
        error = error.__cause__
    return False


_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB")


def require_extra(what: str, extra: str, *modules: str) -> None:
    """Raise `MissingExtra` unless all these modules can be imported; none is imported."""
    if any(find_spec(module) is None for module in modules):
        raise MissingExtra(f"{what}; install with pip install 'pgfl[{extra}]'.")
