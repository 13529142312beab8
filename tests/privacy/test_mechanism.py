import numpy as np
import pytest

from pgfl.errors import BudgetSpent, PrivacyError
from pgfl.privacy import accounting
from pgfl.privacy.budget import Budget, sigma_for
from pgfl.privacy.mechanism import Plan
from pgfl.privacy.trust import SharedNoise, Trust
from tests.counted_calls import python_calls

PAPER = {"phi0": 1e-3, "zeta": 0.9, "rounds": 20, "delta": 1e-5}
TARGET = {"epsilon": 1.0, "delta": 1e-5, "max_releases": 4, "rounds": 20, "zeta": 0.9}


def by_schedule(sensitivity, **schedule):
    return Plan(sensitivity, Budget.from_schedule(**schedule))


def by_target(sensitivity, **target):
    return Plan(sensitivity, Budget.from_target(**{"index": "round", **target}))


def unbounded(sensitivity, reason, **schedule):
    return Plan(sensitivity, Budget.from_schedule(**schedule), "none", reason)


def take_part(plan, clients, round):
    return plan.charged(np.asarray(clients), round)


def test_calibration_is_theorem_three():
    schedule = Budget(phi0=1e-3, zeta=0.9, delta=1e-5, index="round", last=10)
    sensitivity, n = np.array([0.5, 2.0]), 7
    assert schedule.sigma(sensitivity, n) ** 2 == pytest.approx(sensitivity**2 / (2 * 1e-3 / 0.9**n), rel=1e-14)
    variances = schedule.sigma(1.0, np.arange(1, 11)) ** 2
    assert variances[1:] == pytest.approx(0.9 * variances[:-1], rel=1e-13)


def test_units_of_the_model_do_not_change_what_is_spent():
    """σ follows Δ, so that φ = Δ²/(2σ²) stays; the slip Δ/(2σ²) would not."""
    for unit in (1e-3, 1.0, 1e3):
        sigma = sigma_for(0.2 * unit, 1e-3)
        assert (0.2 * unit) ** 2 / (2 * sigma**2) == pytest.approx(1e-3, rel=1e-14)


def test_first_release_spends_phi_one_not_phi_zero():
    plan = by_schedule([1.0], **PAPER)
    plan.spend(np.array([0]), 1)
    assert plan.rho[0] == pytest.approx(1e-3 / 0.9, rel=1e-14)


def test_only_rounds_taken_part_in_are_spent():
    plan = by_schedule(np.ones(3), **PAPER)
    take_part(plan, [0, 2], 1)
    take_part(plan, [2], 5)
    phi = 1e-3 / 0.9 ** np.array([1, 5])
    assert plan.rho == pytest.approx([phi[0], 0.0, phi.sum()], rel=1e-13)
    assert plan.releases.tolist() == [1, 0, 2]


def test_by_release_each_client_has_its_own_count():
    plan = by_schedule(np.full(2, 0.3), **PAPER, index="release")
    take_part(plan, [0], 1)
    _, sigma = take_part(plan, [0, 1], 17)
    assert sigma == pytest.approx([0.3 / np.sqrt(2e-3 / 0.9**2), 0.3 / np.sqrt(2e-3 / 0.9)], rel=1e-13)
    assert plan.rho == pytest.approx(accounting.rho_total(1e-3, 0.9, [2, 1]), rel=1e-13)


def test_by_round_the_round_decides():
    plan = by_schedule([0.3], **PAPER)
    _, sigma = take_part(plan, [0], 17)
    assert sigma == pytest.approx([0.3 / np.sqrt(2e-3 / 0.9**17)], rel=1e-13)


@pytest.mark.parametrize("index", ["round", "release"])
@pytest.mark.parametrize("zeta", [1.0, 0.9])
def test_a_target_is_never_passed_whichever_rounds_a_client_is_asked_for(index, zeta):
    plan = by_target(np.ones(40), **{**TARGET, "zeta": zeta}, index=index)
    random = np.random.default_rng(0)
    for round in range(1, 21):
        asked = np.arange(40) if round > 16 else np.flatnonzero(random.random(40) < 0.3)
        take_part(plan, asked, round)
    table = plan.table()
    assert (table["epsilon"] <= TARGET["epsilon"]).all()
    assert table["releases"].max() == 4
    assert table["epsilon"].max() == pytest.approx(1.0, rel=1e-6 if index == "release" else 1)


def test_the_last_and_dearest_rounds_reach_the_target_and_no_more():
    plan = by_target([1.0], **TARGET, index="round")
    for round in (17, 18, 19, 20):
        assert plan.admit(np.array([0]), round).all()
        plan.spend(np.array([0]), round)
    assert 1.0 - 1e-8 < plan.table()["epsilon"][0] <= 1.0


def test_past_the_budget_a_client_is_refused_and_the_others_go_on():
    plan = by_schedule(np.ones(2), **PAPER, max_releases=2)
    for round in (1, 2, 3, 4):
        took_part, _ = take_part(plan, [0, 1] if round < 3 else [0], round)
        assert took_part.tolist() == ([0, 1] if round < 3 else [])
    before = plan.rho.copy()
    with pytest.raises(BudgetSpent):
        plan.spend(np.array([0]), 5)
    assert (plan.rho == before).all()
    assert plan.table()["refused"].tolist() == [2, 0]


def test_budget_in_epsilon():
    plan = by_schedule([1.0], **PAPER, epsilon_cap=0.5)
    for round in range(1, 21):
        take_part(plan, [0], round)
    assert 0 < plan.releases[0] < 20
    assert plan.table()["epsilon"][0] <= 0.5
    assert np.isnan(plan.table(round=19)["next_phi"][0])


def test_without_a_budget_all_is_counted():
    plan = by_schedule([1.0], **PAPER)
    for round in range(1, 21):
        take_part(plan, [0], round)
    assert plan.table()["rho"][0] == pytest.approx(accounting.rho_total(1e-3, 0.9, 20), rel=1e-12)
    assert plan.table()["refused"].tolist() == [0]


@pytest.mark.parametrize("index", ["round", "release"])
def test_past_the_schedule_there_is_no_release_and_never_a_sigma(index):
    plan = by_schedule([1.0], **{**PAPER, "rounds": 3}, index=index)
    for round in (1, 2, 3):
        take_part(plan, [0], round)
    everyone = np.array([0])
    assert not plan.admit(everyone, 4).any()
    for call in (plan.sigma, plan.spend):
        with pytest.raises(BudgetSpent):
            call(everyone, 4)
    assert plan.sigma(np.array([], dtype=int), 4).shape == (0,) if index == "release" else True


def test_a_client_named_twice_is_refused():
    plan = by_schedule(np.ones(2), **PAPER)
    with pytest.raises(PrivacyError, match="twice"):
        plan.spend(np.array([1, 1]), 1)
    assert plan.releases.tolist() == [0, 0]


class Loop:
    """The account of one client after the other, with every limit looked at before every release."""

    def __init__(self, sensitivity, budget):
        self.sensitivity, self.budget = sensitivity, budget
        self.releases, self.refusals, self.rho = ([0] * len(sensitivity) for _ in range(3))

    def phi(self, client, round):
        n = round if self.budget.index == "round" else self.releases[client] + 1
        return float(self.budget.phi(n)) if n <= self.budget.last else np.inf

    def pays(self, client, round):
        most, rho_budget, phi = self.budget.max_releases, self.budget.rho_budget, self.phi(client, round)
        within = rho_budget is None or self.rho[client] + phi <= rho_budget
        return phi < np.inf and within and (most is None or self.releases[client] < most)

    def charged(self, clients, round):
        admitted, sigma = [], []
        for client in clients:
            if not self.pays(client, round):
                self.refusals[client] += 1
                continue
            phi = self.phi(client, round)
            admitted.append(client)
            sigma.append(self.sensitivity[client] / np.sqrt(2 * phi))
            self.rho[client] += phi
            self.releases[client] += 1
        return admitted, sigma

    def spent(self, round):
        return [not self.pays(client, round) for client in range(len(self.sensitivity))]


@pytest.mark.parametrize("index", ["round", "release"])
@pytest.mark.parametrize("zeta", [1.0, 0.97])
@pytest.mark.parametrize(
    "limit",
    [{}, {"max_releases": 1}, {"max_releases": 36}, {"epsilon_cap": 2.0}, {"max_releases": 40, "epsilon_cap": 4.0}],
    ids=str,
)
@pytest.mark.parametrize("order", ["ascending", "any"])
@pytest.mark.parametrize("looked_at", [1.0, 0.03], ids=["always", "seldom"])
def test_accounts_are_those_of_a_loop_that_looks_at_every_client_in_every_round(index, zeta, limit, order, looked_at):
    """However seldom anybody looks at the plan's own account, which is brought up to date only then."""
    random, looks = np.random.default_rng(3), np.random.default_rng(4)
    sensitivity, rounds = random.uniform(0.1, 1.0, 12), 60
    budget = Budget.from_schedule(phi0=2.5e-3, zeta=zeta, rounds=rounds, delta=1e-5, index=index, **limit)
    plan, loop = Plan(sensitivity, budget), Loop(sensitivity, budget)
    often = random.uniform(0.05, 1.0, 12)
    often[0] = 1.0
    asked = np.arange(1, rounds + 6) if order == "ascending" else random.integers(1, rounds + 6, 2 * rounds)
    for round in asked.tolist():
        spent = plan.spent_if_any(round)
        assert (spent is None) == (not any(loop.spent(round)))
        clients = np.flatnonzero(random.random(12) < often)
        expected, sigma = loop.charged(clients.tolist(), round)
        admitted, found = plan.charged(clients, round) if expected else (clients[plan.admit(clients, round)], [])
        assert admitted.tolist() == expected
        np.testing.assert_array_equal(found, sigma)
        if looks.random() < looked_at or round == asked[-1]:
            assert plan.spent(round).tolist() == loop.spent(round)
            for name in ("releases", "rho", "refusals"):
                np.testing.assert_array_equal(getattr(plan, name), getattr(loop, name))
    for name, values in plan.state().items():
        np.testing.assert_array_equal(values, getattr(loop, name))
    if limit or index == "release" or order == "ascending":
        assert sum(loop.refusals) > 0, "a limit was met"


@pytest.mark.parametrize("level", ["site", "masked"])
def test_where_noise_is_shared_pairs_sit_out_and_end_as_in_a_loop(level):
    """Before, while and after clients meet their limit: the last pair is too small from the beginning."""
    random, rounds, most = np.random.default_rng(5), 120, 70
    pair = np.repeat([0, 1, 2], [5, 4, 1])
    budget = Budget.from_schedule(phi0=1e-4, zeta=0.999, rounds=rounds, delta=1e-5, index="round", max_releases=most)
    trust = Trust(level)
    plan = Plan(np.linspace(0.1, 1.0, 10), budget, shared=SharedNoise(trust, pair))
    made, sat_out = np.zeros(10, dtype=int), 0

    def together(clients):
        return [k for k in clients if trust.takes_part(sum(pair[other] == pair[k] for other in clients))]

    for round in range(1, rounds + 1):
        left = together([k for k in range(10) if made[k] < most])
        spent = plan.spent_if_any(round)
        assert np.flatnonzero(~spent).tolist() == left
        assert spent.tolist() == plan.spent(round).tolist()
        asked = np.flatnonzero(random.random(10) < 0.85)
        expected = together([k for k in asked if made[k] < most])
        sat_out += sum(made[k] < most for k in asked) - len(expected)
        if expected:
            assert plan.charged(asked, round)[0].tolist() == expected
            made[expected] += 1
    np.testing.assert_array_equal(plan.releases, made)
    assert sat_out > 0 and not left, "both ends were met"


def test_a_restored_account_is_looked_at_anew():
    everyone = np.arange(3)
    plan, before = (by_schedule(np.ones(3), **{**PAPER, "rounds": 50}, max_releases=40) for _ in range(2))
    for round in range(1, 40):
        before.charged(everyone, round)
    plan.charged(everyone, 1)
    plan.restore(before.state())
    assert [len(plan.charged(everyone, round)[0]) for round in (30, 31)] == [3, 0]
    assert plan.releases.tolist() == [40, 40, 40]


def test_a_release_is_charged_before_it_is_made():
    plan = by_schedule(np.ones(2), **PAPER)
    clients, sigma = plan.charged(np.array([1]), 1)
    assert (clients.tolist(), plan.releases.tolist()) == ([1], [0, 1])
    assert plan.rho[1] == pytest.approx(1 / (2 * sigma[0] ** 2), rel=1e-14)


def test_a_restored_account_continues():
    plan, other = (by_target(np.ones(5), **TARGET) for _ in range(2))
    take_part(plan, [0, 1, 2], 3)
    take_part(other, [0, 1, 2], 3)
    take_part(plan, [1], 4)
    other.restore(plan.state())
    take_part(plan, [1, 4], 5)
    take_part(other, [1, 4], 5)
    for name, column in plan.table(5).items():
        np.testing.assert_array_equal(column, other.table(5)[name])


def test_a_state_is_a_copy_and_cannot_undo_spending():
    plan = by_schedule(np.ones(2), **PAPER)
    state = plan.state()
    plan.spend(np.array([0]), 1)
    assert state["releases"].tolist() == [0, 0]
    with pytest.raises(PrivacyError, match="undone"):
        plan.restore(state)
    with pytest.raises(PrivacyError, match="another number"):
        by_schedule(np.ones(3), **PAPER).restore(state)
    with pytest.raises(PrivacyError, match="lacks"):
        plan.restore({"rho": state["rho"]})


def test_the_table_has_exact_and_paper_figures():
    plan = by_schedule(np.ones(2), **PAPER)
    take_part(plan, [0], 1)
    table = plan.table(round=1)
    rho = 1e-3 / 0.9
    assert table["epsilon"] == pytest.approx(accounting.exact_epsilon([rho, 0.0], 1e-5))
    assert table["epsilon_paper"] == pytest.approx(accounting.paper_epsilon([rho, 0.0], 1e-5))
    assert table["next_phi"] == pytest.approx([1e-3 / 0.81] * 2)
    assert table["guarantee"].all()
    summary = plan.summary()
    assert summary["epsilon"]["worst"] == table["epsilon"][0]
    assert summary["releases"] == {"worst": 1.0, "median": 0.5}
    assert "record" in summary["label"]


def test_noise_without_a_guarantee_claims_no_figure():
    plan = unbounded(np.ones(2), **PAPER, reason="ridge has an unbounded gradient")
    take_part(plan, [0, 1], 1)
    table = plan.table()
    assert not table["guarantee"].any()
    for name in ("rho", "epsilon", "epsilon_paper"):
        assert np.isinf(table[name]).all()
    assert plan.label == "no guarantee: ridge has an unbounded gradient"
    assert plan.summary()["epsilon"] is None
    assert plan.summary()["guarantee"] is False
    with_one = by_schedule(np.ones(2), **PAPER)
    assert (plan.sigma(np.arange(2), 2) == with_one.sigma(np.arange(2), 2)).all()


@pytest.mark.parametrize("sensitivity", [[], [0.0], [-1.0], [np.nan], [np.inf], [[1.0]], None])
def test_no_plan_without_a_sensitivity(sensitivity):
    with pytest.raises(PrivacyError):
        by_schedule(sensitivity, **PAPER)
    with pytest.raises(PrivacyError):
        by_target(sensitivity, **TARGET)
    with pytest.raises(PrivacyError):
        unbounded(sensitivity, **PAPER, reason="because")


@pytest.mark.parametrize(
    "change",
    [
        {"phi0": 0.0},
        {"zeta": 0.0},
        {"zeta": 1.1},
        {"delta": 1.0},
        {"rounds": 0},
        {"index": "day"},
        {"max_releases": 0},
        {"epsilon_cap": 0.0},
        {"zeta": 0.5, "rounds": 1100},
    ],
)
def test_refuses_bad_parameters(change):
    with pytest.raises(PrivacyError):
        by_schedule([1.0], **{**PAPER, **change})


def test_refuses_what_is_no_plan():
    schedule = Budget(1e-3, 0.9, 1e-5, index="round", last=5)
    with pytest.raises(PrivacyError, match="why"):
        unbounded([1.0], **PAPER, reason="")
    with pytest.raises(PrivacyError, match="guarantee"):
        Plan(np.ones(1), schedule, guarantee="maybe")
    with pytest.raises(PrivacyError, match="an end"):
        Plan(np.ones(1), Budget(1e-3, 0.9, 1e-5, max_releases=5))
    with pytest.raises(PrivacyError, match="budget"):
        Budget(1e-3, 0.9, 1e-5, rho_budget=0.0)
    with pytest.raises(PrivacyError, match="Rounds"):
        Plan(np.ones(1), schedule).sigma(np.array([0]), 0)
    with pytest.raises(PrivacyError, match="covers"):
        schedule.phi(6)


def test_many_clients_are_charged_at_once():
    def charge_everyone(clients, rounds=300):
        random = np.random.default_rng(0)
        plan = by_schedule(np.full(clients, 1e-3), phi0=1e-3, zeta=0.99, rounds=rounds, delta=1e-5, max_releases=200)
        for round in range(1, rounds + 1):
            take_part(plan, np.arange(random.integers(10), clients, 10), round)
        assert plan.table()["releases"].sum() == rounds * clients // 10

    few, many = (python_calls(charge_everyone, clients) for clients in (100, 10_000))
    assert many < 1.1 * few, "of more clients, charges are added up more often"
