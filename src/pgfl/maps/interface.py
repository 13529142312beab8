"""What a row map is: a public function of one row, applied after the columns are encoded and before rows are clipped.

A map looks at nothing but the row and its own constants, so a replaced record still replaces one row, and everything
that is proved for rows of bounded norm holds for mapped rows.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, TypeAlias

import numpy as np

from pgfl.arrays import AnyArray, AnyFloats, Floats
from pgfl.errors import ConfigError
from pgfl.registry import Registry, config_keys
from pgfl.suggestions import nearest, shown


@dataclass(frozen=True)
class Group:
    """Features that stand side by side, such as those of one column, and what is public about them.

    `squared_norm` bounds their squared norm in every row; None if it is unbounded. With `scaled` the first feature is a
    number within [−1, 1], and `knots` is how many its declaration asks for. `shape` is that of an image (height,
    width), whose pixels lie within [0, 1].
    """

    name: str
    names: tuple[str, ...]
    squared_norm: float | None
    scaled: bool = False
    knots: int | None = None
    shape: tuple[int, int] | None = None

    @property
    def size(self) -> int:
        """How many features there are."""
        return len(self.names)


Groups: TypeAlias = tuple[Group, ...]


def length(groups: Groups) -> int:
    """Return the number of features."""
    return sum(group.size for group in groups)


def squared_norm(groups: Groups) -> float | None:
    """Return a bound on the squared norm of a row; None if there is none."""
    squares = [group.squared_norm for group in groups]
    return None if None in squares else float(sum(square for square in squares if square is not None))


class OnnxGraph(Protocol):
    """An ONNX graph that is being built, whose values are doubles with one row per row."""

    def constant(self, values: AnyArray | float) -> str:
        """Return the name of a constant."""
        ...

    def do(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Return the name of an operator's only output."""
        ...

    def cast(self, value: str, kind: AnyArray | type) -> str:
        """Return the value in another type."""
        ...


class RowMap(ABC):
    """A map of one row; a subclass is a frozen dataclass whose fields are its public constants.

    `apply` must give a row the same bits whatever rows stand beside it: no BLAS product, no sum whose order depends on
    the number of rows. `additive` says that every output depends on one input column only. `public` says that no
    constant was learnt from these records, which privacy asks for; a map with other constants has a field of that name.
    """

    kind: ClassVar[str]
    additive: ClassVar[bool] = False
    public = True

    @abstractmethod
    def outputs(self, groups: Groups) -> Groups:
        """Return what is public about mapped rows; raises `ConfigError` where such rows cannot be mapped."""

    @abstractmethod
    def apply(self, rows: Floats, groups: Groups) -> Floats:
        """Return the mapped rows, in double precision."""

    @abstractmethod
    def cost(self, groups: Groups) -> float:
        """Return about how many arithmetic operations a row takes."""

    @abstractmethod
    def onnx(self, graph: OnnxGraph, rows: str, groups: Groups) -> str:
        """Add the map to an ONNX graph; returns the name of the mapped rows."""

    def described(self) -> dict[str, Any]:
        """Return every constant as JSON can hold it; raises `ConfigError` for a map that cannot be stored."""
        return asdict(self)  # type: ignore[call-overload,no-any-return]

    def located(self, base: Path) -> Self:
        """Return the map with relative paths taken from a folder."""
        return self


MAPS = Registry[type[RowMap]](
    "maps",
    "row map",
    {
        "curves": "pgfl.maps.curves:Curves",
        "hats": "pgfl.maps.hats:Hats",
        "products": "pgfl.maps.products:Products",
        "fourier": "pgfl.maps.fourier:Fourier",
        "gradients": "pgfl.maps.gradients:Gradients",
        "onnx": "pgfl.maps.encoder:Encoder",
    },
)
"""The maps by their names in a config."""


OneMap: TypeAlias = "str | RowMap | Mapping[str, object] | Callable[[Floats], AnyFloats]"
AUTO = "auto"
"""In the place of a map: the one that pays, found by cross-validation or, under privacy, from public facts."""

MapSource: TypeAlias = "OneMap | Sequence[OneMap] | None"
"""A map's name, the map itself, a table with its `kind` and parameters, or a list of these, applied in turn.

A Python function of one row is a map in a simulation (see `pgfl.maps.function`).
"""


def read_maps(values: object, where: str = "map") -> tuple[RowMap, ...]:
    """Return the maps that a config names: one, or several that are applied in turn. None stands for none.

    >>> read_maps("hats"), read_maps({"kind": "hats", "knots": 4})
    ((Hats(knots=6),), (Hats(knots=4),))
    >>> read_maps({"kind": "hats", "knotz": 4})
    Traceback (most recent call last):
    pgfl.errors.ConfigError: Unknown key `map.knotz` (did you mean knots?); the keys of hats are knots.
    """
    if values is None:
        return ()
    listed = values if isinstance(values, Sequence) and not isinstance(values, str) else [values]
    return tuple(_read_map(one, where) for one in listed)


def _read_map(values: object, where: str) -> RowMap:
    if isinstance(values, RowMap):
        return values
    if callable(values):
        from pgfl.maps.function import Function

        return Function(values)
    table = {"kind": values} if isinstance(values, str) else values
    if not isinstance(table, Mapping) or not isinstance(table.get("kind"), str):
        raise ConfigError(
            f'`{where}` must name a map, as in "hats" or {{ kind = "hats", knots = 6 }}; got {shown(values)}.'
        )
    kind = MAPS[table["kind"]]
    own = {key: value for key, value in table.items() if key != "kind"}
    known = config_keys(kind)
    for key in own:
        if key not in known:
            keys = f"the keys of {table['kind']} are {', '.join(known)}" if known else f"{table['kind']} has no keys"
            raise ConfigError(f"Unknown key `{where}.{key}`{nearest(key, known)}; {keys}.")
    try:
        return kind(**{key: _frozen(value) for key, value in own.items()})
    except TypeError:
        missing = [name for name, one in known.items() if name not in own and one.default is one.default_factory]
        raise ConfigError(f"`{where}.{(missing or ['kind'])[0]}` is missing; {table['kind']} needs it.") from None


def _frozen(value: object) -> Any:
    """Return lists as tuples, as the fields of a map have them."""
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


def to_json(maps: Sequence[RowMap]) -> list[dict[str, Any]]:
    """Return a description that JSON can hold, with every constant; `from_json` reads it back."""
    return [{"kind": one.kind, **one.described()} for one in maps]


def from_json(description: Sequence[Mapping[str, Any]]) -> tuple[RowMap, ...]:
    """Return the maps that `to_json` described."""
    return read_maps(list(description))


def stated(maps: Sequence[RowMap]) -> list[dict[str, Any]]:
    """Return the tables that a config states: what differs from the defaults."""
    return [
        {"kind": one.kind}
        | {own.name: value for own in fields(one) if (value := getattr(one, own.name)) != own.default}  # type: ignore[arg-type]
        for one in maps
    ]


def digest(maps: Sequence[RowMap]) -> str:
    """Return the SHA-256 of the maps with all their constants: equal maps do the same to every row."""
    return hashlib.sha256(json.dumps(to_json(maps), sort_keys=True).encode()).hexdigest()


def stages(maps: Sequence[RowMap], groups: Groups) -> tuple[tuple[tuple[RowMap, Groups], ...], Groups]:
    """Return every map with what it is given, and what comes out of the last one."""
    found = []
    for one in maps:
        found.append((one, groups))
        groups = one.outputs(groups)
    return tuple(found), groups


def whole(name: str, value: object, least: int, most: int) -> None:
    """Refuse a parameter that is no whole number within its limits."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= most:
        raise ConfigError(f"`{name}` of a map must be a whole number from {least} to {most}; got {shown(value)}.")
