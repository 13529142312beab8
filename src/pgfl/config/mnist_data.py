"""[data] of kind mnist: images of digits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag

from pgfl.config.section import Ends, NamedMapKey
from pgfl.config.synthetic_data import Generated, generation
from pgfl.federation.federation import Federation

if TYPE_CHECKING:
    from pgfl.config.schema import Config

Digit = Annotated[int, Field(ge=0, le=9)]
Digits = Annotated[tuple[Digit, ...], Field(min_length=1)]


def _tasks_shape(value: object) -> str:
    return "<text>" if isinstance(value, str) else "<list>"


class MnistData(Generated):
    """Section V-B: digits; a task is two classes of digits and makes a cluster; D_k images of every digit of it."""

    maker: ClassVar[str] = "mnist_federation"

    kind: Literal["mnist"]
    tasks: Annotated[
        Annotated[Literal["pairs", "triplets"], Tag("<text>")]
        | Annotated[tuple[tuple[Digits, Digits], ...], Field(min_length=1), Tag("<list>")],
        Discriminator(_tasks_shape),
    ] = "pairs"
    samples: Ends | None = None
    source: str | None = None
    intercept: bool = False
    map: NamedMapKey = None

    @property
    def bounds_rows(self) -> bool:
        """Mapped images have a bounded norm."""
        return bool(self.chosen_map)

    @property
    def cluster_count(self) -> int:
        """One cluster per task."""
        return 3 if isinstance(self.tasks, str) else len(self.tasks)

    def federations(self, config: Config) -> Callable[[int, Sequence[int] | None], Federation]:
        """Draw the images of every run, or of its part at some servers."""
        from pgfl.federation.mnist import mnist_federation

        own = generation(self, config)
        return lambda run, servers: mnist_federation(**own, run=run, servers_subset=servers)

    def planner_facts(self) -> dict[str, Any]:
        """Sizes."""
        triplets = self.tasks == "triplets"
        digits = 6 if triplets else 2
        least, most = self.samples or ((6, 12) if triplets else (2, 4))
        return {
            "servers": self.servers,
            "clients_per_server": self.clients_per_server,
            "clusters": self.cluster_count,
            "records": (digits * least, digits * most),
            "columns": self._columns,
        }

    @property
    def _columns(self) -> int:
        from pgfl.federation.digits import SIDE
        from pgfl.federation.mapping import pixel_encoding

        return pixel_encoding((SIDE, SIDE), self.chosen_map, self.intercept).dimension
