"""PGFL whose servers keep a part of their own model."""

from dataclasses import dataclass
from typing import ClassVar

from pgfl import PGFL, NeighbourhoodAverage
from pgfl.registry import setting


@dataclass(frozen=True)
class LazyAverage(NeighbourhoodAverage):
    """The neighbourhood's average, of which a server takes all but the share `stay`."""

    stay: float = 0.2

    def combine(self, state, published, neighbourhood, tau):
        new = super().combine(state, published, neighbourhood, tau)["model"]
        return {"model": self.stay * state["model"] + (1.0 - self.stay) * new}


@dataclass(frozen=True)
class LazyPGFL(PGFL):
    """PGFL with lazy servers."""

    stay: float = setting(0.2, ge=0, lt=1)

    kind: ClassVar[str] = "pgfl-lazy"

    def server(self):
        return LazyAverage(stay=self.stay)
