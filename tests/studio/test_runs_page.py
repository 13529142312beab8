"""Runs in a real browser: compared, and live."""

import subprocess
import sys

import numpy as np
import pytest

from pgfl.results.result import Result
from tests.command_line import run
from tests.studio.browser import copied, open_page, saved_picture, series, wait_for_series

SMALL = ["data.servers=4", "data.clients_per_server=4", "data.dimension=8", "graph.kind=ring", "runs=1"]


def arguments(out, *changes):
    return ["run", "paper-fig2", "--out", str(out), *(part for one in (*SMALL, *changes) for part in ("--set", one))]


def test_two_runs_are_compared_and_the_first_is_copied(server, context, tmp_path):
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    first, second = server.folder / "results" / "first", server.folder / "results" / "second"
    assert run(*arguments(first, "rounds=20")).code == 0
    assert run(*arguments(second, "rounds=20", "algorithm.tau=0.0")).code == 0
    page = open_page(context, server, "/runs?run=first&run=second&metric=nmsd")
    for folder in (first, second):
        drawn = wait_for_series(page, "runs", folder.name, length=21)
        assert np.allclose([y for _, y in drawn], 10 * np.log10(Result.load(folder).curve("nmsd")[0]), atol=1e-9)
    rows = page.locator("section", has_text="What differs between the configs").last.locator("tbody tr")
    assert [row.split() for row in rows.all_inner_texts()] == [["algorithm.tau", "0.4", "0.0"]]
    text = copied(page, "config.toml")
    assert text == (first / "config.toml").read_text("utf-8")
    (tmp_path / "copied.py").write_text(copied(page, "Python"))
    ran = subprocess.run([sys.executable, tmp_path / "copied.py"], capture_output=True, text=True, check=True)
    assert float(ran.stdout.strip("[]\n")) == pytest.approx(Result.load(first).curve("nmsd")[0, -1], rel=1e-5)
    assert saved_picture(page, "runs").startswith(b"\x89PNG")
    page.get_by_role("row").filter(has_text="second").get_by_role("checkbox").click()
    page.wait_for_function("() => location.search === '?run=first&metric=nmsd'")


def test_a_run_is_seen_while_pgfl_run_writes_it(server, context):
    out = server.folder / "results" / "going-on"
    page = open_page(context, server, "/runs?run=going-on&metric=nmsd")
    command = [sys.executable, "-P", "-c", "from pgfl.cli import main; main()", *arguments(out, "rounds=1000000")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        page.get_by_role("row").filter(has_text="going-on").filter(has_text="running").wait_for()
        early = wait_for_series(page, "runs", "going-on", length=2)
        page.wait_for_function(
            """old => { const box = document.querySelector('[data-chart="runs"]');
            const found = getElement(Number(box.id.slice(1))).chart.getOption().series[0];
            return found && found.data[found.data.length - 1][0] > old; }""",
            arg=early[-1][0],
        )
        assert series(page, "runs", "going-on")[-1][0] > early[-1][0]
    finally:
        process.kill()
        process.wait()
    assert (out / "live.json").exists()


def test_a_finished_run_has_no_live_file(tmp_path):
    out = tmp_path / "whole"
    assert run(*arguments(out, "rounds=5")).code == 0
    assert not (out / "live.json").exists()
