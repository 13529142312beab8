"""What goes through Flower: letters with named bytes, which are frames of pgfl's own network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

HELLO: Final = "query.hello"  # types of messages: whose client is this?
ROUND: Final = "train.round"  # a request, and its answer
NAME, WELCOME, REQUEST, FRAME = "name", "welcome", "request", "frame"  # parts of messages

Parts = Mapping[str, bytes]


@dataclass(frozen=True)
class Letter:
    """A message to a node."""

    node: int
    kind: str
    round: int
    parts: Parts
