"""Colours that people with any colour vision can tell apart (Okabe and Ito, 2008), for light and dark pages."""

from __future__ import annotations

from dataclasses import dataclass

from pgfl.drawing.colours import CLUSTER_COLOURS

BLUE, VERMILION, GREEN, PURPLE, _, SKY, *_others = CLUSTER_COLOURS
ORANGE = "#e69f00"
LIGHT_GREEN = "#4fd6ad"
SYMBOLS = ("circle", "rect", "triangle", "diamond", "pin", "roundRect", "arrow")


@dataclass(frozen=True)
class Theme:
    """What differs between a light and a dark page."""

    ink: str
    faint: str
    grid: str
    ghost: str
    surface: str
    main: str
    green: str
    clusters: tuple[str, ...]


LIGHT = Theme("#1d2330", "#5b6474", "#e6e9ef", "#b4bac6", "#ffffff", BLUE, GREEN, CLUSTER_COLOURS)
DARK = Theme(
    "#eef1f6",
    "#a9b2c1",
    "#2b3340",
    "#5d6778",
    "#171c24",
    SKY,
    LIGHT_GREEN,
    (SKY, ORANGE, LIGHT_GREEN, PURPLE, "#e8d44d", "#7aa6ff", "#b79be0", "#d2a08f"),
)


def theme(dark: bool) -> Theme:
    """The colours of a page."""
    return DARK if dark else LIGHT


def cluster_colour(cluster: int, colours: Theme) -> str:
    """The colour of a cluster."""
    return colours.clusters[cluster % len(colours.clusters)]


def cluster_symbol(cluster: int) -> str:
    """The symbol of a cluster, which tells as much as its colour."""
    return SYMBOLS[cluster % len(SYMBOLS)]
