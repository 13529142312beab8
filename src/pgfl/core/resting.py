"""When a cluster rests at a server: nobody near can contribute to it any more, so it takes nothing from other clusters.

Without contributions nothing would hold a cluster's model in place, and inter-cluster learning would pull all clusters
to one point. A (server, cluster) is *able* while one of its clients can still release, and *exhausted* once none of
them ever can. A client that merely sits out a round stays able. Without budgets nothing is ever exhausted.
"""

from __future__ import annotations

import numpy as np

from pgfl.array_types import Bools


def exhausted(clients: Bools | bool, able: Bools | bool, rested: Bools | bool) -> Bools:
    """Where nobody can contribute any more: all `clients` are spent or, without clients, the cluster `rested` before.

    The second part lets rest spread over servers that only relay a cluster; otherwise they would drift and pull the
    servers that rest.
    """
    return np.asarray(np.logical_or(clients, rested) & np.logical_not(able))


def rests(able_near: Bools, exhausted_near: Bools) -> Bools:
    """Where a cluster rests: in the server's closed neighbourhood nobody is able, and somebody is exhausted."""
    return np.asarray(exhausted_near & ~able_near)
