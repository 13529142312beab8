"""Play in a real browser, by hand: dragging, hovering, clicking, playing, copying, saving, typing, in the dark."""

import subprocess
import sys
import tomllib

import numpy as np
import pytest

from pgfl import experiment
from pgfl.config import parse
from tests.studio.browser import copied, open_page, series, wait_for_series
from tests.studio.test_play_page import FEW_ROUNDS, decibels, state_of

PLAYED = f"/?preset=fig2{FEW_ROUNDS}"
POINT = """name => {
  const box = document.querySelector('[data-chart="network"]');
  const chart = getElement(Number(box.id.slice(1))).chart;
  const data = chart.getModel().getSeriesByIndex(0).getData();
  const place = data.getItemGraphicEl(data.indexOfName(name)).getBoundingRect().clone();
  const shape = data.getItemGraphicEl(data.indexOfName(name));
  const at = shape.transformCoordToGlobal(place.x + place.width / 2, place.y + place.height / 2);
  const frame = box.getBoundingClientRect();
  return [frame.x + at[0], frame.y + at[1]];
}"""

REMEMBER = """() => {
  const box = document.querySelector('[data-chart="curve"]');
  const chart = getElement(Number(box.id.slice(1))).chart, draw = chart.setOption.bind(chart);
  window.remembered = [];
  chart.setOption = (...options) => {
    draw(...options);
    window.remembered.push(chart.getOption().series.filter(one => one).map(one => one.name));
  };
}"""


@pytest.fixture
def page(server, context):
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    opened = open_page(context, server, PLAYED)
    wait_for_series(opened, "curve", "PGFL", length=31)
    yield opened
    assert not opened.errors


def test_dragging_previews_and_releasing_draws_the_exact_curve(page):
    first = series(page, "curve", "PGFL")
    bar = page.locator('[data-control="tau"]').bounding_box()
    page.mouse.move(bar["x"] + 0.42 * bar["width"], bar["y"] + bar["height"] / 2)
    page.mouse.down()
    page.mouse.move(bar["x"] + 0.7 * bar["width"], bar["y"] + bar["height"] / 2, steps=4)
    preview = wait_for_series(page, "curve", "preview", length=2)
    assert len(preview) < len(first)
    assert series(page, "curve", "PGFL") == first
    assert "algorithm.tau" not in page.url
    page.evaluate(REMEMBER)
    page.mouse.up()
    page.wait_for_function("() => location.search.includes('algorithm.tau')")
    assert wait_for_series(page, "curve", "before", length=31) == first
    exact = [names for names in page.evaluate("window.remembered") if "before" in names]
    assert exact and not any("preview" in names for names in exact)
    assert np.allclose([y for _, y in series(page, "curve", "PGFL")], decibels(state_of(page)), atol=1e-9)


def test_a_server_tells_its_models_on_hover_and_its_clients_on_click(page):
    page.get_by_text("Click a server").wait_for()
    x, y = page.evaluate(POINT, "server-1")
    page.mouse.move(x, y)
    page.get_by_text("4 clients, 2 neighbours").wait_for()
    page.mouse.click(x, y)
    detail = page.locator("#server-detail")
    detail.filter(has_text="neighbours: server-0, server-2").wait_for()
    assert detail.locator("tbody tr").count() == 3
    assert detail.get_by_text("clients (records):").inner_text().count("client-") == 4


def test_models_move_while_they_are_played_rest_when_paused_and_follow_the_slider(page):
    shown = page.get_by_text("round 30", exact=True)
    shown.wait_for()
    toggle = page.get_by_role("button", name="Play or pause")
    toggle.click()
    shown.wait_for(state="hidden")
    first = series(page, "plane", "cluster-0")
    wait_for_series(page, "plane", "cluster-0", length=len(first) + 3)
    toggle.click()
    page.get_by_role("button", name="Play or pause").filter(has_text="play_arrow").wait_for()
    paused = series(page, "plane", "cluster-0")
    assert len(first) < len(paused)
    page.wait_for_timeout(500)
    assert series(page, "plane", "cluster-0") == paused
    toggle.click()
    shown.wait_for()
    bar = page.get_by_label("Shown round").bounding_box()
    page.mouse.click(bar["x"] + 2, bar["y"] + bar["height"] / 2)
    page.get_by_text("round 1", exact=True).wait_for()


def test_both_copies_are_on_the_clipboard_and_train_the_same(page, tmp_path):
    last = series(page, "curve", "PGFL")[-1][1]
    for name in ("config.toml", "Python"):
        text = copied(page, name)
        if name == "Python":
            (tmp_path / "copied.py").write_text(text)
            ran = subprocess.run([sys.executable, tmp_path / "copied.py"], capture_output=True, text=True, check=True)
            final = float(ran.stdout.strip("[]\n"))
        else:
            final = experiment.run(parse(tomllib.loads(text))).curve("nmsd")[0, -1]
        assert 10 * np.log10(final) == pytest.approx(last, abs=1e-6)


def test_the_keyboard_reaches_every_control_and_the_page_does_not_scroll_sideways(page):
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    wanted = {"link Play", "tau", "rho", "participants", "Play or pause", "Save picture: network", "config.toml"}
    seen = set()
    page.evaluate("document.activeElement.blur()")
    for _ in range(90):
        page.keyboard.press("Tab")
        seen.add(
            page.evaluate(
                """() => { const at = document.activeElement, slider = at.closest('[data-control]');
                return slider ? slider.dataset.control : at.tagName === 'A' ? 'link ' + at.innerText
                : at.getAttribute('aria-label') || (at.querySelector('span.block') || at).innerText; }"""
            )
        )
        if wanted <= seen:
            break
    assert wanted <= seen


def test_the_dark_page_is_dark_and_stays_so(page):
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="Dark or light").click()
    page.wait_for_selector("body.body--dark")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert dark != light
    page.wait_for_function(
        """() => { const box = document.querySelector('[data-chart="curve"]');
        return getElement(Number(box.id.slice(1))).chart.getOption().textStyle.color === '#eef1f6'; }"""
    )
    page.reload()
    page.wait_for_selector("body.body--dark")


@pytest.mark.proof
@pytest.mark.parametrize("trust", ["site", "masked"])
def test_a_trust_level_is_trained_as_the_config_says(server, context, trust):
    private = f"/?preset=private-huber{FEW_ROUNDS}"
    page = open_page(context, server, private)
    local = wait_for_series(page, "curve", "PGFL", length=31)
    page.get_by_label("trust level").click()
    page.get_by_role("option", name=f"{trust}:").click()
    page.wait_for_function("() => location.search.includes('privacy.trust')")
    assert wait_for_series(page, "curve", "before", length=31) == local
    drawn = [y for _, y in series(page, "curve", "PGFL")]
    assert np.allclose(drawn, decibels(state_of(page)), atol=1e-9)
    assert drawn[-1] < local[-1][1]
    assert not page.errors
