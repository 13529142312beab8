"""`site.toml`, validated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from pgfl.config.section import NotNegative, Positive, Section
from pgfl.network.agreement import Name, Training
from pgfl.network.logs import LogSettings
from pgfl.network.protocol.listener import LIMITS, ConnectionLimits
from pgfl.network.protocol.proxies import Proxies
from pgfl.network.protocol.proxy_header import Network
from pgfl.network.settings import NoProxy, ProxyUrl, load_settings
from pgfl.network.site.bounds import REFUSED_RADII, ClientBound
from pgfl.network.site.effects import Quorum, Timing
from pgfl.objectives import Bounds

Port = Annotated[int, Field(ge=1, le=65535)]
_OLD_KEYS = ("public", "flower", "clients", "peers")


class Listening(Section):
    """Where a site listens, for clients and for neighbours."""

    host: str = "127.0.0.1"
    port: Port = 9094
    connections: Annotated[int, Field(ge=16, le=65536)] = LIMITS.together  # at a time
    per_address: Annotated[int, Field(ge=1, le=65536)] = LIMITS.per_address  # of them; clients behind one router share
    metrics: Annotated[str, Field(pattern=r"^.+:\d{1,5}$")] | None = None  # host:port of /metrics and /health
    balancers: tuple[str, ...] = ()  # load balancers that say who calls by the PROXY protocol, version 2

    @model_validator(mode="before")
    @classmethod
    def _not_old(cls, table: Any) -> Any:
        if isinstance(table, Mapping) and (old := [f"`listen.{key}`" for key in _OLD_KEYS if key in table]):
            raise ValueError(
                f"{', '.join(old)} belong to an older pgfl; a site now has one port, so write `port` under [listen] in "
                "their place, best with the number of `peers`, which neighbours know, and tell clients the new address."
            )
        return table

    @model_validator(mode="after")
    def _addresses(self) -> Self:
        try:
            self.networks()
        except ValueError as error:
            raise ValueError(f"`listen.balancers` must be addresses or networks, as in 10.1.0.0/16: {error}.") from None
        return self

    def networks(self) -> tuple[Network, ...]:
        """Where the load balancers are."""
        return tuple(map(ip_network, self.balancers))

    def limits(self) -> ConnectionLimits:
        """On the connections to the port."""
        return replace(LIMITS, per_address=self.per_address, together=self.connections)


class TimingSettings(Section):
    """How long a site waits, in seconds, and how old a neighbour's publication may be, in rounds."""

    answers: Positive = Timing.answers
    exchange: Positive = Timing.exchange
    start: NotNegative = Timing.start
    give_up: Positive | None = Timing.give_up
    staleness: Annotated[int, Field(ge=0, le=1000)] = Timing.staleness
    linger: NotNegative = Timing.linger
    pace: NotNegative = Timing.pace
    patience: Annotated[float, Field(ge=1.0)] = Timing.patience


class QuorumSettings(Section):
    """Who must be there for a round to open."""

    clients: Annotated[float, Field(ge=0.0, le=1.0)] = Quorum.clients
    neighbours: Annotated[int, Field(ge=0, le=1000)] = Quorum.neighbours
    apart: Annotated[int, Field(ge=0, le=10**9)] = Quorum.apart


class BoundSettings(Section):
    """What honest clients and neighbours can send, as the operator states it; see `public_bounds`."""

    x_norm: Positive | None = None
    y_bound: Positive | None = None
    w_norm: Positive | None = None
    noise: NotNegative | None = None  # the largest standard deviation of a client's noise, per coordinate
    refuse: Annotated[float, Field(ge=1.0)] = REFUSED_RADII  # radii beyond which an answer is refused
    spread: Annotated[float, Field(ge=2.0)] = 10.0  # times the usual distance, where nothing else is stated
    neighbours: Positive | None = None  # how far a neighbour's model may be from the site's own

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.x_norm is None) != (self.noise is None):
            raise ValueError("`bounds.x_norm` and `bounds.noise` bound clients together; give both, or neither.")
        return self

    def of_clients(self, training: Training) -> ClientBound | None:
        """The bound on clients' answers; None if the operator states none."""
        if self.x_norm is None or self.noise is None:
            return None
        objectives = {cluster: training.build_objective(cluster, self.w_norm) for cluster in training.clusters}
        bounds = Bounds(self.x_norm, self.y_bound, self.w_norm)
        return ClientBound(training.build_algorithm(), objectives, bounds, self.noise, self.refuse)


class SiteSettings(Section):
    """`site.toml`."""

    name: Name
    home: str = "."
    listen: Listening = Field(default_factory=Listening)
    timing: TimingSettings = Field(default_factory=TimingSettings)
    quorum: QuorumSettings = Field(default_factory=QuorumSettings)
    bounds: BoundSettings = Field(default_factory=BoundSettings)
    log: LogSettings = Field(default_factory=LogSettings)
    training: Training
    proxy: ProxyUrl = None
    no_proxy: NoProxy = None
    record_noise: str | None = None  # demonstrations with made-up data only: whoever reads this folder undoes the noise

    def proxies(self) -> Proxies:
        """How neighbours are called."""
        return Proxies.stated(self.proxy, self.no_proxy)


def load_site(path: Path) -> SiteSettings:
    """A site's settings; `home` is taken from the file's folder."""
    settings = load_settings(path, SiteSettings)
    base = path.resolve().parent
    record = None if settings.record_noise is None else str(base / settings.record_noise)
    return settings.model_copy(update={"home": str(base / settings.home), "record_noise": record})
