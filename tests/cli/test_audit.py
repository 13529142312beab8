"""`pgfl audit`: the quick audit, whole, and its exit codes."""

import json

import pytest

from pgfl.lab import audit as package
from pgfl.lab.audit import findings as report
from pgfl.lab.audit import planted_bugs as bugs
from pgfl.lab.audit.cases import (
    DEPLOYED_MU,
    MU,
    cases,
    deployed_cases,
    deployed_masked,
    deployed_site,
    pair_cases,
    site,
)
from pgfl.lab.audit.pairs import AT_A_SITE, UNDER_MASKS
from tests.command_line import refused, run


@pytest.mark.proof
def test_the_quick_audit_passes_and_lists_everything():
    code, out, err = run("audit", "--quick", "--json")
    assert (code, err) == (0, "")
    reported = json.loads(out)
    assert reported["passed"] is True
    assert reported["false_alarm_probability"] <= 1e-3
    attacked = [*cases(), *deployed_cases(), *pair_cases(), deployed_site(), deployed_masked()]
    assert {entry["subject"] for entry in reported["objectives"]} == {case.name for case in attacked}
    paths = {"simulator", "compiled", "device", "safe-noise", "deployed"}
    assert {entry["path"] for entry in reported["objectives"]} == paths
    for entry in reported["objectives"]:
        assert entry["verdict"] == "holds"
        assert entry["confidence"] > 0.999
        claimed, mistakes = DEPLOYED_MU if entry["path"] == "deployed" else MU, entry["false_alarms"] + entry["misses"]
        assert 0 <= entry["mu_lower"] <= entry["claimed_mu"] == pytest.approx(claimed)
        assert mistakes < 0.47 * 2 * entry["trials"], "the attack sees something"
    reached = {entry["subject"] for entry in reported["objectives"] if entry["ratio"] >= 0.9}
    assert reached == {case.name for case in (*cases(), site()) if case.attained}
    assert {(entry["bug"], entry["path"]) for entry in reported["planted_bugs"]} == {
        *((bug, path) for bug in bugs.PLANTED for path in ("simulator", "device")),
        *((bug, "deployed") for bug in bugs.IN_THE_FIELD),
        *((bug, "simulator") for bug in AT_A_SITE),
        *((bug, "safe-noise") for bug in UNDER_MASKS),
        (report.BLATANT, "deployed"),
    }
    for entry in reported["planted_bugs"]:
        assert entry["verdict"] == "flagged"
        assert entry["mu_lower"] > entry["claimed_mu"]
        if (entry["bug"], entry["path"]) == ("last coordinate clean", "deployed"):
            assert entry["by"] in ("coordinate 3", "nearest")


TINY = report.Scale("quick", {"simulator": 200}, bugs=200)


def plant_only(monkeypatch, planted):
    for name in ("PLANTED", "AT_A_SITE", "UNDER_MASKS"):
        monkeypatch.setattr(report, name, planted if name == "PLANTED" else {})


def test_people_get_a_table_and_a_sentence(monkeypatch):
    monkeypatch.setattr(package, "QUICK", TINY)
    plant_only(monkeypatch, {"sensitivity halved": bugs.sensitivity_halved})
    code, out, _ = run("audit", "--quick")
    assert code == 0
    for text in ("huber", "logistic", "clipped updates", "bug: sensitivity halved", "flagged", "as it should be"):
        assert text in out


@pytest.mark.proof
def test_a_finding_that_is_not_as_it_should_be_is_exit_code_1(monkeypatch):
    monkeypatch.setattr(package, "QUICK", TINY)
    plant_only(monkeypatch, {"nothing wrong": lambda mechanism: mechanism})
    code, out, _ = run("audit", "--quick")
    assert code == 1
    assert "missed" in out
    assert "do not rely on the guarantee" in " ".join(out.split())
    code, out, _ = run("audit", "--quick", "--json")
    assert code == 1
    assert json.loads(out)["passed"] is False


def test_wrong_options_are_refused():
    assert "--seed" in refused("audit", "--seed", "-1")
    assert "--fast" in refused("audit", "--fast")
