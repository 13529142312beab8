"""One studio for all tests of a process, because starting it takes longest, and one browser for every file."""

import pytest

from tests.browser import browser
from tests.studio.browser import studio


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    with studio(tmp_path_factory.mktemp("studio")) as running:
        yield running


@pytest.fixture(scope="module")
def chromium():
    """Closed after every file: while it is open, no test of the process can start another or run an event loop."""
    with browser() as opened:
        yield opened


@pytest.fixture
def context(chromium):
    opened = chromium.new_context(viewport={"width": 1280, "height": 800})
    yield opened
    opened.close()
