"""`pgfl reproduce` as a user meets it, and what it says to bad input."""

from __future__ import annotations

import json

import pytest

from pgfl.lab.paper import registry
from pgfl.lab.paper.reproduce import chosen
from tests.command_line import refused, run


@pytest.mark.proof
def test_the_command_leaves_a_page_claims_and_pictures(tmp_path) -> None:
    out = tmp_path / "found"
    code, printed, _ = run("reproduce", "network", "theorem3", "--quick", "--runs", "2", "--out", out, "--json")
    assert code == 0
    printed = json.loads(printed)
    written = json.loads((out / "claims.json").read_text(encoding="utf-8"))
    assert printed["claims"] == written["claims"] and printed["out"] == str(out)
    assert {claim["item"] for claim in written["claims"]} == {"theorem3"}
    assert all(claim["verdict"] in ("holds", "does not hold", "holds where …") for claim in written["claims"])
    page = (tmp_path / "found.md").read_text(encoding="utf-8")
    assert "`pgfl reproduce network theorem3 --quick --runs 2`" in page
    for name, place in (("network", "figures"), ("theorem3", "theorems")):
        assert f"[{name}](found/{place}.md)" in page
        assert f"({name}.png)" in (out / f"{place}.md").read_text(encoding="utf-8")
        assert all((out / f"{name}.{ending}").stat().st_size for ending in ("png", "pdf", "csv"))


def test_the_table_of_verdicts(tmp_path) -> None:
    code, out, _ = run("reproduce", "network", "--out", tmp_path / "n")
    assert code == 0
    assert "The page:" in out


def test_all_is_everything_but_what_must_be_named() -> None:
    every = list(registry.items())
    assert [item.name for item in chosen(["all"])] == [name for name in every if name != "affordable"]
    assert [item.name for item in chosen(["affordable", "all"])] == every
    assert [item.name for item in chosen(["affordable", "fig1"])] == ["fig1", "affordable"]


def test_an_unknown_item(tmp_path) -> None:
    assert "fig10" in refused("reproduce", "fig10", "--out", str(tmp_path))
    assert "theorem3" in refused("reproduce", "theorm3", "--out", str(tmp_path))


def test_too_few_runs(tmp_path) -> None:
    assert "--runs" in refused("reproduce", "fig1", "--runs", "1", "--out", str(tmp_path))


def test_no_items() -> None:
    assert "ITEM" in refused("reproduce")


def test_a_file_where_the_folder_should_be(tmp_path) -> None:
    (tmp_path / "taken").write_text("")
    assert "taken" in refused("reproduce", "network", "--out", str(tmp_path / "taken"))


def test_no_room_to_write(tmp_path, monkeypatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pgfl.lab.paper.outcome.draw", full)
    said = refused("reproduce", "network", "--out", str(tmp_path / "n"), code=1)
    assert "no space left" in said and str(tmp_path / "n") in said


@pytest.mark.parametrize("content", [None, b"not an image file"])
def test_missing_and_damaged_digits(tmp_path, content) -> None:
    folder = tmp_path / "mnist"
    folder.mkdir()
    if content is not None:
        for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
            (folder / f"{name}-ubyte").write_bytes(content)
    assert "mnist" in refused("reproduce", "fig7", "--mnist", str(folder), "--out", str(tmp_path / "n"))
