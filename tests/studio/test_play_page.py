"""The Play view in a real browser: what is drawn is what `train` gives."""

import re
import tomllib

import numpy as np
import pytest

from pgfl import experiment
from pgfl.config import parse
from pgfl.studio.play_state import PlayState
from tests.studio.browser import open_page, series, wait_for_series

SMALL = "&set=data.servers%3D4&set=data.clients_per_server%3D4&set=data.dimension%3D10&set=graph.kind%3D%22ring%22"
FEW_ROUNDS = SMALL + "&set=rounds%3D30"


def decibels(state):
    """NMSD of every round, as `pgfl run` computes it."""
    curve = experiment.run(state.config()).curve("nmsd")[0]
    return 10 * np.log10(curve)


def state_of(page):
    query = re.findall(r"[?&](preset|set)=([^&]*)", page.url)
    from urllib.parse import unquote_plus

    values = [(key, unquote_plus(value)) for key, value in query]
    return PlayState.of_query(dict(values)["preset"], [value for key, value in values if key == "set"])


def test_the_first_page_draws_the_paper_s_first_figure_and_asks_no_other_host(server, context):
    page = open_page(context, server, "/?preset=fig1")
    drawn = wait_for_series(page, "curve", "PGFL", length=301)
    assert np.allclose([y for _, y in drawn], decibels(PlayState("fig1")), atol=1e-9)
    page.get_by_text("Crosses: the truth").wait_for()
    assert page.locator(".claim").count() == 6
    assert page.locator(".claim .tag", has_text="holds").first.is_visible()
    wait_for_series(page, "curve", "FedAvg", length=301)
    wait_for_series(page, "curve", "servers isolated", length=301)
    assert page.hosts <= {server.base.removeprefix("http://"), "data", "blob"}
    assert page.errors == []


def test_a_slider_redraws_the_curve_with_the_values_that_train_gives(server, context):
    page = open_page(context, server, f"/?preset=fig2{FEW_ROUNDS}")
    first = wait_for_series(page, "curve", "PGFL", length=31)
    assert series(page, "curve", "before") is None
    slider = page.locator('[data-control="tau"] [tabindex="0"]')
    slider.focus()
    for tau in ("0.39", "0.38", "0.37", "0.36", "0.35"):  # one at a time: a slow page may answer late
        slider.press("ArrowLeft")
        page.wait_for_function(f"() => location.search.includes('algorithm.tau%3D{tau}')")
    ghost = wait_for_series(page, "curve", "before", length=31)
    expected = decibels(state_of(page))
    page.wait_for_function(
        """last => { const box = document.querySelector('[data-chart="curve"]');
        const found = getElement(Number(box.id.slice(1))).chart.getOption().series.find(s => s && s.name === 'PGFL');
        return found && found.data.length === 31 && Math.abs(found.data[30][1] - last) < 1e-9; }""",
        arg=float(expected[-1]),
    )
    drawn = series(page, "curve", "PGFL")
    assert np.allclose([y for _, y in drawn], expected, atol=1e-9)
    assert not np.allclose([y for _, y in drawn], [y for _, y in first])
    assert len(ghost) == 31
    assert not page.errors


def test_a_wrong_value_gets_the_program_s_own_sentence_beside_its_field(server, context):
    page = open_page(context, server, f"/?preset=fig2{FEW_ROUNDS}")
    wait_for_series(page, "curve", "PGFL", length=31)
    field = page.locator("input#value-rho")
    field.fill("-3")
    field.press("Enter")
    said = page.locator(".control", has=field).locator(".wrong")
    said.filter(has_text="`algorithm.rho` must be above 0").wait_for()
    field.fill("3")
    field.press("Enter")
    page.wait_for_function("() => location.search.includes('algorithm.rho%3D3.0')")
    assert said.inner_text() == ""


def test_what_is_copied_trains_the_same(server, context):
    page = open_page(context, server, f"/?preset=fig2{FEW_ROUNDS}&set=algorithm.tau%3D0.2")
    drawn = [y for _, y in wait_for_series(page, "curve", "PGFL", length=31)]
    page.get_by_role("button", name="config.toml").click()
    text = page.locator("pre.code").inner_text()
    curve = experiment.run(parse(tomllib.loads(text))).curve("nmsd")[0]
    assert np.allclose(10 * np.log10(curve), drawn, atol=1e-9)
    with page.expect_download() as saved:
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Save picture: learning-curve").click()
    assert saved.value.suggested_filename == "learning-curve.png"


def test_privacy_shows_what_clients_spend_and_the_error_against_epsilon(server, context):
    page = open_page(
        context,
        server,
        f"/?preset=fig3-guaranteed{FEW_ROUNDS}&set=privacy.epsilon%3D5&set=algorithm.participants%3Dall",
    )
    wait_for_series(page, "curve", "PGFL", length=31)
    points = wait_for_series(page, "epsilon", "at this ε", length=7)
    assert [round(x, 3) for x, _ in points] == [0.5, 1.25, 2.5, 5, 10, 20, 50]
    spent = [item for name in ("cluster-0", "cluster-1", "cluster-2") for item in series(page, "spent", name) if item]
    result = experiment.run(state_of(page).config())
    assert sorted(item["value"] for item in spent) == pytest.approx(sorted(result.privacy[0]["epsilon"]))


@pytest.mark.proof
def test_digits_come_with_images_and_learned_weights(server, context):
    few = "&set=data.servers%3D2&set=data.clients_per_server%3D3&set=rounds%3D3&set=record_every%3D3"
    page = open_page(context, server, f"/?preset=fig7{few}")
    page.wait_for_function("() => document.querySelectorAll('.digit-task').length === 3")
    assert page.locator(".digit-task img").count() == 3 * 7
    assert page.locator(".digit-task img").first.get_attribute("src").startswith("data:image/png;base64,")
    page.get_by_text("each server’s own model.", exact=False).wait_for()
    assert not page.get_by_text("Crosses: the truth").count(), "of digits there is no truth to draw"
