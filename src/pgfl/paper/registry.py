"""All items, by name, in the order of the paper."""

from __future__ import annotations

from pgfl.paper.items import Item


def items() -> dict[str, Item]:
    """fig1 … fig9, the theorems, and what goes beyond the paper."""
    from pgfl.paper import beyond, classification, learning_curves, theorem1, theorem2, theorem3, tradeoffs
    from pgfl.paper import server_network as network

    every: list[Item] = [
        *learning_curves.FIGURES,
        *tradeoffs.FIGURES,
        *classification.FIGURES,
        theorem1.THEOREM,
        theorem2.THEOREM,
        theorem3.THEOREM,
        network.NETWORK,
        beyond.BEYOND,
    ]
    return {item.name: item for item in sorted(every, key=lambda item: _place(item.name))}


def check_digits(folder: str) -> None:
    """Read the original files of a folder once, so that what is wrong with them is said before any work."""
    from pathlib import Path

    from pgfl.data.digits import read_originals

    read_originals(Path(folder))


def _place(name: str) -> tuple[int, str]:
    kinds = ("fig", "theorem", "network", "beyond")
    return next((i for i, kind in enumerate(kinds) if name.startswith(kind)), len(kinds)), name
