"""Personalised graph federated learning with differential privacy.

The public names; each is loaded when it is first used, so that `import pgfl` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pgfl.algorithms.algorithms import PGFL, Algorithm, ExactMixing, FedAvg, OneStep, Pair
    from pgfl.algorithms.client_rules import ClientRule, GradientSteps, LinearisedStep, ProximalStep
    from pgfl.algorithms.schedules import Decaying, Delays
    from pgfl.algorithms.server_rules import ExactDiffusion, NeighbourhoodAverage, OneStepUpdate, ServerRule
    from pgfl.config.files import load_config
    from pgfl.errors import (
        BudgetSpent,
        ConfigError,
        DataError,
        Diverged,
        Interrupted,
        KernelError,
        LedgerError,
        MissingExtra,
        NetworkError,
        PgflError,
        PrivacyError,
        ResultError,
        SolverError,
        TopologyError,
        UsageError,
    )
    from pgfl.experiment import run
    from pgfl.federation.declarations import Column
    from pgfl.federation.federation import ClientData, Federation, TestSet
    from pgfl.federation.graphs import Graph
    from pgfl.federation.images import images_federation
    from pgfl.federation.mnist import mnist_federation
    from pgfl.federation.synthetic import synthetic_regression
    from pgfl.maps import RowMap
    from pgfl.objectives import Bounds, Hinge, Huber, Logistic, MarginObjective, Objective, Ridge, Softmax
    from pgfl.planning.facts import Facts
    from pgfl.planning.planner import plan
    from pgfl.privacy.request import Privacy
    from pgfl.results.comparison import Comparison
    from pgfl.results.model import Model
    from pgfl.results.result import Result
    from pgfl.simulate.checkpoint import Checkpoints
    from pgfl.simulate.observers import Observer
    from pgfl.simulate.training import train

__version__ = "0.1.0"
__all__ = [
    "PGFL",
    "Algorithm",
    "Bounds",
    "BudgetSpent",
    "Checkpoints",
    "ClientData",
    "ClientRule",
    "Column",
    "Comparison",
    "ConfigError",
    "DataError",
    "Decaying",
    "Delays",
    "Diverged",
    "ExactDiffusion",
    "ExactMixing",
    "Facts",
    "FedAvg",
    "Federation",
    "GradientSteps",
    "Graph",
    "Hinge",
    "Huber",
    "Interrupted",
    "KernelError",
    "LedgerError",
    "LinearisedStep",
    "Logistic",
    "MarginObjective",
    "MissingExtra",
    "Model",
    "NeighbourhoodAverage",
    "NetworkError",
    "Objective",
    "Observer",
    "OneStep",
    "OneStepUpdate",
    "Pair",
    "PgflError",
    "Privacy",
    "PrivacyError",
    "ProximalStep",
    "Result",
    "ResultError",
    "Ridge",
    "RowMap",
    "ServerRule",
    "Softmax",
    "SolverError",
    "TestSet",
    "TopologyError",
    "UsageError",
    "images_federation",
    "load_config",
    "mnist_federation",
    "plan",
    "run",
    "synthetic_regression",
    "train",
]

_HOMES = {
    "pgfl.algorithms.algorithms": (
        "PGFL",
        "Algorithm",
        "ExactMixing",
        "FedAvg",
        "OneStep",
        "Pair",
    ),
    "pgfl.algorithms.client_rules": (
        "ClientRule",
        "GradientSteps",
        "LinearisedStep",
        "ProximalStep",
    ),
    "pgfl.algorithms.schedules": ("Decaying", "Delays"),
    "pgfl.algorithms.server_rules": (
        "ExactDiffusion",
        "NeighbourhoodAverage",
        "OneStepUpdate",
        "ServerRule",
    ),
    "pgfl.config.files": ("load_config",),
    "pgfl.errors": (
        "BudgetSpent",
        "ConfigError",
        "DataError",
        "Diverged",
        "Interrupted",
        "KernelError",
        "LedgerError",
        "MissingExtra",
        "NetworkError",
        "PgflError",
        "PrivacyError",
        "ResultError",
        "SolverError",
        "TopologyError",
        "UsageError",
    ),
    "pgfl.experiment": ("run",),
    "pgfl.federation.declarations": ("Column",),
    "pgfl.federation.federation": (
        "ClientData",
        "Federation",
        "TestSet",
    ),
    "pgfl.federation.graphs": ("Graph",),
    "pgfl.federation.images": ("images_federation",),
    "pgfl.federation.mnist": ("mnist_federation",),
    "pgfl.federation.synthetic": ("synthetic_regression",),
    "pgfl.maps": ("RowMap",),
    "pgfl.objectives": (
        "Bounds",
        "Hinge",
        "Huber",
        "Logistic",
        "MarginObjective",
        "Objective",
        "Ridge",
        "Softmax",
    ),
    "pgfl.planning.facts": ("Facts",),
    "pgfl.planning.planner": ("plan",),
    "pgfl.privacy.request": ("Privacy",),
    "pgfl.results.comparison": ("Comparison",),
    "pgfl.results.model": ("Model",),
    "pgfl.results.result": ("Result",),
    "pgfl.simulate.checkpoint": ("Checkpoints",),
    "pgfl.simulate.observers": ("Observer",),
    "pgfl.simulate.training": ("train",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'pgfl' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
