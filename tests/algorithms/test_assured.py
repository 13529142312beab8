"""The promised accuracy holds for all data within the bounds, and what is refused is refused on public grounds."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf

from pgfl import PGFL, FedAvg, Huber, Logistic, Ridge, Softmax
from pgfl import equations as eq
from pgfl.algorithms.accuracy import Magnitudes, PrimalPromise, Refusal, Terms
from pgfl.algorithms.roles import Client, RoundRequest
from pgfl.objectives import Bounds

BOUNDS = Bounds(x_norm=1.5, y_bound=3.0)
OBJECTIVES = {
    "huber": Huber(lam=0.1, kappa=0.7),
    "logistic": Logistic(lam=0.1),
    "ridge": Ridge(lam=0.1, w_norm=2.0),
    "softmax": Softmax(lam=0.1, classes=3),
}
CURVATURE = {"logistic": mpf("0.25"), "softmax": mpf("0.5"), "huber": mpf(2), "ridge": mpf(2)}


def drawn(kind, seed, records, dimension):
    """Rows at and within the bound, labels at and within theirs; rows may repeat or oppose each other."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((records, dimension))
    rows *= BOUNDS.x_norm * rng.choice([1.0, 1.0, 0.3, 1e-9], records)[:, None] / np.linalg.norm(rows, axis=1)[:, None]
    rows[rng.random(records) < 0.3] = rows[0]
    targets = rng.uniform(-BOUNDS.y_bound, BOUNDS.y_bound, records)
    labels = {"logistic": (targets > 0).astype(float), "softmax": np.clip(np.round(targets), 0.0, 2.0)}
    return rows * (1.0 - 1e-12), labels.get(kind, targets)


def slopes(objective, margins, y):
    """∂ℓ/∂u in as many digits as asked for, from the definitions and not from the package."""
    if objective.kind == "softmax":
        powers = [mp.e ** (u - max(margins)) for u in margins]
        return [power / mp.fsum(powers) - (c == y) for c, power in enumerate(powers)]
    (u,) = margins
    if objective.kind == "logistic":
        return [1 / (1 + mp.e ** (-u)) - y]
    full = 2 * (u - y)
    return [full if objective.kind == "ridge" else max(min(full, 2 * mpf(objective.kappa)), -2 * mpf(objective.kappa))]


def mean_gradient(objective, X, y, w):
    """∇ of the mean loss; a model is one vector, or one per class, row after row."""
    size = len(X[0])
    parts = [w[start : start + size] for start in range(0, len(w), size)]
    found = [slopes(objective, [mp.fdot(x, part) for part in parts], t) for x, t in zip(X, y, strict=True)]
    return [
        mp.fsum(s[c] * x[j] for s, x in zip(found, X, strict=True)) / len(X)
        for c in range(len(parts))
        for j in range(size)
    ]


def distance_bound(objective, rows, targets, m, centre, model):
    """‖w − argmin‖ at most, in 60 digits: the step that a projected gradient still takes, over m/(L + m)."""
    with mp.workdps(60):
        X, y = [[mpf(v) for v in row] for row in rows.tolist()], [mpf(v) for v in targets.tolist()]
        w, c, m = [mpf(v) for v in model.tolist()], [mpf(v) for v in centre.tolist()], mpf(m)
        steepest = CURVATURE[objective.kind] * mpf(BOUNDS.x_norm) ** 2 + m
        g = [v + m * (w[j] - c[j]) for j, v in enumerate(mean_gradient(objective, X, y, w))]
        new = [a - b / steepest for a, b in zip(w, g, strict=True)]
        if objective.domain is not None:
            size = mp.sqrt(mp.fdot(new, new))
            new = [v * min(mpf(1), mpf(objective.domain) / size) if size else v for v in new]
        off = [a - b for a, b in zip(w, new, strict=True)]
        return float(mp.sqrt(mp.fdot(off, off)) * steepest / m)


@pytest.mark.parametrize("broken", ["nothing", "far off", "not a number", "raises", "three tolerances off"])
@pytest.mark.parametrize("kind", OBJECTIVES)
def test_answers_are_as_accurate_as_promised_whatever_the_fast_solver_does(kind, broken, monkeypatch):
    for seed in range(8):
        rng = np.random.default_rng(seed)
        records, dimension = int(rng.integers(1, 7)), int(rng.integers(1, 5))
        rows, targets = drawn(kind, seed, records, dimension)
        rho = float(10 ** rng.uniform(-1, 2))
        one = Client(OBJECTIVES[kind], PGFL(rho=rho), rows, targets, terms=Terms(BOUNDS))
        model = longest_answered(one, rng.standard_normal(len(one.dual)), 3)
        request, m = RoundRequest(1, 3, model), rho + 0.2 / 3
        problem = one._problem_at(3)
        if broken != "nothing":
            right = problem.prepared.solve(model[None] * (rho / m))[0]
            shown = spoiled(broken, right, one.tolerance(3))
            monkeypatch.setattr(problem.prepared.__class__, "solve", lambda self, c, i=None, shown=shown: shown())
        found = one.answer(request, lambda clean: clean).model
        monkeypatch.undo()
        assert distance_bound(one.objective, rows, targets, m, model * (rho / m), found) <= one.tolerance(3)


def longest_answered(client, direction, server_clients):
    """The longest model that is not refused, where rounding is at its worst."""
    models = (direction * size for size in 10.0 ** np.arange(12, -3, -0.25))
    return next(m for m in models if client.refusal(RoundRequest(1, server_clients, m)) is None)


def spoiled(how, right, tolerance):
    """A fast solver that answers wrongly and calls it exact."""

    def answer():
        if how == "raises":
            raise np.linalg.LinAlgError("singular")
        off = {"far off": 1e9, "three tolerances off": 3.0 * tolerance, "not a number": np.nan}[how]
        return right - off * np.sign(right[:, :1]) * np.eye(right.shape[1])[:1], np.zeros(1)

    return answer


@pytest.mark.proof
@pytest.mark.parametrize("kind", OBJECTIVES)
def test_the_number_of_steps_is_enough_and_not_many_times_too_many(kind):
    """Among data within the bounds some needs a good part of the steps, so the number is a true one."""
    objective, m, tolerance = OBJECTIVES[kind], 0.5, 1e-8
    most_needed = 0
    for seed in range(12):
        rows, targets = drawn(kind, seed, 1, 2)
        length = objective.model_length(2)
        promise = PrimalPromise(Magnitudes.of(objective, BOUNDS, 1, length), m, tolerance, 10_000)
        centre = np.resize([3.0, -2.0, -1.0], length)

        def gradient(w, rows=rows, targets=targets):
            return objective.gradient(w[None], rows[None], targets[None], np.array([1.0]))[0]

        needed = next(
            n
            for n in range(int(promise.steps) + 1)
            if distance_bound(objective, rows, targets, m, centre, after(promise, n, centre, gradient)) <= tolerance
        )
        most_needed = max(most_needed, needed)
    assert most_needed >= 0.2 * promise.steps


def after(promise, steps, centre, gradient):
    model = promise._projected(centre)
    for _ in range(steps):
        model = promise._nearer(model, centre, gradient)
    return model


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(sorted(OBJECTIVES)),
    st.floats(1e-308, 1e308),
    st.floats(0.0, 1e308),
    st.floats(1e-308, 1e308),
    st.integers(1, 10**9),
    st.floats(0.0, 1e308),
    st.sampled_from(["pgfl", "fedavg"]),
)
def test_no_training_and_no_model_breaks_the_judgement(kind, rho, lam, kappa, server_clients, size, algorithm):
    """Whatever a site sends, it is answered or refused by the same constant in both worlds."""
    objective = replace(OBJECTIVES[kind], lam=lam, **({"kappa": kappa} if kind == "huber" else {}))
    built = PGFL(rho=rho) if algorithm == "pgfl" else FedAvg(step_size=min(rho, 1e3), local_steps=3)
    outcomes = []
    for seed in (1, 2):
        one = Client(objective, built, *drawn(kind, seed, 4, 2), terms=Terms(BOUNDS))
        request = RoundRequest(1, server_clients, np.eye(len(one.dual))[0] * size)
        refusal = one.refusal(request)
        if refusal is None:
            assert np.isfinite(one.answer(request, lambda clean: clean).model).all()
        outcomes.append(refusal)
    assert outcomes[0] == outcomes[1]
    assert outcomes[0] is None or isinstance(outcomes[0], Refusal)


def test_a_client_solves_for_the_size_that_it_is_told_each_time():
    """m depends on |C_s|, so the problem of the round before is not this round's."""

    def answers(*sizes):
        one = Client(Huber(lam=3.0), PGFL(rho=0.3), *drawn("huber", 1, 4, 2), terms=Terms(BOUNDS))
        return [
            one.answer(RoundRequest(n, size, np.ones(2)), lambda clean: clean).model for n, size in enumerate(sizes)
        ]

    assert (answers(1, 10**9)[1] == answers(10**9)[0]).all()
    assert (answers(10**9, 1)[1] == answers(1)[0]).all()
    assert (answers(1)[0] != answers(10**9)[0]).all()


def test_the_attack_of_the_review_is_refused_before_data_is_touched():
    objective = Huber(lam=0.0, kappa=1e-3, tolerance=1e-5)
    one = Client(objective, PGFL(rho=1e-200), [[1.0]], [0.123456], terms=Terms(Bounds(x_norm=1.0)))
    assert one.refusal(RoundRequest(1, 1, np.zeros(1))) is Refusal.TOO_MANY_STEPS


def test_a_step_cap_is_the_owners():
    terms = Terms(BOUNDS, most_steps=3)
    one = Client(Huber(), PGFL(rho=1.0), [[1.0]], [0.0], terms=terms)
    assert one.refusal(RoundRequest(1, 1, np.zeros(1))) is Refusal.TOO_MANY_STEPS


def test_ridge_without_its_bounds_is_refused_by_a_constant():
    one = Client(Ridge(), PGFL(rho=1.0), [[1.0]], [0.0], terms=Terms(Bounds(x_norm=1.0)))
    assert one.refusal(RoundRequest(1, 1, np.zeros(1))) is Refusal.UNBOUNDED


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_the_rounding_of_a_gradient_is_within_its_bound(kind):
    """The mean gradient in doubles beside the same in 60 digits, at models of every length."""
    objective = OBJECTIVES[kind]
    for seed, size in enumerate((1e-3, 1.0, objective.domain or 1e3, objective.domain or 1e9)):
        rows, targets = drawn(kind, seed, 40, 6)
        length = objective.model_length(6)
        model = np.random.default_rng(seed).standard_normal(length)
        model *= min(size, objective.domain or size) / np.linalg.norm(model)
        found = objective.gradient(model[None], rows[None], targets[None], np.array([40.0]))[0]
        with mp.workdps(60):
            X = [[mpf(v) for v in row] for row in rows.tolist()]
            exact = mean_gradient(objective, X, targets.tolist(), [mpf(v) for v in model.tolist()])
            off = float(mp.norm([mpf(a) - b for a, b in zip(found.tolist(), exact, strict=True)]))
        assert 0 < off <= Magnitudes.of(objective, BOUNDS, 40, length).gradient_rounding(float(np.linalg.norm(model)))


def lost_by_adding_in_order(count):
    """The relative error of a sum of equal numbers, each of which is rounded down in the last half of the sum."""
    ulp = np.spacing(count / 2.0)
    numbers = np.full(count, 1.0 + 0.49 * ulp)
    exact = math.fsum(numbers)
    return (exact - float(np.cumsum(numbers)[-1])) / exact


@pytest.mark.parametrize("kind", ["huber", "logistic"])
def test_the_bound_on_rounding_holds_in_whatever_order_a_library_adds(kind):
    """Sums of d products and of D slopes lose as many units in the last place as they have terms, at worst."""
    objective, many = OBJECTIVES[kind], 1 << 12
    lost = lost_by_adding_in_order(many)
    assert lost > 100 * np.finfo(float).eps
    of_records = Magnitudes.of(objective, BOUNDS, many, 2)
    assert of_records.gradient_rounding(0.0) >= lost * of_records.gradient
    of_columns = Magnitudes.of(objective, BOUNDS, 1, many)
    grown = of_columns.gradient_rounding(1e3) - of_columns.gradient_rounding(0.0)
    assert grown >= lost * of_columns.smoothness * 1e3


@pytest.mark.parametrize("kind", ["huber", "logistic", "softmax"])
def test_rounding_of_gradient_steps_stays_within_what_is_promised(kind):
    """FedAvg in doubles beside the same steps in 60 digits, at the largest model that is not refused."""
    objective, built = OBJECTIVES[kind], FedAvg(step_size=0.3, local_steps=7)
    for seed in range(6):
        rows, targets = drawn(kind, seed, 5, 3)
        one = Client(objective, built, rows, targets, terms=Terms(BOUNDS))
        direction = np.random.default_rng(seed).standard_normal(len(one.dual))
        model = longest_answered(one, direction, 2)
        found = one.answer(RoundRequest(1, 2, model), lambda clean: clean).model
        exact = stepped(objective, rows, targets, model, built.step_size, built.local_steps, 2)
        assert 0 < apart(found, exact) <= one.tolerance(2)


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_rounding_of_a_linearised_step_stays_within_what_is_promised(kind):
    """One step of length 1/ρ in doubles beside the same in 60 digits, from the largest model that is not refused."""
    for seed in range(6):
        rho = float(10 ** np.random.default_rng(seed).uniform(-2, 2))
        rows, targets = drawn(kind, seed, 5, 3)
        one = Client(OBJECTIVES[kind], PGFL(rho=rho, client="gradient"), rows, targets, terms=Terms(BOUNDS))
        model = longest_answered(one, np.random.default_rng(seed).standard_normal(len(one.dual)), 2)
        found = one.answer(RoundRequest(1, 2, model), lambda clean: clean).model
        public = eq.project(model, one.objective.domain)
        exact = stepped(one.objective, rows, targets, public, 1 / mpf(rho), 1, 2)
        assert 0 < apart(found, exact) <= one.tolerance(2)


def test_a_linearised_step_needs_no_condition_on_rho():
    """However long the step is, both worlds take it from one point; FedAvg's steps must not exceed 2/L."""
    rows, targets = drawn("huber", 0, 5, 3)
    request = RoundRequest(1, 2, np.ones(3))
    answering, refusing = (
        Client(OBJECTIVES["huber"], algorithm, rows, targets, terms=Terms(BOUNDS)).refusal(request)
        for algorithm in (PGFL(rho=1e-3, client="gradient"), FedAvg(step_size=1e3, local_steps=1))
    )
    assert (answering, refusing) == (None, Refusal.UNBOUNDED)


def apart(found, exact):
    return float(np.linalg.norm([float(mpf(a) - b) for a, b in zip(found.tolist(), exact, strict=True)]))


def stepped(objective, rows, targets, model, step, steps, server_clients):
    with mp.workdps(60):
        X, y, w = [[mpf(v) for v in row] for row in rows.tolist()], targets.tolist(), [mpf(v) for v in model.tolist()]
        for _ in range(steps):
            gradient = mean_gradient(objective, X, y, w)
            pull = 2 * mpf(objective.lam) / server_clients
            w = [v - mpf(step) * (g + pull * v) for v, g in zip(w, gradient, strict=True)]
        return w
