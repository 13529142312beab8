"""A client's own rows, read from its table and clipped to its owner's bounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pgfl.array_types import Bools, Floats
from pgfl.data.frames import TableFile
from pgfl.deploy.client.client_settings import ClientSettings
from pgfl.errors import DataError
from pgfl.objectives import Logistic
from pgfl.privacy.sensitivity import LABEL_BOUND, clip_labels, clip_rows


@dataclass(frozen=True)
class Samples:
    """A client's own rows, within its own bounds."""

    features: Floats
    targets: Floats


def load_samples(settings: ClientSettings) -> Samples:
    """The table of one client: its target column, all other columns are features; rows and labels are clipped."""
    table = TableFile(settings.data)
    table.require(settings.target)
    names = [name for name in table.columns if name != settings.target]
    if not names:
        raise DataError(f"{settings.data} has no column beside {settings.target}; a row needs at least one feature.")
    filled = ~table.blank()
    columns = {}
    for name, (_, numbers) in zip([settings.target, *names], table.numbers([settings.target, *names]), strict=True):
        columns[name] = numbers[filled]
        if not np.isfinite(columns[name]).all():
            row = int(np.flatnonzero(filled)[np.argmin(np.isfinite(columns[name]))])
            raise table.refuse(row, f"column {name} holds no finite number; remove or fill it.")
    if not len(columns[settings.target]):
        raise DataError(f"{settings.data} has no samples; a client needs at least one.")
    _check_task(settings, table, columns[settings.target], filled)
    features = np.column_stack([columns[name] for name in names] + [np.ones(int(filled.sum()))] * settings.intercept)
    return clipped(settings, features, columns[settings.target])


def _check_task(settings: ClientSettings, table: TableFile, targets: Floats, filled: Bools) -> None:
    """Labels that do not suit the owner's own task end the client here, before it sends anything to anyone."""
    wrong = ~Logistic().suitable(targets)
    if settings.task == "classification" and wrong.any():
        row = int(np.flatnonzero(filled)[np.argmax(wrong)])
        raise table.refuse(
            row, f'{settings.target} is not 0 or 1, which task = "classification" needs; recode it, or change the task.'
        )


def clipped(settings: ClientSettings, features: Floats, targets: Floats) -> Samples:
    """The rows within the owner's bounds."""
    privacy = settings.privacy
    if privacy.enabled and privacy.x_norm is not None:
        features = clip_rows(features, privacy.x_norm).astype(np.float64)
    if privacy.enabled:
        targets = clip_labels(targets, privacy.y_bound or LABEL_BOUND).astype(np.float64)
    return Samples(features, targets)
