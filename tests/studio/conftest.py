"""One studio and one browser for all tests of a process: starting them takes longest."""

import pytest

from tests.browser import browser
from tests.studio.browser import studio


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    with studio(tmp_path_factory.mktemp("studio")) as running:
        yield running


@pytest.fixture(scope="session")
def chromium():
    with browser() as opened:
        yield opened


@pytest.fixture
def context(chromium):
    opened = chromium.new_context(viewport={"width": 1280, "height": 800})
    yield opened
    opened.close()
