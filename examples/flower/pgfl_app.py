"""The two apps: the servers of graph.toml, and the client that the owner of a node named."""

from pathlib import Path

from pgfl.flower.apps import client_app, server_app

server = server_app(Path(__file__).with_name("graph.toml"))
client = client_app()
