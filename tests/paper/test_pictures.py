"""Pictures of the reproduction: maps have a legend, servers the numbers of all other pictures, marks a meaning."""

import numpy as np
from matplotlib.figure import Figure

from pgfl.lab.paper import outcome
from pgfl.lab.paper.beyond import NETWORK
from pgfl.lab.paper.figures import EVEN, EVEN_MARK, EVEN_NOTE
from pgfl.lab.paper.items import Effort
from pgfl.lab.paper.plots import BLUE, Heat, Lines, Look, Series


def drawn(panels, tmp_path, monkeypatch):
    """The figure that is saved."""
    kept = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: kept.append(figure))
    outcome.draw(panels, tmp_path / "picture")
    return kept[0]


def test_maps_say_what_their_colours_and_brackets_mean(tmp_path, monkeypatch):
    value = np.array([[-1.0, 0.1], [1.0, 2.0]])
    heat = Heat("a map", "x", "y", (1, 2), (1, 2), value, value - 0.5, value + 0.5, "dB")
    figure = drawn([heat], tmp_path, monkeypatch)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "claim holds",
        "does not hold",
        "(in brackets): undecided",
    ]
    assert [text.get_text() for text in figure.axes[0].texts] == ["−1.0", "(+0.1)", "+1.0", "+2.0"]
    curve = Lines("curves", "x", "y", [Series("a", np.arange(3.0), np.arange(3.0), look=Look(BLUE))])
    assert not drawn([curve], tmp_path, monkeypatch).legends


def test_servers_are_numbered_from_zero_as_in_every_other_picture(tmp_path, monkeypatch):
    figure = drawn(NETWORK.outcome(Effort(), dict).panels, tmp_path, monkeypatch)
    assert [text.get_text() for text in figure.axes[0].texts] == [str(server) for server in range(10)]


def test_what_is_marked_in_a_figure_is_explained_beside_it():
    weights = np.full((3, 3), EVEN / 2) + (1 - EVEN - EVEN / 2) * np.eye(3)
    np.testing.assert_allclose(weights, 1 / 3)
    assert EVEN_MARK == (EVEN, "all clusters equal") and "same average of all" in EVEN_NOTE
