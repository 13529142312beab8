"""Whether an objective can learn what is declared about the target, and how many classes softmax regression has."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pgfl.core.federation import Federation
from pgfl.did_you_mean import quoted
from pgfl.errors import DataError, PrivacyError
from pgfl.objectives import Hinge, Huber, Logistic, Objective, Ridge, Softmax
from pgfl.privacy.request import Privacy
from pgfl.simulate.communicator import Communicator
from pgfl.simulate.problems import Objectives


def with_classes(
    objectives: Objectives, federation: Federation, privacy: Privacy | None, communicator: Communicator
) -> Objectives:
    """The objectives with `classes` filled in: as many as the target has declared labels.

    Without declared labels it is the largest label of all clients + 1, but never under privacy.
    """
    _check_declared(objectives, federation)
    filled = _all_filled(objectives, federation, privacy, communicator)
    _check_bound(_each(filled), privacy)
    return filled


def classes_of(objectives: Objectives) -> int | None:
    """C of softmax regression; None for the other objectives."""
    objective = objectives if isinstance(objectives, Objective) else next(iter(objectives.values()))
    return objective.classes if isinstance(objective, Softmax) else None


def _all_filled(
    objectives: Objectives, federation: Federation, privacy: Privacy | None, communicator: Communicator
) -> Objectives:
    if not any(_unknown(objective) for objective in _each(objectives)):
        return objectives
    labels = federation.encoding.target.labels if federation.encoding else None
    if privacy is not None and labels is None:
        raise PrivacyError(
            "objective.classes is missing; under privacy the number of classes is stated, never read from records."
        )
    classes = len(labels) if labels else _largest_label(federation, communicator) + 1
    if isinstance(objectives, Objective):
        return _filled(objectives, classes)
    return {name: _filled(objective, classes) for name, objective in objectives.items()}


def _check_declared(objectives: Objectives, federation: Federation) -> None:
    """Raise if what is declared about the target belongs to another task than the objective's."""
    target = federation.encoding.target if federation.encoding else None
    if target is None:
        return
    for objective in _each(objectives):
        if target.labels is not None and isinstance(objective, Ridge | Huber):
            raise DataError(
                f"The target {quoted(target.name)} has labels, but {objective.kind} regression predicts numbers; "
                "choose logistic for two labels or softmax for more."
            )
        if target.labels is not None and isinstance(objective, Logistic | Hinge) and len(target.labels) > 2:
            raise DataError(
                f"The target {quoted(target.name)} has {len(target.labels)} labels, but {objective.kind} regression "
                "has two; choose softmax."
            )
        if target.bounds is not None and isinstance(objective, Logistic | Hinge | Softmax):
            raise DataError(
                f"The target {quoted(target.name)} has bounds, but {objective.kind} regression predicts labels; "
                "declare labels instead, or choose ridge or huber."
            )


def _each(objectives: Objectives) -> list[Objective]:
    return [objectives] if isinstance(objectives, Objective) else list(objectives.values())


def _largest_label(federation: Federation, communicator: Communicator) -> int:
    largest = float(communicator.largest([np.max(federation.targets)])[0])
    return max(int(largest), 1) if 0 <= largest < 2**31 else 1


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
