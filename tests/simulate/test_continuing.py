"""Going on later: more rounds, new clients and rows, and a privacy account that is never reset."""

import numpy as np
import pytest

from pgfl import (
    PGFL,
    ClientData,
    Column,
    ExactMixing,
    FedAvg,
    Federation,
    Huber,
    OneStep,
    Privacy,
    Result,
    Ridge,
    train,
)
from pgfl.errors import ConfigError, PgflError, PrivacyError, ResultError
from pgfl.privacy.accounting import exact_epsilon, exact_rho
from pgfl.simulate.continuing import WITHOUT_DUALS

ALGORITHMS = (PGFL(rho=2.0, tau=0.2), ExactMixing(rho=2.0), OneStep(rho=2.0), FedAvg(step_size=0.05))


def clients(names="abcdef", rows=12, seed=0):
    rng = np.random.default_rng(seed)
    made = {}
    for number, name in enumerate("abcdefghij"):
        features = rng.normal(size=(rows, 3)) / 2
        slope = [1.0, 2.0, 3.0 - number % 2]
        targets = features @ slope + 0.1 * rng.normal(size=rows)
        made[name] = ClientData(f"server-{number % 3}", f"cluster-{number % 2}", features, targets)
    return {name: made[name] for name in names}


def federation(names="abcdef", **changes):
    made = clients(names, **changes)
    there = {client.server for client in made.values()}
    edges = [("server-0", "server-1"), ("server-1", "server-2")]
    return Federation.from_clients(made, edges=[edge for edge in edges if there.issuperset(edge)])


def private(**changes):
    return Privacy(**{"phi0": 1e-2, "zeta": 0.99, "x_norm": 1.0, "noise": "seeded", **changes})


def same_models(one, other):
    for name in one.client_ids:
        np.testing.assert_array_equal(one.client(name), other.client(name))
    for first, second in zip(one.models, other.models, strict=True):
        np.testing.assert_array_equal(first.servers, second.servers)


# ------------------------------------------------------------------------------------------------------- the longer run


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda algorithm: algorithm.kind)
@pytest.mark.parametrize("participants", ["all", 1])
@pytest.mark.parametrize("privacy", [None, private()], ids=["clean", "private"])
def test_two_parts_have_the_bits_of_the_whole(tmp_path, algorithm, participants, privacy):
    """Without changes a continuation is the longer run: models, history and account; also through a saved folder."""
    if privacy is not None and isinstance(algorithm, FedAvg):
        privacy = private(update_norm=1.0)
    options = {"participants": participants, "privacy": privacy, "seed": 3}
    whole = train(federation(), algorithm, Huber(), rounds=13, **options)
    first = train(federation(), algorithm, Huber(), rounds=8, **options)
    first.save(tmp_path / "first")
    for start in (first, Result.load(tmp_path / "first")):
        second = train(federation(), algorithm, Huber(), rounds=5, start=start, **options)
        same_models(second, whole)
        assert second.rounds.tolist() == whole.rounds.tolist()
        for name, column in whole.history.items():
            np.testing.assert_array_equal(second.history[name], column)
        for mine, theirs in zip(second.privacy, whole.privacy, strict=True):
            for name, column in theirs.items():
                np.testing.assert_array_equal(mine[name], column)


@pytest.mark.parametrize("engine", ["numba", "jax"])
def test_other_engines_go_on_too(engine):
    whole = train(federation(), PGFL(rho=2.0), Huber(), rounds=9, engine=engine)
    first = train(federation(), PGFL(rho=2.0), Huber(), rounds=4, engine=engine)
    second = train(federation(), PGFL(rho=2.0), Huber(), rounds=5, engine=engine, start=first)
    np.testing.assert_allclose(second.models[0].servers, whole.models[0].servers, rtol=1e-12)


def test_several_runs_go_on_together():
    from pgfl import synthetic_regression

    def data(run):
        return synthetic_regression(servers=3, clients_per_server=3, dimension=4, samples=(5, 9), graph="ring", run=run)

    whole = train(data, PGFL(), Ridge(), rounds=6, runs=3)
    second = train(data, PGFL(), Ridge(), rounds=4, runs=3, start=train(data, PGFL(), Ridge(), rounds=2, runs=3))
    same_models(second, whole)
    np.testing.assert_array_equal(second.curve("nmsd"), whole.curve("nmsd"))
    with pytest.raises(ConfigError, match="has 3 runs; go on with as many"):
        train(data, PGFL(), Ridge(), rounds=4, runs=2, start=whole)


# ------------------------------------------------------------------------------------------------ new clients, new rows


@pytest.mark.parametrize(
    "algorithm",
    [ALGORITHMS[0], *(pytest.param(algorithm, marks=pytest.mark.proof) for algorithm in ALGORITHMS[1:3])],
    ids=lambda algorithm: algorithm.kind,
)
def test_new_clients_and_rows_lead_to_the_limit_of_training_on_all_of_them(algorithm):
    first = train(federation("abcd"), algorithm, Ridge(lam=0.1), rounds=40)
    grown = federation("abcdef", rows=20)
    second = train(grown, algorithm, Ridge(lam=0.1), rounds=1500, start=first)
    fresh = train(grown, algorithm, Ridge(lam=0.1), rounds=1500)
    np.testing.assert_allclose(second.models[0].servers, fresh.models[0].servers, atol=1e-6)
    assert second.client_ids == fresh.client_ids


def test_a_client_that_left_is_forgotten_but_for_its_account():
    first = train(federation(), PGFL(rho=2.0), Huber(), rounds=6, privacy=private())
    without = train(federation("abcde"), PGFL(rho=2.0), Huber(), rounds=3, start=first)
    assert "f" not in without.privacy[0]["client"].tolist()
    for moved, releases in ((False, 8), (None, 11)):  # its records may have been with others meanwhile
        back = train(federation(), PGFL(rho=2.0), Huber(), rounds=2, start=without, moved_records=moved)
        accounts = dict(zip(back.privacy[0]["client"].tolist(), back.privacy[0]["releases"].tolist(), strict=True))
        assert accounts == {**dict.fromkeys("abcde", 11), "f": releases}


def test_without_duals_training_restarts_from_the_servers_models_and_says_so(monkeypatch):
    monkeypatch.setattr("pgfl.simulate.continuing.MOST_NUMBERS", 1)
    first = train(federation(), PGFL(rho=2.0), Ridge(lam=0.1), rounds=30)
    assert first.states[0].duals is None
    second = train(federation(), PGFL(rho=2.0), Ridge(lam=0.1), rounds=1000, start=first)
    assert WITHOUT_DUALS in second.warnings
    fresh = train(federation(), PGFL(rho=2.0), Ridge(lam=0.1), rounds=1000)
    np.testing.assert_allclose(second.models[0].servers, fresh.models[0].servers, atol=1e-6)


# ---------------------------------------------------------------------------------------------------------- the account


def test_the_account_goes_on_also_for_a_client_with_new_rows():
    privacy = private()
    first = train(federation(), PGFL(rho=2.0), Huber(), rounds=6, privacy=privacy)
    grown, new = federation("abcdefgh", rows=30), ["g", "h"]
    second = train(grown, PGFL(rho=2.0), Huber(), rounds=4, privacy=privacy, start=first, new_clients=new)
    table = second.privacy[0]
    spent = {"old": privacy.budget(10).phi(np.arange(1, 11)).sum(), "new": privacy.budget(10).phi(range(7, 11)).sum()}
    for client, rho, releases, epsilon in zip(
        table["client"], table["rho"], table["releases"], table["epsilon"], strict=True
    ):
        group = "new" if client in "gh" else "old"
        assert releases == {"old": 10, "new": 4}[group]
        assert rho == pytest.approx(spent[group])
        assert epsilon == pytest.approx(float(exact_epsilon(rho, 1e-5)))


def test_privacy_is_carried_over_when_it_is_not_mentioned():
    first = train(federation(), PGFL(rho=2.0), Huber(), rounds=6, privacy=private())
    second = train(federation(), PGFL(rho=2.0), Huber(), rounds=4, start=first)
    assert second.private
    assert second.noise == "seeded"
    assert (second.privacy[0]["releases"] == 10).all()


TARGET = {"phi0": None, "epsilon": 2.0, "max_releases": 6}


@pytest.mark.parametrize("index", ["round", "release"])
def test_a_spent_target_is_refused_until_a_larger_one_is_stated_and_the_total_is_reported(index):
    privacy = private(**TARGET, index=index)
    first = train(federation(), PGFL(rho=2.0), Huber(), rounds=6, privacy=privacy)
    for asked in (None, privacy):
        with pytest.raises(PrivacyError, match=r"has spent its privacy budget.*state a larger privacy.epsilon"):
            train(federation(), PGFL(rho=2.0), Huber(), rounds=6, privacy=asked, start=first)
    larger = private(**{**TARGET, "epsilon": 3.0}, index=index)
    second = train(federation(), PGFL(rho=2.0), Huber(), rounds=6, privacy=larger, start=first)
    assert (second.privacy[0]["releases"] == 12).all()
    np.testing.assert_allclose(second.privacy[0]["epsilon"], 3.0, rtol=1e-6)
    assert second.privacy[0]["epsilon"].max() <= 3.0 * (1 + 1e-9)
    np.testing.assert_allclose(second.privacy[0]["rho"], exact_rho(3.0, 1e-5), rtol=1e-6)
    with pytest.raises(PrivacyError, match="has spent its privacy budget"):
        train(federation(), PGFL(rho=2.0), Huber(), rounds=1, start=second)


def test_new_clients_may_spend_what_the_others_have_spent():
    """By release, a client that joins with new records has the whole budget; the others rest."""
    privacy = private(**TARGET, index="release")
    first = train(federation("abcd"), PGFL(rho=2.0), Huber(), rounds=6, privacy=privacy)
    second = train(federation("abcdef"), PGFL(rho=2.0), Huber(), rounds=6, start=first, new_clients=["e", "f"])
    assert second.privacy[0]["releases"].tolist() == [6] * 6
    assert second.privacy[0]["refused"].tolist() == [6] * 4 + [0] * 2
    assert second.privacy[0]["epsilon"].max() <= 2.0 * (1 + 1e-9)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"phi0": None, "epsilon": 1.0}, "promised epsilon = 2"),
        ({"delta": 1e-4}, "privacy.delta was 1e-05 in the first run"),
        ({"epsilon": None, "max_releases": None, "phi0": 1.0}, "schedule of the first run stays in force"),
        ({"epsilon": 3.0, "index": "release"}, "privacy.index was round"),
        ({"epsilon": None, "phi0": 1.0, "guarantee": "none"}, "privacy.guarantee was required"),
    ],
)
def test_a_promise_is_not_changed_afterwards(changes, sentence):
    first = train(federation(), PGFL(rho=2.0), Huber(), rounds=6, privacy=private(**TARGET))
    with pytest.raises(PrivacyError, match=sentence):
        train(federation(), PGFL(rho=2.0), Huber(), rounds=6, privacy=private(**{**TARGET, **changes}), start=first)


def test_what_was_released_in_the_clear_does_not_become_private():
    first = train(federation(), PGFL(rho=2.0), Huber(), rounds=6)
    with pytest.raises(PrivacyError, match="released models without noise"):
        train(federation(), PGFL(rho=2.0), Huber(), rounds=6, privacy=private(), start=first)


def test_float_safe_releases_are_continued_once_or_their_sum_would_be_forgotten(tmp_path):
    def asked(epsilon):
        return private(**{**TARGET, "epsilon": epsilon}, index="release", noise="secure")

    def go_on(start, epsilon):
        return train(federation(), PGFL(rho=2.0), Huber(), rounds=2, privacy=asked(epsilon), start=start)

    first = train(federation(), PGFL(rho=2.0), Huber(), rounds=6, privacy=asked(2.0))
    second = go_on(first, 4.0)
    with pytest.raises(PrivacyError, match="This result was already continued in another training"):
        go_on(first, 4.0)
    first.save(tmp_path / "first")
    with pytest.raises(PrivacyError, match="first was already continued in another training"):
        go_on(Result.load(tmp_path / "first"), 4.0)
    second.save(tmp_path / "second")
    go_on(Result.load(tmp_path / "second"), 5.0)
    with pytest.raises(PrivacyError, match=r"second was already continued in another training .* go on from there"):
        go_on(Result.load(tmp_path / "second"), 5.0)


# ------------------------------------------------------------------------------------------------------------ the noise


def noise_of(*trainings):
    """The normals that were drawn, one row per participant."""
    drawn = []
    from pgfl.simulate.draws import ServerNormals

    original = ServerNormals.__call__

    def record(self, *arguments):
        rows = original(self, *arguments)
        drawn.extend(map(tuple, rows.tolist()))
        return rows

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ServerNormals, "__call__", record)
        start = None
        for names, rounds, options in trainings:
            start = train(
                federation(names), PGFL(rho=2.0), Huber(), rounds=rounds, privacy=private(), start=start, **options
            )
    return drawn


@pytest.mark.parametrize("participants", ["all", 1, 2])
def test_noise_is_never_drawn_twice(participants):
    options = {"participants": participants, "seed": 5}
    drawn = noise_of(("bcd", 7, options), ("abcd", 6, options), ("abcdefg", 5, options))
    assert len(set(drawn)) == len(drawn) > 20


def test_a_seed_whose_streams_were_cut_otherwise_is_refused():
    with pytest.raises(PrivacyError, match="would draw noise that is already used; give another seed"):
        noise_of(("abcd", 30, {"participants": "all"}), ("abcd", 6, {"participants": 1}))
    drawn = noise_of(("abcd", 30, {"participants": "all"}), ("abcd", 6, {"participants": 1, "seed": 1}))
    assert len(set(drawn)) == len(drawn)


# ------------------------------------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("go_on", "kind", "sentence"),
    [
        (lambda start: train(federation(), ExactMixing(), Huber(), rounds=1, start=start), ConfigError, "same one"),
        (lambda start: train(federation(), PGFL(), Huber(), rounds=0, start=start), ConfigError, "at least 1"),
        (
            lambda start: train(
                Federation.from_clients({"a": ClientData("server-0", "cluster-0", np.ones((3, 5)), np.ones(3))}),
                PGFL(),
                Huber(),
                rounds=1,
                start=start,
            ),
            ResultError,
            "have 3 numbers, and these data need 5",
        ),
    ],
)
def test_what_does_not_fit_is_one_sentence(go_on, kind, sentence):
    start = train(federation(), PGFL(), Huber(), rounds=2)
    with pytest.raises(kind, match=sentence):
        go_on(start)


def test_an_algorithm_with_server_state_does_not_go_on_without_a_server():
    start = train(federation(), ExactMixing(), Huber(), rounds=2)
    with pytest.raises(ConfigError, match="cannot go on without it"):
        train(federation("abde"), ExactMixing(), Huber(), rounds=2, start=start)


def test_a_result_without_a_state_is_refused(tmp_path):
    train(federation(), PGFL(), Huber(), rounds=2).save(tmp_path / "run")
    (tmp_path / "run" / "state.npz").unlink()
    with pytest.raises(ResultError, match="keeps no state to go on with"):
        train(federation(), PGFL(), Huber(), rounds=2, start=Result.load(tmp_path / "run"))
    (tmp_path / "run" / "state.npz").write_bytes(b"no state")
    with pytest.raises(PgflError, match="is damaged"):
        Result.load(tmp_path / "run")


def test_a_state_that_was_too_large_to_keep_is_no_start(monkeypatch):
    monkeypatch.setattr("pgfl.simulate.continuing.MOST_SERVER_NUMBERS", 1)
    start = train(federation(), PGFL(), Huber(), rounds=2)
    with pytest.raises(ResultError, match="This result keeps no state to go on with"):
        train(federation(), PGFL(), Huber(), rounds=2, start=start)


def test_a_private_state_holds_no_clean_model(tmp_path):
    result = train(federation(), PGFL(rho=2.0), Huber(), rounds=5, privacy=private())
    result.save(tmp_path / "run")
    with np.load(tmp_path / "run" / "state.npz") as arrays:
        stored = b"".join(arrays[name].tobytes() for name in arrays.files)
    assert not any(row.tobytes() in stored for row in result.models[0].clients)


def table(ages):
    rng = np.random.default_rng(0)
    return {
        "client": ["a", "b"] * 5,
        "server": ["s"] * 10,
        "cluster": ["q"] * 10,
        "age": ages,
        "y": rng.normal(size=10),
    }


def test_rows_that_are_encoded_otherwise_do_not_continue_a_model():
    """Bounds that were computed from the first table's rows would differ in the second's, and the models with them."""
    computed, stated = {"age": Column(bounds="data")}, {"age": Column(bounds=(0, 100))}
    young, old = table(np.linspace(20, 50, 10)), table(np.linspace(40, 90, 10))
    start = train(Federation.read(young, columns=computed), PGFL(), Ridge(), rounds=2)
    train(Federation.read(young, columns=computed), PGFL(), Ridge(), rounds=2, start=start)
    with pytest.raises(ConfigError, match="Column 'age' is not encoded as in the earlier run"):
        train(Federation.read(old, columns=computed), PGFL(), Ridge(), rounds=2, start=start)
    train(Federation.read(old, columns=start.declared_columns), PGFL(), Ridge(), rounds=2, start=start)
    with pytest.raises(ConfigError, match="Column 'intercept' is not encoded"):
        train(Federation.read(young, columns=computed, intercept=True), PGFL(), Ridge(), rounds=2, start=start)
    stated_start = train(Federation.read(young, columns=stated), PGFL(), Ridge(), rounds=2)
    train(Federation.read(old, columns=stated), PGFL(), Ridge(), rounds=2, start=stated_start)


def test_a_chosen_rho_is_kept_when_a_run_goes_on():
    start = train(federation(), PGFL(rho="auto"), Huber(), rounds=3)
    later = train(federation(), PGFL(rho="auto"), Huber(), rounds=200, start=start)
    chosen_anew = train(federation(), PGFL(rho="auto"), Huber(), rounds=203)
    assert later.rho == start.rho != chosen_anew.rho
