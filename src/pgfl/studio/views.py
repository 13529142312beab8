"""The pages of the studio, and what they share."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from nicegui import ui
from nicegui.client import Client

from pgfl.errors import ConfigError
from pgfl.studio.data_view import DataView
from pgfl.studio.demo_network import DemoNetwork
from pgfl.studio.network_view import NetworkView
from pgfl.studio.play_state import PlayState
from pgfl.studio.play_view import PlayView
from pgfl.studio.runs_view import RunsView
from pgfl.studio.shell import shell
from pgfl.studio.table_form import TableForm
from pgfl.studio.workers import Workers


class Studio:
    """What all pages share: processes that train, the folder of results, a folder for tables, a network."""

    def __init__(self, results: Path) -> None:
        self.workers, self.results, self.demo = Workers(), results, DemoNetwork()
        self.workspace = Path(tempfile.mkdtemp(prefix="pgfl-studio-"))

    def close(self) -> None:
        """End what was started, and delete the tables that were dropped."""
        self.workers.close()
        self.demo.stop()
        shutil.rmtree(self.workspace, ignore_errors=True)


def register(studio: Studio) -> None:
    """Make the pages known to the server."""

    @ui.page("/")
    def play(client: Client) -> None:
        query = client.request.query_params
        problem = None
        try:
            state = PlayState.of_query(query.get("preset"), query.getlist("set"))
            state.config()
        except ConfigError as error:
            state, problem = PlayState(), str(error)
        with shell("/", client, "studio-play") as look:
            PlayView(studio.workers, look, state, client, problem)

    @ui.page("/data")
    def data(client: Client) -> None:
        query = client.request.query_params
        form = TableForm.of_query(query.get("table", ""), dict(query), query.getlist("bounds"))
        with shell("/data", client, "studio-one") as look:
            DataView(look, client, form, studio.workspace, studio.results)

    @ui.page("/runs")
    def runs(client: Client) -> None:
        query = client.request.query_params
        with shell("/runs", client, "studio-two") as look:
            RunsView(studio.results, look, query.getlist("run"), query.get("metric"))

    @ui.page("/network")
    def network(client: Client) -> None:
        with shell("/network", client, "studio-one") as look:
            NetworkView(studio.demo, look, client.request.query_params.get("site", ""))
