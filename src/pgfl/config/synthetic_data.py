"""[data] of kind synthetic-regression, and what all generated federations share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from pgfl.arrays import Ints
from pgfl.config.section import MOST, Count, DataSection, Ends, Extent, NotNegative, Positive
from pgfl.errors import ConfigError
from pgfl.federation.federation import Federation

if TYPE_CHECKING:
    from pgfl.config.schema import Config
    from pgfl.federation.graphs import Graph


class Generated(DataSection):
    """What generated federations share: servers, and clients at each."""

    servers: Count = 10
    clients_per_server: Count = 15

    lower_for_memory: ClassVar[tuple[str, ...]] = ("data.clients_per_server", "data.servers", "data.samples")

    @property
    @abstractmethod
    def cluster_count(self) -> int:
        """How many clusters there are."""

    def shapes(self, config: Config) -> Callable[[int], tuple[Graph, Ints]]:
        """The server graph of every run, and how many clients each server has."""
        from pgfl.federation.synthetic import lay_out

        def shape(run: int) -> tuple[Graph, Ints]:
            layout = lay_out(
                self.servers,
                self.clients_per_server,
                self.cluster_count,
                graph=config.graph.kind,
                average_degree=config.graph.average_degree,
                seed=config.seed,
                run=run,
            )
            return layout.graph, layout.sizes

        return shape


def generation(data: Generated, config: Config) -> dict[str, Any]:
    """The arguments of a generator: the keys of its section, the graph, the seed and the precision."""
    if config.graph.kind == "edges":
        raise ConfigError('`graph.kind` = "edges" names servers of a table; generated data takes another kind.')
    return {
        **data.model_dump(exclude={"kind", "map"}),
        **({"map": dict(data)["map"]} if "map" in type(data).model_fields else {}),
        "graph": config.graph.kind,
        "seed": config.seed,
        "dtype": np.dtype(config.dtype),
        "average_degree": config.graph.average_degree,
    }


class SyntheticData(Generated):
    """Section V-A: related linear models, one per cluster; a client has D_k samples, with D_k in `samples`."""

    maker: ClassVar[str] = "synthetic_regression"

    kind: Literal["synthetic-regression"] = "synthetic-regression"
    clusters: Count = 3
    dimension: Count = 60
    samples: Ends = (2, 9)
    gamma: NotNegative = 0.15
    per_coordinate: bool = True
    observation_noise: NotNegative = 0.7
    x_norm: Positive | None = None
    test_samples: Annotated[int, Field(ge=0, le=MOST)] = 0

    @property
    def cluster_count(self) -> int:
        """How many clusters there are."""
        return self.clusters

    def federations(self, config: Config) -> Callable[[int, Sequence[int] | None], Federation]:
        """Generate the federation of every run, or its part at some servers."""
        from pgfl.federation.synthetic import synthetic_regression

        own = generation(self, config)
        return lambda run, servers: synthetic_regression(**own, run=run, servers_subset=servers)

    def expected_extent(self) -> Extent:
        """The expected size."""
        clients = self.servers * self.clients_per_server
        pairs = min(self.servers * self.clusters, clients * self.servers)
        return Extent(clients, clients * sum(self.samples) // 2, self.dimension, pairs)

    def planner_facts(self) -> dict[str, Any]:
        """Sizes, and how well the true models would predict."""
        scale = np.sqrt(self.dimension + self.observation_noise**2)
        return {
            "servers": self.servers,
            "clients_per_server": self.clients_per_server,
            "clusters": self.clusters,
            "records": self.samples,
            "columns": self.dimension,
            "gamma": self.gamma,
            "label_scale": float(scale),
            "expected": float(self.dimension / scale**2) if self.observation_noise else 0.999,
        }
