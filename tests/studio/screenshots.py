"""Screenshots of every view for the documentation: `make screenshots`.

With --all as the first name, every view on a laptop and on a telephone, by day and by night, to look at: the studio's,
a run's report, a site's page, and pages of the documentation if `make docs` has built them.
"""

import re
import sys
import tempfile
from itertools import product
from pathlib import Path

from pgfl.studio.sample_table import write_sample
from tests.browser import browser
from tests.command_line import run
from tests.studio.browser import open_page, studio, wait_for_series

SIZE, TELEPHONE = {"width": 1280, "height": 860}, {"width": 390, "height": 844}
FOLDER = "study"
RENAME = """([scratch, kept]) => {
  for (const field of document.querySelectorAll('input, textarea')) field.value = field.value.replaceAll(scratch, kept);
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(scratch, kept);
}"""
"""The folder of these pictures is gone afterwards; a reader has one of their own."""


def play(page):
    """Fig. 1 with another τ, the previous curve as a ghost, and a server's details."""
    for name in ("FedAvg", "servers isolated"):
        wait_for_series(page, "curve", name, length=300)
    field = page.locator("input#value-tau")
    field.fill("0.1")
    field.press("Enter")
    wait_for_series(page, "curve", "before", length=300)
    settle(page)


def private(page):
    """A private training with everything beside it."""
    wait_for_series(page, "epsilon", "at this ε", length=7)
    settle(page)


def digits(page):
    """The learned weights, and what the models say."""
    page.wait_for_function("() => document.querySelectorAll('.digit-task').length === 3")
    wait_for_series(page, "curve", "servers isolated", length=2)
    wait_for_series(page, "epsilon", "at this ε", length=7)
    settle(page)


def data(page):
    """A table, trained on and predicted."""
    page.get_by_role("button", name="Run", exact=True).click()
    page.locator("#verdict", has_text=re.compile(".")).wait_for()
    page.get_by_role("button", name="Predict", exact=True).click()
    page.get_by_role("button", name="Download", exact=True).wait_for()
    settle(page)


def runs(page):
    """Three runs over each other."""
    wait_for_series(page, "runs", "tau-0.4", length=100)
    settle(page)


def network(page):
    """A network of processes, one client killed; the one of the picture before is stopped first."""
    page.locator("#demo-state", has_text=re.compile(".")).wait_for()
    if page.get_by_role("button", name="Stop", exact=True).is_visible():
        page.get_by_role("button", name="Stop", exact=True).click()
    page.get_by_role("button", name="Start").click()
    page.locator("#demo-state", has_text=re.compile(r"^\s*round [1-9]\d")).wait_for()
    name = page.locator("[data-client]").first.get_attribute("data-client")
    page.get_by_role("button", name=f"Kill {name}").click()
    page.get_by_role("button", name=f"Bring back {name}").wait_for()
    settle(page)


def settle(page):
    """Wait until nothing moves any more."""
    page.evaluate("document.activeElement.blur(); window.scrollTo(0, 0)")
    page.mouse.move(5, 400)
    page.wait_for_timeout(1500)


def story(page):
    """The first minute, at its last step."""
    for name in ("Servers connected", "Clusters share", "Privacy on"):
        page.get_by_role("button", name=name).click()
        page.locator("#story-errors", has_text=name).wait_for()
    wait_for_series(page, "epsilon", "at this ε", length=7)
    settle(page)
    page.wait_for_timeout(8000)  # until the models have moved to their last round


VIEWS = {
    "story": ("/", story, "light", True),
    "play": ("/?preset=fig1&seed=0", play, "light", False),
    "play-private": ("/?preset=private-huber", private, "light", True),
    "play-dark": ("/?preset=fig2", play, "dark", False),
    "digits": ("/?preset=private-logistic-mnist", digits, "light", True),
    "data": ("/data?table=visits.csv", data, "light", True),
    "runs": ("/runs?run=tau-0.4&run=tau-0&run=fedavg&metric=nmsd", runs, "light", True),
    "network": ("/network", network, "light", True),
}


DOCUMENTATION = Path("docs/_build/html")
PAGES = {
    "docs-index": "index.html",
    "docs-gallery": "gallery.html",
    "docs-reproduction": "reproduction.html",
    "docs-privacy": "explanations/privacy-in-one-screen.html",
    "docs-api": "reference/generated/api.html",
    "docs-object": "reference/generated/api/PGFL.html",
    "docs-search": "search.html?q=masked",
}


OWN = {"report": "private/report.html", "report-found": "found/report.html", "site": "site.html"}


def pages(folder, chosen):
    """Addresses of the chosen pages that need no studio: two reports, a site's page, and the documentation."""
    if OWN.keys() & set(chosen):
        make_pages(folder)
    built = DOCUMENTATION.resolve()
    own = {name: (folder / path).as_uri() for name, path in OWN.items()}
    every = own | {name: f"{built.as_uri()}/{path}" for name, path in PAGES.items() if built.is_dir()}
    return {name: address for name, address in every.items() if name in chosen}


def make_pages(folder):
    """Runs with their reports, and a network with a site's page."""
    assert run("run", "private-huber", "--out", str(folder / "private")).code == 0
    write_sample(folder)
    table = ["--target", "pressure", "--out", str(folder / "own.toml")]
    assert run("init", str(folder / "sample-visits.csv"), *table).code == 0
    changes = ("clusters.discover=true", "data.map=auto", "algorithm.kind=pgfl", "algorithm.tau=auto")
    settings = [part for one in changes for part in ("--set", one)]
    assert run("run", str(folder / "own.toml"), "--out", str(folder / "found"), *settings).code == 0
    kept = folder / "network"
    assert run("network", "demo", "--rounds", "12", "--keep", str(kept)).code == 0
    settings = next(kept.rglob("site.toml"))
    assert run("site", "page", str(settings), str(folder / "site.html")).code == 0


def take_pages(chromium, folder, scratch, chosen):
    """Pictures of pages that are files."""
    for name, address in pages(scratch, chosen or [*OWN, *PAGES]).items():
        for size, colours in product((SIZE, TELEPHONE), ("light", "dark")):
            context = chromium.new_context(viewport=size, color_scheme=colours)
            page = context.new_page()
            page.goto(address)
            page.wait_for_timeout(800)
            file = folder / f"{name}-{size['width']}-{colours}.png"
            page.screenshot(path=file, full_page=True)
            context.close()
            print(file, flush=True)


def prepare(folder):
    """Runs to compare, and a table."""
    for name, changes in {"tau-0.4": [], "tau-0": ["algorithm.tau=0.0"], "fedavg": ["algorithm.kind=fedavg"]}.items():
        settings = ["runs=1", "rounds=150", "algorithm.step_size=0.02", *changes]
        arguments = [part for one in settings for part in ("--set", one)]
        assert run("run", "paper-fig2", "--out", str(folder / "results" / name), *arguments).code == 0
    write_sample(folder).rename(folder / "visits.csv")


def main(folder, chosen):
    """Make the pictures that are asked for, or all."""
    folder.mkdir(parents=True, exist_ok=True)
    every, chosen = "--all" in chosen, [name for name in chosen if name != "--all"]
    with tempfile.TemporaryDirectory() as scratch, studio(Path(scratch)) as server, browser() as chromium:
        if every:
            take_pages(chromium, folder, Path(scratch), chosen)
        views = [name for name in chosen or VIEWS if name in VIEWS]
        if views:
            prepare(server.folder)
        for name in views:
            path, act, scheme, whole = VIEWS[name]
            path = path.replace("visits.csv", f"{server.folder / 'visits.csv'}&target=pressure&map=curves&learn=auto")
            variants = product((SIZE, TELEPHONE), ("light", "dark")) if every else [(SIZE, scheme)]
            for size, colours in variants:
                context = chromium.new_context(viewport=size, color_scheme=colours)
                page = open_page(context, server, path)
                act(page)
                assert page.errors == [], page.errors
                page.evaluate(RENAME, [str(server.folder.resolve()), FOLDER])
                file = folder / (f"{name}-{size['width']}-{colours}.png" if every else f"{name}.png")
                page.screenshot(path=file, full_page=whole or every)
                context.close()
                print(file, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/studio"), sys.argv[2:])
