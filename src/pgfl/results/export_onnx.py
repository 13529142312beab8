"""A model as an ONNX graph: encoding, clipping and the linear model in standard operators.

The graph has one input per column of the table (N × 1: doubles, or strings for categories), or one input `features`
(N × columns) where the model was trained on arrays. Where pgfl would refuse a row (an unknown category, an empty cell,
a value that is not finite), the graph's answer is NaN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pgfl.arrays import AnyArray
from pgfl.federation.columns import ArrayColumn, BooleanColumn, CategoryColumn, FeatureColumn, NumberColumn

if TYPE_CHECKING:
    from pgfl.results.export import Chosen


OPSET, ML_OPSET = 15, 3  # old enough for every runtime in use


def write(chosen: Chosen) -> bytes:
    """Return the graph as ONNX writes it, checked."""
    return bytes(_graph(chosen).SerializeToString())


def _graph(chosen: Chosen) -> Any:
    """Return the model as an ONNX `ModelProto`. Outputs: `prediction`, or `label` and `probabilities`."""
    import onnx
    from onnx import helper

    build = Graph()
    features = _features(build, chosen)
    _predict(build, chosen, features)
    made = helper.make_model(
        helper.make_graph(build.nodes, "pgfl", build.inputs, build.outputs, build.constants),
        producer_name="pgfl",
        producer_version=str(chosen.model.provenance.get("version", "")),
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)],
        ir_version=8,
    )
    onnx.checker.check_model(made, full_check=True)
    return made


class Graph:
    """Collects nodes; every method returns the name of a new value."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self.constants: list[Any] = []

    def input(self, name: str, width: int, text: bool = False) -> str:
        """Return a new input of N × `width` doubles, or texts."""
        from onnx import TensorProto, helper

        kind = TensorProto.STRING if text else TensorProto.DOUBLE
        self.inputs.append(helper.make_tensor_value_info(name, kind, ["rows", width]))
        return name

    def output(self, value: str, name: str, kind: int, shape: list[Any]) -> None:
        """Name a value that the graph returns."""
        from onnx import helper

        self.nodes.append(helper.make_node("Identity", [value], [name]))
        self.outputs.append(helper.make_tensor_value_info(name, kind, shape))

    def constant(self, values: AnyArray | float) -> str:
        """Return a constant."""
        from onnx import numpy_helper

        name = f"constant-{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def do(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Return what an operator makes of its inputs."""
        from onnx import helper

        name = f"value-{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], domain=domain, **attributes))
        return name

    def cast(self, value: str, kind: AnyArray | type) -> str:
        """Return a value in another type."""
        from onnx import helper

        return self.do("Cast", value, to=helper.np_dtype_to_tensor_dtype(np.dtype(kind)))

    def poisoned(self, value: str, source: str) -> str:
        """Return the value; NaN where `source` is not finite, which 0·source is too."""
        return self.do("Add", value, self.do("Mul", source, self.constant(0.0)))


def _features(build: Graph, chosen: Chosen) -> str:
    """Return the features as training saw them, in the model's precision."""
    model = chosen.model
    if model.encoding is None:
        raw = build.input("features", model.features - model.intercept)
        parts, intercept = [build.poisoned(raw, raw)], model.intercept
    else:
        encoded = [_encoded(build, column) for column in model.encoding.columns]
        rows = encoded[0] if len(encoded) == 1 else build.do("Concat", *encoded, axis=1)
        for one, groups in model.encoding.stages:
            rows = one.onnx(build, rows, groups)
        parts, intercept = [rows], model.encoding.intercept
    if intercept:
        first = build.do("Slice", parts[0], *(build.constant(np.array([n])) for n in (0, 1, 1)))
        parts.append(build.do("Add", build.do("Mul", first, build.constant(0.0)), build.constant(1.0)))
    rows = build.do("Concat", *parts, axis=1) if len(parts) > 1 else parts[0]
    rounded = build.cast(rows, np.dtype(model.dtype).type)
    return _clipped(build, chosen, rounded) if chosen.clips else rounded


def _encoded(build: Graph, column: FeatureColumn) -> str:
    if isinstance(column, CategoryColumn):
        return _categories(build, column)
    if isinstance(column, ArrayColumn):
        return _numbers(build, column)
    given = build.input(column.name, 1)
    missing, value = build.do("IsNaN", given), given
    assert isinstance(column, NumberColumn | BooleanColumn)
    if column.fill is not None:
        value = build.do("Where", missing, build.constant(np.array([[float(column.fill)]])), given)
    if isinstance(column, BooleanColumn):
        truth = build.do("Or", *(build.do("Equal", value, build.constant(n)) for n in (0.0, 1.0)))
        value = build.do("Where", truth, value, build.constant(np.nan))
    elif column.bounds is not None:
        low, high = column.bounds
        centred = build.do("Sub", value, build.constant(low + 0.5 * (high - low)))
        scaled = build.do("Div", centred, build.constant(0.5 * (high - low)))
        value = build.poisoned(build.do("Clip", scaled, build.constant(-1.0), build.constant(1.0)), value)
    return build.do("Concat", value, build.cast(missing, np.float64), axis=1) if column.indicator else value


def _numbers(build: Graph, column: ArrayColumn) -> str:
    """Return the numbers or pixels of an array, scaled."""
    given = build.input(column.name, column.length)
    if column.bounds is None:
        return build.poisoned(given, given)
    low, high = column.bounds
    least, start, unit = (
        (0.0, low, high - low) if column.shape else (-1.0, low + 0.5 * (high - low), 0.5 * (high - low))
    )
    moved = build.do("Div", build.do("Sub", given, build.constant(start)), build.constant(unit))
    return build.poisoned(build.do("Clip", moved, build.constant(least), build.constant(1.0)), given)


def _categories(build: Graph, column: CategoryColumn) -> str:
    """Return one column per category; NaN in all of them where pgfl would refuse the text."""
    width = len(column.feature_names)
    places = {text: number for number, text in enumerate(column.categories)}
    if column.missing or column.fill is not None:
        places[""] = width - 1 if column.missing else places[str(column.fill)]
    else:
        places[""] = -1
    number = build.do(
        "LabelEncoder",
        build.input(column.name, 1, text=True),
        domain="ai.onnx.ml",
        keys_strings=list(places),
        values_int64s=list(places.values()),
        default_int64=len(column.categories) if column.other else -1,
    )
    hot = build.cast(build.do("Equal", number, build.constant(np.arange(width)[None])), np.float64)
    refused = build.do("Less", number, build.constant(np.array([[0]])))
    return build.do("Where", refused, build.constant(np.full((1, width), np.nan)), hot)


def _clipped(build: Graph, chosen: Chosen, rows: str) -> str:
    """Rows scaled back to ‖x‖ ≤ x_norm, as `clip_rows` does it."""
    model, precision = chosen.model, np.dtype(chosen.model.dtype)
    assert model.x_norm is not None
    wide = build.cast(rows, np.float64)
    norm = build.do("ReduceL2", wide, axes=[1], keepdims=1)
    rounding = (model.features + 16) * float(np.finfo(precision.type).eps)
    shrink = build.do("Div", build.constant(model.x_norm * (1.0 - 2.0 * rounding)), norm)
    long = build.do("Greater", norm, build.constant(model.x_norm))
    return build.do("Where", long, build.cast(build.do("Mul", wide, shrink), precision.type), rows)


def _predict(build: Graph, chosen: Chosen, features: str) -> None:
    from onnx import TensorProto

    model = chosen.model
    weights = build.constant(chosen.coefficients.T.astype(model.dtype))
    margins = build.cast(build.do("MatMul", features, weights), np.float64)
    if chosen.task == "regression":
        offset, scale = chosen.unit
        flat = build.do("Squeeze", margins, build.constant(np.array([1])))
        decoded = build.do("Add", build.do("Mul", flat, build.constant(scale)), build.constant(offset))
        build.output(decoded, "prediction", TensorProto.DOUBLE, ["rows"])
        return
    if chosen.task == "classification":
        both = build.do("Concat", build.do("Neg", margins), margins, axis=1)
        chances = build.do("Sigmoid", both)
        positive = build.do("Greater", margins, build.constant(chosen.threshold))
        number = build.do("Squeeze", build.cast(positive, np.int64), build.constant(np.array([1])))
    else:
        chances = build.do("Softmax", margins, axis=1)
        number = build.do("ArgMax", margins, axis=1, keepdims=0)
    kind: int = TensorProto.INT64
    if model.labels is not None:
        kind, keys = TensorProto.STRING, list(range(len(model.labels)))
        number = build.do(
            "LabelEncoder", number, domain="ai.onnx.ml", keys_int64s=keys, values_strings=list(model.labels)
        )
    build.output(number, "label", kind, ["rows"])
    build.output(chances, "probabilities", TensorProto.DOUBLE, ["rows", len(model.label_names)])
