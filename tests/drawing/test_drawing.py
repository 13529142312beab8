"""Pictures: where things stand, and what an axis shows."""

import numpy as np
import pytest

from pgfl.drawing.networks import MOST_CLIENTS, SIZE, DrawnNetwork, client_places, network_svg
from pgfl.drawing.pages import Row, card
from pgfl.drawing.plots import Axis, curves_svg


def ring(servers, clients=()):
    edges = np.array([(s, (s + 1) % servers) for s in range(servers)] if servers > 2 else []).reshape(-1, 2).astype(int)
    names = [str(s) for s in range(servers)]
    clusters = np.zeros(len(clients), dtype=int)
    return DrawnNetwork(names, edges, [f"c{k}" for k in range(len(clients))], ["all"], np.array(clients, int), clusters)


@pytest.mark.parametrize("servers", [1, 2, 3, 30, 100])
def test_servers_stand_apart_and_inside_the_picture(servers):
    places = ring(servers).servers
    assert places.shape == (servers, 2)
    assert (places > 0).all()
    assert (places < SIZE).all()
    apart = np.linalg.norm(places[:, None] - places[None], axis=-1) + SIZE * np.eye(servers)
    assert apart.min() > 1.0


@pytest.mark.parametrize("clients", [0, 1, 24, 25, 300])
def test_clients_stand_around_their_server_and_not_on_each_other(clients):
    around = client_places(np.array([100.0, 50.0]), 80.0, clients)
    assert around.shape == (clients, 2)
    distances = np.linalg.norm(around - [100.0, 50.0], axis=1)
    assert ((distances > 0.2 * 80) & (distances < 0.5 * 80)).all()
    assert len(np.unique(around.round(6), axis=0)) == clients


def test_an_edge_ends_at_the_rims_of_its_servers():
    network = ring(3)
    svg = network_svg(network)
    x1, y1, x2, y2 = (float(svg.split(f'{name}="')[1].split('"')[0]) for name in ("x1", "y1", "x2", "y2"))
    drawn = np.hypot(x2 - x1, y2 - y1)
    whole = np.linalg.norm(network.servers[0] - network.servers[1])
    assert drawn == pytest.approx(whole - 2 * network.server_radius, abs=0.3)


def test_many_clients_are_counted_but_not_drawn():
    svg = network_svg(ring(3, [0] * (MOST_CLIENTS + 1)))
    assert svg.count("<circle") == 3
    assert f"0: {MOST_CLIENTS + 1} clients" in svg


def test_ticks_are_round_numbers_within_the_axis():
    axis = Axis.around(np.array([0.0, 97.0]), 0.0, 100.0)
    assert [tick.text for tick in axis.ticks()] == ["0", "20", "40", "60", "80", "100"]
    assert all(0.0 <= tick.at <= 100.0 for tick in axis.ticks())


def test_curves_leave_out_what_is_not_finite_and_need_two_points():
    rounds = np.arange(4)
    svg = curves_svg("NMSD", "dB", [("a", "#000", rounds, np.array([0.0, np.nan, -2.0, -3.0]))])
    assert len(svg.split('points="')[1].split('"')[0].split()) == 3
    assert curves_svg("NMSD", "dB", [("a", "#000", rounds, np.full(4, np.inf))]) is None


def test_a_long_table_is_cut_and_says_so():
    html = card("Many", rows=[Row(f"row {n}", ["1"]) for n in range(14)], columns=["figure"])
    assert html.count("<tr>") == 1 + 10 + 1
    assert "and 4 more" in html
