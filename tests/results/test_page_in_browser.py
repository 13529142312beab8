"""The run's page in a real browser: values under the cursor, zoom, and no request to anywhere."""

import numpy as np
import pytest

from pgfl.results import report
from tests.browser import browser, watched
from tests.sample_results import sample_result

RESULT = sample_result(runs=1, rounds=200)
NMSD = 10 * np.log10(RESULT.curve("nmsd")[0])


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    report.write(RESULT, folder)
    with browser() as chromium:
        page = chromium.new_page(viewport={"width": 1280, "height": 900})
        seen = watched(page)
        page.goto((folder / "report.html").as_uri())
        yield page
        assert seen == {"requests": [], "errors": []}


@pytest.fixture
def page(opened):
    opened.reload()
    return opened


def place(page, share, chart=0):
    """A point on a chart: a share of its rounds from the left."""
    page.locator(".frame svg").nth(chart).scroll_into_view_if_needed()
    box = page.locator(".frame svg").nth(chart).bounding_box()
    return box["x"] + box["width"] * (54 + share * (520 - 54 - 12)) / 520, box["y"] + box["height"] / 2


def drag(page, start, end):
    page.mouse.move(*place(page, start))
    page.mouse.down()
    page.mouse.move(*place(page, end), steps=4)
    page.mouse.up()


def values_shown(page, chart=0):
    """(round, value of all clients) as the box beside the cursor says."""
    words = page.locator(".tip").nth(chart).inner_text().split("\n")
    return int(words[0].removeprefix("round ")), float(words[2].split()[0])


def rounds_marked(page, chart=0):
    texts = page.locator(".frame svg").nth(chart).locator("text[text-anchor=middle]").all_text_contents()
    return [int(text) for text in texts]


def test_the_cursor_shows_the_values_of_the_history(page):
    for share in (0.0, 0.25, 0.5, 1.0):
        page.mouse.move(*place(page, share))
        round, value = values_shown(page)
        assert round == round_at(share)
        assert value == pytest.approx(NMSD[round], rel=1e-3)
    page.mouse.move(2, 2)
    assert not page.locator(".tip").first.is_visible()


def round_at(share):
    return int(200 * share)


def test_dragging_zooms_all_charts_into_the_same_rounds(page):
    assert page.locator(".reset").first.is_hidden()
    drag(page, 0.5, 0.75)
    for chart in range(page.locator(".frame").count()):
        assert min(rounds_marked(page, chart)) >= 100
        assert max(rounds_marked(page, chart)) <= 150
    page.mouse.move(*place(page, 0.0, chart=1))
    first = int(page.locator(".tip").nth(1).inner_text().split("\n")[0].removeprefix("round "))
    assert first in (100, 101)  # a pixel of the whole chart is almost half a round
    page.mouse.move(*place(page, 1.0))
    assert values_shown(page) == (150, pytest.approx(NMSD[150], rel=1e-3))


@pytest.mark.parametrize("way", ["button", "double click", "key"])
def test_the_zoom_can_be_undone(page, way):
    drag(page, 0.2, 0.4)
    assert max(rounds_marked(page)) <= 80
    if way == "button":
        page.get_by_role("button", name="Show all rounds").first.click()
    elif way == "double click":
        page.mouse.dblclick(*place(page, 0.5))
    else:
        page.locator(".frame").first.press("0")
    assert max(rounds_marked(page)) == 200


def test_a_click_or_a_tiny_drag_does_not_zoom(page):
    drag(page, 0.5, 0.505)
    page.mouse.click(*place(page, 0.5))
    assert max(rounds_marked(page)) == 200


def test_the_keyboard_reads_values_and_zooms(page):
    frame = page.locator(".frame").first
    frame.press("ArrowLeft")
    assert values_shown(page) == (200, pytest.approx(NMSD[200], rel=1e-3))
    frame.press("ArrowLeft")
    assert values_shown(page)[0] == 199
    frame.press("+")
    assert min(rounds_marked(page)) >= 149
    frame.press("-")
    assert min(rounds_marked(page)) < 149


def test_a_click_on_the_legend_hides_a_curve(page):
    paths = page.locator(".frame svg").first.locator("path")
    before = paths.count()
    page.get_by_role("button", name="adults").click()
    assert paths.count() == before - 1


@pytest.mark.proof
def test_a_page_with_wide_tables_fits_a_telephone(page):
    page.set_viewport_size({"width": 390, "height": 844})
    try:
        page.evaluate("""() => { const cell = document.querySelector('table td'); cell.style.whiteSpace = 'nowrap';
          cell.innerText = 'a name that is far wider than a telephone, which a table must scroll for '.repeat(2); }""")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
    finally:
        page.set_viewport_size({"width": 1280, "height": 900})
