"""Row maps: public functions of one row that let a linear model learn curves, products and images."""

from pgfl.maps.curves import Curves
from pgfl.maps.encoder import Encoder
from pgfl.maps.fourier import Fourier
from pgfl.maps.function import Function
from pgfl.maps.gradients import Gradients
from pgfl.maps.hats import KNOTS, Hats
from pgfl.maps.interface import (
    AUTO,
    MAPS,
    Group,
    Groups,
    MapSource,
    OnnxGraph,
    RowMap,
    digest,
    from_json,
    length,
    read_maps,
    squared_norm,
    stages,
    stated,
    to_json,
)
from pgfl.maps.products import Products

OWN_KNOTS = (Hats(knots=0),)
"""The first map of a row where a column declares `knots`."""

__all__ = [
    "AUTO",
    "KNOTS",
    "MAPS",
    "OWN_KNOTS",
    "Curves",
    "Encoder",
    "Fourier",
    "Function",
    "Gradients",
    "Group",
    "Groups",
    "Hats",
    "MapSource",
    "OnnxGraph",
    "Products",
    "RowMap",
    "digest",
    "from_json",
    "length",
    "read_maps",
    "squared_norm",
    "stages",
    "stated",
    "to_json",
]
