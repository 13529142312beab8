"""What clients release so that clusters can be found: sketches of their gradients, and choices among models.

Both are means over a client's records of short vectors, each clipped to a public length, with noise of the client's
own. A release is charged before it is computed. Models, directions and lengths follow from earlier releases.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from pgfl.arrays import AnyFloats, Floats, Ints
from pgfl.federation.clipping import clip_rows
from pgfl.federation.federation import Federation
from pgfl.objectives import BatchedObjective, Objective
from pgfl.privacy.budget import sigma_for
from pgfl.privacy.discovery import sketch_sensitivity
from pgfl.privacy.mechanism import Account
from pgfl.simulate.options import TrainingOptions
from pgfl.streams import Purpose, stream

if TYPE_CHECKING:
    from pgfl.privacy.noise import NoiseSource


class Sketches:
    """The points that clients have released so far, with the known variance of the noise in them.

    `noise` makes the source for points of so many numbers; `clients` are those who release, all unless given.
    """

    def __init__(
        self,
        federation: Federation,
        objective: Objective,
        account: Account,
        noise: Callable[[int], NoiseSource],
        clients: Ints | None = None,
    ) -> None:
        self._federation, self._objective = federation, objective
        self._account, self._source, self._made = account, noise, 0
        self._clients = np.arange(federation.size) if clients is None else clients
        self.points: Floats = np.empty((len(self._clients), 0))
        self.noise: Floats = np.empty((len(self._clients), 0))

    def sketch(self, model: AnyFloats, along: Floats, clip: float, phi: float) -> None:
        """Release every client's mean gradient at a model along some directions, for φ each."""

        def rows(client: int) -> Floats:
            return record_gradients(self._objective, model, *self._federation.rows(client)) @ along.T

        self._release(rows, len(along), clip, phi)

    def choose(self, models: AnyFloats, clip: float, phi: float) -> None:
        """Release how well some models suit every client: contrasts of their mean losses, for φ each."""
        contrasts = contrasts_of(len(models))

        def rows(client: int) -> Floats:
            return record_losses(self._objective, models, *self._federation.rows(client)) @ contrasts.T

        self._release(rows, len(contrasts), clip, phi)

    def _release(self, rows: Callable[[int], Floats], width: int, clip: float, phi: float) -> None:
        """Release the mean of each client's rows, clipped one by one."""
        source, clients = self._source(width), self._clients
        sigma = sigma_for(source.widen(sketch_sensitivity(clip, self._federation.counts[clients])), phi)
        source.check(sigma)
        self._account.charge(clients, phi)
        clean = np.array([clip_rows(rows(client), clip).mean(axis=0) for client in clients.tolist()])
        self._made += 1
        released = source.release(clean, sigma, clients, self._made)
        self.points = np.hstack([self.points, released])
        self.noise = np.hstack([self.noise, np.repeat(sigma[:, None] ** 2, width, axis=1)])


def noise_of(federation: Federation, options: TrainingOptions, width: int, after: int = 0) -> NoiseSource:
    """The source of such noise: float-safe unless the data is generated or seeded noise is asked for.

    `after` is the number of rounds that went before, so that no stream is used twice.
    """
    from pgfl.privacy.noise import SecureNoise, SeededNoise

    assert options.privacy is not None
    if options.privacy.noise_for(federation) == "secure":
        return SecureNoise(width)
    seed = options.seed

    def normals(clients: Ints, number: int, width: int) -> Floats:
        rng = stream(seed, 0, Purpose.DISCOVERY, server=after, round=number)
        return rng.standard_normal((len(clients), width))

    return SeededNoise(normals)


def contrasts_of(count: int) -> Floats:
    """An orthonormal basis (Q − 1, Q) of what is left of Q numbers without their mean."""
    return np.asarray(np.linalg.svd(np.eye(count) - 1.0 / count)[2][: count - 1])


def record_gradients(objective: Objective, model: AnyFloats, features: AnyFloats, targets: AnyFloats) -> Floats:
    """∇ℓ of every record, (D, d)."""
    w, one = np.asarray(model, dtype=np.float64), np.ones(len(targets))
    rows, labels = features.astype(np.float64), targets.astype(np.float64)
    if isinstance(objective, BatchedObjective):
        many = np.broadcast_to(w, (len(labels), len(w)))
        return np.asarray(objective.gradient(many, rows[:, None, :], labels[:, None], one))
    found = [objective.gradient(w, rows[[i]], labels[[i]], one[i]) for i in range(len(labels))]
    return np.asarray(found, dtype=np.float64)


def record_losses(objective: Objective, models: AnyFloats, features: AnyFloats, targets: AnyFloats) -> Floats:
    """ℓ of every record at every model, (D, Q)."""
    one, held = np.ones(len(targets)), np.asarray(models, dtype=np.float64)
    rows, labels = features.astype(np.float64), targets.astype(np.float64)
    if isinstance(objective, BatchedObjective):
        many = [np.broadcast_to(w, (len(labels), len(w))) for w in held]
        return np.asarray([objective.loss(w, rows[:, None, :], labels[:, None], one) for w in many]).T
    found = [[objective.loss(w, rows[[i]], labels[[i]], one[i]) for i in range(len(labels))] for w in held]
    return np.asarray(found, dtype=np.float64).T
