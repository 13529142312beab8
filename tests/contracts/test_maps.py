"""The contract of a row map: a public function of one row, bounded as it declares, and the same in ONNX."""

import numpy as np
import onnxruntime
import pytest
from onnx import helper

from pgfl.errors import ConfigError
from pgfl.maps import MAPS, Group, digest, from_json, length, read_maps, squared_norm, stages, to_json
from tests.encoders import SMALL, sha256

COLUMNS = (
    Group("age", ("age",), 1.0, scaled=True),
    Group("sex", ("sex=f", "sex=m"), 1.0),
    Group("income", ("income", "income=missing"), 2.0, scaled=True, knots=4),
)
IMAGE = (Group("pixel", tuple(f"pixel-{n}" for n in range(28 * 28)), 784.0, shape=(28, 28)),)
CASES = {
    "curves": [("curves", COLUMNS), ({"kind": "curves", "levels": 4, "bend": 2.0}, COLUMNS)],
    "hats": [("hats", COLUMNS), ({"kind": "hats", "knots": 3}, COLUMNS), ({"kind": "hats", "knots": 0}, COLUMNS)],
    "products": [
        ("products", COLUMNS),
        ({"kind": "products", "pairs": [["age", "sex"]]}, COLUMNS),
        (["hats", "products"], COLUMNS),
        (["curves", {"kind": "products", "scale": 0.3}], COLUMNS),
    ],
    "fourier": [({"kind": "fourier", "features": 16, "width": 0.5, "seed": 7}, COLUMNS)],
    "gradients": [("gradients", IMAGE), ({"kind": "gradients", "cell": 4}, IMAGE)],
    "onnx": [({"kind": "onnx", "sha256": sha256(SMALL), "features": 3}, COLUMNS)],
}
EVERY = [pytest.param(read_maps(source), groups, id=str(source)) for kind in CASES.values() for source, groups in kind]


@pytest.fixture(autouse=True)
def _encoders_at_hand(tmp_path, monkeypatch):
    (tmp_path / "small.onnx").write_bytes(SMALL)
    monkeypatch.setenv("PGFL_ENCODERS", str(tmp_path))


def rows_like(groups, count, rng):
    """Rows that keep to what their groups declare, the extremes of a number among them."""
    parts = []
    for group in groups:
        if group.shape is not None:
            image = rng.random((count, group.size))
            image[0], image[1] = 0.0, 1.0
            parts.append(image * (rng.random((count, 1)) > 0.2))
        elif group.scaled:
            number = rng.uniform(-1.0, 1.0, (count, group.size))
            number[:2, 0] = -1.0, 1.0
            number[:, 1:] = rng.random((count, group.size - 1)) < 0.3
            parts.append(number)
        else:
            parts.append(np.eye(group.size)[rng.integers(0, group.size, count)])
    return np.concatenate(parts, axis=1)


def mapped(maps, groups, rows):
    for one, given in stages(maps, groups)[0]:
        rows = one.apply(rows, given)
    return rows


def test_every_map_of_the_package_is_tried():
    assert set(CASES) == set(MAPS.built_in)


@pytest.mark.parametrize(("maps", "groups"), EVERY)
def test_a_row_is_mapped_alike_whatever_stands_beside_it(maps, groups):
    """Not a bit changes if all other rows are scrambled, if there are more of them or none."""
    rng = np.random.default_rng(3)
    rows = rows_like(groups, 37, rng)
    found = mapped(maps, groups, rows)
    scrambled = rows_like(groups, 37, rng)
    scrambled[5] = rows[5]
    assert np.array_equal(mapped(maps, groups, scrambled)[5], found[5])
    for count in (1, 2, 8, 19):
        assert np.array_equal(mapped(maps, groups, rows[:count]), found[:count])
    order = rng.permutation(len(rows))
    assert np.array_equal(mapped(maps, groups, rows[order]), found[order])


@pytest.mark.parametrize(("maps", "groups"), EVERY)
def test_it_keeps_to_the_length_and_the_norm_that_it_declares(maps, groups):
    rows = rows_like(groups, 300, np.random.default_rng(4))
    found, out = mapped(maps, groups, rows), stages(maps, groups)[1]
    assert found.shape == (300, length(out)) and np.isfinite(found).all() and found.dtype == np.float64
    assert np.sum(found**2, axis=1).max() <= (squared_norm(out) or np.inf) * (1 + 1e-12)
    start = 0
    for group in out:
        own = np.sum(found[:, start : start + group.size] ** 2, axis=1)
        assert group.squared_norm is None or own.max() <= group.squared_norm * (1 + 1e-12), group.name
        start += group.size
    names = [name for group in out for name in group.names]
    assert len(set(names)) == len(names)
    assert all(one.cost(given) > 0 for one, given in stages(maps, groups)[0])


@pytest.mark.parametrize(("maps", "groups"), EVERY)
def test_its_description_is_complete(maps, groups):
    """What JSON keeps gives the same map, to the bit, and another constant another digest."""
    rows = rows_like(groups, 20, np.random.default_rng(5))
    again = from_json(to_json(maps))
    assert again == maps and digest(again) == digest(maps)
    assert np.array_equal(mapped(again, groups, rows), mapped(maps, groups, rows))
    others = {digest(other) for other in (read_maps("hats"), read_maps({"kind": "hats", "knots": 9}), maps)}
    assert len(others) >= 2


@pytest.mark.parametrize(("maps", "groups"), [case for case in EVERY if all(one.additive for one in case.values[0])])
def test_an_additive_map_depends_on_one_column_at_a_time(maps, groups):
    rng = np.random.default_rng(6)
    rows = rows_like(groups, 12, rng)
    other = rows_like(groups, 12, rng)
    both = stages(maps, groups)[1]
    here = there = 0
    for before, after in zip(groups, both, strict=True):
        mixed = other.copy()
        mixed[:, here : here + before.size] = rows[:, here : here + before.size]
        kept = slice(there, there + after.size)
        assert np.array_equal(mapped(maps, groups, mixed)[:, kept], mapped(maps, groups, rows)[:, kept])
        here, there = here + before.size, there + after.size


@pytest.mark.parametrize(("maps", "groups"), EVERY)
def test_onnx_runtime_does_the_same(maps, groups):
    from pgfl.results.export_onnx import ML_OPSET, OPSET, Graph

    graph = Graph()
    value = graph.input("rows", length(groups))
    for one, given in stages(maps, groups)[0]:
        value = one.onnx(graph, value, given)
    graph.output(value, "mapped", 11, ["rows", length(stages(maps, groups)[1])])
    model = helper.make_model(
        helper.make_graph(graph.nodes, "map", graph.inputs, graph.outputs, graph.constants),
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)],
        ir_version=8,
    )
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    rows = rows_like(groups, 50, np.random.default_rng(8))
    tolerance = 1e-6 if maps[-1].kind == "onnx" else 1e-12  # encoders are mostly of single precision
    assert session.run(None, {"rows": rows})[0] == pytest.approx(mapped(maps, groups, rows), abs=tolerance)


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("hat", r"Unknown row map 'hat' \(did you mean hats\?\)"),
        (3, "must name a map"),
        ({"kind": "hats", "knots": 1}, "`knots` of a map must be a whole number from 2 to 1000; got 1"),
        ({"kind": "hats", "seed": 1}, "Unknown key `map.seed`; the keys of hats are knots"),
        ({"kind": "fourier", "features": 7}, "must be even"),
        ({"kind": "curves", "bend": 0}, "positive number"),
        ({"kind": "products", "scale": -1}, "positive number"),
        ({"kind": "fourier", "width": 0}, "positive number"),
        ({"kind": "gradients", "cell": "big"}, "whole number"),
        ({"kind": "products", "pairs": [["age"]]}, "pairs of columns"),
    ],
)
def test_a_mistake_in_a_map_is_one_sentence(source, complaint):
    with pytest.raises(ConfigError, match=complaint):
        read_maps(source)


def test_rows_that_a_map_does_not_fit_are_refused():
    for source, groups, complaint in (
        ("gradients", COLUMNS, "takes images"),
        ({"kind": "gradients", "cell": 5}, IMAGE, "does not divide images of 28 × 28"),
        ({"kind": "products", "pairs": [["age", "height"]]}, COLUMNS, "'height', which is no column"),
    ):
        with pytest.raises(ConfigError, match=complaint):
            stages(read_maps(source), groups)
