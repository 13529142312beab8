"""Privacy figures for people and as strict JSON, which has no number for infinity."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

UNPROTECTED = "An infinite figure (null in JSON): a release left without noise, so nothing is promised."


def figure_text(value: object, digits: int = 6) -> str:
    """A figure for people.

    >>> figure_text(0.125), figure_text(float("inf")), figure_text(20)
    ('0.125', '∞', '20')
    """
    if not isinstance(value, float):
        return str(value)
    return f"{value:.{digits}g}" if math.isfinite(value) else "∞"


def noted(figures: Mapping[str, Any], note: str) -> dict[str, Any]:
    """The figures, with a `note` where one of them is infinite."""
    infinite = not all(map(math.isfinite, _numbers(figures)))
    return {**figures, "note": note} if infinite else dict(figures)


def strict_json(figures: Mapping[str, Any], indent: int | None = 2) -> str:
    """JSON that any reader accepts: null for an infinite figure."""
    return json.dumps(_finite(figures), indent=indent, ensure_ascii=False, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _numbers(item)
    elif isinstance(value, float):
        yield value
