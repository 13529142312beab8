"""The contract of a kind of data."""

import numpy as np
import pytest

from pgfl.config import parse
from pgfl.config.schema import DATA

TABLE = "client,server,cluster,x,y\n" + "".join(
    f"c{i % 6},s{i % 3},q{i % 2},{i % 7 / 7.0},{i % 5 / 5.0}\n" for i in range(60)
)
SMALL = {
    "synthetic-regression": {"servers": 3, "clients_per_server": 4, "dimension": 3},
    "mnist": {"servers": 3, "clients_per_server": 4},
    "images": {"source": "images.npz", "servers": 3, "clients_per_server": 4, "map": {"kind": "gradients", "cell": 4}},
    "table": {"table": "rows.csv", "client": "client", "server": "server", "cluster": "cluster"},
}


@pytest.fixture(params=SMALL)
def config(request, tmp_path):
    (tmp_path / "rows.csv").write_text(TABLE)
    pixels = np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "images.npz", train_images=pixels, train_labels=np.arange(40)[:, None] % 2)
    loss = {"kind": "logistic"} if request.param in ("mnist", "images") else {}
    return parse({"data": {"kind": request.param, **SMALL[request.param]}, "objective": loss}, tmp_path)


def test_every_kind_of_the_package_is_tried():
    assert set(SMALL) == set(DATA.built_in)


def test_shapes_parts_and_extent_are_those_of_the_federation(config):
    whole = config.federations()(0, None)
    graph, sizes = config.shapes()(0)
    assert np.array_equal(graph.edges, whole.graph.edges) and len(sizes) == len(whole.server_ids)
    parts = [config.federations()(0, [server]) for server in range(len(whole.server_ids))]
    assert sum(part.size for part in parts) == whole.size
    assert sum(len(part.targets) for part in parts) == len(whole.targets)
    extent = config.data.expected_extent()
    assert extent.clients in (0, whole.size) and extent.dimension in (1, whole.dimension)


def test_a_run_repeats_itself(config):
    one, again = (config.federations()(0, None) for _ in range(2))
    assert np.array_equal(one.features, again.features) and np.array_equal(one.targets, again.targets)
    assert config.data.maker
