"""`graph.toml`, validated: the servers that a ServerApp plays, its clients, and the training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from pgfl.config.section import NotNegative, Positive, Section
from pgfl.network.agreement import Name, Training
from pgfl.network.settings import load_settings
from pgfl.network.site.settings import BoundSettings, QuorumSettings, TimingSettings


class Member(Section):
    """Where a client belongs; with `node`, the number of its registered SuperNode, no other node can use its name."""

    server: Name
    cluster: Name
    node: int | None = None


class FlowerTiming(TimingSettings):
    """As of a site, but a message through Flower takes seconds, and a machine may be busy with many nodes."""

    answers: Positive = 600.0
    start: NotNegative = 300.0
    pace: NotNegative = 0.0


class GraphSettings(Section):
    """`graph.toml`."""

    servers: Annotated[dict[Name, tuple[Name, ...]], Field(min_length=1)]  # neighbours; either end may name the other
    clients: Annotated[dict[Name, Member], Field(min_length=1)]
    training: Training
    timing: FlowerTiming = Field(default_factory=FlowerTiming)
    quorum: QuorumSettings = Field(default_factory=QuorumSettings)
    bounds: BoundSettings = Field(default_factory=BoundSettings)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for server, neighbours in self.servers.items():
            if unknown := [name for name in neighbours if name not in self.servers or name == server]:
                raise ValueError(f"`servers.{server}` names {unknown[0]!r}, which is not another server.")
        for client, member in self.clients.items():
            if member.server not in self.servers:
                raise ValueError(f"`clients.{client}.server` is {member.server!r}, which `servers` does not list.")
            if member.cluster not in self.training.clusters:
                raise ValueError(
                    f"`clients.{client}.cluster` is {member.cluster!r}, which `training.clusters` does not list."
                )
        if self.training.privacy.trust != "local":
            raise ValueError(
                '`training.privacy.trust` must be "local" inside Flower, where every client adds its own noise.'
            )
        return self

    def neighbours(self, server: str) -> frozenset[str]:
        """The servers at the other ends of its edges."""
        named = {other for other, neighbours in self.servers.items() if server in neighbours}
        return frozenset(named.union(self.servers[server]))

    def clients_of(self, server: str) -> dict[str, str]:
        """The clusters of a server's clients."""
        return {name: member.cluster for name, member in self.clients.items() if member.server == server}


def load_graph(path: Path) -> GraphSettings:
    """Read a graph.toml."""
    return load_settings(path, GraphSettings)
