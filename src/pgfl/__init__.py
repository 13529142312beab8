"""Personalised graph federated learning with differential privacy."""

from pgfl.algorithms import PGFL, ExactMixing, FedAvg, OneStep
from pgfl.data.synthetic import synthetic_regression
from pgfl.federation import ClientData, Federation, TestSet
from pgfl.objectives import Bounds, Huber, Logistic, Objective, Ridge
from pgfl.schedules import Decaying
from pgfl.topology import Graph
from pgfl.training import train

__all__ = [
    "PGFL",
    "Bounds",
    "ClientData",
    "Decaying",
    "ExactMixing",
    "FedAvg",
    "Federation",
    "Graph",
    "Huber",
    "Logistic",
    "Objective",
    "OneStep",
    "Ridge",
    "TestSet",
    "synthetic_regression",
    "train",
]
__version__ = "0.1.0"
