"""What the studio shows is true and told: stale comparisons, verdicts, the first minute, digits, telephones."""

import re

import pytest

from tests.studio.browser import open_page, series, wait_for_series

pytestmark = pytest.mark.proof
SMALL = "&set=data.servers%3D4&set=data.clients_per_server%3D4&set=data.dimension%3D10&set=graph.kind%3D%22ring%22"
FEW = SMALL + "&set=rounds%3D30"
RIDGE = (
    "&set=privacy.epsilon%3D8&set=privacy.x_norm%3D1&set=privacy.y_bound%3D5&set=privacy.w_norm%3D9&set=data.x_norm%3D1"
)


def test_a_comparison_goes_with_the_settings_that_it_was_made_for(server, context):
    page = open_page(context, server, f"/?preset=fig2{FEW}")
    before = wait_for_series(page, "curve", "FedAvg", length=31)
    page.get_by_role("switch", name="privacy").click()
    page.locator("#implied", has_text="This also changes").wait_for()
    page.wait_for_function("() => location.search.includes('privacy.enabled%3Dtrue')")
    wait_for_series(page, "curve", "before", length=31)
    now = series(page, "curve", "FedAvg")
    assert now is None or now != before, "the old one, without noise, would mislead"
    assert wait_for_series(page, "curve", "FedAvg", length=31) != before
    assert not page.errors


def test_what_cannot_be_compared_says_why(server, context):
    page = open_page(context, server, f"/?preset=fig2{FEW}{RIDGE}")
    wait_for_series(page, "curve", "PGFL", length=31)
    page.locator("#not-compared", has_text="FedAvg is not shown: Gradient steps on ridge").wait_for()
    assert series(page, "curve", "FedAvg") is None


def test_the_verdict_stands_with_its_figure_and_is_green_only_above_the_baseline(server, context):
    page = open_page(context, server, f"/?preset=fig2{FEW}")
    wait_for_series(page, "curve", "PGFL", length=31)
    verdict = page.locator("#play-verdict")
    verdict.filter(has_text=re.compile(r"NMSD -?\d+\.\d dB, 0 dB for models of zero")).wait_for()
    assert "good" in verdict.get_attribute("class")
    page = open_page(context, server, f"/?preset=fig3-guaranteed{FEW}&set=privacy.epsilon%3D0.1")
    verdict = page.locator("#play-verdict")
    verdict.filter(has_text="not useful").wait_for()
    assert "bad" in verdict.get_attribute("class")
    assert "good" not in verdict.get_attribute("class")


def test_the_first_minute_is_told_in_four_steps(server, context):
    page = open_page(context, server)
    reached = page.locator("#story-errors")
    for name in ("Alone", "Servers connected", "Clusters share", "Privacy on"):
        page.get_by_role("button", name=name).click()
        reached.filter(has_text=name).wait_for()
    errors = [float(text) for text in re.findall(r"(-\d+\.\d)", reached.inner_text())]
    assert errors[0] > errors[1] > errors[2] < errors[3] < errors[0]
    assert "ε = 8" in page.locator("#story-caption").inner_text()
    assert page.get_by_text("τ is borrowed", exact=False).count() == 0
    page.get_by_text("how much of a cluster’s model is borrowed", exact=False).first.wait_for()
    assert not page.errors


def test_digits_have_a_slider_of_epsilon_beside_their_pictures(server, context):
    few = "&set=data.servers%3D2&set=data.clients_per_server%3D3&set=rounds%3D3&set=graph.kind%3D%22line%22"
    page = open_page(context, server, f"/?preset=private-logistic-mnist{few}")
    page.get_by_text("of all test images right").first.wait_for()
    picture = page.locator(".digit-task img").first.get_attribute("src")
    field = page.locator("input#value-digits-epsilon")
    field.fill("500")
    field.press("Enter")
    page.wait_for_function("() => location.search.includes('privacy.epsilon%3D500')")
    page.wait_for_function("old => document.querySelector('.digit-task img').src !== old", arg=picture)
    assert page.locator("input#value-epsilon").input_value() == "500"
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("view", ["/", "/data", "/runs", "/network"])
def test_a_telephone_shows_one_column(server, chromium, view):
    context = chromium.new_context(viewport={"width": 390, "height": 844})
    page = open_page(context, server, view)
    page.wait_for_timeout(500)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    if view == "/":
        wait_for_series(page, "curve", "PGFL", length=40)
        curve = page.locator('[data-chart="curve"]').bounding_box()
        assert curve["width"] > 300
        assert curve["y"] < page.locator(".controls").bounding_box()["y"], "the picture comes before the sliders"
    context.close()


def test_a_sample_table_runs_to_the_end_of_its_bar_and_results_go_with_other_settings(server, context):
    page = open_page(context, server, "/data")
    page.get_by_role("button", name="Try a sample table").click()
    page.get_by_text("720 rows, 7 columns; 24 clients at 3 servers in 2 clusters").wait_for()
    page.get_by_text("names sample-visits.csv beside it").wait_for()
    page.get_by_role("button", name="Run", exact=True).click()
    verdict = page.locator("#verdict")
    verdict.filter(has_text="held-out rows").wait_for()
    assert page.locator("[role=progressbar]").first.get_attribute("aria-valuenow") == "1"
    assert "good" in verdict.get_attribute("class")
    page.get_by_role("switch", name="privacy").click()
    verdict.wait_for(state="hidden")
    assert not page.errors


def test_a_private_training_shows_its_privacy_card_as_text_to_paste(server, context):
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = open_page(context, server, f"/?preset=fig3-guaranteed{FEW}&set=privacy.epsilon%3D8")
    card = page.locator("#privacy-card")
    card.filter(has_text="for one replaced record, against everyone who sees all messages").wait_for()
    shown = card.inner_text()
    assert all(part in shown for part in ("(ε = ", "δ = 10⁻⁵", "Meaning", "Not covered", "pgfl "))
    page.get_by_role("button", name="Copy as text").click()
    text = page.locator("pre.code").inner_text()
    assert text.startswith("Differential privacy\nGuarantee: (ε = ")
    page.get_by_role("button", name="Close").click()
    page.get_by_role("switch", name="privacy").click()
    card.wait_for(state="hidden")
    assert not page.errors
