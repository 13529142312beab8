"""Warnings about a training that may not do what its user expects."""

from __future__ import annotations

import numpy as np

from pgfl.core.algorithms import Algorithm, swap_warning
from pgfl.core.federation import Federation
from pgfl.core.server_rules import ExactDiffusion
from pgfl.data.id_columns import id_warning
from pgfl.simulate.communicator import Communicator
from pgfl.simulate.training_options import TrainingOptions

MOST_NAMED = 6


def warnings(
    federation: Federation, algorithm: Algorithm, options: TrainingOptions, communicator: Communicator
) -> list[str]:
    """What should be said about a run of this federation; on several processes, of its part here."""
    found: list[str] = []
    participants = options.participants
    if algorithm.personalised and (swapping := swap_warning(algorithm.tau, len(federation.cluster_ids))):
        found.append(swapping)
    if participants != "all":
        sizes = communicator.added(federation.server_sizes)
        small = np.flatnonzero((sizes < participants) & (sizes > 0))
        if len(small):
            found.append(
                f"{len(small)} servers have fewer than {participants} clients ({federation.server_ids[small[0]]} "
                f"has {sizes[small[0]]}); there all clients take part."
            )
    if (privacy := options.privacy) and privacy.guarantee == "required":
        records = int(communicator.largest([federation.counts.max()])[0])
        if privacy.delta * records >= 1.0:
            found.append(
                f"delta = {privacy.delta:g} is not below 1/D for a client with {records} records: publishing one "
                "of them at random would keep such a promise; choose a smaller delta."
            )
    if looks_like_id := id_warning(federation, values=options.privacy is None):
        found.append(looks_like_id)
    if not federation.graph.connected:
        found.append(_parts(federation))
    if isinstance(algorithm.server_rule, ExactDiffusion) and (participants != "all" or algorithm.tau != 0.0):
        found.append(
            "Exact mixing is exact only with tau = 0 and all clients taking part; elsewhere the plain rule does as "
            "well or better."
        )
    return found


def _parts(federation: Federation) -> str:
    parts: dict[int, list[str]] = {}
    for server, component in zip(federation.server_ids, federation.graph.components.tolist(), strict=True):
        parts.setdefault(component, []).append(server)
    named = [
        "{" + ", ".join(names[:MOST_NAMED]) + (", …" if len(names) > MOST_NAMED else "") + "}"
        for names in list(parts.values())[:MOST_NAMED]
    ]
    more = f" and {len(parts) - MOST_NAMED} more" if len(parts) > MOST_NAMED else ""
    return f"The server graph falls into {len(parts)} parts that never hear of each other: {', '.join(named)}{more}."
