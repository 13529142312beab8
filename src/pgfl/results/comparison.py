"""Results side by side: final figures, privacy, and the settings in which they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pgfl.errors import ResultError
from pgfl.privacy.card import power
from pgfl.results.report.figures import LABELS, SPENDING, figure, short
from pgfl.results.result import Result
from pgfl.suggestions import kind_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


ABSENT = "–"
ORDINALS = "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"
NOT_COMPARED = ("name",)


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Several results side by side.

    `print` shows it as text, a notebook with the curves; `plot` draws one metric of all results.
    """

    results: tuple[Result, ...]
    names: tuple[str, ...]

    @classmethod
    def of(cls, results: Sequence[Result], names: Sequence[str] | None = None) -> Comparison:
        """Return a comparison of results, under their own names unless others are given."""
        for result in results:
            if not isinstance(result, Result):
                raise ResultError(f"A result is compared with other results; got {kind_of(result)}.")
        if len(results) < 2:
            raise ResultError("Name at least one other result to compare with, as in result.compare(other).")
        if len(results) > len(ORDINALS):
            raise ResultError(f"At most {len(ORDINALS)} results can be compared; got {len(results)}.")
        chosen = _own_names(results) if names is None else [names] if isinstance(names, str) else list(names)
        if len(chosen) != len(results):
            raise ResultError(f"There are {len(results)} results, this one included, but {len(chosen)} names.")
        return cls(tuple(results), tuple(map(str, chosen)))

    @cached_property
    def figures(self) -> dict[str, tuple[str, ...]]:
        """What was measured and spent at the end, by label: one text per result."""
        from pgfl.results.report.page import final_figures

        measured = [final_figures(result) for result in self.results]
        table = {
            label: tuple(figure(name, one[name]) if name in one else ABSENT for one in measured)
            for name, label in LABELS.items()
            if any(name in one for one in measured)
        }
        table["verdict"] = tuple(ABSENT if one.verdict is None else one.verdict.kind for one in self.results)
        table["rounds"] = tuple(f"{int(one.rounds[-1])}" for one in self.results)
        spending = [result.spending() for result in self.results]
        for name, label in SPENDING.items():
            if any(name in one for one in spending):
                worst = tuple(short(one[name]["worst"]) if name in one else "no privacy" for one in spending)
                table[f"{label}, worst client"] = worst
        if any(one.terms for one in self.results):
            table["δ"] = tuple("no privacy" if one.terms is None else power(one.terms.delta) for one in self.results)
        return table

    @cached_property
    def differences(self) -> dict[str, tuple[str, ...]]:
        """The keys of the configs in which the results differ, where they have configs."""
        configs = [
            {} if one.config is None else dict(_flat(one.config.model_dump(mode="json"))) for one in self.results
        ]
        if not all(configs):
            return {}
        keys = dict.fromkeys(key for config in configs for key in config)
        table = {key: tuple(_shown(config.get(key)) for config in configs) for key in keys if key not in NOT_COMPARED}
        return {key: values for key, values in table.items() if len(set(values)) > 1}

    def plot(self, metric: str | None = None, *, ax: Axes | None = None) -> Axes:
        """Draw a metric of all results over each other; without a metric, the most important one that all have."""
        from pgfl.results.report.curves import draw_compared

        return draw_compared(self.results, self.names, metric, ax)

    def __repr__(self) -> str:
        table = {"": self.names, **self.figures, **self.differences}
        columns = [list(column) for column in zip(*table.values(), strict=True)]
        width = max(map(len, table))
        first = [label.ljust(width) for label in table]
        lines = zip(first, *map(_to_the_right, columns), strict=True)
        return "\n".join("  ".join(cells).rstrip() for cells in lines)

    def _repr_html_(self) -> str:
        from pgfl.results.report.page import comparison_card

        return comparison_card(self)


def _to_the_right(column: list[str]) -> list[str]:
    width = max(map(len, column))
    return [cell.rjust(width) for cell in column]


def _own_names(results: Sequence[Result]) -> list[str]:
    """Return the names of the results' folders or configs, or plain ordinals where these do not tell them apart."""
    folders = [one.folder.name for one in results if one.folder is not None]
    configs = [one.config.name for one in results if one.config is not None]
    for names in (folders, configs):
        if len(set(names)) == len(results):
            return names
    return list(ORDINALS[: len(results)])


def _flat(table: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Return the keys of nested tables as dotted names."""
    found: list[tuple[str, Any]] = []
    for key, value in table.items():
        name = f"{prefix}{key}"
        found += _flat(value, f"{name}.") if isinstance(value, Mapping) and value else [(name, value)]
    return found


def _shown(value: Any) -> str:
    return ABSENT if value is None else str(value)
