"""Every item, small: its files appear, its claims are the expected ones, and verdicts that are safe there hold."""

from __future__ import annotations

import csv

import pytest

from pgfl.lab.paper import registry
from pgfl.lab.paper.judging import Claim
from tests.paper.shrunk import outcome

ITEMS = registry.items()
KINDS = ("printed", "guaranteed")
CLAIMS = {
    "fig1": [
        "pgfl-beats-fedavg.tau-0.4",
        "pgfl-beats-fedavg.tau-0",
        "faster",
        "steady-state",
        "isolated",
        "observability",
    ],
    "fig2": ["slower", "higher", "fedavg"],
    "fig3": [f"{what}.{kind}" for kind in KINDS for what in ("slower", "nearly-same")],
    "fig4": [f"{what}.{kind}" for kind in KINDS for what in ("inside", "too-large")],
    "fig5": [f"{what}.{kind}" for kind in KINDS for what in ("degrades", "start", "as-fast", "as-well")],
    "fig6": [f"falls.{kind}" for kind in KINDS],
    "fig7": ["gain.strong", "gain.weak"],
    "fig8": ["gain.strong", "gain.weak"],
    "fig9": [f"{what}.{level}" for level in ("strong", "weak") for what in ("improve", "degrade")],
    "theorem1": [
        "linear.plain",
        "linear.exact",
        "optimum.plain",
        "optimum.exact",
        "optimum-noise.plain",
        "optimum-noise.exact",
    ],
    "theorem2": [f"{what}.{key}" for key in ("no-noise", "noise") for what in ("bound", "corollary")],
    "theorem3": [
        "huber",
        "logistic",
        "ridge-bounded",
        "clipped-updates",
        "huber-fedavg",
    ],
    "network": [],
    "beyond": [
        "section-v",
        "richer",
        *(f"weights.{cell}.{what}" for cell in ("paper", "families-few") for what in ("best", "alone")),
    ],
    "affordable": [
        "epsilon-1",
        "epsilon-4",
        "pairs",
        "triplets",
        "idea.clients",
        "idea.clients-masked",
        "idea.clients-paper",
        "idea.own-settings",
        "idea.own-settings-4",
        "idea.records",
        "idea.falling-tau",
        "idea.falling-tau-1",
        "idea.clusters",
        "idea.decay",
        "idea.decay-1",
        "idea.steep-decay",
        "idea.half-kappa",
        "idea.double-kappa",
        "idea.short-rows",
        "idea.long-rows",
        "idea.few",
        "idea.exact",
        "idea.tail",
        "idea.tail-4",
        "idea.hinge-pairs",
        "idea.hinge-triplets",
        "idea.pooled",
        "trust.regression-local-5-1",
        "trust.regression-masked-5-1",
        "trust.pairs-local-5-2.5",
        "trust.pairs-masked-5-2.5",
        "trust.triplets-local-5-1",
        "trust.triplets-masked-5-1",
        "trust.gain-5",
        "trust.fedavg-5",
    ],
}
LEMMA = ["Huber", "logistic", "bounded-ridge", "raw-ridge"]


def test_the_registry_is_the_papers() -> None:
    assert list(ITEMS) == list(CLAIMS)


@pytest.mark.proof
@pytest.mark.parametrize("name", ITEMS)
def test_an_item_leaves_its_files_and_claims(name, tmp_path) -> None:
    found = outcome(ITEMS[name])
    expected = {f"{name}.{key}" for key in CLAIMS[name]} | {f"lemma1.{key}" for key in LEMMA if name == "theorem3"}
    assert {claim.key for claim in found.claims} == expected
    found.save(tmp_path)
    stems = [name, f"{name}-map"] if found.maps else [name]
    for stem in stems:
        assert (tmp_path / f"{stem}.png").read_bytes().startswith(b"\x89PNG")
        assert (tmp_path / f"{stem}.pdf").read_bytes().startswith(b"%PDF")
        with (tmp_path / f"{stem}.csv").open(encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert rows and not any("$" in cell for row in rows for cell in [*row, *row.values()])
    for claim in found.claims:
        assert claim.verdict != "holds where …" or (claim.where and claim.map)
        assert claim.map is None or (tmp_path / claim.map).exists()


def verdicts(name: str) -> dict[str, Claim]:
    return {claim.key: claim for claim in outcome(ITEMS[name]).claims}


@pytest.mark.proof
def test_figure_1() -> None:
    found = verdicts("fig1")
    assert found["fig1.faster"].high < 0
    assert found["fig1.isolated"].verdict == "holds"
    assert found["fig1.observability"].verdict != "does not hold"


@pytest.mark.proof
def test_figure_2() -> None:
    found = verdicts("fig2")
    assert found["fig2.slower"].verdict == found["fig2.higher"].verdict == "holds"


@pytest.mark.proof
def test_figure_6() -> None:
    found = verdicts("fig6")
    assert all(found[f"fig6.falls.{kind}"].verdict == "holds" for kind in KINDS)


@pytest.mark.proof
def test_theorem_1() -> None:
    found = verdicts("theorem1")
    assert found["theorem1.linear.plain"].verdict == "holds"
    assert found["theorem1.optimum.plain"].verdict == "holds where …"
    assert found["theorem1.optimum.plain"].value > -60 > found["theorem1.optimum.exact"].value


@pytest.mark.proof
def test_theorem_2_fails_on_the_way_and_its_corollary_holds_near_the_optimum() -> None:
    found = verdicts("theorem2")
    assert found["theorem2.bound.no-noise"].value > 1
    assert found["theorem2.corollary.no-noise"].value < 1


@pytest.mark.proof
def test_lemma_1_is_attained_and_raw_ridge_breaks_it() -> None:
    found = verdicts("theorem3")
    assert found["lemma1.Huber"].value == pytest.approx(1.0, abs=1e-4)
    assert found["lemma1.logistic"].value == pytest.approx(1.0, abs=1e-3)
    assert 0.7 < found["lemma1.bounded-ridge"].value < 1.0
    assert found["lemma1.raw-ridge"].value > 100
    assert found["lemma1.raw-ridge"].verdict == "holds where …"


@pytest.mark.proof
def test_theorem_3_keeps_its_promise_for_every_shipped_mechanism() -> None:
    found = verdicts("theorem3")
    assert all(claim.verdict == "holds" for key, claim in found.items() if key.startswith("theorem3."))
    assert all(claim.value > 0.5 for key, claim in found.items() if key.startswith("theorem3."))
