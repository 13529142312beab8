"""What clients minimise: ridge, Huber and logistic regression, and the interface for your own; each with its solver."""

from pgfl.objectives.interface import Bounds, Objective
from pgfl.objectives.margin_losses import Huber, Logistic, MarginObjective
from pgfl.objectives.ridge import Ridge

KINDS: dict[str, type[MarginObjective]] = {cls.kind: cls for cls in (Ridge, Huber, Logistic)}

__all__ = ["KINDS", "Bounds", "Huber", "Logistic", "MarginObjective", "Objective", "Ridge"]
