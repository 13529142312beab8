"""Write folders of made-up clients, as their owners would have them: `python make_clients.py clients`."""

import sys
from pathlib import Path

import numpy as np

from pgfl.flower.graph import load_graph
from pgfl.network.local import csv_of
from pgfl.network.settings import CLIENT

ROWS = 200


def main(folder: Path, seed: int = 0) -> list[Path]:
    """Write client.toml and data.csv for every client; return the folders."""
    graph, rng = load_graph(Path(__file__).with_name("graph.toml")), np.random.default_rng(seed)
    slopes = {cluster: rng.normal(size=graph.training.dimension) for cluster in graph.training.clusters}
    written = []
    for name, member in graph.clients.items():
        home = folder / name
        home.mkdir(parents=True)
        rows = rng.uniform(-0.4, 0.4, size=(ROWS, graph.training.dimension))
        y = rows @ slopes[member.cluster] + 0.1 * rng.normal(size=ROWS)
        (home / "data.csv").write_text(csv_of(rows, y))
        text = CLIENT.format(name=name, address="unused.example.org:9094", fingerprint="0" * 64)
        (home / "client.toml").write_text(text.replace("max_releases = 100", f"max_releases = {graph.training.rounds}"))
        written.append(home)
    return written


if __name__ == "__main__":
    for home in main(Path(sys.argv[1])):
        print(home)
