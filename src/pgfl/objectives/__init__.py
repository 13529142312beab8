"""What clients minimise: ridge, Huber and logistic regression, and the interface for your own; each with its solver."""

from pgfl.objectives.objective import KINDS, Bounds, Huber, Logistic, MarginObjective, Objective, Ridge

__all__ = ["KINDS", "Bounds", "Huber", "Logistic", "MarginObjective", "Objective", "Ridge"]
