"""What finding clusters costs: its part of a budget, chosen from public facts, and the sensitivity of a sketch.

A *sketch* of a client is the mean over its records of V∇ℓ(z; w), clipped record by record to length b, at a public
model w and along a few public directions V. Replacing one of D records moves it by Δ = 2b/D at most.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from pgfl.arrays import Floats, Ints
from pgfl.errors import PrivacyError
from pgfl.privacy import accounting
from pgfl.privacy.carried import carrying
from pgfl.privacy.request import Privacy

DIRECTIONS, SKETCHES = 4, 3
CLIP = 0.8  # of the length that a gradient of the largest size has along so many of its directions
CHOICE_CLIP = 0.2  # of the length that contrasts of losses have: what counts is which model suits a record better
CHOICE_PART = 0.04  # of the budget for a late choice, where membership is in doubt
CHOICE_AT = 0.75  # of the rounds, when models are good enough to be told apart
DOUBT = 0.5  # clients expected in a wrong cluster, beyond which a late choice is worth its price
ROUNDING = 1e-9  # of Δ: what adding up D rows in floating point can add
MODEL_PART = 2.0 / 3.0  # of what finding costs goes to the common model, the rest to sketches
LEAST_PART, MOST_PART = 0.10, 0.28  # of the budget for the common model
HOPELESS = 0.8  # a part of the budget beyond which nothing is looked for
SIGHT, PULL = 7.0, 0.16  # measured: how far above the detection threshold directions are safely seen; a cluster's pull


def sketch_sensitivity(clip: float, counts: ArrayLike) -> Floats:
    """Δ_k = 2b/D_k of a mean over D_k rows of length b at most."""
    return np.asarray(2.0 * clip * (1.0 + ROUNDING) / np.asarray(counts, dtype=np.float64))


def sketch_clip(gradient_bound: float, directions: int, length: int) -> float:
    """b: a gradient of the largest size has about √(r/d) of its length along r of d directions."""
    return float(CLIP * gradient_bound * np.sqrt(directions / length))


def choice_clip(gradient_bound: float, models: ArrayLike) -> float:
    """b: contrasts of losses are about as long as a gradient of the largest size makes them along random rows."""
    held = np.asarray(models, dtype=np.float64)
    return float(CHOICE_CLIP * gradient_bound * np.linalg.norm(held - held.mean(axis=0)) / np.sqrt(held.shape[1]))


@dataclass(frozen=True)
class DiscoveryBudget:
    """ρ of the whole budget, of the common model, φ of each sketch, and that of a late choice."""

    total: float
    model: float
    sketch: float
    choice: float

    @classmethod
    def of(cls, privacy: Privacy, counts: Ints, length: int) -> DiscoveryBudget | None:
        """The part of the budget with which clusters can be seen, or None where nothing could be.

        Directions of differences stand out from noise if the pulls of clusters are large beside it: their ratio grows
        with D²ρ/d and must exceed √(d/K), the threshold of principal components. All of it is public.
        """
        if privacy.epsilon is None or privacy.guarantee != "required":
            raise PrivacyError(
                "Cluster discovery takes its part of a budget; state `privacy.epsilon` with a guarantee, or leave "
                "`discover` out."
            )
        total = accounting.exact_rho(privacy.epsilon, privacy.delta)
        square = float(np.mean(np.asarray(counts, dtype=float) ** 2))
        needed = SIGHT * np.sqrt(length / len(counts)) * length / (PULL * square * total)
        if needed > HOPELESS:
            return None
        part = float(np.clip(needed, LEAST_PART, MOST_PART))
        return cls(total, total * part, total * part * (1.0 / MODEL_PART - 1.0) / SKETCHES, total * CHOICE_PART)

    def for_model(self, privacy: Privacy) -> Privacy:
        """The privacy with which the common model is trained: nobody is trusted."""
        epsilon = float(accounting.exact_epsilon(self.model, privacy.delta))
        return replace(privacy, epsilon=epsilon, trust="local")


def rest_of(privacy: Privacy, spent: Floats, rounds: int) -> Privacy:
    """The privacy of the training after discovery: what is `spent` counts, and the whole budget stays the limit."""
    assert privacy.epsilon is not None
    total = accounting.exact_rho(privacy.epsilon, privacy.delta)
    epsilon = float(accounting.exact_epsilon(total - float(spent.max()), privacy.delta))
    budget = replace(privacy, epsilon=epsilon).budget(rounds)
    return carrying(privacy, replace(budget, rho_budget=total * (1.0 + accounting.MARGIN)))
