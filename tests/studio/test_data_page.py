"""Your data in a real browser: from a table to predictions."""

import ast
import csv
import random
import re
import subprocess
import sys
import tomllib

import pytest

from pgfl import experiment
from pgfl.config import load_config, parse
from pgfl.results.result import Result
from tests.studio.browser import copied, open_page, saved_picture, series


@pytest.fixture
def table(tmp_path):
    draw = random.Random(3)
    path = tmp_path / "visits.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["client", "server", "age", "y"])
        for client in range(6):
            for _ in range(12):
                age = draw.uniform(20, 80)
                rows.writerow([f"c{client}", f"s{client % 2}", f"{age:.1f}", f"{0.5 * age + draw.gauss(0, 1):.2f}"])
    return path


def test_from_a_dropped_table_to_predictions_and_a_download(server, context, table):
    page = open_page(context, server, "/data")
    page.locator("input[type=file]").set_input_files(table)
    page.get_by_text("72 rows, 4 columns; 6 clients at 2 servers in 1 cluster;").wait_for()
    assert 'kind = "table"' in page.locator("textarea").first.input_value()
    page.get_by_role("button", name="Run", exact=True).click()
    page.locator("#verdict", has_text="converged").wait_for()
    page.get_by_role("cell", name="all clients").wait_for()
    coefficients = page.locator("section", has_text="Coefficients").last.inner_text()
    assert "age" in coefficients
    page.get_by_role("button", name="Predict", exact=True).click()
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download", exact=True).click()
    with open(saved.value.path(), newline="") as file:
        rows = list(csv.DictReader(file))
    (folder,) = (server.folder / "results").glob("visits-*")
    expected = Result.load(folder).predict(
        {"client": ["c0"], "server": ["s0"], "age": [float(rows[0]["age"])]}, cluster="all"
    )
    assert float(rows[0]["prediction"]) == pytest.approx(float(expected[0]))
    assert len(rows) == 72
    assert page.hosts <= {server.base.removeprefix("http://"), "data", "blob"}
    assert not page.errors


def test_privacy_asks_for_public_bounds_beside_the_columns(server, context, table):
    page = open_page(context, server, f"/data?table={table}&epsilon=4")
    said = page.get_by_text('Privacy needs public facts about age, y: fill in the "declared" column below.')
    said.wait_for()
    for name, bounds in (("age", "18:90"), ("y", "0:60")):
        field = page.get_by_label(f"Public bounds or categories of {name}")
        field.fill(bounds)
        field.press("Enter")
    said.wait_for(state="hidden")
    page.wait_for_function("() => location.search.includes('bounds=age%3D18%3A90')")
    assert "bounds = [18.0, 90.0]" in page.locator("textarea").first.input_value()
    page.get_by_role("button", name="Plan", exact=True).wait_for()


def test_a_table_that_cannot_be_read_gets_one_sentence(server, context, tmp_path):
    page = open_page(context, server, f"/data?table={tmp_path / 'missing.csv'}")
    page.locator(".wrong", has_text="missing.csv").wait_for()
    assert not page.get_by_role("button", name="Run", exact=True).is_visible()


def test_a_run_is_stopped_goes_on_and_ends_as_if_it_had_not_been_stopped(server, context, table):
    page = open_page(context, server, f"/data?table={table}&target=y")
    text = page.locator("textarea").first
    page.wait_for_function("() => document.querySelector('textarea').value.includes('kind')")
    settings = re.sub(r"(?m)^rounds = .*$", "", text.input_value())
    long = 'rounds = 40000\nrecord_every = 1000\ncheckpoint_every = 10000\nstop = "never"\n'  # to be stopped, yet quick
    text.fill(long + re.sub(r"(?m)^stop = .*$", "", settings))
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_text(re.compile(r"^round [1-9]\d* of 40000")).wait_for()
    page.get_by_role("button", name="Stop").first.click()
    page.get_by_text(re.compile("stopped; .* keeps a checkpoint")).wait_for()
    assert not page.locator("#verdict").is_visible()
    page.get_by_role("button", name="Go on").click()
    page.locator("#verdict", has_text=re.compile(".")).wait_for()
    page.get_by_text(re.compile("^40000 rounds in ")).wait_for()
    assert not page.errors


@pytest.mark.proof
def test_a_plan_is_drawn_stopped_and_taken_over(server, context, table):
    page = open_page(context, server, f"/data?table={table}&epsilon=8&bounds=age%3D18:90&bounds=y%3D0:60")
    plan = page.get_by_role("button", name="Plan", exact=True)
    plan.click()
    page.get_by_text("trying settings on made-up data").wait_for()
    page.locator("section[aria-label=Plan]").get_by_role("button", name="Stop").click()
    page.get_by_text("stopped", exact=True).wait_for()
    before = page.locator("textarea").first.input_value()
    plan.click()
    page.get_by_role("button", name="Use these settings").click()
    page.wait_for_function("old => document.querySelector('textarea').value !== old", arg=before)
    assert series(page, "plan", "predicted")
    assert "epsilon = 8.0" in page.locator("textarea").first.input_value()
    assert not page.errors


@pytest.mark.proof
def test_both_copies_train_the_same_and_the_picture_is_saved(server, context, table, tmp_path):
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = open_page(context, server, f"/data?table={table}&target=y")
    page.wait_for_function("() => document.querySelector('textarea').value.includes('kind')")
    text = copied(page, "config.toml")
    assert text == page.locator("textarea").first.input_value()
    config = parse(tomllib.loads(text))
    measured = {one.name: one.whole.value for one in experiment.run(config).measures}
    (tmp_path / "copied.py").write_text(copied(page, "Python"))
    ran = subprocess.run([sys.executable, tmp_path / "copied.py"], capture_output=True, text=True, check=True)
    assert ast.literal_eval(ran.stdout) == pytest.approx(measured) and measured
    page.get_by_role("button", name="Run", exact=True).click()
    page.locator("#verdict", has_text=re.compile(".")).wait_for()
    assert saved_picture(page, "run").startswith(b"\x89PNG")
    assert not page.errors


@pytest.mark.proof
def test_a_trust_level_goes_into_the_address_the_config_and_the_run(server, context, table):
    public = "bounds=age%3D18:90&bounds=y%3D0:60"
    page = open_page(context, server, f"/data?table={table}&epsilon=8&{public}")
    page.wait_for_function("() => document.querySelector('textarea').value.includes('[privacy]')")
    page.get_by_label("trust level").click()
    page.get_by_role("option", name="site:").click()
    page.wait_for_function("() => location.search.includes('trust=site')")
    page.wait_for_function("() => document.querySelector('textarea').value.includes('trust = \"site\"')")
    shared = open_page(context, server, f"/data{page.evaluate('location.search')}")
    shared.wait_for_function("() => document.querySelector('textarea').value.includes('trust = \"site\"')")
    before = set((server.folder / "results").glob("visits-*"))
    shared.get_by_role("button", name="Run", exact=True).click()
    shared.locator("#verdict", has_text=re.compile(".")).wait_for()
    shared.locator("#privacy-card").filter(has_text="against everyone but the client's own site").wait_for()
    (folder,) = set((server.folder / "results").glob("visits-*")) - before
    result = Result.load(folder)
    assert result.config.privacy.trust == "site"
    assert 0 < result.spending()["epsilon"]["worst"] <= 8
    assert not page.errors + shared.errors


@pytest.mark.proof
def test_a_config_of_a_dropped_table_works_tomorrow_beside_the_table(server, context, table, tmp_path):
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = open_page(context, server, "/data")
    page.locator("input[type=file]").set_input_files(table)
    page.get_by_text("names visits.csv beside it").wait_for()
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "study.toml").write_text(copied(page, "config.toml"))
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download the table").click()
    saved.value.save_as(kept / saved.value.suggested_filename)
    assert (kept / "visits.csv").read_bytes() == table.read_bytes()
    assert load_config(str(kept / "study.toml")).data.table == str(kept / "visits.csv")
    result = experiment.run(load_config(str(kept / "study.toml"), ["rounds=3"]))
    assert len(result.client_ids) == 6
    assert str(server.temporary) not in (kept / "study.toml").read_text()


@pytest.mark.proof
def test_clusters_weights_and_curves_are_found_in_a_table_and_shown(server, context):
    page = open_page(context, server, "/data")
    page.get_by_role("button", name="Try a sample table").click()
    page.get_by_text("24 clients at 3 servers in 2 clusters").wait_for()
    assert page.locator("section", has_text="Columns").last.get_by_text("with --target").count() == 0
    for label, option in (("columns act as", "curves"), ("clusters", "found from models")):
        page.get_by_label(label, exact=True).click()
        page.get_by_role("option", name=option, exact=True).click()
    page.get_by_label("a cluster learns").click()
    page.get_by_role("option", name="from others where that helps").click()
    text = page.locator("textarea").first
    page.wait_for_function("() => document.querySelector('textarea').value.includes('tau = \"auto\"')")
    assert 'map = "curves"' in text.input_value() and "discover = true" in text.input_value()
    assert {"map=curves", "clusters=found", "learn=auto"} <= set(page.url.partition("?")[2].split("&"))
    page.get_by_role("button", name="Run", exact=True).click()
    found = page.locator("section", has_text="What was found").last
    found.get_by_text("Effect of age", exact=True).wait_for()
    assert found.locator("svg polyline, svg path").count() > 0
    (folder,) = (server.folder / "results").glob("sample-visits-*")
    result = Result.load(folder)
    assert all(note.split(". ")[0] in found.inner_text() for note in result.notes)
    assert not page.errors
