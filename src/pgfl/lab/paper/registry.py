"""All items, by name, in the order of the paper."""

from __future__ import annotations

from pgfl.lab.paper.items import Item

ALL = "all"
ONLY_BY_NAME = ("affordable",)
"""What `all` leaves out: it judges no claim of the paper, and takes longer than everything else together."""


def items() -> dict[str, Item]:
    """fig1 … fig9, the theorems, and what goes beyond the paper."""
    from pgfl.lab.paper import (
        affordable,
        beyond,
        fig1,
        fig2,
        fig3,
        fig4,
        fig5,
        fig6,
        fig7,
        fig8,
        fig9,
        theorem1,
        theorem2,
        theorem3,
    )
    from pgfl.lab.paper import beyond as server_network

    figures = (fig1, fig2, fig3, fig4, fig5, fig6, fig7, fig8, fig9)
    theorems = (theorem1, theorem2, theorem3)
    every: list[Item] = [
        *(module.FIGURE for module in figures),
        *(module.THEOREM for module in theorems),
        server_network.NETWORK,
        beyond.BEYOND,
        affordable.AFFORDABLE,
    ]
    return {item.name: item for item in every}


def check_digits(folder: str) -> None:
    """Read the original files of a folder once, so that mistakes in them are reported before any work."""
    from pathlib import Path

    from pgfl.federation.digits import read_originals

    read_originals(Path(folder))
