"""Where the rows of a fit belong: their clients, servers and clusters, from arrays with one name per row."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pgfl.array_types import AnyArray, Floats
from pgfl.core.federation import ClientData, Federation
from pgfl.core.topology import build

SERVER, CLUSTER = "server", "all"


def federation_of(
    features: Floats,
    targets: Floats,
    client: ArrayLike | None,
    server: ArrayLike | None,
    cluster: ArrayLike | None,
    graph: str | list[tuple[str, str]],
) -> Federation:
    """The rows as a federation; without names there is one server, one cluster, and one client per pair of them."""
    rows = len(features)
    servers, clusters = names_of("server", server, rows, SERVER), names_of("cluster", cluster, rows, CLUSTER)
    everyone = (
        np.char.add(np.char.add(servers, "/"), clusters) if client is None else names_of("client", client, rows, "")
    )
    clients = {}
    for name in np.unique(everyone):
        mine = np.flatnonzero(everyone == name)
        for what, places in (("server", servers), ("cluster", clusters)):
            if len(found := np.unique(places[mine])) > 1:
                raise ValueError(
                    f"Client {name} has rows in {what} {found[0]} and in {what} {found[1]}; a client belongs to one."
                )
        clients[str(name)] = ClientData(str(servers[mine[0]]), str(clusters[mine[0]]), features[mine], targets[mine])
    if isinstance(graph, str):
        return Federation.from_clients(clients, graph=build(graph, len(np.unique(servers))))
    return Federation.from_clients(clients, edges=graph)


def names_of(what: str, names: ArrayLike | None, rows: int, default: str) -> AnyArray:
    """One name per row, as text."""
    if names is None:
        return np.full(rows, default)
    given = np.asarray(names)
    found = np.full(rows, given[()]) if given.ndim == 0 else given
    if found.shape != (rows,):
        raise ValueError(f"There are {rows} rows but {found.size} entries in {what}; give one per row.")
    missing = np.array([name is None or name != name for name in found.tolist()])
    if missing.any():
        raise ValueError(f"Row {int(np.argmax(missing))} has no {what}; name one.")
    return found.astype(str)
