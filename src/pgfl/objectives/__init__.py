"""What clients minimise: ridge, Huber, logistic and softmax regression, and the interface for your own objective."""

from pgfl.objectives.interface import BatchedObjective, Bounds, Objective, Task
from pgfl.objectives.margin_losses import Huber, Logistic, MarginObjective
from pgfl.objectives.ridge import Ridge
from pgfl.objectives.softmax import Softmax

KINDS: dict[str, type[BatchedObjective]] = {cls.kind: cls for cls in (Ridge, Huber, Logistic, Softmax)}

__all__ = [
    "KINDS",
    "BatchedObjective",
    "Bounds",
    "Huber",
    "Logistic",
    "MarginObjective",
    "Objective",
    "Ridge",
    "Softmax",
    "Task",
]
