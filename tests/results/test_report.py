"""The picture and the page: whole, self-contained, and safe whatever the ids are."""

import io
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from pgfl.federation.columns import NumberColumn, TargetColumn
from pgfl.federation.encoding import RowEncoding
from pgfl.results import report
from pgfl.results.alternatives import LOCAL, POOLED, TRAINED, Alternatives
from pgfl.results.measures import Figure, Measured, of_enough_rows
from pgfl.results.report import curves
from pgfl.results.report.curves import MOST_POINTS, draw, panels
from pgfl.results.report.page import _sign, page
from pgfl.results.report.pictures import Axis, picture, pictures
from pgfl.results.verdict import Verdict
from tests.sample_results import CLUSTERS, sample_result

VOID = {"meta", "br", "img", "link"}


class Outline(HTMLParser):
    """Tags in order, checked for balance, and all attributes."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.attributes, self.text = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def outline(html: str) -> Outline:
    parser = Outline()
    parser.feed(html)
    parser.close()
    assert parser.open == []
    return parser


@pytest.mark.parametrize("noise", [None, "seeded", "secure"])
def test_the_page_is_well_formed_and_fetches_nothing(noise):
    html = page(sample_result(runs=3, noise=noise))
    parsed = outline(html)
    assert not re.search(r"""(?:src|href)\s*=|url\(|@import|https?://(?!www\.w3\.org/2000/svg)""", html)
    assert ("http-equiv", "Content-Security-Policy") in parsed.attributes
    text = "".join(parsed.text)
    assert "τ is <large>." in text
    assert ("worst client" in text) == (noise is not None)
    assert ("was seeded: good for a simulation" in text) == (noise == "seeded")


def test_ids_cannot_break_out_of_the_page():
    evil = "</script><script>alert(1)</script>"
    result = sample_result()
    result.cluster_ids = (evil, *CLUSTERS[1:])
    result.history[f"nmsd_{evil}"] = result.history["nmsd"]
    result.server_ids = ("<img onerror=x>", *result.server_ids[1:])
    tags = outline(page(result)).tags
    assert tags.count("script") == 2
    assert "img" not in tags


def test_the_page_s_curves_are_the_history_in_decibels():
    result = sample_result(runs=2, rounds=12)
    embedded = re.search(r'id="panels" type="application/json">(.*?)</script>', page(result), re.DOTALL).group(1)
    first = json.loads(embedded)[0]
    assert first["title"] == "NMSD"
    assert [curve["name"] for curve in first["curves"]] == ["all clients", *CLUSTERS]
    expected = 10 * np.log10(result.curve("nmsd").mean(axis=0))
    np.testing.assert_allclose(first["curves"][0]["y"], expected, rtol=1e-5)
    assert all(low <= high for low, high in zip(first["curves"][0]["low"], first["curves"][0]["high"], strict=True))


def test_residuals_are_norms_and_ratios_are_powers():
    result = sample_result(rounds=5)
    shown = {panel.title: panel for panel in panels(result)}
    np.testing.assert_allclose(
        shown["Movement of the models (residuals)"].curves[0].y, 20 * np.log10(result.curve("primal_residual")[0])
    )
    np.testing.assert_allclose(shown["Consensus"].curves[0].y, 10 * np.log10(result.curve("disagreement")[0]))


def test_long_histories_are_thinned_but_keep_their_ends():
    shown = panels(sample_result(rounds=5 * MOST_POINTS))[0]
    assert len(shown.x) == MOST_POINTS
    assert (shown.x[0], shown.x[-1]) == (0, 5 * MOST_POINTS)


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0])
def test_values_that_have_no_place_on_an_axis_do_no_harm(value):
    result = sample_result()
    result.history["nmsd"][5:] = value
    result.history["dual_residual"][:] = value
    outline(page(result))
    draw(result, io.BytesIO())


def test_a_result_with_nothing_measured_still_has_a_page_and_a_picture(tmp_path):
    result = sample_result()
    result.history = {key: result.history[key] for key in ("run", "round")}
    report.write(result, tmp_path)
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "report.html").stat().st_size > 1000


@pytest.mark.parametrize("servers", [1, 2, 3, 40])
def test_the_network_shows_every_server_edge_and_client(servers):
    result = sample_result(servers=servers, clients=60)
    drawn = picture(result)
    assert drawn.count('class="server"') == servers
    assert drawn.count("<line") == len(result.models[0].network.edges)
    assert drawn.count("<circle") == servers + 60
    assert not re.search(r"nan|inf", drawn)


def test_a_network_too_large_to_see_is_not_drawn():
    assert picture(sample_result(servers=301, clients=400)) is None
    assert "too large for a picture" in page(sample_result(servers=301, clients=400))


def test_the_picture_is_png(tmp_path):
    report.write(sample_result(runs=2, noise="seeded"), tmp_path)
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


# --- verdict, measures, pictures -------------------------------------------------------------------------------------


def measured_result(noise=None, **fields):
    """A result with held-out figures of a regression in one cluster and of a classification in another."""
    rng = np.random.default_rng(3)
    ids = tuple(f"client-{k:02d}" for k in range(30))
    figures = (Figure(0.5, 0.0), {"adults": Figure(0.5, 0.0)}, Figure(-1.0, 0.0), Figure(0.4, 0.0))
    accuracy = (Figure(0.9, 0.6), {"children": Figure(0.9, 0.6)}, Figure(0.7, 0.5), Figure(0.95, 0.6))
    named = None if noise else "<i>ann</i>"
    return sample_result(
        noise=noise,
        verdict=Verdict("not yet", "They are <far> away.", "Raise rounds to about 900.", further=("Something else.",)),
        measures=[Measured("r2", *figures, named), Measured("accuracy", *accuracy, named)],
        client_measures=None
        if noise
        else {
            "client": np.array(ids),
            "cluster": np.array([CLUSTERS[k % 2] for k in range(30)]),
            "r2": np.where(np.arange(30) % 2 == 0, rng.normal(size=30), np.nan),
        },
        held_out={
            "cluster": np.repeat(["adults", "children"], 5),
            "predicted": rng.random(10),
            "observed": rng.random(10),
            "rows": np.full(10, 30),
        },
        encoding=RowEncoding(tuple(NumberColumn(name) for name in ("age", "bmi", "<b>x</b>")), TargetColumn("y")),
        **fields,
    )


@pytest.mark.parametrize("noise", [None, "seeded"])
def test_the_page_begins_with_the_verdict_and_shows_measures_beside_baselines(noise):
    html = page(measured_result(noise))
    text = "".join(outline(html).text)
    assert (
        text.index("Not yet")
        < text.index("They are <far> away. Raise rounds to about 900.")
        < text.index("Held-out rows")
    )
    assert "Something else." in text
    assert "0.500" in text and "90.0 %" in text and "60.0 %" in text
    assert ("<i>ann</i>" in text) == (noise is None)
    assert all(
        title in text for title in ("Predicted and observed", "Errors of predictions", "Calibration", "Coefficients")
    )
    assert ("Clients compared" in text) == (noise is None)
    assert "bmi" in text and "<b>x</b>" in text and "intercept" in text
    assert html.count('class="plot"') == (4 if noise is None else 3)


def test_the_coefficients_of_several_classes_are_named_by_class():
    text = "".join(outline(page(measured_result(dimension=8))).text)
    assert "age, class 0" in text and "intercept, class 1" in text
    assert "Coefficients" not in "".join(outline(page(measured_result(dimension=5))).text)


def test_the_dots_lie_where_the_figures_say():
    picture = pictures(measured_result())[2].svg
    xs = sorted(float(x) for x in re.findall(r'cx="([\d.]+)"', picture))
    predicted = sorted(measured_result().held_out["predicted"][5:])
    np.testing.assert_allclose(xs, [58 + 450 * value for value in predicted], atol=0.1)


def test_residuals_are_what_the_prediction_leaves_over():
    found = measured_result().held_out
    picture = pictures(measured_result())[1]
    heights = np.array([float(y) for y in re.findall(r'cy="([\d.]+)"', picture.svg)])
    order = np.argsort(found["predicted"][:5], kind="stable")
    expected = (found["observed"] - found["predicted"])[:5][order]
    slope, offset = np.polyfit(expected, heights, 1)
    assert slope < 0
    np.testing.assert_allclose(heights, slope * expected + offset, atol=0.1)
    guide = float(re.search(r'class="guide" x1="[\d.]+" y1="([\d.]+)"', picture.svg)[1])
    assert guide == pytest.approx(offset, abs=0.1)


def test_no_axis_has_a_negative_zero():
    assert [tick.text for tick in Axis(-0.3, 0.9, 0.0, 100.0).ticks()] == ["-0.2", "0", "0.2", "0.4", "0.6", "0.8"]


def test_clients_of_a_regression_are_compared_by_their_mean_error():
    result = measured_result()
    figures = (Figure(5.0, 9.0), {"adults": Figure(5.0, 9.0)}, Figure(7.0, 9.0), Figure(4.0, 9.0))
    result.measures = [*result.measures, Measured("mae", *figures)]
    result.client_measures = result.client_measures | {"mae": np.arange(30.0)}
    assert "MAE" in pictures(result)[-1].svg


def test_declared_labels_name_the_coefficients():
    result = measured_result(dimension=8)
    target = TargetColumn("y", labels=("ill", "well"))
    result.encoding = RowEncoding(result.encoding.columns, target)
    assert "age, ill" in "".join(outline(page(result)).text)


def test_an_objective_that_rises_at_the_end_is_explained_and_one_that_falls_is_not():
    assert curves._rises(np.array([5.0, 1.0, 0.9, 1.2]))
    assert not curves._rises(np.array([5.0, 1.0, 0.9, np.nan, 0.9]))
    assert not curves._rises(np.full(4, 2.0))


def test_no_client_with_few_rows_has_an_r2():
    rows = np.array([2, 5, 30])
    values = np.array([-872.0, 0.1, 0.4])
    assert np.isnan(of_enough_rows("r2", values, rows)).tolist() == [True, False, False]
    assert of_enough_rows("mae", values, rows) is values


def test_ways_to_split_the_records_stand_next_to_the_result_and_the_best_of_each_column_is_bold():
    result = sample_result()
    whole = {TRAINED: 0.5, POOLED: 0.3, LOCAL: 0.45}
    clusters = {"adults": {TRAINED: 0.5, POOLED: 0.3, LOCAL: 0.6}, "children": whole}
    result.alternatives = Alternatives("r2", 90, whole, clusters, "These models are ahead.")
    html = page(result)
    table = re.search(r'<table class="worth">.*?</table>', html, re.DOTALL)[0]
    assert re.findall(r"<th>(.*?)</th>", table) == ["R²", "all clients", "adults", "children"]
    assert re.findall(r"<b>(.*?)</b>", table) == ["0.500", "0.500", "0.600"]
    assert html.count("These models are ahead.") == 1
    assert "Was it worth it" not in page(sample_result())


def test_a_coefficient_says_its_sign_only_where_its_interval_does():
    assert [_sign(*ends) for ends in ((0.1, 2.0), (-2.0, -0.1), (-1.0, 1.0), (None, None))] == [
        ("raises", "up"), ("lowers", "down"), ("unclear", ""), ("–", ""),
    ]  # fmt: skip


def test_what_only_rounding_leaves_is_not_drawn():
    result = sample_result()
    titles = [panel.title for panel in curves.panels(result)]
    result.history["disagreement"] = np.full(len(result.history["round"]), 1e-32)
    assert [title for title in titles if title != "Consensus"] == [panel.title for panel in curves.panels(result)]
    assert "Consensus" in titles and len(set(titles)) == len(titles)


def test_a_budget_that_all_have_spent_is_not_drawn_beyond_it():
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    curves._draw_spending(axes, np.full(150, 1.0))
    (bar,) = axes.patches
    assert bar.get_x() + bar.get_width() / 2 == pytest.approx(1.0) and bar.get_height() == 150
    spread = Figure().subplots()
    curves._draw_spending(spread, np.linspace(0.5, 1.0, 150))
    assert max(one.get_x() + one.get_width() for one in spread.patches) == pytest.approx(1.0)
