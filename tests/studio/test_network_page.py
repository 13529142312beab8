"""Network in a real browser: a client is killed and brought back, and a site is watched."""

import re

import pytest

from tests.studio.browser import open_page, wait_for_series


@pytest.mark.proof
def test_the_demo_network_runs_on_without_a_killed_client_and_takes_it_back(server, context):
    page = open_page(context, server, "/network")
    page.get_by_label("sites", exact=True).fill("1")
    page.get_by_role("button", name="Start").click()
    page.locator("#demo-state", has_text=re.compile(r"round [1-9]")).wait_for()
    client = page.locator("[data-client]").first
    name = client.get_attribute("data-client")
    page.get_by_role("button", name=f"Kill {name}").click()
    page.get_by_role("button", name=f"Bring back {name}").wait_for()
    before = int(re.search(r"round (\d+)", page.locator("#demo-state").inner_text()).group(1))
    page.wait_for_function(
        "old => Number(document.querySelector('#demo-state').innerText.match(/round (\\d+)/)[1]) > old + 1",
        arg=before,
    )
    page.get_by_role("button", name=f"Bring back {name}").click()
    page.get_by_role("button", name=f"Kill {name}").wait_for()
    (home,) = (path.parent for path in server.temporary.glob("pgfl-studio-network-*/**/site.toml"))
    page.get_by_label("Site folder").fill(str(home))
    page.get_by_role("button", name="Watch").click()
    rows = page.locator("section", has_text="Monitor a site").last.get_by_role("row")
    row = rows.filter(has=page.get_by_role("cell", name=name, exact=True))
    row.wait_for()
    page.wait_for_function("() => [...document.querySelectorAll('th')].some(cell => cell.innerText === 'ε left')")
    assert 0 < float(row.locator("td").last.inner_text()) < 20
    page.get_by_role("button", name="site.toml").click()
    assert page.locator("pre.code").inner_text() == (home / "site.toml").read_text()
    page.get_by_role("button", name="Close").click()
    learned = wait_for_series(page, "errors", "server-0", length=20)
    assert learned[-1][1] < -5.0 < learned[0][1], "models of zero have 0 dB"
    page.get_by_text("The data are made up, so the true models are known").wait_for()
    page.get_by_role("button", name="Stop").click()
    page.locator("#demo-state", has_text="ended").wait_for()
    assert not page.errors


def test_a_folder_that_is_no_site_gets_one_sentence(server, context, tmp_path):
    page = open_page(context, server, f"/network?site={tmp_path}")
    page.locator(".wrong", has_text=re.compile("site", re.IGNORECASE)).wait_for()
