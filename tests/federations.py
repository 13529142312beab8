"""Small awkward federations as plain data: by name and seed, or drawn by hypothesis."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from hypothesis import strategies as st

from tests.oracle import Client, Noise, Objective, Participants, Problem

KINDS = ("ridge", "huber", "logistic", "mixed")
IN_A_BALL = (
    "ball"  # ridge with a W in every other cluster, the others Huber; the oracle has it for gradient steps alone
)
SHAPES = (
    "ordinary",
    "servers-without-clients",
    "cluster-at-one-server",
    "isolated-server",
    "disconnected",
    "no-edges",
    "single-server",
    "one-cluster",
    "cluster-per-client",
    "one-row",
    "many-rows",
    "one-dimension",
    "constant-features",
    "one-class",
    "star",
    "uneven-servers",
)
TURNOUTS = ("all", "half", "few", "one-per-server")


# --- functions of the round: pure, so that it does not matter who asks when or how often -----------------------------


@dataclass(frozen=True)
class GeometricTau:
    """τ(n) = start · decayⁿ."""

    start: float
    decay: float = 1.0

    def __call__(self, n: int) -> float:
        return self.start * self.decay**n


@dataclass(frozen=True)
class Turnout:
    """Who takes part: "all", each client by a coin ("half"), seldom ("few", every fifth round nobody), or
    "one-per-server"."""

    kind: str
    seed: int
    clients: tuple[tuple[str, str], ...]  # (client, server)

    def __call__(self, n: int) -> set[str]:
        rng = np.random.default_rng([self.seed, n])
        luck = rng.random(len(self.clients))
        if self.kind == "all":
            return {client for client, _ in self.clients}
        if self.kind == "half":
            return {client for (client, _), u in zip(self.clients, luck, strict=True) if u < 0.5}
        if self.kind == "few":
            return {client for (client, _), u in zip(self.clients, luck, strict=True) if u < 0.2 and n % 5}
        if self.kind == "one-per-server":
            chosen: dict[str, tuple[float, str]] = {}
            for (client, server), u in zip(self.clients, luck, strict=True):
                chosen[server] = max(chosen.get(server, (-1.0, "")), (u, client))
            return {client for _, client in chosen.values()}
        raise ValueError(f"unknown turnout {self.kind!r}")


@dataclass(frozen=True)
class GaussianNoise:
    """ξ_k of round n, with a variance that falls by `zeta` a round; of scale 0 it is None."""

    scale: float
    seed: int
    clients: tuple[str, ...]
    dimension: int
    zeta: float = 0.98

    def __call__(self, n: int, client: str) -> np.ndarray | None:
        if self.scale == 0:
            return None
        rng = np.random.default_rng([self.seed, n, self.clients.index(client)])
        return self.scale * self.zeta ** (n / 2) * rng.standard_normal(self.dimension)


@dataclass(frozen=True)
class Budgets:
    """A turnout of clients that can take part only so many times: who then does, and who is spent before a round."""

    turnout: Turnout
    most: dict[str, int]  # by client

    def __call__(self, n: int) -> set[str]:
        return self.turnout(n) - self.spent(n)

    def spent(self, n: int) -> set[str]:
        left = dict(self.most)
        for earlier in range(1, n):
            for client in self.turnout(earlier):
                left[client] -= 1
        return {client for client, times in left.items() if times <= 0}


@dataclass(frozen=True)
class Case:
    """A problem with who takes part in each round and what noise they add: `run(case.problem, 50, *case.draws)`."""

    problem: Problem
    participants: Participants
    noise: Noise

    @property
    def draws(self) -> tuple[Participants, Noise, Participants | None]:
        return self.participants, self.noise, getattr(self.participants, "spent", None)

    def with_budgets(self, seed: int, most: int) -> Case:
        """The same, but each client can take part only 1 to `most` times."""
        rng = np.random.default_rng([seed, most])
        limits = {client.id: int(rng.integers(1, most + 1)) for client in self.problem.clients}
        return Case(self.problem, Budgets(self.participants, limits), self.noise)


def turnout(problem: Problem, kind: str, seed: int) -> Turnout:
    return Turnout(kind, seed, tuple((client.id, client.server) for client in problem.clients))


def gaussian_noise(problem: Problem, scale: float, seed: int) -> GaussianNoise:
    return GaussianNoise(scale, seed, tuple(client.id for client in problem.clients), problem.dimension)


# --- data ------------------------------------------------------------------------------------------------------------


def objectives_of(kind: str, clusters: list[str], lam: float = 0.01) -> dict[str, Objective]:
    """One for all; "mixed" gives the clusters different losses and λs."""
    if kind == IN_A_BALL:
        pair = (Objective("ridge", lam, w_norm=0.6), Objective("huber", 3 * lam, kappa=0.5))
        return {q: pair[i % len(pair)] for i, q in enumerate(clusters)}
    if kind != "mixed":
        return {q: Objective(kind, lam, kappa=0.8) for q in clusters}
    ring = (Objective("ridge", lam), Objective("huber", 3 * lam, kappa=0.5), Objective("logistic", 10 * lam))
    return {q: ring[i % len(ring)] for i, q in enumerate(clusters)}


def data(rng: np.random.Generator, objective: Objective, rows: int, truth: np.ndarray, features: str, one_class: bool):
    """Rows and targets of one client; features "normal", "constant" (all rows alike) or "zero-column"."""
    X = rng.standard_normal((rows, len(truth)))
    if features == "constant":
        X[:] = X[0]
    elif features == "zero-column":
        X[:, 0] = 0.0
    signal = X @ truth + 0.7 * rng.standard_normal(rows)
    if objective.kind == "huber":
        signal = signal + 5.0 * (rng.random(rows) < 0.2)  # outliers, so that both branches of the loss are met
    if objective.kind != "logistic":
        return X, signal
    return X, np.full(rows, float(rng.integers(2))) if one_class else (signal > 0).astype(float)


def steady_step(clients: list[Client], objectives: dict[str, Objective]) -> float:
    """Half the inverse of the largest curvature of any f_k, so that FedAvg's local steps contract."""
    curvature = 0.0
    for client in clients:
        largest = float(np.linalg.eigvalsh(client.X.T @ client.X / len(client.y))[-1])
        curvature = max(curvature, 2.0 * largest + 2.0 * objectives[client.cluster].lam)
    return 0.5 / curvature


def names(rng: np.random.Generator, letter: str, count: int) -> list[str]:
    """Ids whose order as text is neither that of the numbers nor that of the list ("s10" < "s9")."""
    return [f"{letter}{number}" for number in rng.permutation(np.arange(count) + 8).tolist()]


def assemble(
    rng, kind, servers, edges, places, rows, dimension, features="normal", one_class=(), **settings
) -> Problem:
    """A problem from indices: `places` holds (server, cluster) of each client, `one_class` the clients with one label.

    Cluster truths are scatterings about one base model, as in Section V-A.
    """
    server_ids, client_ids = names(rng, "s", servers), names(rng, "c", len(places))
    cluster_ids = names(rng, "q", 1 + max(cluster for _, cluster in places))
    objectives = objectives_of(kind, sorted({cluster_ids[cluster] for _, cluster in places}))
    base = rng.standard_normal(dimension)
    truths = [base * (1 + rng.uniform(-0.3, 0.3, dimension)) for _ in cluster_ids]
    clients = []
    for k, (server, cluster) in enumerate(places):
        q = cluster_ids[cluster]
        X, y = data(rng, objectives[q], rows[k], truths[cluster], features, k in one_class)
        clients.append(Client(client_ids[k], server_ids[server], q, X, y))
    settings.setdefault("step", steady_step(clients, objectives))
    settings.setdefault("local_steps", 3)
    if settings.get("client") == "gradient":
        settings["rho"] = max(settings["rho"], 0.5 / steady_step(clients, objectives))
    pairs = [(server_ids[a], server_ids[b]) for a, b in edges]
    return Problem(clients, server_ids, pairs, objectives, **settings)


def random_edges(rng: np.random.Generator, members: list[int], extra: float = 0.3) -> list[tuple[int, int]]:
    """A random tree over the members, and each other pair with chance `extra`."""
    order = rng.permutation(members).tolist()
    tree = {tuple(sorted((order[i], order[rng.integers(i)]))) for i in range(1, len(order))}
    more = {pair for pair in combinations(sorted(members), 2) if rng.random() < extra}
    return sorted(tree | more)


def random_problem(seed: int, kind: str = "ridge", shape: str | None = None, **settings) -> Problem:
    """The federation of a shape (by default the seed's own) and a kind of loss; `settings` are fields of `Problem`."""
    shape = SHAPES[seed % len(SHAPES)] if shape is None else shape
    if shape not in SHAPES or kind not in (*KINDS, IN_A_BALL):
        raise ValueError(f"unknown shape {shape!r} or kind {kind!r}")
    rng = np.random.default_rng([seed, SHAPES.index(shape), (*KINDS, IN_A_BALL).index(kind)])
    servers, clusters, dimension, count = int(rng.integers(3, 6)), 3, int(rng.integers(2, 6)), int(rng.integers(7, 12))
    fewest, most, features, one_class = 1, dimension + 4, "normal", ()

    if shape == "single-server":
        servers = 1
    if shape == "one-cluster":
        clusters = 1
    if shape == "one-row":
        most = 1
    if shape == "many-rows":
        fewest, most = dimension + 1, 3 * dimension + 3
    if shape == "one-dimension":
        dimension, most = 1, 4
    if shape == "constant-features":
        features = str(rng.choice(["constant", "zero-column"]))
    if shape == "one-class":
        one_class = tuple(range(0, count, 2))

    if shape == "no-edges":
        edges = []
    elif shape == "star":
        edges = [(0, i) for i in range(1, servers)]
    elif shape == "isolated-server":
        edges = random_edges(rng, list(range(servers - 1)))
    elif shape == "disconnected":
        servers = 5
        edges = random_edges(rng, [0, 2, 4]) + random_edges(rng, [1, 3])
    else:
        edges = random_edges(rng, list(range(servers)))

    places = [(int(rng.integers(servers)), k % clusters) for k in range(count)]
    if shape == "servers-without-clients":
        places = [(server // 2 * 2, cluster) for server, cluster in places]
    if shape == "cluster-at-one-server":
        places = [(servers - 1, 0) if cluster == 0 else (server, cluster) for server, cluster in places]
    if shape == "isolated-server":  # it has clients of cluster 0 only, so the others never reach it
        places = [(0 if server == servers - 1 else server, cluster) for server, cluster in places]
        places[0] = (servers - 1, 0)
    if shape == "cluster-per-client":
        places = [(server, k) for k, (server, _) in enumerate(places)]
    if shape == "uneven-servers":
        places = [(0 if k % 4 else server, cluster) for k, (server, cluster) in enumerate(places)]

    rows = rng.integers(fewest, most + 1, size=count).tolist()
    settings.setdefault("rho", float(rng.uniform(2.0, 8.0)))
    settings.setdefault("tau", GeometricTau(0.4, 0.98))
    settings.setdefault("mixing", str(rng.choice(["uniform", "metropolis", "clients"])))
    return assemble(rng, kind, servers, edges, places, rows, dimension, features, one_class, **settings)


def random_case(
    seed: int,
    kind: str = "ridge",
    shape: str | None = None,
    turnout_kind: str | None = None,
    noise: float = 0.0,
    **settings,
) -> Case:
    """A random problem with a turnout (by default the seed's own) and Gaussian noise of that standard deviation."""
    problem = random_problem(seed, kind, shape, **settings)
    chosen = TURNOUTS[(seed + seed // len(SHAPES)) % len(TURNOUTS)] if turnout_kind is None else turnout_kind
    return Case(problem, turnout(problem, chosen, seed), gaussian_noise(problem, noise, seed))


# --- hypothesis ------------------------------------------------------------------------------------------------------


@st.composite
def problems(
    draw, kinds=KINDS, algorithms=("pgfl", "pgfl-exact", "pgfl-onestep", "fedavg"), clients=("admm",)
) -> Problem:
    """Any small federation: any edges, any places, any sizes; it shrinks towards one client at one server."""
    servers = draw(st.integers(1, 5), label="servers")
    possible = list(combinations(range(servers), 2))
    edges = draw(st.lists(st.sampled_from(possible), unique=True), label="edges") if possible else []
    count = draw(st.integers(1, 8), label="clients")
    clusters = draw(st.integers(1, count), label="clusters")
    place = st.tuples(st.integers(0, servers - 1), st.integers(0, clusters - 1))
    places = draw(st.lists(place, min_size=count, max_size=count), label="places")
    dimension = draw(st.integers(1, 4), label="dimension")
    rows = draw(st.lists(st.integers(1, dimension + 3), min_size=count, max_size=count), label="rows")
    one_class = draw(st.sets(st.integers(0, count - 1)), label="one class")
    return assemble(
        np.random.default_rng(draw(st.integers(0, 2**32 - 1), label="data seed")),
        draw(st.sampled_from(kinds), label="kind"),
        servers,
        edges,
        places,
        rows,
        dimension,
        draw(st.sampled_from(["normal", "constant", "zero-column"]), label="features"),
        tuple(one_class),
        rho=draw(st.floats(2.0, 10.0), label="rho"),
        tau=GeometricTau(draw(st.floats(0.0, 0.6), label="tau"), draw(st.sampled_from([1.0, 0.98]), label="decay")),
        mixing=draw(st.sampled_from(["uniform", "metropolis", "clients"]), label="mixing"),
        algorithm=draw(st.sampled_from(algorithms), label="algorithm"),
        client=draw(st.sampled_from(clients), label="client"),
        local_steps=draw(st.integers(1, 3), label="local steps"),
    )


@st.composite
def cases(draw, **choices) -> Case:
    """A problem with who takes part and with what noise; `choices` as for `problems`."""
    problem = draw(problems(**choices))
    seed = draw(st.integers(0, 2**32 - 1), label="draws seed")
    kind = draw(st.sampled_from(TURNOUTS), label="turnout")
    scale = draw(st.sampled_from([0.0, 0.1]), label="noise")
    return Case(problem, turnout(problem, kind, seed), gaussian_noise(problem, scale, seed))
