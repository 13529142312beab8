"""What clients minimise: ridge, Huber, logistic and softmax regression, the smooth hinge, or an objective of yours."""

from pgfl.objectives.interface import BatchedObjective, Bounds, Objective, Task
from pgfl.objectives.margins import Hinge, Huber, Logistic, MarginObjective
from pgfl.objectives.ridge import Ridge
from pgfl.objectives.softmax import Softmax

KINDS: dict[str, type[BatchedObjective]] = {cls.kind: cls for cls in (Ridge, Huber, Logistic, Hinge, Softmax)}

__all__ = [
    "KINDS",
    "BatchedObjective",
    "Bounds",
    "Hinge",
    "Huber",
    "Logistic",
    "MarginObjective",
    "Objective",
    "Ridge",
    "Softmax",
    "Task",
]
