"""Which rows of a table are held out for testing: a share of every client's rows, or one fold of several."""

from __future__ import annotations

import numpy as np

from pgfl.array_types import Bools, Ints
from pgfl.core.streams import Purpose, stream
from pgfl.errors import ConfigError, DataError


def held_out_share(offsets: Ints, share: float, seed: int) -> Bools:
    """A share of every client's rows, drawn at random: at least one row in all, and every client keeps at least one.

    The rows of client k are `offsets[k]` to `offsets[k+1]`. A share that is not a whole number of rows is rounded up or
    down at random, so that the share holds on average. Nothing but the counts and the seed decides.

    >>> held_out_share(np.array([0, 10, 11]), 0.2, seed=0).sum()
    np.int64(2)
    """
    counts = np.diff(offsets)
    _check_counts(counts, f"test = {share:g}")
    rng = stream(seed, 0, Purpose.HELD_OUT)
    wanted = np.minimum(np.floor(share * counts + rng.random(len(counts))), counts - 1)
    if not wanted.any():
        wanted[np.argmax(counts)] = 1
    return np.asarray(_shuffled_ranks(offsets, rng) < np.repeat(wanted, counts))


def held_out_fold(offsets: Ints, folds: int, fold: int, seed: int) -> Bools:
    """One of several folds: every row of a client with several rows is held out in exactly one of them.

    From the number `folds` on, folds are drawn anew: fold 7 of 5 is the third one of the second repetition.
    """
    if folds < 2 or fold < 0:
        raise ConfigError(f"Cross-validation takes at least 2 folds, counted from 0; got fold {fold} of {folds}.")
    counts = np.diff(offsets)
    _check_counts(counts, f"folds = {folds}")
    repetition, number = divmod(fold, folds)
    rng = stream(seed, repetition, Purpose.HELD_OUT, round=folds)
    first = np.repeat(rng.integers(folds, size=len(counts)), counts)
    own_fold: Ints = (_shuffled_ranks(offsets, rng) + first) % folds
    return np.asarray((own_fold == number) & np.repeat(counts > 1, counts))


def _check_counts(counts: Ints, asked: str) -> None:
    if counts.max() < 2:
        raise DataError(f"{asked} holds out no row, as every client has one row only; give a table of test rows.")


def _shuffled_ranks(offsets: Ints, rng: np.random.Generator) -> Ints:
    """The place of every row among the shuffled rows of its client."""
    counts = np.diff(offsets)
    client = np.repeat(np.arange(len(counts)), counts)
    order = np.lexsort((rng.random(len(client)), client))
    ranks = np.empty(len(client), dtype=np.int64)
    ranks[order] = np.arange(len(client)) - np.repeat(offsets[:-1], counts)
    return ranks
