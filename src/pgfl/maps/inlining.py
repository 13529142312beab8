"""An encoder's operators within an exported model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pgfl.arrays import AnyArray
from pgfl.errors import ConfigError, require_extra
from pgfl.maps.interface import OnnxGraph
from pgfl.suggestions import quoted

EXPORTED = 15  # the operator set of exported models
Fitting = Callable[[list[Any], tuple[int, ...]], tuple[int, ...]]
"""The shape in which a graph takes a row, given its input's shape and the row's."""


def inlined(content: bytes, graph: OnnxGraph, rows: str, fitting: Fitting, shape: tuple[int, ...]) -> str:
    """Copy the nodes of an encoder into a graph whose values are doubles; refuse what has no room there."""
    require_extra("Exporting to ONNX needs onnx", "onnx", "onnx")
    import onnx
    from onnx import helper, numpy_helper, version_converter

    own = onnx.load_model_from_string(content)
    from_opset = {one.domain: one.version for one in own.opset_import}
    if set(from_opset) - {"", "ai.onnx.ml"}:
        raise ConfigError("The encoder uses operators of its own; export the model to scikit-learn instead.")
    if from_opset.get("", EXPORTED) != EXPORTED:
        try:
            own = version_converter.convert_version(own, EXPORTED)
        except Exception as error:  # the converter lacks some operators
            reason = " ".join(str(error).split())
            raise ConfigError(
                f"The encoder cannot be brought to operator set {EXPORTED} ({reason}); export it with that one."
            ) from None
    given = next(one for one in own.graph.input if one.name not in {tensor.name for tensor in own.graph.initializer})
    kind = helper.tensor_dtype_to_np_dtype(given.type.tensor_type.elem_type)
    wanted = [one.dim_value if one.HasField("dim_value") else None for one in given.type.tensor_type.shape.dim]
    names = {tensor.name: graph.constant(numpy_helper.to_array(tensor)) for tensor in own.graph.initializer}
    row = fitting(wanted, shape)
    narrow = graph.cast(rows, np.dtype(kind))
    names[given.name] = graph.do("Reshape", narrow, graph.constant(np.array([-1, *row], dtype=np.int64)))
    for node in own.graph.node:
        if len(node.output) != 1 or any(not name for name in node.input):
            raise ConfigError(f"The operator {quoted(node.op_type)} of the encoder cannot be exported within a model.")
        settings: dict[str, Any] = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        settings |= {"domain": node.domain} if node.domain else {}
        names[node.output[0]] = graph.do(node.op_type, *(names[name] for name in node.input), **settings)
    out = graph.do("Flatten", names[own.graph.output[0].name], axis=1)
    wide: AnyArray | type = np.float64
    return _finite(graph, graph.cast(out, wide), rows)


def _finite(graph: OnnxGraph, value: str, rows: str) -> str:
    """Return the value with 0 for what is not finite, but NaN for rows that hold NaN: pgfl would refuse them."""
    unknown = graph.do("Or", graph.do("IsNaN", value), graph.do("IsInf", value))
    known = graph.do("Where", unknown, graph.constant(0.0), value)
    nothing = graph.do("Mul", graph.do("ReduceMean", rows, axes=[1], keepdims=1), graph.constant(0.0))
    return graph.do("Add", known, nothing)
