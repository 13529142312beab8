"""`tau = "auto"`: against an oracle in plain loops, the same in every engine, and never worse than learning alone."""

from itertools import combinations

import numpy as np
import pytest

from pgfl import PGFL, ExactMixing, Huber, OneStep, Privacy, Result, Ridge, synthetic_regression, train
from pgfl.algorithms.schedules import Adaptive
from pgfl.config import parse
from pgfl.errors import ConfigError
from pgfl.lab.paper.learned_weights import FamilyData
from pgfl.simulate.checkpoint import Checkpoints

SMALL = synthetic_regression(
    servers=4, clients_per_server=7, clusters=3, dimension=6, samples=(3, 9), graph="ring", seed=2
)
STEPS = PGFL(20.0, "auto", client="gradient")
LOCAL = Privacy(x_norm=1.0, phi0=1e-3, zeta=0.99)
SUMS = {trust: Privacy(x_norm=1.0, phi0=1e-3, trust=trust, contributors=1, colluders=0) for trust in ("site", "masked")}


def decibels(result):
    return 10 * np.log10(result.curve("nmsd")[:, -1].mean())


# --- the oracle: one number at a time, nothing of the package but the data ------------------------------------------


def oracle(federation, rho, curvature, lam, rounds):
    """Gradient steps, uniform neighbourhood averages and learned weights, as the documentation tells them."""
    servers, clusters = range(len(federation.server_ids)), range(len(federation.cluster_ids))
    length, at, of = federation.dimension, federation.client_server, federation.client_cluster
    near = {s: {s} for s in servers}
    for a, b in federation.graph.edges.tolist():
        near[a].add(b)
        near[b].add(a)
    members = {
        (s, q): [k for k in range(federation.size) if (at[k], of[k]) == (s, q)] for s in servers for q in clusters
    }
    memories = [max(rho / curvature, 8.0), 2 * max(rho / curvature, 8.0)]
    model = dict.fromkeys(members)
    kept = {(pair, j, half): (np.zeros(length), 0.0) for pair in members for j in (0, 1) for half in (0, 1)}
    age = dict.fromkeys(members, 0.0)
    for _ in range(rounds):
        published, told, aged = {}, {}, {}
        for pair, clients in members.items():
            start = np.zeros(length) if model[pair] is None else model[pair]
            given = []
            for k in clients:
                x, y = federation.rows(k)
                gradient = 2 * x.T @ (x @ start - y) / len(y) + 2 * lam / sum(at == pair[0]) * start
                given.append(start - gradient / rho)
            if given or model[pair] is not None:
                published[pair] = sum(given) / len(given) if given else start
            for j, memory in enumerate(memories):
                stay = memory / (1 + memory)
                for half in (0, 1):
                    own = given[half::2]
                    share = len(own) / len(given) if given else 0.0
                    leads = start - rho / curvature * (start - sum(own) / len(own)) if own else np.zeros(length)
                    total, mass = kept[pair, j, half]
                    told[pair, j, half] = (
                        stay * total + (1 - stay) * share * leads,
                        stay * mass + (1 - stay) * share,
                    )
            aged[pair] = memories[0] / (1 + memories[0]) * age[pair] + 1 / (1 + memories[0])
        new = {}
        for s, q in members:
            have = [p for p in near[s] if (p, q) in published]
            if not have:
                continue
            new[s, q] = sum(published[p, q] for p in have) / len(have)
            age[s, q] = sum(aged[p, q] for p in have) / len(have)
            for j in (0, 1):
                for half in (0, 1):
                    total = sum(told[(p, q), j, half][0] for p in have) / len(have)
                    mass = sum(told[(p, q), j, half][1] for p in have) / len(have)
                    kept[(s, q), j, half] = total, mass
        for s in servers:
            learned = oracle_weights(s, clusters, new, kept, age, memories, curvature, rho, length)
            for (q, r), weight in learned.items():
                model[s, q] = (0.0 if r == min(clusters) else model[s, q]) + weight * new[s, r]
    return model


def oracle_weights(s, clusters, new, kept, age, memories, curvature, rho, length):
    """{(q, r): A_qr} by a least-squares problem over pairs of clusters, instead of matrices of eigenvectors."""
    assert all((s, q) in new for q in clusters), "the oracle is for networks where everybody knows everything"
    x = {(q, j, h): kept[(s, q), j, h][0] / kept[(s, q), j, h][1] for q in clusters for j in (0, 1) for h in (0, 1)}
    m = {(q, j, h): kept[(s, q), j, h][1] for q in clusters for j in (0, 1) for h in (0, 1)}

    def variance(q, j):
        apart = sum((a - b) ** 2 for a, b in zip(x[q, j, 0], x[q, j, 1], strict=True)) / length
        return apart * m[q, j, 0] * m[q, j, 1] / (m[q, j, 0] + m[q, j, 1]) ** 2

    recent, lasting = (memory / (1 + memory) for memory in memories)
    averaged = ((1 - lasting) / (1 + lasting)) / ((1 - recent) / (1 + recent))
    total = {q: variance(q, 0) for q in clusters}
    fresh = {q: min(max((total[q] - variance(q, 1)) / (1 - averaged), 0.0), total[q]) for q in clusters}
    mean = {h: sum(x[q, 1, h] for q in clusters) / len(clusters) for h in (0, 1)}
    count = len(clusters)
    spread = np.zeros((count, count))
    for q in clusters:
        for r in clusters:
            one = (x[q, 1, 0] - mean[0]) @ (x[r, 1, 1] - mean[1])
            other = (x[r, 1, 0] - mean[0]) @ (x[q, 1, 1] - mean[1])
            spread[q, r] = (one + other) / 2 / length
            noise = (fresh[q] * (q == r)) - (fresh[q] + fresh[r]) / count + sum(fresh.values()) / count**2
            spread[q, r] -= noise / 2
    values, vectors = np.linalg.eigh(spread)
    floor = max(1e-3 * values.max(), 2.0 / length * sum(total.values()) / count)
    inverse = sum(np.outer(v, v) / max(value, floor) for value, v in zip(values, vectors.T, strict=True))
    apart = np.zeros((count, count))  # wᵀPw, from all differences of two clusters: P is minus its weights
    for q, r in combinations(clusters, 2):
        centred = inverse - inverse.mean(axis=0) - inverse.mean(axis=1)[:, None] + inverse.mean()
        apart[q, r] = apart[r, q] = -centred[q, r]
    system = np.eye(count)
    for q in clusters:
        pace = (m[q, 0, 0] + m[q, 0, 1]) / age[s, q] / rho * curvature * (total[q] - fresh[q] / 2)
        for r in clusters:
            if r != q:
                system[q, q] += pace * apart[q, r]
                system[q, r] -= pace * apart[q, r]
    return {
        (q, r): value
        for q in clusters
        for r, value in zip(clusters, np.linalg.solve(system, np.eye(count))[q], strict=True)
    }


def test_the_simulator_does_what_the_oracle_does():
    result = train(SMALL, PGFL(20.0, Adaptive(2.0), client="gradient"), Ridge(0.01), rounds=12)
    expected = oracle(SMALL, 20.0, 2.0, 0.01, 12)
    alone = train(SMALL, PGFL(20.0, client="gradient"), Ridge(0.01), rounds=12)
    models = result.models[0]
    for row, (server, cluster) in enumerate(zip(models.pair_server, models.pair_cluster, strict=True)):
        np.testing.assert_allclose(models.servers[row], expected[server, cluster], rtol=1e-9, atol=1e-11)
    assert np.abs(models.servers - alone.models[0].servers).max() > 0.05  # so that the test sees the weights


# --- engines ---------------------------------------------------------------------------------------------------------

CASES = {
    "admm": (PGFL(5.0, "auto"), Ridge(), {}),
    "gradient, few take part": (STEPS, Ridge(), {"participants": 3, "runs": 2}),
    "exact": (ExactMixing(5.0, "auto"), Huber(), {"participants": 5}),
    "one step": (OneStep(1.0, "auto"), Ridge(), {}),
    "private": (PGFL(5.0, "auto"), Huber(), {"privacy": LOCAL, "participants": 4}),
    "site": (PGFL(5.0, "auto", client="gradient"), Huber(), {"privacy": SUMS["site"]}),
    "masked": (PGFL(5.0, "auto", client="gradient"), Huber(), {"privacy": SUMS["masked"], "participants": 4}),
}


ENGINES = [
    *((case, "numba") for case in CASES),
    ("private", "debug"),
    pytest.param("site", "jax", marks=pytest.mark.proof),
]


@pytest.mark.parametrize(("case", "engine"), ENGINES)
def test_every_engine_computes_what_numpy_does(case, engine):
    algorithm, objective, settings = CASES[case]
    one, other = (train(SMALL, algorithm, objective, rounds=6, engine=each, **settings) for each in ("numpy", engine))
    for mine, theirs in zip(one.models, other.models, strict=True):
        np.testing.assert_allclose(theirs.servers, mine.servers, rtol=0, atol=1e-8)


def test_a_run_does_not_depend_on_its_batch():
    def make(run):
        return synthetic_regression(servers=3, clients_per_server=6, dimension=5, graph="ring", seed=4, run=run)

    together = train(make, STEPS, Ridge(), rounds=8, runs=3)
    alone = train(make, PGFL(20.0, Adaptive(2.0), client="gradient"), Ridge(), rounds=8)
    both = train(make, PGFL(20.0, Adaptive(2.0), client="gradient"), Ridge(), rounds=8, runs=3)
    np.testing.assert_array_equal(both.models[0].servers, alone.models[0].servers)
    assert len(together.models) == 3


def test_a_resumed_run_has_the_same_bits(tmp_path):
    whole = train(SMALL, STEPS, Ridge(), rounds=12)
    train(SMALL, STEPS, Ridge(), rounds=6, checkpoints=Checkpoints(tmp_path, "a", 6))
    resumed = train(SMALL, STEPS, Ridge(), rounds=12, checkpoints=Checkpoints(tmp_path, "a", 6), resume=True)
    np.testing.assert_array_equal(resumed.models[0].servers, whole.models[0].servers)
    start = train(SMALL, STEPS, Ridge(), rounds=6)
    continued = train(SMALL, STEPS, Ridge(), rounds=6, start=start)
    np.testing.assert_allclose(continued.models[0].servers, whole.models[0].servers, atol=1e-12)


# --- what it gains ---------------------------------------------------------------------------------------------------


def scene(gamma=0.15, families=1, clusters=3, seed=11):
    """Related clusters, or families of clusters whose parents have nothing to do with each other."""
    made = synthetic_regression(clusters=clusters, gamma=gamma, dimension=30, seed=seed)
    if families == 1:
        return made
    rng = np.random.default_rng(seed)
    parents = np.repeat(rng.standard_normal((families, 30)), clusters // families, axis=0)
    truth = parents * (1 + rng.uniform(-gamma, gamma, parents.shape))
    label = np.repeat(made.client_cluster, made.counts)
    moved = np.einsum("ij,ij->i", made.features, (truth - made.truth)[label])
    return made.replace(targets=made.targets + moved, truth=truth)


@pytest.mark.proof
@pytest.mark.parametrize("algorithm", [STEPS, PGFL(5.0, "auto"), ExactMixing(5.0, "auto")])
@pytest.mark.parametrize("gamma", [0.05, 0.5])
def test_learning_from_others_is_never_worse_than_learning_alone(algorithm, gamma):
    data, kind = scene(gamma), type(algorithm)
    alone, learned = (
        decibels(train(data, kind(algorithm.rho, tau, client=algorithm.client), Ridge(0.01), rounds=150))
        for tau in (0.0, "auto")
    )
    assert learned < alone + 0.1
    if gamma < 0.1:
        assert learned < alone - 1.0


@pytest.mark.proof
@pytest.mark.parametrize("participants", ["all", 3])
def test_families_learn_from_their_own_only(participants):
    data = scene(0.1, families=2, clusters=6)
    found = {
        tau: decibels(
            train(data, PGFL(20.0, tau, client="gradient"), Ridge(0.01), rounds=150, participants=participants)
        )
        for tau in (0.0, 0.05, 0.4, "auto")
    }
    assert found["auto"] < min(found[tau] for tau in (0.05, 0.4)) - 5.0
    assert found["auto"] < found[0.0] - 1.0


def test_sums_alone_serve_as_well():
    data = synthetic_regression(gamma=0.05, dimension=30, samples=(30, 60), x_norm=1.0, seed=5)
    privacy = Privacy(epsilon=4.0, max_releases=60, index="release", x_norm=1.0, trust="site", contributors=1)
    alone, learned = (
        decibels(train(data, PGFL(0.4, tau, client="gradient"), Huber(0.001), rounds=60, privacy=privacy))
        for tau in (0.0, "auto")
    )
    assert learned < alone - 1.0


def test_without_two_halves_clusters_learn_alone():
    data = synthetic_regression(servers=1, clients_per_server=12, dimension=5, samples=(9, 12), seed=1)
    privacy = SUMS["site"]
    alone, learned = (
        train(data, PGFL(5.0, tau, client="gradient"), Huber(), rounds=5, privacy=privacy) for tau in (0.0, "auto")
    )
    np.testing.assert_allclose(learned.models[0].servers, alone.models[0].servers, atol=1e-12)


def test_one_server_has_halves_where_clients_are_seen():
    data = synthetic_regression(servers=1, clients_per_server=24, dimension=20, samples=(2, 4), gamma=0.05, seed=1)
    alone, learned = (decibels(train(data, PGFL(5.0, tau), Ridge(0.01), rounds=100)) for tau in (0.0, "auto"))
    assert learned < alone - 1.0


def test_a_result_says_who_learned_from_whom(tmp_path):
    data = scene(0.05, families=2, clusters=4)
    result = train(data, PGFL(20.0, "auto", client="gradient"), Ridge(0.01), rounds=80, runs=1)
    weights = result.weights["weight"].reshape(4, 4)
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, atol=1e-9)
    own = np.kron(np.eye(2), np.ones((2, 2))).astype(bool)
    assert np.abs(weights[~own]).max() < 0.1 < weights[own & ~np.eye(4, dtype=bool)].min()
    (said,) = [note for note in result.notes if note.startswith("Who learned")]
    assert "cluster-0 and cluster-1 share" in said and "cluster-2 and cluster-3 share" in said
    folder = result.save(tmp_path / "out")
    loaded = Result.load(folder)
    for name, values in result.weights.items():
        np.testing.assert_array_equal(loaded.weights[name], values)
    assert "Who learned from whom" in (folder / "report.html").read_text("utf-8")
    assert train(data, PGFL(20.0, 0.1, client="gradient"), Ridge(0.01), rounds=2).weights is None


# --- how it is asked for ---------------------------------------------------------------------------------------------


def test_a_config_asks_for_it_by_name():
    config = parse({"algorithm": {"tau": "auto"}})
    assert config.algorithm.build("uniform").tau == Adaptive() == PGFL(tau="auto").tau
    with pytest.raises(ConfigError, match="tau"):
        parse({"algorithm": {"tau": "automatic"}})


def test_too_many_clusters_are_refused_with_the_reason():
    data = synthetic_regression(servers=1, clients_per_server=80, clusters=80, dimension=3)
    with pytest.raises(ConfigError, match=r"compares every two clusters, up to 64 of them; there are 80"):
        train(data, PGFL(5.0, "auto"), Ridge(), rounds=2)


def test_the_curvature_under_privacy_does_not_depend_on_records():
    one, other = (
        synthetic_regression(servers=1, clients_per_server=12, dimension=4, samples=8, seed=seed) for seed in (1, 2)
    )
    other = one.replace(features=other.features, targets=other.targets)
    seen = []

    class Noted(PGFL):
        def server(self):
            seen.append(self.tau.curvature)
            return super().server()

    for data in (one, other):
        train(data, Noted(5.0, "auto"), Huber(), rounds=1, privacy=LOCAL)
    assert len({value for value in seen if value is not None}) == 1


def test_noised_steps_are_taken_only_if_later_gradients_agree():
    """Sharing hides the noise of strangers, but pulls them together on their way: it is not worse than none."""
    made = FamilyData(
        0.0,
        observation_noise=0.7,
        families=3,
        clusters=3,
        x_norm=1.0,
        samples=(50, 50),
        servers=6,
        clients_per_server=9,
    )
    privacy = Privacy(
        epsilon=2.0, zeta=0.988, max_releases=60, index="release", x_norm=1.0, trust="site", contributors=1
    )
    alone, learned, unchecked = (
        decibels(
            train(
                lambda run: made.federation(13_000, run),
                PGFL(0.5, tau, client="gradient"),
                Huber(0.001, kappa=1.25),
                rounds=60,
                runs=2,
                seed=13_000,
                privacy=privacy,
                record_every=60,
            )
        )
        for tau in (0.0, "auto", Adaptive(1.0 / 61.5))  # the last one does not look where gradients lead
    )
    assert learned < alone + 0.1 and unchecked > alone + 0.5
