"""A report draws how a column matters as a curve per cluster."""

import numpy as np
import pytest

import pgfl
from pgfl import Column, Federation, Ridge, train
from pgfl.results.report.effects import curved_columns, drawn_features, effects, listed_coefficients
from pgfl.results.report.page import page

BOUNDS = (20.0, 80.0)


def result(**options):
    """Two clusters: age matters as a vee in one, and as a roof in the other."""
    rng = np.random.default_rng(3)
    age, weight, cluster = rng.uniform(*BOUNDS, 400), rng.uniform(0, 1, 400), rng.choice(["roof", "vee"], 400)
    vee = np.abs(age - 50) / 15
    table = {
        "client": [f"c{q}{n % 3}" for n, q in enumerate(cluster)],
        "cluster": cluster,
        "age": age,
        "weight": weight,
    }
    table["y"] = np.where(cluster == "vee", vee, -vee) + weight
    columns = {"age": Column(bounds=BOUNDS, knots=5), "weight": Column(bounds=(0, 1)), "y": Column(bounds=(-4, 4))}
    federation = Federation.read(table, columns=columns, intercept=True, **options)
    return train(federation, pgfl.PGFL(rho=0.5), Ridge(lam=1e-5), rounds=80)


def test_a_curve_is_drawn_for_every_column_with_knots():
    found = result()
    assert curved_columns(found) == ("age",) and drawn_features(found) == {f"age~{n}" for n in range(1, 6)}
    (drawn,) = effects(found)
    assert drawn.title == "Effect of age" and drawn.svg.count("<polyline") == 2
    html = page(found)
    assert "Effect of age" in html and "age~1" not in html and "<td>weight</td>" in html


def test_points_of_a_curve_are_not_listed_beside_it():
    found = result()
    assert any(name.startswith("age=") for name in found.coefficients()["feature"])
    assert listed_coefficients(found)["feature"].unique(maintain_order=True).to_list() == ["weight", "intercept"]
    assert "age=" not in page(found)


def test_the_curve_is_that_of_predictions():
    found = result()
    from pgfl.results.report.effects import _effect

    places, heights = _effect(found, "age")
    rows = {"age": places, "weight": np.full(len(places), 0.5)}
    for cluster, height in zip(found.cluster_ids, heights, strict=True):
        predicted = found.predict(rows, cluster=cluster)
        assert height - height.mean() == pytest.approx(predicted - predicted.mean(), abs=1e-9)
    vee = heights[list(found.cluster_ids).index("vee")]
    assert vee[0] > vee[60] + 1.0 and vee[-1] > vee[60] + 1.0


def test_nothing_is_drawn_where_columns_act_together():
    assert effects(result(map="products")) == []
