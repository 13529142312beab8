"""New clients of a continued training find their place: one choice among the models of the clusters found before.

Without privacy it is the cluster whose model has the least loss on the client's records. With privacy the losses are
released once, with noise, and charged.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pgfl.algorithms.clustering import most_likely_least
from pgfl.arrays import AnyFloats, Floats, Ints
from pgfl.errors import PrivacyError
from pgfl.federation.federation import Federation
from pgfl.objectives import Objective
from pgfl.privacy import accounting
from pgfl.privacy.discovery import CHOICE_PART, choice_clip
from pgfl.privacy.mechanism import Account
from pgfl.simulate.options import TrainingOptions
from pgfl.simulate.sketches import Sketches, contrasts_of, noise_of, record_losses
from pgfl.streams import Purpose, stream


@dataclass(frozen=True, eq=False)
class Places:
    """How probable every cluster is for some clients (K, Q), and what all of the federation have spent on it."""

    posterior: Floats
    account: Account

    @property
    def labels(self) -> Ints:
        """The most probable cluster of every client."""
        return np.asarray(self.posterior.argmax(axis=1), dtype=np.int64)


def place(
    federation: Federation,
    clients: Ints,
    models: AnyFloats,
    objective: Objective,
    options: TrainingOptions,
    round: int,
) -> Places:
    """Where clients belong who come after `round` rounds, given the models (Q, d) of all clusters."""
    account, privacy, contrasts = Account.empty(federation.size), options.privacy, contrasts_of(len(models))
    if len(models) == 1:
        return Places(np.ones((len(clients), 1)), account)
    rng = stream(options.seed, 0, Purpose.DISCOVERY, server=1, round=round)
    if privacy is None:
        found = [
            record_losses(objective, models, *federation.rows(client)) @ contrasts.T for client in clients.tolist()
        ]
        means = np.array([one.mean(axis=0) for one in found])
        spread = np.array([one.var(axis=0).mean() / len(one) for one in found])
        return Places(most_likely_least(means @ contrasts, spread, rng), account)
    if privacy.epsilon is None:
        raise PrivacyError("A new client chooses its cluster for a part of its budget; state `privacy.epsilon`.")
    constrained = privacy.constrained(objective)
    bound = constrained.gradient_bound(privacy.bounds)
    assert bound is not None  # or the models could not have been private
    phi = CHOICE_PART * accounting.exact_rho(privacy.epsilon, privacy.delta)
    sketches = Sketches(
        privacy.bounded(federation, options.dtype),
        constrained,
        account,
        lambda width: noise_of(federation, options, width, after=round),
        clients,
    )
    sketches.choose(models, choice_clip(bound, models), phi)
    return Places(most_likely_least(sketches.points @ contrasts, sketches.noise[:, 0], rng), account)
