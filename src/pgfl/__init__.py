"""Personalised graph federated learning with differential privacy.

The public names; each is loaded when it is first used, so that `import pgfl` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pgfl.algorithms.algorithms import PGFL, ExactMixing, FedAvg, OneStep
    from pgfl.algorithms.schedules import Decaying
    from pgfl.federation.declarations import Column
    from pgfl.federation.federation import ClientData, Federation, TestSet
    from pgfl.federation.graphs import Graph
    from pgfl.federation.mnist import mnist_federation
    from pgfl.federation.synthetic import synthetic_regression
    from pgfl.objectives import Bounds, Hinge, Huber, Logistic, MarginObjective, Objective, Ridge, Softmax
    from pgfl.planning.facts import Facts
    from pgfl.planning.planner import plan
    from pgfl.privacy.request import Privacy
    from pgfl.results.comparison import Comparison
    from pgfl.results.model import Model
    from pgfl.results.result import Result
    from pgfl.simulate.observers import Observer
    from pgfl.simulate.training import train

__version__ = "0.1.0"
__all__ = [
    "PGFL",
    "Bounds",
    "ClientData",
    "Column",
    "Comparison",
    "Decaying",
    "ExactMixing",
    "Facts",
    "FedAvg",
    "Federation",
    "Graph",
    "Hinge",
    "Huber",
    "Logistic",
    "MarginObjective",
    "Model",
    "Objective",
    "Observer",
    "OneStep",
    "Privacy",
    "Result",
    "Ridge",
    "Softmax",
    "TestSet",
    "mnist_federation",
    "plan",
    "synthetic_regression",
    "train",
]

_HOMES = {
    "pgfl.federation.declarations": ("Column",),
    "pgfl.algorithms.algorithms": ("PGFL", "ExactMixing", "FedAvg", "OneStep"),
    "pgfl.federation.mnist": ("mnist_federation",),
    "pgfl.federation.synthetic": ("synthetic_regression",),
    "pgfl.federation.federation": ("ClientData", "Federation", "TestSet"),
    "pgfl.objectives": ("Bounds", "Hinge", "Huber", "Logistic", "MarginObjective", "Objective", "Ridge", "Softmax"),
    "pgfl.planning.facts": ("Facts",),
    "pgfl.planning.planner": ("plan",),
    "pgfl.privacy.request": ("Privacy",),
    "pgfl.results.comparison": ("Comparison",),
    "pgfl.results.model": ("Model",),
    "pgfl.results.result": ("Result",),
    "pgfl.algorithms.schedules": ("Decaying",),
    "pgfl.federation.graphs": ("Graph",),
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
