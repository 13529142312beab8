"""Whether clusters are worth it: simpler models, on the same held-out rows."""

import numpy as np
import pytest

from pgfl import PGFL, Column, ExactMixing, Federation, Huber, Logistic, Privacy, Result, Ridge, Softmax, train
from pgfl.results.alternatives import APART, LOCAL, NOT_TRIED, POOLED, TERM, TRAINED, Contest
from pgfl.simulate import alternatives as simpler


def federation(slopes, shifts=None, rows=1200, clients=8, labels=0, own=0.0, seed=0):
    """Clusters with a slope and a shift each; with `own`, every second client has the opposite effect of `b`."""
    rng = np.random.default_rng(seed)
    cluster, number = rng.integers(0, len(slopes), rows), rng.integers(0, clients, rows)
    a, b = rng.uniform(-1, 1, (2, rows))
    target = np.array(slopes)[cluster] * a + 0.5 * b + np.array(shifts or [0.0] * len(slopes))[cluster]
    target = target + own * np.where(number % 2, 1.0, -1.0) * b + 0.5 * rng.normal(size=rows)
    declared = Column(labels=tuple(map(str, range(labels)))) if labels else Column(bounds=(-6.0, 6.0))
    cells = {
        "client": [f"{q}-{k}" for q, k in zip(cluster, number, strict=True)],
        "cluster": [f"cluster {q}" for q in cluster],
        "a": a,
        "b": b,
        "y": np.digitize(target, np.linspace(-0.5, 0.5, labels - 1)) if labels else target,
    }
    columns = {"a": Column(bounds=(-1.0, 1.0)), "b": Column(bounds=(-1.0, 1.0)), "y": declared}
    return Federation.read(cells, columns=columns, intercept=True, test=0.25, seed=seed)


def compared(made, objective=None, rounds=20):
    algorithm = ExactMixing(rho="auto", count="records")
    return train(made, algorithm, objective or Ridge(lam=0.001), rounds=rounds, progress=False)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (federation([1.0, 1.0]), "One model for all does as well"),
        (federation([1.0, 1.0], [1.0, -1.0]), "One model with a term per cluster does as well"),
        (federation([2.0, -2.0], clients=60), "These models are worth it"),
        (federation([1.0], own=3.0), "Each client by itself does better"),
    ],
)
def test_one_sentence_says_which_is_best_for_whom(made, words):
    assert words in compared(made).alternatives.sentence


def test_a_cluster_that_does_better_otherwise_is_named():
    figures = np.array([[0.5, 0.9], [0.8, 0.6]])
    noise = 0.01 * np.random.default_rng(0).normal(size=(60, 2, 2))
    contest = Contest("r2", 99, [TRAINED, POOLED], ["many", "few"], figures, figures + noise, np.array([9.0, 1.0]))
    assert contest.outcome().sentence == (
        "One model for all does better: R² 0.780 against 0.540; splitting by cluster costs 0.240. "
        "Otherwise for few (these models: 0.900 against 0.600)."
    )


def test_figures_are_those_of_scikit_learn():
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    made = federation([1.0, -1.0, 0.5], labels=2)
    result = compared(made, Logistic(lam=1e-6))
    found, members = result.alternatives, np.bincount(made.client_cluster)
    cluster = np.repeat(made.client_cluster, made.counts)
    terms = (cluster[:, None] == np.arange(1, 3)).astype(float)
    pooled, with_term = (
        LogisticRegression(C=1e6, max_iter=1000).fit(rows, made.targets)
        for rows in (made.features, np.hstack([made.features, terms]))
    )
    figures = {POOLED: [], TERM: [], APART: []}
    for q, name in enumerate(made.cluster_ids):
        test, mine = made.tests[name], cluster == q
        apart = LogisticRegression(C=1e6, max_iter=1000).fit(made.features[mine], made.targets[mine])
        more = np.hstack([test.features, np.tile(np.arange(1, 3) == q, (len(test.targets), 1))])
        for way, one, rows in ((POOLED, pooled, test.features), (TERM, with_term, more), (APART, apart, test.features)):
            figures[way].append(roc_auc_score(test.targets, one.decision_function(rows)))
    assert found.measure == "auc" and found.rows == sum(len(test.targets) for test in made.tests.values())
    for way, values in figures.items():
        assert found.whole[way] == pytest.approx(np.average(values, weights=members), abs=2e-3)
    assert list(found.whole) == [TRAINED, POOLED, TERM, APART, LOCAL]


def test_chance_is_not_taken_for_a_difference():
    """Of 20 tables without any difference between clusters, hardly one is said to be worth its clusters."""
    found = [compared(federation([1.0, 1.0], rows=300, seed=seed), rounds=5).alternatives for seed in range(20)]
    assert sum("worth it" in one.sentence for one in found) <= 1


def test_several_labels_and_a_saved_result(tmp_path):
    result = compared(federation([1.0, -1.0], labels=3, rows=400, clients=2), Softmax(), rounds=3)
    assert result.alternatives.measure == "auc" and result.alternatives.sentence in result.notes
    again = Result.load(result.save(tmp_path / "out"))
    assert again.alternatives == result.alternatives
    assert result.alternatives.sentence in (tmp_path / "out" / "report.html").read_text("utf-8")


def test_with_privacy_nothing_is_computed_and_that_is_said(monkeypatch):
    monkeypatch.setattr(simpler, "minimum", lambda *given: pytest.fail("a model was fitted to private records"))
    privacy = Privacy(epsilon=8.0, max_releases=3, noise="seeded")
    algorithm = PGFL(rho="auto", client="gradient")
    made = federation([1.0, -1.0], rows=300)
    result = train(made, algorithm, Huber(), rounds=3, privacy=privacy, progress=False)
    assert result.alternatives is None and NOT_TRIED in result.notes
