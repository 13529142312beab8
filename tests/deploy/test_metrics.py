"""The pages for monitoring tell the truth, and nothing else is served."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace

import pytest

from pgfl.deploy.site.site_metrics import Figures, MetricsServer, health_page, metrics_page
from tests.deploy.test_site_alive import SITE, network_of, site_of, taking_part, until

FIGURES = Figures(
    site='no"rth', phase="waiting", round=7, rounds=100, clients_admitted=3, clients_connected=2, neighbours_linked=1,
    neighbours_up=1, disagreement=0.25, seconds_since_round=1.5, round_seconds=0.5, refused={"late": 4},
    releases={"ann": 7}, disk_free_bytes=10**9,
)  # fmt: skip


def test_the_page_is_prometheus_text():
    page = metrics_page(FIGURES)
    sample = re.compile(r'pgfl_[a-z_]+\{site="no\\"rth"(,[a-z]+="[^"]*")?\} [-0-9.e+]+')
    for line in page.splitlines():
        assert line.startswith(("# HELP pgfl_", "# TYPE pgfl_")) or sample.fullmatch(line), line
    assert 'pgfl_round{site="no\\"rth"} 7\n' in page
    assert 'pgfl_refused_total{site="no\\"rth",reason="late"} 4\n' in page
    assert 'pgfl_phase{site="no\\"rth",phase="waiting"} 1\n' in page
    assert 'pgfl_client_releases{site="no\\"rth",client="ann"} 7\n' in page


def test_health_is_503_with_the_reason_while_no_round_can_open():
    assert health_page(FIGURES)[0] == 200
    status, said = health_page(replace(FIGURES, missing="1 of 3 clients are connected, 2 are needed"))
    assert (status, json.loads(said)["problem"]) == (503, "round 8 waits: 1 of 3 clients are connected, 2 are needed")
    assert "pgfl_healthy" in metrics_page(FIGURES)
    assert health_page(replace(FIGURES, phase="finished", missing="anything"))[0] == 200
    stuck = replace(FIGURES, phase="collecting", seconds_since_round=700.0)
    assert (health_page(stuck)[0], stuck.problem) == (503, "no round was completed for 700 s")


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


def test_a_running_site_serves_its_figures(tmp_path):
    network = network_of(tmp_path, quorum={})

    async def scenario():
        site = site_of(network)
        running = asyncio.create_task(site.run())
        await until(lambda: hasattr(site, "service"))
        assert site.figures().missing == "0 of 1 clients are connected, 1 are needed"
        with taking_part(network, *network.clients_of(SITE)):
            await until(lambda: site.rounds.round > 2)
            figures = site.figures()
        site.stop("enough")
        await running
        return figures

    figures = asyncio.run(scenario())
    assert figures.round > 2
    assert figures.clients_connected == figures.clients_admitted == 1
    assert figures.releases[network.clients_of(SITE)[0]] >= 3
    assert figures.disk_free_bytes > 0
    assert figures.round_seconds > 0
