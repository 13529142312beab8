"""The paper, client by client and server by server, with plain loops: what the package is compared with.

Nothing here comes from the package. Names follow the paper; `s`, `p` are servers, `q`, `r` clusters, `k` a client.
A server *has* a model of q once an estimate of q has reached it. What it does not have is absent from every
dictionary here, and what is absent takes no part in any average.

Client, round n (Algorithm 2), only if it takes part in round n; otherwise its w_k and φ_k stay as they are:

    w_k   = argmin f_k(w) − ⟨φ_k, w − w_{q,s}⟩ + ρ/2 ‖w − w_{q,s}‖²     w_{q,s} of round n − 1; 0 if s has none
    w̃_k   = w_k + ξ_k                                                  noise None: w̃_k = w_k
    φ_k  += ρ (w_{q,s} − w̃_k)                                          w_{q,s} of round n; φ_k starts at 0

with f_k(w) = (1/D_k) Σ c ℓ + λ/|C_s| ‖w‖², where |C_s| counts all clients of the server and c are the samples' weights.

With client = "gradient" a participant takes one gradient step instead, and φ_k stays 0:

    w_k   = v − ∇f_k(v)/ρ          v = w_{q,s} of round n − 1, scaled back to ‖v‖ = W if it is longer and there is a W

Server, round n. `agg` is the mean over this round's participants of s in q of w̃_k − φ_k^{(n−1)}/ρ.

pgfl:
    w̃_{q,s} = agg; without a participant, w_{q,s}^{(n−1)}; without that too, absent.
    ŵ_{q,s} = Σ a_sp w̃_{q,p} / Σ a_sp over the p ∈ N_s that have w̃_{q,p}; absent if none has.
    w_{q,s} = (1 − τ) ŵ_{q,s} + τ mean of ŵ_{r,s} over the r ≠ q that s has; if it has no other, ŵ_{q,s}.
    a_sp is 1/|N_s| (uniform), or 1/(1 + max(|N_s⁻|, |N_p⁻|)) with a_ss the rest to one (metropolis), or p's clients of
    the cluster (at least 1) over those of all of N_s (clients).

pgfl-onestep. "Has" and every w on the right-hand side are of round n − 1, before any server has moved.
    1. Own part: agg; without a participant, w_{q,s}^{(n−1)} if s has it.
    2. With neither: s takes the plain mean of w_{q,p}^{(n−1)} over the p ∈ N_s⁻ that have it, nothing else added
       (no ψ, no τ); absent if none has it.
    3. Pairs: P = the p ∈ N_s⁻ that have w_{q,p}^{(n−1)} if s has w_{q,s}^{(n−1)} itself, else P = ∅.
    4. Others: O = all (r, p), r ≠ q, p ∈ N_s, that exist. If O = ∅, τ counts as 0 for this (s, q).
    5. w_{q,s} = [own − ψ_{q,s}/2 + ρ/2 Σ_{p∈P} (w_{q,s} + w_{q,p}) + τ mean_O w_{r,p}] / (1 + τ + ρ|P|).
    6. After all servers have moved: ψ_{q,s} += ρ Σ (w_{q,s}^{(n)} − w_{q,p}^{(n)}) over the p ∈ N_s⁻ for which both
       exist at round n (also those that came into being in this round). ψ starts at 0, so Σ_s ψ_{q,s} = 0 always.
pgfl-onestep-as-printed: the same, but (w_{q,s} − w_{q,p}) in 5 and ρ Σ (w_{q,p} − w_{q,s}) in 6.

pgfl-exact. A always holds Metropolis weights, whatever `mixing` says, and Ā = (I + A)/2. A server takes part for q
    if and only if its component holds a client of q; it then has w_{q,s} = 0 from the start.
    t_{q,s} = w_{q,s}^{(n−1)} + c_s (agg − w_{q,s}^{(n−1)}), c_s = |C_{s,(q)}| / max over all servers; without a
    participant t_{q,s} = w_{q,s}^{(n−1)}.
    ŵ = Ā (t^{(n)} + w^{(n−1)} − t^{(n−1)}), in the first round Ā t^{(1)}; then inter-cluster learning as in pgfl.
    w^{(n−1)} is the model after inter-cluster learning.

Budgets. A client is spent before round n if it can never take part again. In round n a cluster q rests at s, which
    means that τ counts as 0 for (s, q), if
    1. no p ∈ N_s has a client of q that is not spent, and
    2. some p ∈ N_s has clients of q, all of them spent; or has no client of q, but q rested there in round n − 1.
    It can still be learnt from, and its models are averaged between servers as ever.

fedavg. One model for all clusters (its cluster is `GLOBAL`). A participant takes `local_steps` steps of size `step`
    against ∇f_k from its server's model (0 if absent) and perturbs the end. A server takes the plain mean of its
    participants' w̃_k; without one it keeps its model, if it has one; then ŵ as in pgfl. No duals, no τ.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

GLOBAL = "*"
ALGORITHMS = ("pgfl", "pgfl-exact", "pgfl-onestep", "pgfl-onestep-as-printed", "fedavg")

Models = dict[tuple[str, str], np.ndarray]  # (server, cluster) → vector
Participants = Callable[[int], set[str]]
Noise = Callable[[int, str], np.ndarray | None]


class Client(NamedTuple):
    id: str
    server: str
    cluster: str
    X: np.ndarray  # (D_k, d)
    y: np.ndarray  # (D_k,)
    c: np.ndarray | None = None  # (D_k,): how much each sample's loss counts, 1 without it


@dataclass(frozen=True)
class Objective:
    kind: str  # "ridge" | "huber" | "logistic"
    lam: float = 0.01
    kappa: float = 1.0
    w_norm: float | None = None  # W; for client = "gradient" alone


@dataclass(frozen=True)
class Problem:
    clients: list[Client]
    servers: list[str]
    edges: list[tuple[str, str]]
    objectives: dict[str, Objective]  # one per cluster
    rho: float = 3.0
    tau: Callable[[int], float] = lambda n: 0.0
    mixing: str = "uniform"
    algorithm: str = "pgfl"
    client: str = "admm"
    step: float = 0.05
    local_steps: int = 1
    full_records: int = 1

    @property
    def dimension(self) -> int:
        return self.clients[0].X.shape[1]

    @property
    def clusters(self) -> list[str]:
        return sorted({client.cluster for client in self.clients})


@dataclass
class Round:
    """Where everything stands after round n; round 0 is the start."""

    n: int
    active: set[str]  # who took part
    clients: dict[str, np.ndarray]  # the clean w_k, of every client
    released: dict[str, np.ndarray]  # the last w̃_k of every client that has released one
    duals: dict[str, np.ndarray]  # φ_k, of every client
    servers: Models  # w_{q,s}, those that exist
    aggregates: Models = field(default_factory=dict)  # w̃_{q,s}; exact mixing: t_{q,s}
    mixed: Models = field(default_factory=dict)  # ŵ_{q,s}, before inter-cluster learning
    server_duals: Models = field(default_factory=dict)  # ψ_{q,s}


# --- the graph -------------------------------------------------------------------------------------------------------


def neighbours(problem: Problem, s: str) -> list[str]:
    """N_s⁻."""
    found = []
    for a, b in problem.edges:
        if a == s:
            found.append(b)
        if b == s:
            found.append(a)
    return found


def mixing_weights(problem: Problem, s: str, mixing: str, q: str = GLOBAL) -> dict[str, float]:
    """The weight that s gives to every p ∈ N_s, for the models of cluster q."""
    near = neighbours(problem, s)
    if mixing == "clients":
        everyone = {c.id for c in problem.clients}
        counts = {p: max(1, len(participants_at(problem, everyone, p, q))) for p in [*near, s]}
        return {p: count / sum(counts.values()) for p, count in counts.items()}
    if mixing == "uniform":
        return {p: 1.0 / (1 + len(near)) for p in [*near, s]}
    if mixing != "metropolis":
        raise ValueError(f"unknown mixing {mixing!r}")
    weights = {p: 1.0 / (1 + max(len(near), len(neighbours(problem, p)))) for p in near}
    weights[s] = 1.0 - sum(weights.values())
    return weights


def component(problem: Problem, s: str) -> set[str]:
    """All servers that s can reach, itself among them."""
    reached, frontier = {s}, [s]
    while frontier:
        for p in neighbours(problem, frontier.pop()):
            if p not in reached:
                reached.add(p)
                frontier.append(p)
    return reached


# --- a client's own function f_k -------------------------------------------------------------------------------------


def regulariser(problem: Problem, client: Client) -> float:
    """λ/|C_s|."""
    at_server = sum(1 for other in problem.clients if other.server == client.server)
    return problem.objectives[client.cluster].lam / at_server


def importance(problem: Problem, client: Client) -> float:
    """How much f_k weighs: a client with fewer than `full_records` records counts in proportion to them."""
    return min(1.0, len(client.y) / problem.full_records)


def sigmoid(z: float) -> float:
    if z >= 0:
        return 1.0 / (1.0 + np.exp(-z))
    return np.exp(z) / (1.0 + np.exp(z))


def sample_loss(objective: Objective, x: np.ndarray, y: float, w: np.ndarray) -> tuple[float, float, float]:
    """ℓ and its first and second derivative with respect to x·w."""
    z = float(x @ w)
    if objective.kind == "logistic":
        p = sigmoid(z)
        return float(np.logaddexp(0.0, z)) - y * z, p - y, p * (1.0 - p)
    r = z - float(y)
    if objective.kind == "ridge" or (objective.kind == "huber" and abs(r) <= objective.kappa):
        return r * r, 2.0 * r, 2.0
    if objective.kind == "huber":
        return 2.0 * objective.kappa * abs(r) - objective.kappa**2, 2.0 * objective.kappa * np.sign(r), 0.0
    raise ValueError(f"unknown objective {objective.kind!r}")


def samples(client: Client) -> list[tuple[np.ndarray, float, float]]:
    """x, y and weight of every sample."""
    weights = np.ones(len(client.y)) if client.c is None else client.c
    return list(zip(client.X, client.y, weights, strict=True))


def f_value(problem: Problem, client: Client, w: np.ndarray) -> float:
    objective = problem.objectives[client.cluster]
    total = 0.0
    for x, y, c in samples(client):
        total += c * sample_loss(objective, x, y, w)[0]
    return importance(problem, client) * (total / len(client.y) + regulariser(problem, client) * float(w @ w))


def f_gradient(problem: Problem, client: Client, w: np.ndarray) -> np.ndarray:
    objective = problem.objectives[client.cluster]
    total = np.zeros(problem.dimension)
    for x, y, c in samples(client):
        total += c * sample_loss(objective, x, y, w)[1] * x
    return importance(problem, client) * (total / len(client.y) + 2.0 * regulariser(problem, client) * w)


def f_hessian(problem: Problem, client: Client, w: np.ndarray) -> np.ndarray:
    objective = problem.objectives[client.cluster]
    total = np.zeros((problem.dimension, problem.dimension))
    for x, y, c in samples(client):
        total += c * sample_loss(objective, x, y, w)[2] * np.outer(x, x)
    mean = total / len(client.y) + 2.0 * regulariser(problem, client) * np.eye(problem.dimension)
    return importance(problem, client) * mean


def newton(value, gradient, hessian, start: np.ndarray, scale: float) -> np.ndarray:
    """The minimiser of a strictly convex function, to ‖gradient‖ ≤ 1e-11 (1 + scale); it fails loudly.

    A small gradient is believed only if Newton's own estimate of the way still to go is small too; it is then gone.
    """
    w = start.copy()
    g = gradient(w)
    for _ in range(500):
        direction = -np.linalg.solve(hessian(w), g)
        if np.linalg.norm(g) <= 1e-11 * (1.0 + scale) and np.linalg.norm(direction) <= 1e-7 * (1.0 + np.linalg.norm(w)):
            return w + direction
        now, slope, length = value(w), float(g @ direction), 1.0
        while True:
            candidate = w + length * direction
            candidate_g = gradient(candidate)
            if value(candidate) <= now + 1e-4 * length * slope:
                break
            if np.linalg.norm(candidate_g) <= 0.5 * np.linalg.norm(g):  # so near that values no longer differ
                break
            length /= 2.0
            if length < 1e-12:
                raise ArithmeticError(f"Newton is stuck at a gradient of {np.linalg.norm(g):.3g}")
        w, g = candidate, candidate_g
    raise ArithmeticError(f"Newton did not converge: the gradient is still {np.linalg.norm(g):.3g}")


# --- the client's steps ----------------------------------------------------------------------------------------------


def primal_value(problem: Problem, client: Client, centre: np.ndarray, dual: np.ndarray, w: np.ndarray) -> float:
    """What ClientPrimalUpdate minimises."""
    away = w - centre
    return f_value(problem, client, w) - float(dual @ away) + problem.rho / 2.0 * float(away @ away)


def primal_gradient(problem: Problem, client: Client, centre: np.ndarray, dual: np.ndarray, w: np.ndarray):
    return f_gradient(problem, client, w) - dual + problem.rho * (w - centre)


def primal(problem: Problem, client: Client, centre: np.ndarray, dual: np.ndarray) -> np.ndarray:
    """ClientPrimalUpdate."""
    identity = np.eye(problem.dimension)
    if problem.objectives[client.cluster].kind == "ridge":
        each = 2.0 * importance(problem, client) / len(client.y)
        m = problem.rho + 2.0 * importance(problem, client) * regulariser(problem, client)
        weighted = client.X if client.c is None else client.c[:, None] * client.X
        left = each * weighted.T @ client.X + m * identity
        return np.linalg.solve(left, each * weighted.T @ client.y + problem.rho * centre + dual)
    at_zero = f_gradient(problem, client, np.zeros(problem.dimension))
    return newton(
        lambda w: primal_value(problem, client, centre, dual, w),
        lambda w: primal_gradient(problem, client, centre, dual, w),
        lambda w: f_hessian(problem, client, w) + problem.rho * identity,
        centre,
        problem.rho * np.linalg.norm(centre) + np.linalg.norm(dual) + np.linalg.norm(at_zero),
    )


def one_gradient_step(problem: Problem, client: Client, received: np.ndarray) -> np.ndarray:
    """The client with client = "gradient"."""
    v, most = received.copy(), problem.objectives[client.cluster].w_norm
    if most is not None and np.linalg.norm(v) > most:
        v = v * (most / np.linalg.norm(v))
    return v - f_gradient(problem, client, v) / problem.rho


def local_descent(problem: Problem, client: Client, start: np.ndarray) -> np.ndarray:
    """FedAvg's client: gradient steps on f_k."""
    w = start.copy()
    for _ in range(problem.local_steps):
        w = w - problem.step * f_gradient(problem, client, w)
    return w


# --- the server's steps ----------------------------------------------------------------------------------------------


def participants_at(problem: Problem, active: set[str], s: str, q: str) -> list[Client]:
    return [c for c in problem.clients if c.id in active and c.server == s and q in (c.cluster, GLOBAL)]


def aggregate(problem, active, released, duals, s, q) -> np.ndarray | None:
    """(Private)ServerAggregation over this round's participants; FedAvg's duals are 0, so it is the plain mean."""
    here = participants_at(problem, active, s, q)
    if not here:
        return None
    total = np.zeros(problem.dimension)
    for client in here:
        total += released[client.id] - duals[client.id] / problem.rho
    return total / len(here)


def between_servers(problem: Problem, models: Models, clusters: list[str]) -> Models:
    """InterServerAggregation over those neighbours that have a model."""
    mixed = {}
    for s in problem.servers:
        for q in clusters:
            weights = mixing_weights(problem, s, problem.mixing, q)
            have = [p for p in weights if (p, q) in models]
            if have:
                share = sum(weights[p] for p in have)
                mixed[s, q] = sum(weights[p] * models[p, q] for p in have) / share
    return mixed


def resting(problem: Problem, spent: set[str], before: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """The (server, cluster) that rest in a round, given who is spent and what rested in the round before."""
    hopeful, over = set(), set(before)
    for client in problem.clients:
        over.discard((client.server, client.cluster))
    for client in problem.clients:
        (over if client.id in spent else hopeful).add((client.server, client.cluster))
    over -= hopeful
    found = set()
    for s in problem.servers:
        near = [s, *neighbours(problem, s)]
        for q in problem.clusters:
            if not any((p, q) in hopeful for p in near) and any((p, q) in over for p in near):
                found.add((s, q))
    return found


def between_clusters(problem: Problem, mixed: Models, tau: float, at_rest: Collection[tuple[str, str]] = ()) -> Models:
    """inter-clusterLearning over those clusters that the server has."""
    models = {}
    for s, q in mixed:
        others = [mixed[p, r] for p, r in mixed if p == s and r != q]
        if others and (s, q) not in at_rest:
            models[s, q] = (1.0 - tau) * mixed[s, q] + tau * sum(others) / len(others)
        else:
            models[s, q] = mixed[s, q].copy()
    return models


def aggregates_or_current(problem, active, released, duals, before: Models, clusters: list[str]) -> Models:
    """w̃_{q,s}: the aggregate, else the server's current model, else absent."""
    found = {}
    for s in problem.servers:
        for q in clusters:
            estimate = aggregate(problem, active, released, duals, s, q)
            if estimate is not None:
                found[s, q] = estimate
            elif (s, q) in before:
                found[s, q] = before[s, q].copy()
    return found


def one_step(
    problem: Problem,
    own: Models,
    before: Models,
    psi: Models,
    tau: float,
    sign: float,
    at_rest: Collection[tuple[str, str]] = (),
) -> Models:
    """ServerPrimal; `sign` is that of w_{q,p} in the neighbours' sum: +1 corrected, −1 as printed."""
    after = {}
    for s in problem.servers:
        near = neighbours(problem, s)
        for q in problem.clusters:
            have = [p for p in near if (p, q) in before]
            if (s, q) not in own:
                if have:
                    after[s, q] = sum(before[p, q] for p in have) / len(have)
                continue
            numerator, denominator = own[s, q] - psi[s, q] / 2.0, 1.0
            if (s, q) in before:
                for p in have:
                    numerator = numerator + problem.rho / 2.0 * (before[s, q] + sign * before[p, q])
                    denominator += problem.rho
            others = [before[p, r] for p in [*near, s] for r in problem.clusters if r != q and (p, r) in before]
            if others and (s, q) not in at_rest:
                numerator = numerator + tau * sum(others) / len(others)
                denominator += tau
            after[s, q] = numerator / denominator
    return after


def one_step_dual(problem: Problem, psi: Models, after: Models, sign: float) -> Models:
    """The ψ of ServerPrimal; as printed (`sign` −1) it moves the other way."""
    moved = {}
    for s, q in psi:
        moved[s, q] = psi[s, q].copy()
        for p in neighbours(problem, s):
            if (s, q) in after and (p, q) in after:
                moved[s, q] += sign * problem.rho * (after[s, q] - after[p, q])
    return moved


def exact_start(problem: Problem) -> Models:
    """Zero at every server whose component holds a client of the cluster."""
    start = {}
    for s in problem.servers:
        reach = component(problem, s)
        for client in problem.clients:
            if client.server in reach:
                start[s, client.cluster] = np.zeros(problem.dimension)
    return start


def exact_step(problem: Problem, active, released, duals, before: Models) -> Models:
    """t_{q,s} of exact mixing."""
    members = {}
    for client in problem.clients:
        members[client.server, client.cluster] = members.get((client.server, client.cluster), 0) + 1
    t = {}
    for s, q in before:
        largest = max(count for (_, r), count in members.items() if r == q)
        estimate = aggregate(problem, active, released, duals, s, q)
        t[s, q] = before[s, q].copy()
        if estimate is not None:
            t[s, q] += members[s, q] / largest * (estimate - before[s, q])
    return t


def exact_mix(problem: Problem, t: Models, t_before: Models | None, before: Models) -> Models:
    """Ā (t^{(n)} + w^{(n−1)} − t^{(n−1)})."""
    corrected = {key: t[key] if t_before is None else t[key] + before[key] - t_before[key] for key in t}
    mixed = {}
    for s, q in corrected:
        total = 0.5 * corrected[s, q]
        for p, weight in mixing_weights(problem, s, "metropolis").items():
            total = total + 0.5 * weight * corrected[p, q]
        mixed[s, q] = total
    return mixed


# --- the algorithms --------------------------------------------------------------------------------------------------


def run(
    problem: Problem,
    rounds: int,
    participants: Participants | None = None,
    noise: Noise | None = None,
    spent: Participants | None = None,
) -> list[Round]:
    """Rounds 0 (the start) to `rounds`; by default everyone takes part, nobody adds noise and nobody is ever spent."""
    if problem.algorithm not in ALGORITHMS:
        raise ValueError(f"unknown algorithm {problem.algorithm!r}")
    fedavg, exact = problem.algorithm == "fedavg", problem.algorithm == "pgfl-exact"
    sign = -1.0 if problem.algorithm == "pgfl-onestep-as-printed" else 1.0
    clusters = [GLOBAL] if fedavg else problem.clusters
    zero = np.zeros(problem.dimension)

    w = {client.id: zero.copy() for client in problem.clients}
    duals = {client.id: zero.copy() for client in problem.clients}
    released: dict[str, np.ndarray] = {}
    models = exact_start(problem) if exact else {}
    psi = {(s, q): zero.copy() for s in problem.servers for q in clusters}
    t_before = None
    at_rest: set[tuple[str, str]] = set()
    history = [Round(0, set(), dict(w), {}, dict(duals), dict(models))]

    for n in range(1, rounds + 1):
        active = {client.id for client in problem.clients} if participants is None else set(participants(n))
        tau = float(problem.tau(n))
        at_rest = resting(problem, set(spent(n)) if spent else set(), at_rest)

        for client in problem.clients:
            if client.id not in active:
                continue
            centre = models.get((client.server, GLOBAL if fedavg else client.cluster), zero)
            if fedavg:
                w[client.id] = local_descent(problem, client, centre)
            elif problem.client == "gradient":
                w[client.id] = one_gradient_step(problem, client, centre)
            else:
                w[client.id] = primal(problem, client, centre, duals[client.id])
            xi = None if noise is None else noise(n, client.id)
            released[client.id] = w[client.id].copy() if xi is None else w[client.id] + xi

        if exact:
            estimates = exact_step(problem, active, released, duals, models)
            mixed = exact_mix(problem, estimates, t_before, models)
            t_before = estimates
            models = between_clusters(problem, mixed, tau, at_rest)
        elif problem.algorithm.startswith("pgfl-onestep"):
            estimates = aggregates_or_current(problem, active, released, duals, models, clusters)
            mixed = {}
            models = one_step(problem, estimates, models, psi, tau, sign, at_rest)
            psi = one_step_dual(problem, psi, models, sign)
        else:
            estimates = aggregates_or_current(problem, active, released, duals, models, clusters)
            mixed = between_servers(problem, estimates, clusters)
            models = dict(mixed) if fedavg else between_clusters(problem, mixed, tau, at_rest)

        if not fedavg and problem.client == "admm":
            for client in problem.clients:
                if client.id in active:
                    received = models[client.server, client.cluster]
                    duals[client.id] = duals[client.id] + problem.rho * (received - released[client.id])

        server_duals = dict(psi) if problem.algorithm.startswith("pgfl-onestep") else {}
        history.append(
            Round(n, active, dict(w), dict(released), dict(duals), dict(models), estimates, mixed, server_duals)
        )
    return history


# --- what the runs are measured by -----------------------------------------------------------------------------------


def nmsd(problem: Problem, models: dict[str, np.ndarray], truth: dict[str, np.ndarray]) -> float:
    """MSE, the paper's γ: the clients' mean of ‖w_k − w_q*‖²/‖w_q*‖², linear; `truth` is by cluster."""
    total = 0.0
    for client in problem.clients:
        target = truth[client.cluster]
        total += np.sum((models[client.id] - target) ** 2) / np.sum(target**2)
    return float(total / len(problem.clients))


def cluster_optimum(problem: Problem, q: str, servers: set[str] | None = None) -> np.ndarray:
    """The minimiser of Σ f_k over the clients of q (at `servers` only, if given): ERM_global with τ = 0."""
    members = [c for c in problem.clients if c.cluster == q and (servers is None or c.server in servers)]
    zero = np.zeros(problem.dimension)
    return newton(
        lambda w: sum(f_value(problem, client, w) for client in members),
        lambda w: sum(f_gradient(problem, client, w) for client in members),
        lambda w: sum(f_hessian(problem, client, w) for client in members),
        zero,
        float(sum(np.linalg.norm(f_gradient(problem, client, zero)) for client in members)),
    )


def distance_to_optimum(problem: Problem, models: Models) -> float:
    """In dB: the largest ‖w_{q,s} − w_q*‖²/‖w_q*‖² of all models, each with the optimum of its own component."""
    worst = 0.0
    for (s, q), model in models.items():
        optimum = cluster_optimum(problem, q, component(problem, s))
        worst = max(worst, float(np.sum((model - optimum) ** 2) / np.sum(optimum**2)))
    return 10.0 * np.log10(worst) if worst > 0 else -np.inf


# --- the two identities of the notes ---------------------------------------------------------------------------------


def simple_client_update_residual(problem: Problem, before: Round, after: Round) -> float:
    """SimpleClientUpdate, the largest ‖w_k − w_{q,s} − φ_k/ρ + ∇f_k(w_k)/ρ‖ of this round's participants."""
    worst = 0.0
    for client in problem.clients:
        if client.id in after.active:
            w, centre = after.clients[client.id], before.servers.get((client.server, client.cluster), 0.0)
            slope = f_gradient(problem, client, w)
            right = centre + before.duals[client.id] / problem.rho - slope / problem.rho
            worst = max(worst, float(np.linalg.norm(w - right)))
    return worst


def new_expression_server_model(problem: Problem, before: Round, after: Round) -> Models:
    """NewExpressionServerModel: ŵ_{q,s} from w_{q,p}^{(n−1)} and ∇f_k(w_k^{(n)}) alone, plus the participants' ξ_k.

    A server without a participant makes a step of zero gradient. Only for `pgfl`.
    """
    steps = {}
    for p in problem.servers:
        for q in problem.clusters:
            centre = before.servers.get((p, q))
            here = participants_at(problem, after.active, p, q)
            if here:
                total = np.zeros(problem.dimension)
                for client in here:
                    w = after.clients[client.id]
                    xi = after.released[client.id] - w
                    slope = f_gradient(problem, client, w)
                    total += (0.0 if centre is None else centre) - slope / problem.rho + xi
                steps[p, q] = total / len(here)
            elif centre is not None:
                steps[p, q] = centre
    return between_servers(problem, steps, problem.clusters)


def new_expression_residual(problem: Problem, before: Round, after: Round) -> float:
    """The largest distance between the models of round n and inter-clusterLearning of NewExpressionServerModel."""
    expected = between_clusters(problem, new_expression_server_model(problem, before, after), problem.tau(after.n))
    if expected.keys() != after.servers.keys():
        return np.inf
    return max((float(np.linalg.norm(after.servers[key] - expected[key])) for key in expected), default=0.0)
