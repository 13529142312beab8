"""[data] of kind images: a user's own images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from pgfl.arrays import Ints
from pgfl.config.section import Count, DataSection, Extent, MapKey
from pgfl.errors import ConfigError
from pgfl.federation.declarations import Column
from pgfl.federation.federation import Federation
from pgfl.maps import read_maps

if TYPE_CHECKING:
    from pgfl.config.schema import Config
    from pgfl.federation.encoding import RowEncoding
    from pgfl.federation.graphs import Graph


class ImagesData(DataSection):
    """Images of IDX, NPZ or PNG files; see `images_federation` for the keys. Without a `map` pixels are features."""

    own_records: ClassVar[bool] = True
    maker: ClassVar[str] = "images_federation"
    lower_for_memory: ClassVar[tuple[str, ...]] = ("the images of data.source",)

    kind: Literal["images"]
    source: str
    servers: Count = 10
    clients_per_server: Count = 15
    groups: str | None = None
    labels: tuple[str, ...] | None = None
    map: MapKey = read_maps("gradients")
    intercept: bool = False
    public: bool = False

    @property
    def bounds_rows(self) -> bool:
        """Pixels are bytes, and so have bounds."""
        return True

    @property
    def declared_target(self) -> Column:
        """Labels are numbers of classes."""
        return Column(labels=self.labels) if self.labels else Column()

    def federations(self, config: Config) -> Callable[[int, Sequence[int] | None], Federation]:
        """Deal the same images for every run anew, or the part at some servers."""
        from pgfl.federation.images import images_federation

        source = str(config.graph.edges) if config.graph.kind == "edges" else config.graph.kind

        @lru_cache(maxsize=1)
        def read(run: int, servers: tuple[int, ...] | None) -> Federation:
            return images_federation(
                self.source,
                servers=self.servers,
                clients_per_server=self.clients_per_server,
                groups=self.groups,
                labels=self.labels,
                map=self.chosen_map,
                intercept=self.intercept,
                graph=source,
                average_degree=config.graph.average_degree,
                seed=config.seed,
                run=run,
                dtype=np.dtype(config.dtype),
                servers_subset=servers,
                generated=self.public,
            )

        return lambda run, servers: read(run, None if servers is None else tuple(servers))

    def shapes(self, config: Config) -> Callable[[int], tuple[Graph, Ints]]:
        """The server graph, and how many images each server has."""
        from pgfl.federation.graphs import server_graph
        from pgfl.federation.images import place_images, read_images

        source = str(config.graph.edges) if config.graph.kind == "edges" else config.graph.kind
        count = len(read_images(self.source, self.labels).labels)

        def shape(run: int) -> tuple[Graph, Ints]:
            places = place_images(count, self.groups, self.servers, self.clients_per_server, config.seed, run)
            sizes = np.zeros(len(places.servers), dtype=np.int64)
            np.add.at(sizes, places.client_server, np.diff(places.offsets))
            return server_graph(source, places.servers, config.graph.average_degree, config.seed, run), sizes

        return shape

    def expected_extent(self) -> Extent:
        """The number of images, and of mapped features."""
        from pgfl.federation.images import place_images, read_images

        images = read_images(self.source, self.labels)
        places = place_images(len(images.labels), self.groups, self.servers, self.clients_per_server, 0, 0)
        pairs = len(set(zip(places.client_server.tolist(), places.client_cluster.tolist(), strict=True)))
        return Extent(len(places.clients), len(images.labels), self.public_encoding().dimension, pairs)

    def public_encoding(self) -> RowEncoding:
        """Pixels through the map, without the labels."""
        from pgfl.federation.images import read_images
        from pgfl.federation.mapping import pixel_encoding

        return pixel_encoding(read_images(self.source, self.labels).shape, self.chosen_map, self.intercept)

    def placed_clients(self, config: Config) -> tuple[int, list[tuple[int, int, int]]]:
        """The number of features, and (server, cluster, images) of every client."""
        from pgfl.federation.images import place_images, read_images

        if config.graph.servers:
            raise ConfigError("`graph.servers` names servers of a table; images are dealt to those of [data].")
        count = len(read_images(self.source, self.labels).labels)
        places = place_images(count, self.groups, self.servers, self.clients_per_server, config.seed, 0)
        columns = (places.client_server, places.client_cluster, np.diff(places.offsets))
        listed = list(zip(*(values.tolist() for values in columns), strict=True))
        return self.public_encoding().dimension, listed
