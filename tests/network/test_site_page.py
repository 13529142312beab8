"""The page of a training at a site: what it shows comes from the site's record, and a verdict from public movement."""

from __future__ import annotations

import re
from contextlib import closing

import numpy as np
import pytest

from pgfl.algorithms.roles import Answer, Server
from pgfl.network.protocol import identity
from pgfl.network.site.effects import Rollback
from pgfl.network.site.role import Movement, SiteRole
from pgfl.network.site.store import STORE, SiteStore
from tests.browser import browser
from tests.command_line import refused, run
from tests.network.trusted import CLIENTS, TrustedSite, agreed

SITE = """
name = "north"
[training]
rounds = 40
dimension = 3
clusters = ["a", "b"]
[training.objective]
kind = "huber"
[training.algorithm]
client = "gradient"
rho = 4.0
[training.privacy]
trust = "site"
"""
FIGURES = {
    "late": ["<b>bob</b>"], "neighbours": ["south"], "absent": [], "retired": [], "clipped": ["cem"],
    "sat_out": {"b": "only 1 can contribute"}, "over_cap": ["dee"], "disagreement": 0.01, "seconds": 0.5,
    "refused": {"bound": 3},
}  # fmt: skip


@pytest.fixture
def home(tmp_path):
    """A site's folder after ten rounds with clients that trust it."""
    identity.create_site(tmp_path, "north", [])
    (tmp_path / "site.toml").write_text(SITE)
    with closing(SiteStore(tmp_path / STORE)) as store:
        for name in CLIENTS:
            key = identity.create_client(tmp_path / name, name)
            store.admit(name, key, "a")
    site = TrustedSite(tmp_path)
    for round in range(1, 5):
        site.role.aggregate(round, site.answers(round))
        site.role.combine(round, {})
        site.store.save_round(round, site.role.snapshot(), CLIENTS, {**FIGURES, "accepted": list(CLIENTS)})
    site.trustee.close()
    site.store.close()
    return tmp_path


def test_the_page_shows_rounds_clients_refusals_and_budgets(home, tmp_path):
    out = tmp_path / "site.html"
    assert "noise_cap, sits out: dee" in run("site", "status", "--home", home).out
    assert run("site", "page", home / "site.toml", out).code == 0
    page = out.read_text()
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "<b>bob</b>" not in page
    assert "&lt;b&gt;bob&lt;/b&gt;" in page
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))
    for part in (
        "Site north",
        "round 4 of 40",
        "not running",
        "3 clients",
        "trust site",
        "bound 3",
        "only 1 can contribute",
        "Client dee sits out: it asks for more noise",
    ):
        assert part in text
    assert re.search(r"bob a 0 4 site 2 \(spent\)", text)
    assert "too early" in text
    assert "Guarantee (ε = 2, δ = 10⁻⁵) for one replaced record, against everyone but the client&#39;s" in text
    assert "Not covered the site itself, and whoever breaks into it" in text
    assert page.count("<svg") == 3


@pytest.mark.proof
def test_the_page_fits_a_telephone_and_its_curves_have_names(home, tmp_path):
    out = tmp_path / "site.html"
    assert run("site", "page", home / "site.toml", out).code == 0
    with browser() as chromium:
        page = chromium.new_page(viewport={"width": 390, "height": 844})
        page.goto(out.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert page.locator(".key").all_inner_texts() == ["accepted", "late"]
        assert page.get_by_text("(ε = 2, δ = 10⁻⁵) for one replaced record").is_visible()


def test_before_the_first_round_there_is_no_page(tmp_path):
    identity.create_site(tmp_path, "north", [])
    (tmp_path / "site.toml").write_text(SITE)
    assert "no round yet" in refused("site", "page", tmp_path / "site.toml", tmp_path / "site.html")


def moved(path, rounds=40):
    """The movement over models that follow a path."""
    movement = Movement()
    for round in range(1, rounds + 1):
        movement.follow(round, {"a": path(round)})
        movement = Movement.restored(movement.snapshot())
    return movement.verdict(rounds)


def test_a_verdict_is_made_of_the_movement_of_public_models():
    limit = np.array([1.0, -2.0, 3.0])
    chance = np.random.default_rng(0)
    assert moved(lambda round: limit).kind == "converged"
    assert moved(lambda round: limit * (1 - 0.8**round) + 0.02 * chance.normal(size=3)).kind == "converged"
    assert moved(lambda round: limit * (1 - 0.98**round)).kind == "not yet"
    assert moved(lambda round: limit * 1.5**round).kind == "diverging"
    assert moved(lambda round: limit, rounds=5) is None


def test_movement_goes_on_after_a_restart_and_begins_anew_after_a_rollback():
    training = agreed()
    role = SiteRole(Server(training.build_algorithm(), 3), {"ann": "a"})
    for round in range(1, 4):
        role.aggregate(round, {"ann": Answer(round, np.full(3, float(round)), np.zeros(3))})
        role.combine(round, {})
    again = SiteRole(Server(training.build_algorithm(), 3), {"ann": "a"})
    again.restore(role.snapshot())
    assert again.movement.windows == role.movement.windows
    again.roll_back(Rollback(None, (1,), round=101, last=110))
    assert again.movement.windows == []
