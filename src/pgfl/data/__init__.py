"""Where federations come from: tables, the generator of Section V-A, the digits of Section V-B, a folder on disk."""

from pgfl.data.mnist import mnist_federation
from pgfl.data.server_graphs import read_edges
from pgfl.data.storage import open_federation, save_federation
from pgfl.data.synthetic import synthetic_regression
from pgfl.data.tables import read_federation

__all__ = [
    "mnist_federation",
    "open_federation",
    "read_edges",
    "read_federation",
    "save_federation",
    "synthetic_regression",
]
