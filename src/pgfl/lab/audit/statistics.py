"""Scores of a transcript, and the lower bound on μ that an attack's mistakes leave (Clopper and Pearson)."""

from __future__ import annotations

import numpy as np
from scipy.special import betaincinv, ndtri

from pgfl.arrays import Floats
from pgfl.lab.audit.subjects import LyingServer


def rate_upper(mistakes: int, trials: int, alpha: float) -> float:
    """The upper bound on a rate, wrong with probability at most `alpha`.

    >>> round(rate_upper(0, 100, 0.05), 6), round(1 - 0.05 ** 0.01, 6), rate_upper(100, 100, 0.05)
    (0.029513, 0.029513, 1.0)
    """
    if mistakes >= trials:
        return 1.0
    return float(betaincinv(mistakes + 1, trials - mistakes, 1.0 - alpha))


def rate_lower(mistakes: int, trials: int, alpha: float) -> float:
    """The lower bound on a rate, wrong with probability at most `alpha`."""
    return float(betaincinv(mistakes, trials - mistakes + 1, alpha)) if mistakes else 0.0


def mu_lower(false_alarms: int, misses: int, trials: int, alpha: float) -> float:
    """−Φ⁻¹(FPR) − Φ⁻¹(FNR) with both rates at their upper bounds: a μ that the mechanism cannot be below.

    No test of a μ-Gaussian private mechanism has error rates below the curve FNR = Φ(Φ⁻¹(1 − FPR) − μ). Wrong with
    probability at most `alpha`; 0 if the attack shows nothing.
    """
    rates = [rate_upper(mistakes, trials, alpha / 2.0) for mistakes in (false_alarms, misses)]
    if max(rates) >= 1.0:
        return 0.0
    return max(0.0, float(-np.sum(ndtri(rates))))


PART = 0.1  # of the worlds' distance, from which a coordinate is scored by itself
NOTHING = 1e-12  # of the worlds' distance, below which nothing is distinguished
NOTICED = 1e-6  # how far, relative to the worlds' distance, an implied model must be from the released one to be news


def scores(server: LyingServer, clean: tuple[Floats, Floats]) -> dict[str, Floats]:
    """The scores of every trial, by kind, given the clean models of both worlds."""
    middle, apart = 0.5 * (clean[0] + clean[1]), clean[1] - clean[0]
    along = apart / np.linalg.norm(apart)
    phi = server.case.phi
    received = np.stack([(released - middle) @ along for released in server.released], axis=1)
    standard = received * np.sqrt(phi)
    growth = np.diff(np.sqrt(phi))
    found = {"likelihood": received @ phi, "cancelled": np.diff(standard, axis=1) @ growth}
    found |= _by_coordinate(server, middle, along)
    if server.answers is not None:
        found["nearest"] = _nearest(server.answers, clean, NOTHING * float(np.linalg.norm(apart)))
    found["dual"] = np.zeros(len(received))
    for implied, released in zip(server.implied, server.released, strict=False):
        news = np.linalg.norm(implied - released, axis=1) > NOTICED * np.linalg.norm(apart)
        first = news & (found["dual"] == 0.0)  # a dual that is not as expected moves the centre of the rounds after it
        found["dual"] += np.where(first, (implied - middle) @ along, 0.0)
    return found


def _by_coordinate(server: LyingServer, middle: Floats, along: Floats) -> dict[str, Floats]:
    telling = np.flatnonzero(np.abs(along) > PART)
    if len(telling) < 2:
        return {}
    weighted = sum(phi * (released - middle) for phi, released in zip(server.case.phi, server.released, strict=True))
    return {f"coordinate {place + 1}": weighted[:, place] * along[place] for place in telling.tolist()}


def _nearest(answers: Floats, clean: tuple[Floats, Floats], nothing: float) -> Floats:
    far = [np.abs(answers - world) + nothing for world in clean]
    closer = np.nan_to_num(np.log(far[0] / far[1])).reshape(len(answers), -1)
    return np.asarray(closer[np.arange(len(closer)), np.argmax(np.abs(closer), axis=1)])
