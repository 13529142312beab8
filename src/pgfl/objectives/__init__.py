"""What clients minimise: ridge, Huber, logistic and softmax regression, the smooth hinge, or an objective of yours."""

from pgfl.objectives.hinge import Hinge
from pgfl.objectives.huber import Huber
from pgfl.objectives.interface import BatchedObjective, Bounds, Objective, Task
from pgfl.objectives.logistic import Logistic
from pgfl.objectives.margins import MarginObjective
from pgfl.objectives.ridge import Ridge
from pgfl.objectives.softmax import Softmax
from pgfl.registry import Registry

OBJECTIVES = Registry[type[BatchedObjective]](
    "objectives", "objective", {cls.kind: cls for cls in (Ridge, Huber, Logistic, Hinge, Softmax)}
)

__all__ = [
    "OBJECTIVES",
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
