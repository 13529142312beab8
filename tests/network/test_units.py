"""The systemd units call commands that exist, and restart what a restart mends."""

from __future__ import annotations

import configparser
import inspect

import pytest

from pgfl import errors
from tests.command_line import ROOT, run

UNITS = sorted((ROOT / "examples" / "systemd").glob("*.service"))


def test_there_is_one_for_a_site_and_one_for_a_client():
    assert [unit.name for unit in UNITS] == ["pgfl-client@.service", "pgfl-site@.service"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_calls_a_command_and_its_exit_codes_fit(unit):
    parsed = configparser.ConfigParser(interpolation=None)
    parsed.optionxform = str
    parsed.read(unit)
    service = parsed["Service"]
    program, *arguments = service["ExecStart"].split()
    assert program.endswith("/pgfl")
    said = run(*arguments[:2], "--help")
    assert said.code == 0
    assert arguments[2:] == ["--home", "/srv/pgfl/%i"]
    assert service["Restart"] == "on-failure"
    not_restarted = {int(code) for code in service["RestartPreventExitStatus"].split()}
    known = [error for _, error in inspect.getmembers(errors, inspect.isclass) if issubclass(error, errors.PgflError)]
    codes = {error.exit_code for error in known}
    assert errors.SiteCrashed.exit_code not in not_restarted
    assert errors.ConfigError.exit_code in not_restarted
    assert errors.LedgerError.exit_code in not_restarted
    assert not_restarted <= codes
    assert service["ReadWritePaths"] in arguments[-1]
