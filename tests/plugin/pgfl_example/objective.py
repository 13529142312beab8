"""The pseudo-Huber loss: smooth everywhere, with a bounded gradient."""

from dataclasses import dataclass
from typing import ClassVar

from pgfl import Bounds, MarginObjective
from pgfl.registry import setting


@dataclass(frozen=True)
class PseudoHuber(MarginObjective):
    """h(r) = 2s²(√(1 + (r/s)²) − 1), s = `width`; |h'| < 2s and h'' ≤ 2."""

    kind: ClassVar[str] = "pseudo-huber"
    label_kind: ClassVar[str] = "numbers"
    width: float = setting(1.0, gt=0)

    def scalar_loss(self, margin, target):
        return 2.0 * self.width**2 * (self._root(margin, target) - 1.0)

    def slope(self, margin, target):
        return 2.0 * (margin - target) / self._root(margin, target)

    def curvature(self, margin, target):
        return 2.0 / self._root(margin, target) ** 3

    def gradient_bound(self, bounds: Bounds):
        return None if bounds.x_norm is None else 2.0 * self.width * bounds.x_norm

    def smoothness(self, bounds: Bounds):
        return None if bounds.x_norm is None else 2.0 * bounds.x_norm**2

    def _root(self, margin, target):
        return (1.0 + ((margin - target) / self.width) ** 2) ** 0.5
