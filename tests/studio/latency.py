"""How long it takes from the release of a slider to the new picture: `python -m tests.studio.latency`."""

import re
import statistics
import sys
import tempfile
from pathlib import Path

from tests.browser import browser
from tests.studio.browser import open_page, studio, wait_for_series

WATCH = """() => {
  const box = document.querySelector('[data-chart="curve"]');
  const chart = getElement(Number(box.id.slice(1))).chart;
  window.pressed = 0; window.drawn = [];
  const newest = () => JSON.stringify((chart.getOption().series.find(s => s && s.name === 'PGFL') || {}).data || null);
  window.last = newest();
  chart.on('finished', () => {
    const now = newest();
    if (window.pressed && now !== window.last) {
      window.drawn.push(performance.now() - window.pressed); window.last = now; window.pressed = 0;
    }
  });
  document.addEventListener('keyup', () => { window.pressed = performance.now(); }, true);
}"""
SETTLED = 8000  # milliseconds: kernels are loaded behind the first trainings


def measured(server, chromium, preset, presses):
    """Milliseconds from key-up to the picture of the exact curve, and of the training alone, press by press."""
    context = chromium.new_context(viewport={"width": 1280, "height": 800})
    page = open_page(context, server, f"/?preset={preset}")
    wait_for_series(page, "curve", "servers isolated", length=2)
    page.wait_for_timeout(SETTLED)
    page.evaluate(WATCH)
    slider = page.locator('[data-control="tau"] [tabindex="0"]')
    slider.focus()
    trained = []
    for number in range(presses):
        slider.press("ArrowLeft")
        page.wait_for_function("count => window.drawn.length > count", arg=number)
        page.wait_for_timeout(1500)
        said = page.locator(".figures", has_text="trained in").inner_text()
        trained.append(float(re.search(r"trained in\s+(\d+) ms", said).group(1)))
    found = page.evaluate("window.drawn")
    context.close()
    return found, trained


def main():
    with tempfile.TemporaryDirectory() as folder, studio(Path(folder)) as server, browser() as chromium:
        for preset in ("fig1", "fig2", "fig3-guaranteed", "private-huber"):
            found, trained = measured(server, chromium, preset, int(sys.argv[1]) if len(sys.argv) > 1 else 12)
            middle, alone = statistics.median(found), statistics.median(trained)
            print(
                f"{preset}: median {middle:.0f} ms, fastest {min(found):.0f} ms, n = {len(found)}; "
                f"{middle / alone:.2f} times the training itself ({alone:.0f} ms)"
            )


if __name__ == "__main__":
    main()
