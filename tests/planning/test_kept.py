"""Plans are kept: the same facts are searched once, and the table of ε and trust once for all of its cells."""

from dataclasses import replace

import numpy as np
import pytest

from pgfl import plan
from pgfl.files import user_cache
from pgfl.planning import kept, planner
from pgfl.planning.facts import Facts
from pgfl.planning.forecast import Forecast
from pgfl.planning.search import Settings

FACTS = Facts(servers=3, clients_per_server=4, clusters=2, records=(20, 30), columns=4, x_norm=1.0, epsilon=4.0)


@pytest.fixture
def searched(tmp_path, monkeypatch):
    """The facts of every search, none of which takes any time; plans are kept in a new folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    full, quick = [], []

    def settings(facts):
        return Settings(0.1 + 1.0 / 3.0, 0.95, 30, 0.2, 0.99, 0.3, None, 30)

    def of(facts, *_):
        return -10.0 * np.log10(facts.epsilon * (1.0 + planner.TRUSTS.index(facts.trust)) * facts.records[1])

    monkeypatch.setattr(planner, "full_search", lambda facts: full.append(facts) or settings(facts))
    monkeypatch.setattr(planner, "quick_search", lambda facts, start: quick.append(facts) or settings(facts))
    monkeypatch.setattr(planner, "typical", of)
    monkeypatch.setattr(planner, "judge", lambda facts, _: (Forecast(of(facts), -99.0, 1.0 / 3.0), None, None, -99.5))
    return full, quick


def test_the_same_plan_is_not_searched_again(searched):
    full, quick = searched
    first = plan(FACTS)
    before = len(full), len(quick)
    reports = []
    assert plan(FACTS, progress=lambda *report: reports.append(report)) == first
    assert (len(full), len(quick)) == before and before[0] == 1
    assert plan(FACTS, whole=False).settings == first.settings and len(full) == 1
    assert reports == [(1, planner.STEPS, "settings")]


def test_the_table_of_epsilon_and_trust_is_searched_once_whatever_the_own_cell_is(searched):
    full, quick = searched
    cells = {(trust, level) for trust in planner.TRUSTS for level in planner.LEVELS}
    for epsilon, trust in ((4.0, "local"), (1.0, "masked"), (3.0, "site")):
        found = plan(FACTS, epsilon=epsilon, trust=trust)
        assert found.by_trust[trust][epsilon] == found.predicted.value
        assert all(level in found.by_trust[other] for other in planner.TRUSTS for level in (*planner.LEVELS, epsilon))
    plain = [(one.trust, one.epsilon) for one in quick if one == replace(FACTS, trust=one.trust, epsilon=one.epsilon)]
    assert sorted(cell for cell in plain if cell in cells) == sorted(cells)
    assert len(full) == 3


def test_other_facts_seeds_or_code_are_planned_anew(searched, monkeypatch):
    full, _ = searched
    plan(FACTS, whole=False)
    plan(replace(FACTS, records=(20, 31)), whole=False)
    monkeypatch.setattr(planner, "SEEDS", (5,))
    plan(FACTS, whole=False)
    monkeypatch.setattr(kept, "sources", lambda: "other")
    plan(FACTS, whole=False)
    assert len(full) == 4


@pytest.mark.parametrize("content", ["", "{", "[]", '{"settings": {"rho": 1}}', "null"])
def test_a_damaged_file_is_planned_anew_and_replaced(searched, content):
    full, _ = searched
    first = plan(FACTS, whole=False)
    (file,) = kept.folder().glob("settings-*.json")
    file.write_text(content)
    assert plan(FACTS, whole=False) == first and len(full) == 2
    assert plan(FACTS, whole=False) == first and len(full) == 2


def test_without_a_place_to_keep_them_plans_are_made_every_time(searched, tmp_path):
    full, _ = searched
    (tmp_path / "cache").write_text("in the way")
    assert user_cache().parent == tmp_path / "cache"
    assert plan(FACTS, whole=False) == plan(FACTS, whole=False)
    assert len(full) == 2


def test_only_so_many_are_kept(searched, monkeypatch):
    monkeypatch.setattr(kept, "MOST_KEPT", 3)
    for epsilon in range(1, 8):
        plan(FACTS, epsilon=float(epsilon), whole=False)
    assert len(list(kept.folder().iterdir())) == 3
