"""The architecture, kept: who may import whom, which equation stands where, what is public."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

import pgfl

SOURCE = Path(pgfl.__file__).parent
REPOSITORY = Path(__file__).parent.parent
LABEL = re.compile(r"\\label\{([^}]+)\}")
PAPER_LABELS = {
    "ERM_global", "ERM_servers", "Lagrangian", "ClientPrimalUpdate", "ClientDualUpdate", "ServerPrimal",
    "ServerAggregation", "InterServerAggregation", "inter-clusterLearning", "PrivacyNoiseAddition",
    "PrivateServerAggregation", "ClientOpti", "ClientOptiWConstraints", "Client_Reformulation",
    "ReformulatedClientOpti", "LagrangianReformulated", "3StepLagrangian", "2StepLagrangian", "li2017robusteq",
    "1StepLagrangian", "SimpleClientUpdate", "NewExpressionServerModel", "Recursion", "Difference", "useAssumption2",
    "DifferenceAggregate", "eqprivproof", "MSE",
}  # fmt: skip
IMPLEMENTED = {
    "ERM_global", "ERM_servers", "ClientPrimalUpdate", "ClientDualUpdate", "ServerPrimal", "ServerAggregation",
    "InterServerAggregation", "inter-clusterLearning", "PrivacyNoiseAddition", "PrivateServerAggregation",
    "Recursion", "MSE",
}  # fmt: skip


def modules(*parts):
    return sorted(SOURCE.joinpath(*parts).rglob("*.py"))


def imported(path):
    """The pgfl modules that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name == "pgfl" or name.startswith("pgfl.")}


def claimed():
    return Counter(label for path in modules() for label in LABEL.findall(path.read_text("utf-8")))


def test_every_label_is_claimed_exactly_once():
    assert claimed() == Counter(IMPLEMENTED)
    assert IMPLEMENTED <= PAPER_LABELS


def test_the_notation_page_lists_the_same_labels():
    page = (REPOSITORY / "docs" / "notation.md").read_text("utf-8")
    listed = re.findall(r"^\| ([\w-]+) \| \(\d+\) \|", page, flags=re.MULTILINE)
    assert sorted(listed) == sorted(IMPLEMENTED)


def test_names_on_the_notation_page_exist():
    page = (REPOSITORY / "docs" / "notation.md").read_text("utf-8")
    source = "\n".join(path.read_text("utf-8") for path in modules())
    for name in re.findall(r"`([A-Za-z_.0-9]+)`", page):
        assert re.search(rf"\b{re.escape(name.split('.')[-1])}\b", source), name


def test_equations_import_nothing_of_ours_but_the_array_type():
    assert imported(SOURCE / "equations.py") == {"pgfl.arrays", "pgfl.arrays.Array"}


@pytest.mark.parametrize(("room", "forbidden"), [("simulate", "pgfl.network"), ("network", "pgfl.simulate")])
def test_simulate_and_network_never_import_each_other(room, forbidden):
    assert modules(room), f"{room} is empty"
    for path in modules(room):
        assert not [name for name in imported(path) if name.startswith(forbidden)], path


ARITHMETIC = (ast.Mult, ast.MatMult, ast.Div, ast.Pow)
MODEL_NAMES = {
    "model",
    "models",
    "server_model",
    "server_models",
    "released",
    "dual",
    "duals",
    "published",
    "aggregate",
}


def named(operand):
    """What an operand is called: a variable, an attribute, or a part of either."""
    if isinstance(operand, ast.Subscript):
        return named(operand.value) | named(operand.slice)
    name = getattr(operand, "id", None) or getattr(operand, "attr", None) or getattr(operand, "value", None)
    return {name} if isinstance(name, str) else set()


@pytest.mark.parametrize("room", ["simulate", "network"])
def test_rooms_that_move_models_do_no_arithmetic_on_them(room):
    """No product, quotient or power has a model for an operand: that is the equations' work."""
    for path in modules(room):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ARITHMETIC):
                assert not (named(node.left) | named(node.right)) & MODEL_NAMES, f"{path.name}:{node.lineno}"


@pytest.mark.parametrize("room", ["results", "lab"])
def test_report_and_lab_never_reach_into_an_engine(room):
    for path in modules(room):
        inside = [
            name for name in imported(path) if name.startswith(("pgfl.simulate.engine", "pgfl.simulate.neighbourhoods"))
        ]
        assert not inside, path


def test_public_names_are_these():
    assert pgfl.__all__ == [
        "PGFL", "Algorithm", "Bounds", "BudgetSpent", "Checkpoints", "ClientData", "ClientRule", "Column",
        "Comparison", "ConfigError", "DataError", "Decaying", "Delays", "Diverged", "ExactDiffusion", "ExactMixing",
        "Facts", "FedAvg", "Federation", "GradientSteps", "Graph", "Hinge", "Huber", "Interrupted", "KernelError",
        "LedgerError", "LinearisedStep", "Logistic", "MarginObjective", "MissingExtra", "Model",
        "NeighbourhoodAverage", "NetworkError", "Objective", "Observer", "OneStep", "OneStepUpdate", "Pair",
        "PgflError", "Privacy", "PrivacyError", "ProximalStep", "Result", "ResultError", "Ridge", "RowMap",
        "ServerRule", "Softmax", "SolverError", "TestSet", "TopologyError", "UsageError", "images_federation",
        "load_config", "mnist_federation", "plan", "run", "synthetic_regression", "train",
    ]  # fmt: skip
    for name in pgfl.__all__:
        assert getattr(pgfl, name) is not None


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        pgfl.trian  # noqa: B018
