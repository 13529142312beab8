"""The pages of the studio, and what they share."""

from __future__ import annotations

from pathlib import Path

from nicegui import ui
from nicegui.client import Client

from pgfl.errors import ConfigError
from pgfl.studio.play_state import PlayState
from pgfl.studio.play_view import PlayView
from pgfl.studio.shell import shell
from pgfl.studio.workers import Workers


class Studio:
    """What all pages share: the processes that train, and the folder of results."""

    def __init__(self, results: Path) -> None:
        self.workers, self.results = Workers(), results

    def close(self) -> None:
        """End what was started."""
        self.workers.close()


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
