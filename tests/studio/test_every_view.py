"""Your data, Runs and Network in a real browser: by keyboard, on a small laptop, in the dark."""

import pytest

from tests.studio.browser import open_page

REACHED = {
    "/data": {"link Your data", "or the path of a file", "Read", "Share", "Dark or light"},
    "/runs": {"link Runs", "measure", "Save picture: runs", "config.toml", "Python"},
    "/network": {"link Network", "sites", "Start", "Site folder", "Watch"},
}
FOCUSED = """() => {
  const at = document.activeElement;
  if (at.tagName === 'A') return 'link ' + at.innerText;
  const named = at.getAttribute('aria-label') || (at.labels && at.labels.length ? at.labels[0].innerText : '');
  return named || (at.querySelector('span.block') || at).innerText || '';
}"""
LUMINANCE = """() => {
  const light = colour => {
    const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255)
      .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = element => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (!/^rgba\\(.*, 0(\\.\\d+)?\\)$/.test(colour)) return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  const found = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement, box = element.getBoundingClientRect();
    const hidden = element.closest('script, style, .q-icon, .disabled, canvas') || !element.checkVisibility();
    if (hidden || !texts.currentNode.data.trim() || box.width < 2) continue;
    const [a, b] = [light(getComputedStyle(element).color), light(behind(element))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) found.push([texts.currentNode.data.trim().slice(0, 40), contrast.toFixed(2)]);
  }
  return found;
}"""
"""Texts that are harder to read than WCAG's level AA asks for: a contrast of 4.5."""


@pytest.mark.parametrize("view", REACHED)
def test_a_view_is_reached_by_keyboard_fits_a_laptop_and_can_be_read_in_the_dark(server, context, view):
    page = open_page(context, server, view)
    seen = set()
    page.evaluate("document.activeElement.blur()")
    for _ in range(40):
        page.keyboard.press("Tab")
        seen.add(page.evaluate(FOCUSED))
        if REACHED[view] <= seen:
            break
    assert REACHED[view] <= seen
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    assert not page.evaluate(LUMINANCE)
    page.get_by_role("button", name="Dark or light").click()
    page.wait_for_selector("body.body--dark")
    page.wait_for_function("() => !document.getAnimations().some(one => one instanceof CSSTransition)")  # colours fade
    assert not page.evaluate(LUMINANCE)
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    assert not page.errors
