"""The paper's round fused by hand with Numba: the practical limit that the engine is compared with.

Everything a round needs and nothing else: ridge, everyone takes part, uniform mixing, the dual settled on the way into
the next round. It knows its arrays' types and shapes, checks nothing, and keeps no state that a user could ask for.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from pgfl import Federation


@njit(parallel=True, fastmath=True, cache=True)
def clients_of_servers(
    server_start, client_pair, offsets, order, features, targets, inverse, at, weight, rho, servers, dual, model, sums
):
    dimension = features.shape[1]
    for s in prange(len(server_start) - 1):
        centre = np.empty(dimension, features.dtype)
        image = np.empty(64, features.dtype)
        moves = np.empty(64, features.dtype)
        for position in range(server_start[s], server_start[s + 1]):
            p = client_pair[position]
            k = order[position]
            start, stop = offsets[k], offsets[k + 1]
            rows = stop - start
            for f in range(dimension):
                dual[position, f] += rho * (servers[p, f] - model[position, f])
                centre[f] = (rho * servers[p, f] + dual[position, f]) / weight[s]
            for r in range(rows):
                total = targets[start + r]
                for f in range(dimension):
                    total -= features[start + r, f] * centre[f]
                image[r] = total
            for r in range(rows):
                total = inverse[at[position] + r * rows] * image[0]
                for j in range(1, rows):
                    total += inverse[at[position] + r * rows + j] * image[j]
                moves[r] = total
            for r in range(rows):
                for f in range(dimension):
                    centre[f] += moves[r] * features[start + r, f]
            for f in range(dimension):
                model[position, f] = centre[f]
                sums[p, f] += centre[f] - dual[position, f] / rho


@njit(parallel=True, fastmath=True, cache=True)
def mix(indptr, neighbours, sums, members, clusters, tau, mixed, servers):
    dimension = sums.shape[1]
    for s in prange(len(indptr) - 1):
        share = 1.0 / (indptr[s + 1] - indptr[s])
        for q in range(clusters):
            row = mixed[s * clusters + q]
            row[:] = 0
            for e in range(indptr[s], indptr[s + 1]):
                other = neighbours[e] * clusters + q
                scale = share / members[other]
                for f in range(dimension):
                    row[f] += scale * sums[other, f]
        for f in range(dimension):
            total = mixed[s * clusters, f]
            for q in range(1, clusters):
                total += mixed[s * clusters + q, f]
            for q in range(clusters):
                own = mixed[s * clusters + q, f]
                servers[s * clusters + q, f] = (1 - tau) * own + tau * (total - own) / (clusters - 1)


class FusedLoop:
    """PGFL with ridge on federations in which every server has clients of every cluster; runs are laid side by side."""

    def __init__(self, federations: list[Federation], rho: float, tau: float, lam: float) -> None:
        dtype, dimension = federations[0].features.dtype, federations[0].dimension
        self.clusters, self.rho, self.tau = len(federations[0].cluster_ids), dtype.type(rho), dtype.type(tau)
        single = len(federations) == 1
        self.features = federations[0].features if single else np.concatenate([f.features for f in federations])
        self.targets = federations[0].targets if single else np.concatenate([f.targets for f in federations])
        rows_before = np.cumsum([0, *(len(f.features) for f in federations)])
        clients_before = np.cumsum([0, *(f.size for f in federations)])
        servers_before = np.cumsum([0, *(len(f.server_ids) for f in federations)])
        pairs = list(zip(federations, rows_before, clients_before, servers_before, strict=False))
        self.offsets = np.concatenate([*(f.offsets[:-1] + row for f, row, _, _ in pairs), rows_before[-1:]])
        orders = [np.lexsort((f.client_cluster, f.client_server)) for f in federations]
        self.order = np.concatenate([o + c for o, (_, _, c, _) in zip(orders, pairs, strict=True)])
        server = np.concatenate([f.client_server[o] + s for o, (f, _, _, s) in zip(orders, pairs, strict=True)])
        cluster = np.concatenate([f.client_cluster[o] for o, f in zip(orders, federations, strict=True)])
        self.client_pair = server * self.clusters + cluster
        self.server_start = np.searchsorted(server, np.arange(servers_before[-1] + 1))
        self.members = np.bincount(self.client_pair, minlength=servers_before[-1] * self.clusters).astype(dtype)
        assert self.members.min() > 0, "every server needs clients of every cluster here"
        self.weight = (rho + 2 * lam / np.diff(self.server_start)).astype(dtype)
        around = [np.append(f.graph.neighbours(i), i) + s for f, _, _, s in pairs for i in range(f.graph.size)]
        self.indptr, self.neighbours = np.cumsum([0, *map(len, around)]), np.concatenate(around)
        self._factor(np.diff(self.offsets)[self.order], server)
        shape = (len(server), dimension)
        self.model, self.dual = np.zeros(shape, dtype), np.zeros(shape, dtype)
        self.servers = np.zeros((len(self.members), dimension), dtype)
        self.sums, self.mixed = np.zeros_like(self.servers), np.zeros_like(self.servers)

    def _factor(self, counts: np.ndarray, server: np.ndarray) -> None:
        self.at = np.cumsum(counts**2) - counts**2
        self.inverse = np.empty(int((counts**2).sum()), self.features.dtype)
        for rows in np.unique(counts):
            for chosen in np.array_split(np.flatnonzero(counts == rows), len(counts) // 50_000 + 1):
                x = self.features[self.offsets[self.order[chosen]][:, None] + np.arange(rows)]
                scale = (2.0 / (rows * self.weight[server[chosen]]))[:, None, None]
                inverse = scale * np.linalg.inv(np.eye(rows) + scale * (x @ x.transpose(0, 2, 1)))
                self.inverse[self.at[chosen][:, None] + np.arange(rows**2)] = inverse.reshape(len(chosen), -1)

    def run_round(self) -> None:
        """One round; the dual of the round before is settled on the way."""
        self.sums[:] = 0
        clients_of_servers(
            self.server_start, self.client_pair, self.offsets, self.order, self.features, self.targets, self.inverse,
            self.at, self.weight, self.rho, self.servers, self.dual, self.model, self.sums,
        )  # fmt: skip
        mix(self.indptr, self.neighbours, self.sums, self.members, self.clusters, self.tau, self.mixed, self.servers)
