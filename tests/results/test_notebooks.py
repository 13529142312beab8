"""What results, federations and graphs show of themselves in a notebook and with matplotlib."""

import re
import subprocess
import sys

import matplotlib
import numpy as np
import pytest

from pgfl import PGFL, ClientData, FedAvg, Federation, Graph, Huber, Privacy, Ridge, synthetic_regression, train
from pgfl.errors import ResultError, UsageError
from pgfl.results.comparison import Comparison
from pgfl.simulate import progress as notebook_progress
from pgfl.simulate import training
from pgfl.simulate.progress import Bar
from tests.results.test_report import outline
from tests.sample_results import sample_result

matplotlib.use("agg")


@pytest.fixture(autouse=True)
def no_figure_stays():
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


@pytest.fixture(scope="module")
def federation():
    return synthetic_regression(servers=4, clients_per_server=5, clusters=2, dimension=4, graph="ring", seed=1)


def shown(thing):
    html = thing._repr_html_()
    assert not re.search(r"(?:src|href)\s*=|url\(|@import|https?:|<script", html)
    return outline(html)


def cells(parsed):
    return [text.strip() for text in parsed.text if text.strip()]


def test_a_graph_shows_its_picture_and_who_is_connected():
    parsed = shown(Graph.from_edges(4, [(0, 1), (1, 2)]))
    assert parsed.tags.count("svg") == 1
    assert parsed.tags.count("circle") == 4
    assert parsed.tags.count("line") == 2
    assert "no: 2 parts" in cells(parsed)


def test_a_federation_shows_its_network_and_a_row_per_cluster(federation):
    parsed = shown(federation)
    assert parsed.tags.count("circle") == 4 + 20
    table = cells(parsed)
    at = table.index("cluster-1")
    members = federation.client_cluster == 1
    assert table[at + 1 : at + 4] == [str(members.sum()), "4", str(federation.counts[members].sum())]


def test_ids_of_a_federation_are_text_not_markup():
    evil = "<img src=x onerror=alert(1)>"
    federation = Federation.from_clients({evil: ClientData(evil, evil, [[1.0]], [1.0])})
    assert "img" not in outline(federation._repr_html_()).tags
    assert evil in "".join(outline(federation._repr_html_()).text)


def test_a_result_shows_verdict_figures_network_and_curves(federation):
    result = train(federation, PGFL(rho=5.0), Ridge(), rounds=30)
    parsed = shown(result)
    text = " ".join(cells(parsed))
    assert result.verdict.sentence in text
    assert f"{10 * np.log10(result.curve('nmsd')[0, -1]):.2f} dB" in text
    assert parsed.tags.count("svg") == 2
    assert parsed.tags.count("polyline") == 3
    assert repr(result).startswith("<Result: 20 clients at 4 servers in 2 clusters, 30 rounds, NMSD -")


def test_a_private_result_shows_only_what_may_be_shown(federation):
    privacy = Privacy(epsilon=4.0, max_releases=20, index="release", x_norm=1.0)
    result = train(federation, PGFL(rho=1.0), Huber(), rounds=20, privacy=privacy)
    text = " ".join(cells(shown(result)))
    clean = 10 * np.log10(result.clean_history["nmsd"][-1])
    public = 10 * np.log10(result.curve("nmsd")[0, -1])
    assert abs(clean - public) > 0.01
    assert f"{public:.2f} dB" in text
    assert f"{clean:.2f} dB" not in text
    assert f"ε ≤ {result.spending()['epsilon']['worst']:.4g}" in text


def test_results_with_little_in_them_still_show_something():
    result = sample_result()
    result.history = {key: result.history[key] for key in ("run", "round")}
    assert "<svg" in result._repr_html_()
    with pytest.raises(ResultError, match="nothing to draw"):
        result.plot()
    shown(sample_result(runs=3, noise="secure"))


def test_a_network_too_large_for_a_picture_is_shown_without_one():
    graph = Graph.from_edges(400, [(i, i + 1) for i in range(399)])
    assert "<svg" not in graph._repr_html_()
    with pytest.raises(UsageError, match="400 servers is too large for a picture"):
        graph.plot()


def test_plot_draws_the_history(federation):
    result = train(federation, PGFL(rho=5.0), Ridge(), rounds=10)
    axes = result.plot()
    first = axes.get_lines()[0]
    np.testing.assert_array_equal(first.get_xdata(), result.rounds)
    np.testing.assert_allclose(first.get_ydata(), 10 * np.log10(result.curve("nmsd")[0]))
    assert [line.get_label() for line in axes.get_lines()] == ["all clients", "cluster-0", "cluster-1"]
    assert result.plot("primal_residual", ax=axes) is axes
    with pytest.raises(ResultError, match=r"no metric nmds \(did you mean nmsd\?\) to draw"):
        result.plot("nmds")


def test_plot_draws_every_server_edge_and_client(federation):
    axes = federation.plot()
    edges, *dots = axes.collections
    assert len(edges.get_segments()) == 4
    assert sum(len(drawn.get_offsets()) for drawn in dots) == 4 + 20
    assert federation.graph.plot(ax=axes) is axes


def test_results_are_compared_by_figures_settings_and_curves(federation):
    pgfl, fedavg = (train(federation, one, Ridge(), rounds=15) for one in (PGFL(rho=5.0), FedAvg()))
    compared = pgfl.compare(fedavg, names=("PGFL", "FedAvg"))
    figures = [f"{10 * np.log10(one.curve('nmsd')[0, -1]):.2f} dB" for one in (pgfl, fedavg)]
    assert compared.figures["NMSD"] == tuple(figures)
    assert [line.get_label() for line in compared.plot().get_lines()] == ["PGFL", "FedAvg"]
    np.testing.assert_allclose(compared.plot().get_lines()[1].get_ydata(), 10 * np.log10(fedavg.curve("nmsd")[0]))
    parsed = shown(compared)
    assert parsed.tags.count("polyline") == 2
    assert set(figures) <= set(cells(parsed))
    assert all(figure in repr(compared) for figure in figures)


def test_a_comparison_says_in_which_settings_results_differ():
    first, second = sample_result(rounds=40), sample_result(rounds=20, noise="secure")
    compared = first.compare(second)
    assert compared.names == ("first", "second")
    assert compared.differences == {"rounds": ("40", "20")}
    assert compared.figures["ε, exact, worst client"][0] == "no privacy"
    assert "no privacy" in repr(compared)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda result: result.compare(), "at least one other result"),
        (lambda result: result.compare("results/other"), "compared with other results; got"),
        (lambda result: result.compare(result, names=["one"]), "2 results, this one included, but 1 name"),
        (lambda result: Comparison.of([result] * 9), "At most 8 results"),
        (lambda result: result.compare(result).plot("nmds"), "no metric nmds"),
    ],
)
def test_a_wrong_comparison_gets_one_sentence(call, sentence):
    with pytest.raises(ResultError, match=sentence):
        call(sample_result())


def test_the_bar_waits_a_moment_then_shows_rounds_and_goes_away():
    now, outputs = 0.0, []
    bar = Bar(outputs.append, lambda: now)
    bar(1, 100, {})
    assert outputs == []
    now = 2.0
    bar(20, 100, {"nmsd": 0.1})
    assert outputs[0]["text/plain"] == "round 20 of 100, 0:00:08 left  NMSD -10.00 dB"
    assert 'value="20" max="100"' in outputs[0]["text/html"]
    bar.remove()
    assert outputs[-1] == {"text/html": "", "text/plain": ""}


def test_a_notebook_has_a_bar_unless_it_is_switched_off(federation, monkeypatch):
    outputs = []
    monkeypatch.setattr(notebook_progress, "in_notebook", lambda: True)
    monkeypatch.setattr(notebook_progress, "_cell_output", lambda: outputs.append)
    monkeypatch.setattr(notebook_progress, "PATIENCE", -1.0)
    train(federation, PGFL(rho=5.0), Ridge(), rounds=5, progress=False)
    assert outputs == []
    train(federation, PGFL(rho=5.0), Ridge(), rounds=5)
    assert outputs[-2]["text/plain"].startswith("round 5 of 5, 0:00:00 left")
    assert outputs[-1]["text/html"] == ""
    monkeypatch.setattr(training, "train_runs", lambda *_, **options: options["progress"](1, 2, {}) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        train(federation)
    assert outputs[-1]["text/html"] == ""


def test_matplotlib_and_ipython_are_loaded_only_when_used():
    code = (
        "import sys; from pgfl import PGFL, Ridge, synthetic_regression, train;"
        "f = synthetic_regression(servers=3, clients_per_server=3, dimension=3, graph='ring');"
        "r = train(f, PGFL(), Ridge(), rounds=3); f._repr_html_(), f.graph._repr_html_(), r._repr_html_(), repr(r);"
        "print(sorted({'matplotlib', 'IPython'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def test_clusters_keep_their_colours_from_picture_to_picture(federation):
    result = train(federation, PGFL(rho=5.0), Ridge(), rounds=5)
    colours = [
        re.findall(r'style="background:(#\w+)"></i>cluster-1', one._repr_html_())[0] for one in (federation, result)
    ]
    assert colours[0] == colours[1]
