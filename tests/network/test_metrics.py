"""The pages for monitoring tell the truth, and nothing else is served."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace

import pytest

from pgfl.network.agreement import decode_budget
from pgfl.network.site.effects import Phase
from pgfl.network.site.reports import Figures, MetricsServer, health_page, metrics_page
from pgfl.privacy.accounting import exact_epsilon, rho_total
from pgfl.privacy.ledger.ledger import Ledger
from tests.network.test_site_alive import SITE, network_of, site_of, taking_part, until

POLICY = {"enabled": True, "phi0": 1e-4, "zeta": 0.99, "delta": 1e-5, "max_releases": 10, "x_norm": 3.0}
FIGURES = Figures(
    site='no"rth', phase="waiting", round=7, rounds=100, clients_admitted=3, clients_connected=2, neighbours_linked=1,
    neighbours_up=1, disagreement=0.25, seconds_since_round=1.5, round_seconds=0.5, refused={"late": 4},
    releases={"ann": 7}, disk_free_bytes=10**9, epsilon_left={"ann": 0.5, "bob": 2.0, "cem": 1.0},
    phase_seconds={"waiting": 3.0, "collecting": 4.5},
    answers={"ann": {"accepted": 5, "late": 2}, "bob": {"declined: its budget is spent": 9}},
)  # fmt: skip


def test_the_page_is_prometheus_text():
    page = metrics_page(FIGURES)
    sample = re.compile(r'pgfl_[a-z_]+\{site="no\\"rth"(,[a-z]+="[^"]*")*\} [-0-9.e+]+')
    for line in page.splitlines():
        assert line.startswith(("# HELP pgfl_", "# TYPE pgfl_")) or sample.fullmatch(line), line
    assert 'pgfl_round{site="no\\"rth"} 7\n' in page
    assert 'pgfl_refused_total{site="no\\"rth",reason="late"} 4\n' in page
    assert 'pgfl_phase{site="no\\"rth",phase="waiting"} 1\n' in page
    assert all(f'phase="{phase}"}} ' in page for phase in Phase)
    assert 'pgfl_epsilon_left{site="no\\"rth",of="worst"} 0.5\n' in page
    assert 'pgfl_epsilon_left{site="no\\"rth",of="median"} 1\n' in page
    assert 'pgfl_phase_seconds_total{site="no\\"rth",phase="collecting"} 4.5\n' in page
    assert 'pgfl_client_releases{site="no\\"rth",client="ann"} 7\n' in page
    assert 'pgfl_answers_total{site="no\\"rth",client="ann",outcome="accepted",reason=""} 5\n' in page
    assert 'client="bob",outcome="declined",reason="its budget is spent"} 9\n' in page


def test_health_is_503_with_the_reason_while_no_round_can_open():
    assert health_page(FIGURES)[0] == 200
    status, said = health_page(replace(FIGURES, missing="1 of 3 clients are connected, 2 are needed"))
    assert (status, json.loads(said)["problem"]) == (503, "round 8 waits: 1 of 3 clients are connected, 2 are needed")
    assert "pgfl_healthy" in metrics_page(FIGURES)
    assert health_page(replace(FIGURES, phase="finished", missing="anything"))[0] == 200
    stuck = replace(FIGURES, phase="collecting", seconds_since_round=700.0)
    assert (health_page(stuck)[0], stuck.problem) == (503, "no round was completed for 700 s")


def test_a_site_whose_rounds_bear_no_fruit_is_not_healthy_and_says_why():
    assert health_page(replace(FIGURES, fruitless=4))[0] == 200
    status, said = health_page(replace(FIGURES, fruitless=5))
    assert status == 503
    why = "no client's answer counted in the last 5 rounds; most often declined: its budget is spent"
    assert json.loads(said)["problem"] == why
    assert json.loads(said)["answers"] == FIGURES.answers, "by client and reason, as among the metrics"


async def asked(port, request):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    said = await reader.read()
    writer.close()
    return said.decode()


@pytest.mark.parametrize(
    ("request_line", "status"), [("GET /metrics", 200), ("GET /health", 200), ("GET /", 404), ("POST /metrics", 404)]
)
def test_only_two_pages_are_served(request_line, status):
    async def scenario():
        server = MetricsServer(lambda: FIGURES)
        port = await server.start("127.0.0.1:0")
        garbage = await asked(port, b"x" * 20_000 + b"\r\n\r\n")
        said = await asked(port, f"{request_line} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        await server.stop()
        return garbage, said

    garbage, said = asyncio.run(scenario())
    assert garbage == ""
    assert said.startswith(f"HTTP/1.1 {status} ")


@pytest.mark.parametrize("shared", [True, False])
def test_the_epsilon_left_is_what_the_clients_own_ledger_says_unless_the_owner_keeps_it_back(tmp_path, shared):
    network = network_of(tmp_path, quorum={}, rounds=3, privacy=POLICY)
    client = network.clients_of(SITE)[0]
    settings = network.home(client) / "client.toml"
    settings.write_text(f"share_budget = {str(shared).lower()}\n" + settings.read_text())
    site = site_of(network)

    async def scenario():
        with taking_part(network, client):
            await site.run()
        return site.sessions.budgets, {client: 3}

    budgets, releases = asyncio.run(scenario())
    with Ledger.read(network.home(client) / "ledger.db") as ledger:
        spent, whole = ledger.epsilon(), float(exact_epsilon(rho_total(1e-4, 0.99, 10), 1e-5))
    if shared:
        assert budgets[client].epsilon_left(releases[client]) == pytest.approx(whole - spent, rel=1e-9)
        assert budgets[client].epsilon_left(10) == budgets[client].epsilon_left(99) == 0.0
    else:
        assert budgets == {client: None}


def test_a_site_knows_how_many_rounds_a_release_is_planned_for(tmp_path):
    network = network_of(tmp_path, quorum={}, rounds=13, privacy=POLICY | {"max_releases": 3})
    client = network.clients_of(SITE)[0]
    site = site_of(network)

    async def scenario():
        with taking_part(network, client):
            await site.run()

    asyncio.run(scenario())
    assert site.rounds.role.paces == {client: 4}
    assert site.sessions.budgets[client].pace(2) == 1


@pytest.mark.parametrize("text", [None, "", "7", "{}", '{"phi0": 1e-4, "zeta": 2.0, "delta": 1e-5, "max_releases": 9}'])
def test_a_budget_that_is_nonsense_is_none(text):
    assert decode_budget(text) is None


def test_a_running_site_serves_its_figures(tmp_path):
    network = network_of(tmp_path, quorum={})

    async def scenario():
        site = site_of(network)
        running = asyncio.create_task(site.run())
        assert site.reports.figures().missing == "0 of 1 clients are connected, 1 are needed"
        with taking_part(network, *network.clients_of(SITE)):
            await until(lambda: site.rounds.round > 2)
            figures = site.reports.figures()
        site.stop("enough")
        await running
        return figures

    figures = asyncio.run(scenario())
    assert figures.round > 2
    assert figures.clients_connected == figures.clients_admitted == 1
    assert figures.releases[network.clients_of(SITE)[0]] >= 3
    assert figures.disk_free_bytes > 0
    assert figures.round_seconds > 0
    assert figures.epsilon_left == {}, "without noise there is no budget"
    assert set(figures.phase_seconds) >= {"waiting", "collecting"}
    assert all(seconds >= 0 for seconds in figures.phase_seconds.values())
