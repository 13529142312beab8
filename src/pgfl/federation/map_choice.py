"""`map = "auto"` without privacy: the map with the least error in a cross-validation over the training rows.

Least squares in closed form stand in for the training, with the same penalty: what matters is how the maps compare.
Straight lines are kept unless another map is clearly better. The rows decide, so privacy cannot use this choice;
`pgfl.planning.map_plan` makes it from public facts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pgfl.arrays import Floats
from pgfl.errors import ConfigError
from pgfl.federation.encoding import RowEncoding
from pgfl.federation.federation import Federation
from pgfl.maps import Curves, Gradients, Products, RowMap, length, stages

FOLDS = 5
MOST_ROWS = 4000  # that are looked at
MOST_FEATURES = 600  # of a map that is tried: more take minutes, and rarely pay
CLEARLY = 0.003  # of the labels' variance: less is no reason to leave straight lines
BENDS, SCALES = (1.0, 0.3), (1.0, 0.3, 0.1)
USUAL_LAM = 1e-3
SLOPE_OF_LABELS = 0.2  # of a logistic function where both labels are likely: squared errors bend five times as much


@dataclass(frozen=True)
class MapChoice:
    """The maps that were chosen, and why, in one phrase."""

    maps: tuple[RowMap, ...]
    reason: str


def choose_map(federation: Federation, lam: float = USUAL_LAM, *, labels: bool = False) -> MapChoice:
    """Return the map that predicts held-out training rows best; the federation was read without one.

    `lam` is the weight of a model's squared norm beside the mean loss. With `labels` targets are numbers of classes.
    """
    encoding = federation.encoding
    if encoding is not None and any(group.shape is not None for group in encoding.groups):
        return _of_images(encoding)
    if encoding is None or encoding.maps:
        raise ConfigError('map = "auto" is for tables that are read without another map; name a map instead.')
    order = np.random.default_rng(0).permutation(len(federation.features))[:MOST_ROWS]
    whole = np.asarray(federation.features[order], dtype=np.float64)
    rows = whole[:, :-1] if encoding.intercept else whole
    targets = np.asarray(federation.targets[order], dtype=np.float64)
    wanted = np.eye(int(targets.max()) + 1)[targets.astype(int)] if labels else targets[:, None]
    lam = lam / SLOPE_OF_LABELS if labels else lam
    spread = float(np.sum(np.var(wanted, axis=0)))
    if len(rows) < 2 * FOLDS or spread == 0.0:
        return MapChoice((), "too few records to compare maps")
    error = {maps: _held_out_error(_mapped(maps, rows, encoding), wanted, lam) / spread for maps in _tried(encoding)}
    best = min(error, key=lambda maps: error[maps])
    straight, least = 100.0 * (1.0 - error[()]), 100.0 * (1.0 - error[best])
    if error[best] > error[()] - CLEARLY:
        return MapChoice((), f"straight lines explain {straight:.1f} % of held-out rows' variance, no map clearly more")
    return MapChoice(best, f"it explains {least:.1f} % of held-out rows' variance, straight lines {straight:.1f} %")


def _of_images(encoding: RowEncoding) -> MapChoice:
    """Return the smallest cells that divide the images: without noise they are the better ones."""
    for cell in range(4, 9):
        try:
            stages((Gradients(cell),), encoding.groups)
        except ConfigError:
            continue
        return MapChoice((Gradients(cell),), "what edges run where says more than pixels")
    return MapChoice((), "no cell divides images of this size")


def _tried(encoding: RowEncoding) -> Iterator[tuple[RowMap, ...]]:
    """Return the maps that are compared, the simplest first: curves where numbers have bounds, and products."""
    groups = encoding.groups
    bending: list[tuple[RowMap, ...]] = [()]
    if any(group.scaled for group in groups):
        bending += [(Curves(bend=bend),) for bend in BENDS]
    yield from bending
    for maps in bending:
        for scale in SCALES if len(groups) > 1 else ():
            both = (*maps, Products(scale=scale))
            if length(stages(both, groups)[1]) <= MOST_FEATURES:
                yield both


def _mapped(maps: tuple[RowMap, ...], rows: Floats, encoding: RowEncoding) -> Floats:
    for one, groups in stages(maps, encoding.groups)[0]:
        rows = one.apply(rows, groups)
    return rows


def _held_out_error(rows: Floats, wanted: Floats, lam: float) -> float:
    """Return the mean squared error on every fold of the model of the others, summed over the outputs."""
    fold, missed = np.arange(len(rows)) % FOLDS, 0.0
    for number in range(FOLDS):
        train, test = rows[fold != number], rows[fold == number]
        middle, mean = train.mean(axis=0), wanted[fold != number].mean(axis=0)
        away = train - middle
        second = away.T @ away / len(train) + lam * np.eye(rows.shape[1])
        model = np.linalg.solve(second, away.T @ (wanted[fold != number] - mean) / len(train))
        missed += float(np.sum((wanted[fold == number] - mean - (test - middle) @ model) ** 2))
    return missed / len(rows)
