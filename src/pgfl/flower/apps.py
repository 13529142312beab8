"""The two apps of Flower, by its public interface alone; everything that they do is in the other files."""

from __future__ import annotations

import logging
from collections.abc import Collection
from pathlib import Path

from pgfl.errors import MissingExtra, NetworkError

try:
    from flwr.app import ConfigRecord, Context, Message, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
except ImportError:
    raise MissingExtra("The apps for Flower need flwr; install it with pip install 'pgfl[flower]'.") from None

from pgfl.flower import client, nodes
from pgfl.flower.graph import load_graph
from pgfl.flower.letters import FRAME, HELLO, NAME, ROUND, Letter, Parts
from pgfl.flower.relay import KEYS, SiteRelay
from pgfl.flower.servers import ServerGraph
from pgfl.network.logs import LogSettings, start_logging
from pgfl.network.processes import exclusive_lock, private_files

log = logging.getLogger(__name__)
_RECORD = "pgfl"  # the one record of every message
HOME, SITE = "home", "site"  # keys of a run's configuration: the folder of the servers, or of a site
LOCK = "servers.lock"


def server_app(graph: Path) -> ServerApp:
    """Return a ServerApp that plays the servers of a graph.toml; the run's configuration names their folder, `home`.

    If it names a `site`, the folder of a site of pgfl's own network on this machine, clients take part in that instead.
    """

    def main(grid: Grid, context: Context) -> None:
        site, home = context.run_config.get(SITE), context.run_config.get(HOME)
        if isinstance(site, str) and site:
            relay(grid, graph, Path(site).expanduser())
            return
        if not isinstance(home, str) or not home:
            raise NetworkError("The run's configuration has no `home`, the folder that the servers keep rounds in.")
        play(grid, graph, Path(home).expanduser())

    app = ServerApp()
    app.main()(main)
    return app


def play(grid: Grid, graph: Path, home: Path) -> None:
    """Play all servers of a graph, from the last completed rounds in `home` on, and write their models there."""
    start_logging(LogSettings(), home)
    with private_files(), exclusive_lock(home / LOCK, "A ServerApp"):
        servers = ServerGraph(load_graph(graph), home)
        try:
            nodes.play(servers, GridPost(grid))
            for path in servers.save_models(home):
                log.info("%s has the models of server %s", path, path.stem)
        finally:
            servers.close()


def relay(grid: Grid, graph: Path, site: Path) -> None:
    """Let a graph's clients take part at the site in this folder, which is served beside."""
    start_logging(LogSettings(), site / KEYS)
    with private_files(), exclusive_lock(site / KEYS / LOCK, "A ServerApp"):
        relayed = SiteRelay(load_graph(graph), site)
        try:
            nodes.play(relayed, GridPost(grid))
        finally:
            relayed.close()


class GridPost:
    """Flower's grid, which carries letters of named bytes."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def nodes(self) -> set[int]:
        """Return the nodes that are connected to the SuperLink."""
        return set(self._grid.get_node_ids())

    def send(self, letter: Letter) -> str | None:
        """Push one message; return its number, or None if the SuperLink did not take it."""
        content = RecordDict({_RECORD: ConfigRecord(dict(letter.parts))})
        message = Message(content, letter.node, letter.kind, group_id=str(letter.round))
        return next(iter(self._grid.push_messages([message])), None) or None

    def collect(self, sent: Collection[str]) -> list[tuple[str, Parts | None]]:
        """Pull the replies that have come."""
        replies = self._grid.pull_messages(list(sent)) if sent else ()
        return [
            (reply.metadata.reply_to_message_id, parts_of(reply) if reply.has_content() else None) for reply in replies
        ]


def client_app() -> ClientApp:
    """Return a ClientApp that is the client of its node's owner; nothing in a run or a message names another one."""

    def hello(message: Message, context: Context) -> Message:
        return _reply(message, {NAME: client.introduce(context.node_config)})

    def answer_round(message: Message, context: Context) -> Message:
        client.start_log(context.node_config)
        return _reply(message, {FRAME: client.answer(context.node_config, parts_of(message))})

    app = ClientApp()
    app.query(HELLO.partition(".")[2])(hello)
    app.train(ROUND.partition(".")[2])(answer_round)
    return app


def parts_of(message: Message) -> Parts:
    """Return the named bytes in a message; nothing else in it is looked at."""
    record = message.content.config_records.get(_RECORD, {})
    return {name: value for name, value in record.items() if isinstance(value, bytes)}


def _reply(message: Message, parts: Parts) -> Message:
    return Message(RecordDict({_RECORD: ConfigRecord(dict(parts))}), reply_to=message)
