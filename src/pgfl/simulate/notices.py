"""Warnings about a training that may not do what its user expects."""

from __future__ import annotations

import numpy as np

from pgfl.algorithms.algorithms import Algorithm, swap_warning
from pgfl.algorithms.theory import least_steady_rho, summed_products
from pgfl.errors import ConfigError
from pgfl.federation.federation import Federation
from pgfl.federation.survey import id_warning
from pgfl.objectives import Bounds, MarginObjective
from pgfl.simulate.communicator import Communicator
from pgfl.simulate.options import TrainingOptions
from pgfl.simulate.problems import Objectives, objective_of

MOST_NAMED = 6
MOST_ROWS, MOST_COLUMNS = 2**16, 2**10  # that curvature is computed from


def warnings(
    federation: Federation,
    algorithm: Algorithm,
    objectives: Objectives,
    options: TrainingOptions,
    communicator: Communicator,
) -> list[str]:
    """Return what should be said about a run of this federation; on several processes, of its part here."""
    found: list[str] = []
    participants = options.participants
    if algorithm.server_rule.personalised and (swapping := swap_warning(algorithm.tau, len(federation.cluster_ids))):
        found.append(swapping)
    if participants != "all":
        sizes = communicator.sum(federation.server_sizes)
        small = np.flatnonzero((sizes < participants) & (sizes > 0))
        if len(small):
            found.append(
                f"{len(small)} servers have fewer than {participants} clients ({federation.server_ids[small[0]]} "
                f"has {sizes[small[0]]}); there all clients take part."
            )
    if (privacy := options.privacy) and privacy.guarantee == "required":
        records = int(communicator.maximum([federation.counts.max()])[0])
        if privacy.delta * records >= 1.0:
            found.append(
                f"delta = {privacy.delta:g} is not below 1/D for a client with {records} records: publishing one "
                "of them at random would keep such a promise; choose a smaller delta."
            )
    if options.privacy is not None and options.privacy.trusted.aggregates:
        found += _sitting_out(federation, algorithm, options, communicator)
    if looks_like_id := id_warning(federation, values=options.privacy is None):
        found.append(looks_like_id)
    if not federation.graph.connected:
        found.append(_parts(federation))
    everyone = participants == "all" and options.delays is None
    if algorithm.server_rule.exact and (not everyone or algorithm.tau != 0.0):
        found.append(
            "Exact mixing is exact only with tau = 0 and all clients taking part; elsewhere the plain rule does as "
            "well or better."
        )
    if algorithm.client_rule.linearised:
        found += _long_steps(federation, algorithm, objectives, options, communicator)
    return found


def _sitting_out(
    federation: Federation, algorithm: Algorithm, options: TrainingOptions, communicator: Communicator
) -> list[str]:
    """That some (server, cluster) pairs have too few clients ever to contribute; if all have, training is refused."""
    assert options.privacy is not None
    trust, most = options.privacy.trusted, options.participants
    clusters = len(federation.cluster_ids) if algorithm.server_rule.personalised else 1
    cluster = (
        federation.client_cluster if algorithm.server_rule.personalised else np.zeros_like(federation.client_cluster)
    )
    places = len(federation.server_ids) * clusters
    sizes = communicator.sum(np.bincount(federation.client_server * clusters + cluster, minlength=places))
    sizes = sizes[sizes > 0]
    reached = sizes if most == "all" else np.minimum(sizes, most)
    reasons = [trust.complaint(int(size)) for size in reached]
    small = [reason for reason in reasons if reason is not None]
    if len(small) < len(reasons):
        return [f"{len(small)} of {len(reasons)} clusters at a server always sit out: {small[0]}."] if small else []
    largest = int(reached.argmax())
    limited = most != "all" and trust.takes_part(int(sizes.max()))
    advice = "raise algorithm.participants" if limited else "lower privacy.contributors or privacy.colluders"
    raise ConfigError(
        f'With privacy.trust = "{trust.level}" nobody could ever contribute, because even where a server has most '
        f"clients of a cluster {reasons[largest]}; {advice}, or choose another trust."
    )


def _long_steps(
    federation: Federation,
    algorithm: Algorithm,
    objectives: Objectives,
    options: TrainingOptions,
    communicator: Communicator,
) -> list[str]:
    """That gradient steps of length 1/ρ may overshoot, judged by the data only where nothing about it is private."""
    privacy = options.privacy
    rho = algorithm.rho / _largest_weight(federation, algorithm.client_rule.full_records, communicator)
    private = privacy is not None and privacy.guarantee == "required" and not federation.generated
    bounded = None if privacy is None else _least_rho_by_bounds(federation, objectives, privacy.bounds)
    if bounded is not None and (private or rho >= bounded > 0.0):  # then no data has more curvature
        least, known = bounded, "the bound on the loss's curvature under these data bounds"
    else:
        least = _least_rho_by_data(federation, objectives, communicator)
        known = "the largest curvature of a cluster's loss"
    if rho >= least:
        return []
    return [
        f"rho = {algorithm.rho:g} is below half of {known}, so gradient steps of length 1/rho may overshoot and never "
        f"settle; raise algorithm.rho above {least * algorithm.rho / rho:.2g}, better to twice that."
    ]


def _largest_weight(federation: Federation, full: int, communicator: Communicator) -> float:
    """Return how much a client weighs on average in the cluster where that is most; 1 where clients count alike."""
    if full == 1:
        return 1.0
    counted, members = (
        communicator.sum(np.bincount(federation.client_cluster, weights, len(federation.cluster_ids)))
        for weights in (np.minimum(federation.counts, full), np.ones(federation.size))
    )
    return float((counted / np.maximum(members, 1)).max()) / full


def _least_rho_by_bounds(federation: Federation, objectives: Objectives, bounds: Bounds) -> float:
    known = [objective_of(objectives, name).smoothness(bounds) for name in federation.cluster_ids]
    return 0.5 * max((smoothness for smoothness in known if smoothness is not None), default=0.0)


def _least_rho_by_data(federation: Federation, objectives: Objectives, communicator: Communicator) -> float:
    """From the clients of all servers, or of every so many: the same ones however servers are spread over processes."""
    rows = int(communicator.sum([len(federation.targets)])[0])
    if federation.dimension > MOST_COLUMNS:
        return 0.0
    looked_at = federation.client_server % -(-rows // MOST_ROWS) == 0
    least = 0.0
    for cluster, name in enumerate(federation.cluster_ids):
        objective = objective_of(objectives, name)
        bend = objective.curvature_bound if isinstance(objective, MarginObjective) else None
        if bend is not None:
            own = looked_at & (federation.client_cluster == cluster)
            products = communicator.sum(summed_products(federation, own))
            least = max(least, least_steady_rho(products, int(communicator.sum([own.sum()])[0]), bend))
    return least


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
