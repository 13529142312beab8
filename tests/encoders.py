"""Made ONNX files: encoders that keep to the rules, and some that do not."""

import hashlib

import numpy as np
from onnx import TensorProto, helper, numpy_helper

WIDTH = 5  # columns that the small encoder takes: those of the contract's table


def encoder(nodes, constants=(), width=WIDTH, out=3, batch="rows", shape=None, opset=15):
    """A graph from `rows` to `found`, as the bytes of a file."""
    given = [batch, *(shape or [width])]
    graph = helper.make_graph(
        nodes, "encoder",
        [helper.make_tensor_value_info("rows", TensorProto.FLOAT, given)],
        [helper.make_tensor_value_info("found", TensorProto.FLOAT, [batch, out])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return bytes(made.SerializeToString())


def weights(width=WIDTH, out=3):
    return np.random.default_rng(1).standard_normal((width, out)).astype(np.float32)


def node(kind, inputs, output, **settings):
    return helper.make_node(kind, inputs, [output], **settings)


def network(width=WIDTH, out=3, **settings):
    """One layer and a rectifier."""
    nodes = [node("MatMul", ["rows", "w"], "sum"), node("Relu", ["sum"], "found")]
    return encoder(nodes, [("w", weights(width, out))], width, out, **settings)


def image_network(height=28, width=28, out=6):
    """A convolution, its mean over the image, and a layer."""
    kernel = np.random.default_rng(2).standard_normal((4, 1, 3, 3)).astype(np.float32)
    nodes = [
        node("Conv", ["rows", "k"], "edges", pads=[1, 1, 1, 1]),
        node("Relu", ["edges"], "risen"),
        node("GlobalAveragePool", ["risen"], "pooled"),
        node("Flatten", ["pooled"], "flat"),
        node("MatMul", ["flat", "w"], "found"),
    ]
    return encoder(nodes, [("k", kernel), ("w", weights(4, out))], out=out, shape=[1, height, width])


def centred_by_the_batch():
    """Rows less their mean over the batch, as BatchNorm in training mode does it."""
    nodes = [
        node("MatMul", ["rows", "w"], "sum"),
        node("ReduceMean", ["sum"], "mean", axes=[0], keepdims=1),
        node("Sub", ["sum", "mean"], "found"),
    ]
    return encoder(nodes, [("w", weights())])


def batch_normalised():
    """BatchNorm with the statistics of the batch."""
    four = {name: np.ones(3, dtype=np.float32) for name in ("scale", "bias", "mean", "var")}
    nodes = [
        node("MatMul", ["rows", "w"], "sum"),
        helper.make_node(
            "BatchNormalization", ["sum", *four], ["found", "running_mean", "running_var"], training_mode=1
        ),
    ]
    return encoder(nodes, [("w", weights()), *four.items()])


def random():
    """Rows with noise."""
    nodes = [
        node("MatMul", ["rows", "w"], "sum"),
        node("RandomNormalLike", ["sum"], "noise"),
        node("Add", ["sum", "noise"], "found"),
    ]
    return encoder(nodes, [("w", weights())])


def sha256(content):
    return hashlib.sha256(content).hexdigest()


SMALL = network()
