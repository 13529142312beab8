"""How many classes softmax regression has, where its user did not say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pgfl.core.federation import Federation
from pgfl.errors import PrivacyError
from pgfl.objectives import Objective, Softmax
from pgfl.privacy.request import Privacy
from pgfl.simulate.communicator import Communicator
from pgfl.simulate.problems import Objectives


def with_classes(
    objectives: Objectives, federation: Federation, privacy: Privacy | None, communicator: Communicator
) -> Objectives:
    """The objectives with `classes` filled in: the largest label of all clients + 1, but never under privacy."""
    chosen = [objectives] if isinstance(objectives, Objective) else list(objectives.values())
    _check_bound(chosen, privacy)
    if not any(_unknown(objective) for objective in chosen):
        return objectives
    if privacy is not None:
        raise PrivacyError(
            "objective.classes is missing; under privacy the number of classes is stated, never read from records."
        )
    largest = float(communicator.largest([np.max(federation.targets)])[0])
    classes = max(int(largest) + 1, 2) if 0 <= largest < 2**31 else 2
    if isinstance(objectives, Objective):
        return _filled(objectives, classes)
    return {name: _filled(objective, classes) for name, objective in objectives.items()}


def classes_of(objectives: Objectives) -> int | None:
    """C of softmax regression; None for the other objectives."""
    objective = objectives if isinstance(objectives, Objective) else next(iter(objectives.values()))
    return objective.classes if isinstance(objective, Softmax) else None


def _check_bound(objectives: list[Objective], privacy: Privacy | None) -> None:
    """Labels are clipped to `y_bound`, which must not make one class of another."""
    bound = None if privacy is None else privacy.y_bound
    known = [objective.classes for objective in objectives if isinstance(objective, Softmax) and objective.classes]
    if bound is not None and known and bound < max(known) - 1:
        raise PrivacyError(
            f"privacy.y_bound = {bound:g} would clip labels up to {max(known) - 1} to another class; leave it out."
        )


def _unknown(objective: Objective) -> bool:
    return isinstance(objective, Softmax) and objective.classes is None


def _filled(objective: Objective, classes: int) -> Objective:
    return replace(objective, classes=classes) if isinstance(objective, Softmax) and _unknown(objective) else objective
