"""A client's own rows, read from its table and clipped to its owner's bounds, in a process that ends."""

from __future__ import annotations

import multiprocessing
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from typing import TypeVar

import numpy as np

from pgfl.arrays import Bools, Floats
from pgfl.errors import DataError
from pgfl.federation.clipping import LABEL_BOUND, clip_labels, clip_rows, clip_weights
from pgfl.federation.columns import NumberColumn, TargetColumn
from pgfl.federation.encoding import PlaceColumns, RowEncoding
from pgfl.federation.frames import TableFile
from pgfl.network.agreement import Training
from pgfl.network.client.settings import ClientSettings
from pgfl.objectives import Logistic
from pgfl.results.rows import ArrayRows

Found = TypeVar("Found")


@dataclass(frozen=True)
class Samples:
    """A client's own rows, within its own bounds; `weights` are as its table states them."""

    features: Floats
    targets: Floats
    weights: Floats | None = None

    def targets_for(self, training: Training) -> Floats:
        """Return the targets as the loss of a training takes them: with weights within its cap, if it has weights.

        A weight follows from its own record and the training alone, so that another record changes no weight.
        """
        cap = training.largest_weight
        if cap is None:
            return self.targets
        weights = np.ones(len(self.targets)) if self.weights is None else self.weights
        for label, factor in training.class_weight.items():
            weights = np.where(self.targets == float(label), factor * weights, weights)
        return np.stack([self.targets, clip_weights(weights, cap)], axis=-1)


def load_samples(settings: ClientSettings) -> Samples:
    """The table of one client: its target column, all other columns are features; rows and labels are clipped."""
    table = TableFile(settings.data)
    others = [settings.target] if settings.weight is None else [settings.target, settings.weight]
    table.require(*others)
    names = settings.features(table.columns)
    if not names:
        raise DataError(f"{settings.data} has no column beside {settings.target}; a row needs at least one feature.")
    filled = ~table.blank()
    columns = {}
    for name, (_, numbers) in zip([*others, *names], table.numbers([*others, *names]), strict=True):
        columns[name] = numbers[filled]
        if not np.isfinite(columns[name]).all():
            row = int(np.flatnonzero(filled)[np.argmin(np.isfinite(columns[name]))])
            raise table.refuse(row, f"column {name} holds no finite number; remove or fill it.")
    if not len(columns[settings.target]):
        raise DataError(f"{settings.data} has no samples; a client needs at least one.")
    _check_task(settings, table, columns[settings.target], filled)
    encoding = row_encoding(settings, names)
    features = encoding.encode(ArrayRows(np.column_stack([columns[name] for name in names]), names))
    weights = _weights(settings, table, columns, filled)
    return replace(clipped(settings, features, columns[settings.target]), weights=weights)


def _weights(settings: ClientSettings, table: TableFile, columns: Mapping[str, Floats], filled: Bools) -> Floats | None:
    """The column of weights, if any; one below 0 ends the client here, before it sends anything to anyone."""
    if settings.weight is None:
        return None
    weights = columns[settings.weight]
    if (weights < 0.0).any():
        row = int(np.flatnonzero(filled)[np.argmax(weights < 0.0)])
        raise table.refuse(row, f"the weight {settings.weight} is below 0; weights are numbers from 0 up.")
    return weights


def row_encoding(settings: ClientSettings, names: Sequence[str]) -> RowEncoding:
    """How the owner's rows become features: as they are, or clipped to [−1, 1] and mapped where there is a map."""
    maps = settings.limits.map or ()
    columns = tuple(NumberColumn(name, (-1.0, 1.0) if maps else None) for name in names)
    nowhere = PlaceColumns(None, None, None)
    return RowEncoding(columns, TargetColumn(settings.target), settings.intercept, nowhere, maps=maps)


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


def load_samples_apart(settings: ClientSettings) -> Samples:
    """`load_samples` in a fork, unless this process has threads, or polars already."""
    return _apart(settings.data, partial(load_samples, settings))


def columns_apart(path: str) -> list[str]:
    """The columns of a table, in the same way."""
    return _apart(path, partial(_columns, path))


def _columns(path: str) -> list[str]:
    return list(TableFile(path).columns)


def _apart(path: str, read: Callable[[], Found]) -> Found:
    """What `read` makes of a file, in a fork, so that the memory which that takes is given back."""
    if "polars" in sys.modules or threading.active_count() > 1:
        return read()
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    reader = context.Process(target=_send, args=(read, here, there))
    reader.start()
    there.close()
    with here:
        try:
            found: Found | Exception | None = here.recv()
        except EOFError:
            found = None
    reader.join()
    if isinstance(found, Exception):
        raise found
    if found is None:
        raise DataError(
            f"Reading {path} was cut off (exit code {reader.exitcode}); is there enough memory? Start again."
        )
    return found


def _send(read: Callable[[], object], here: Connection, there: Connection) -> None:
    """In the fork; it holds no other end of the pipe, so that it ends if the client does."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    here.close()
    try:
        there.send(read())
    except Exception as error:
        there.send(error)
