"""The documentation site as `make docs` builds it: no warning, no dead link, nothing from the web."""

import html
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.browser import browser, watched
from tests.documented import ROOT

pytestmark = pytest.mark.proof
NAVIGATION = ("index", "search", "next", "prev", "author")
TUTORIALS = sorted(path.stem for path in (ROOT / "docs" / "tutorials").glob("*.md"))


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built once, from a copy of its sources: building writes pages of the reference beside them."""
    tree, left_out = tmp_path_factory.mktemp("site") / "tree", (".*", "__pycache__", "_build", "generated", "results")
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*left_out))
    folder = tree.parent / "html"
    build = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-j", "2", "-b", "html"]
    ran = subprocess.run([*build, tree / "docs", folder], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-4000:]
    return folder


class Links(HTMLParser):
    """What a page links to, what it loads, and the places in it that can be linked to."""

    def __init__(self, text):
        super().__init__()
        self.linked, self.loaded, self.ids = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.ids |= {value for key, value in attrs if key in ("id", "name") and value}
        if tag == "a" and given.get("href"):
            self.linked.append(given["href"])
        elif (
            tag == "link"
            and given.get("href")
            and given.get("rel") not in ("index", "search", "next", "prev", "author")
        ):
            self.loaded.append(given["href"])
        elif given.get("src"):
            self.loaded.append(given["src"])


@pytest.fixture(scope="module")
def pages(site):
    return {path: Links(path.read_text("utf-8")) for path in sorted(site.rglob("*.html"))}


def test_every_link_within_the_site_leads_somewhere(site, pages):
    dead = []
    for path, page in pages.items():
        for link in page.linked:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            known = pages[target].ids if target in pages else None
            if not target.exists() or (parts.fragment and known is not None and unquote(parts.fragment) not in known):
                dead.append(f"{path.relative_to(site)}: {link}")
    assert len(pages) > 35
    assert dead == []


def test_nothing_is_loaded_from_the_web(site, pages):
    outside = [f"{path.name}: {url}" for path, page in pages.items() for url in page.loaded if "//" in url]
    assert outside == []
    for path in (*site.rglob("*.css"), *site.rglob("*.html")):
        assert not re.search(r"@import|url\(\s*[\"']?(?:https?:)?//", path.read_text("utf-8")), path


@pytest.mark.parametrize("name", TUTORIALS)
def test_every_tutorial_was_executed(site, name):
    page = (site / "tutorials" / f"{name}.html").read_text("utf-8")
    assert page.count("cell_output") >= 2
    assert "Traceback" not in page


def test_cards_and_pictures_are_on_the_pages(site):
    page = (site / "tutorials" / "first-federation.html").read_text("utf-8")
    assert page.count('class="pgfl-card"') == 3
    assert page.count("<svg") > 3
    assert page.count('<img alt="../_images') >= 2


def test_a_reader_without_a_network_can_read_and_search(site):
    with browser() as chromium:
        context = chromium.new_context(offline=True)
        page = context.new_page()
        seen = watched(page)
        page.goto((site / "index.html").as_uri())
        assert page.get_by_role("heading", name="pgfl").is_visible()
        page.get_by_role("link", name="Your own table").first.click()
        page.wait_for_url("**/own-table.html")
        assert page.locator(".pgfl-card").count() == 2
        page.goto(f"{(site / 'search.html').as_uri()}?q=max_releases")
        page.wait_for_selector("#search-results li a")
        page.locator("#search-results .excerpt mark", has_text="max_releases").first.wait_for()
        assert page.locator("#search-results .excerpt").count() >= page.locator("#search-results li").count() / 2
        assert seen == {"requests": [], "errors": []}


def test_links_in_the_repository_lead_to_files():
    """README.md and docs/, read as files: every relative link is a file, or a page that is generated."""
    dead = []
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")):
        if {"_build", "generated"} & set(page.parts):
            continue
        for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)):
            path = urlsplit(link).path
            if urlsplit(link).scheme or not path or "generated/" in path:
                continue
            if not (page.parent / unquote(path)).exists():
                dead.append(f"{page.relative_to(ROOT)}: {link}")
    assert dead == []


def test_the_site_s_pictures_are_small():
    sizes = {path.name: path.stat().st_size for path in Path(ROOT, "docs", "pictures").iterdir()}
    assert sizes
    assert max(sizes.values()) < 400_000


def test_what_programs_print_stands_as_it_was_printed(site):
    table = html.unescape((site / "tutorials" / "own-table.html").read_text("utf-8"))
    assert re.search(r"(?m)^sex-2 +6 +6 +6 +6 +24$", table), "no line is broken where a chunk of the output ended"
    messages = html.unescape((site / "reference" / "generated" / "messages.html").read_text("utf-8"))
    assert "--bounds takes two numbers, as in age=18:90" in messages
    assert 'The metric "distance" needs all data in one place' in messages
