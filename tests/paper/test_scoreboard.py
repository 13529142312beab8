"""The scoreboard of the reproduction: computed from the claims, the same on every page, honest about the setting."""

import json
from pathlib import Path

import pytest

from pgfl.lab.paper.claims_page import MARKS, PAGES, in_short, page_of, scoreboard, weak_privacy
from pgfl.lab.paper.judging import standing

ROOT = Path(__file__).parents[2]
CLAIMS = json.loads((ROOT / "docs" / "reproduction" / "claims.json").read_text("utf-8"))["claims"]
PAGE = (ROOT / "docs" / "reproduction.md").read_text("utf-8")


def test_the_page_begins_with_the_scoreboard_of_its_claims():
    assert "\n".join(scoreboard(CLAIMS)) in PAGE[: PAGE.index("## Verdicts")]


def test_the_readme_states_the_same_counts():
    assert f"of {len(CLAIMS)} claims, the paper's and our own, {in_short(CLAIMS)}" in (ROOT / "README.md").read_text(
        "utf-8"
    )


def test_every_verdict_has_the_mark_of_its_standing():
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and "**" in line and " | **" not in line[:3]]
    marked = [line for line in rows if line.rsplit("| ", 1)[-1].startswith(tuple(MARKS.values()))]
    assert len(marked) == len(CLAIMS)
    for line, row in zip(marked, CLAIMS, strict=True):
        assert line.rsplit("| ", 1)[-1].startswith(MARKS[standing(row["verdict"], row["here"])]), row["key"]


@pytest.mark.parametrize("key", ["fig5.degrades.guaranteed", "theorem2.bound.no-noise", "lemma1.raw-ridge"])
def test_a_claim_that_fails_at_the_drawn_setting_is_said_to(key):
    (row,) = [row for row in CLAIMS if row["key"] == key]
    assert standing(row["verdict"], row["here"]) == "not at the drawn setting"


def test_what_holds_holds_here_and_what_does_not_hold_does_not():
    assert all(row["here"] for row in CLAIMS if row["verdict"] == "holds")
    assert not any(row["here"] for row in CLAIMS if row["verdict"] == "does not hold")


@pytest.mark.parametrize("item", ["fig3", "fig5", "beyond"])
def test_an_epsilon_without_meaning_is_marked_on_the_page(item):
    found = weak_privacy((ROOT / "docs" / "reproduction" / f"{item}.csv").read_text("utf-8"))
    page = (ROOT / "docs" / "reproduction" / f"{page_of(item)}.md").read_text("utf-8")
    own = page[page.index(f"## {item}:") :]
    assert found is not None and found in own[: own.index("\n## ", 5)]


def test_the_pages_of_pictures_have_every_item_once():
    drawn = [line[3:] for page in PAGES for line in _lines(page) if line.startswith("## ")]
    listed = [line for line in PAGE[PAGE.index("## Pictures") :].splitlines() if line.startswith("- ")]
    stated = [f"- [{name}](reproduction/{page_of(name)}.md): {title}" for name, title in (_split(one) for one in drawn)]
    assert sorted(listed) == sorted(stated) and len(listed) == 15


def _lines(page):
    return (ROOT / "docs" / "reproduction" / f"{page}.md").read_text("utf-8").splitlines()


def _split(heading):
    name, _, title = heading.partition(": ")
    return name, title


def test_a_claim_that_holds_in_part_says_what_holds_at_the_drawn_setting():
    rows = [line for line in PAGE.splitlines() if line.startswith("| [") and " where " in line.rsplit("| ", 1)[-1]]
    partial = [row for row in CLAIMS if row["verdict"] == "holds where …"]
    assert len(rows) == len(partial) == 22
    for line, row in zip(rows, partial, strict=True):
        begins = (
            "**holds at the drawn setting, and around it where" if row["here"] else "**not at the drawn setting; holds"
        )
        assert begins in line, row["key"]
