"""What a config allows but probably does not mean."""

from __future__ import annotations

from collections.abc import Iterator

from pgfl.config.schema import TRAINED_BY_GRADIENT, AlgorithmSettings, Config, Decay, TableData, idle_keys


def warnings(config: Config, *, clusters: int | None = None, most_clients: int | None = None) -> list[str]:
    """What is allowed but probably not meant, one sentence each.

    `clusters` and `most_clients` (of the largest server) are given once the data are read; for generated data they are
    known from the config.
    """
    data, algorithm = config.data, config.algorithm
    if not isinstance(data, TableData):
        clusters, most_clients = clusters or data.cluster_count, most_clients or data.clients_per_server
    found = [
        f'`{section}.{key}` has no effect with kind = "{getattr(config, section).kind}".'
        for section, key in idle_keys(config)
        if key in getattr(config, section).model_fields_set
    ]
    if algorithm.kind != TRAINED_BY_GRADIENT:
        found += _tau_warnings(algorithm, clusters)
    if isinstance(algorithm.participants, int) and most_clients is not None and algorithm.participants > most_clients:
        found.append(
            f"`algorithm.participants` is {algorithm.participants}, but no server has more than {most_clients} "
            "clients, so all of them take part."
        )
    if config.privacy.enabled and config.privacy.guarantee == "none":
        found.append('The noise of this run carries no guarantee, because `privacy.guarantee` is "none".')
    return found


def _tau_warnings(algorithm: AlgorithmSettings, clusters: int | None) -> Iterator[str]:
    first = algorithm.tau.start * algorithm.tau.decay if isinstance(algorithm.tau, Decay) else algorithm.tau
    if first > 0 and clusters == 1:
        yield "`algorithm.tau` has no effect with a single cluster."
    elif first > 0 and clusters is not None and first > (clusters - 1) / clusters:
        yield (
            f"`algorithm.tau` = {first:g} is above (Q−1)/Q = {(clusters - 1) / clusters:.3g}, so a cluster's own model "
            "weighs less than the others' and the clusters swap; lower it."
        )
    if algorithm.kind == "pgfl-exact" and (first > 0 or algorithm.participants != "all"):
        yield 'Exact mixing is made for tau = 0 and participants = "all"; elsewhere plain pgfl is as good or better.'
