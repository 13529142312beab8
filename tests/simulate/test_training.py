"""`train`: repeatable, resumable, honest about divergence; odd federations; privacy's budget; one's own objective."""

import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import pgfl
from pgfl import PGFL, Decaying, ExactMixing, FedAvg, Federation, Huber, Logistic, OneStep, Privacy, Ridge, train
from pgfl.errors import ConfigError, DataError, Diverged, PrivacyError, ResultError
from pgfl.objectives import Objective
from pgfl.simulate.checkpoint import Checkpoints

SMALL = {"servers": 4, "clients_per_server": 5, "clusters": 2, "dimension": 6, "samples": (2, 5)}
ALGORITHMS = [PGFL(5.0, 0.3), PGFL(20.0, 0.3, client="gradient"), ExactMixing(3.0), OneStep(1.0, 0.1), FedAvg(0.02, 3)]


def small(run=0, **changes):
    return pgfl.synthetic_regression(run=run, **(SMALL | changes))


def same_bits(first, second):
    for name in first.history:
        np.testing.assert_array_equal(first.history[name], second.history[name], name)
    for a, b in zip(first.models, second.models, strict=True):
        np.testing.assert_array_equal(a.shareable_clients, b.shareable_clients)
        np.testing.assert_array_equal(a.servers, b.servers)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: a.kind)
@pytest.mark.parametrize("private", [False, True])
def test_runs_do_not_depend_on_their_batch(algorithm, private):
    privacy = Privacy(phi0=1e-2, zeta=0.99, x_norm=2.0) if private else None
    settings = {"rounds": 12, "participants": 2, "privacy": privacy}
    together = train(small, algorithm, Huber(), runs=3, **settings)
    alone = train(small, algorithm, Huber(), runs=1, **settings)
    np.testing.assert_array_equal(alone.curve("nmsd")[0], together.curve("nmsd")[0])
    np.testing.assert_array_equal(alone.models[0].servers, together.models[0].servers)
    again = train(small, algorithm, Huber(), runs=3, **settings)
    same_bits(together, again)


def test_batches_and_threads_do_not_change_a_bit(monkeypatch):
    from pgfl.simulate import problems, training

    reference = train(small, PGFL(5.0, 0.3), Ridge(), runs=5, rounds=10, participants=3)
    monkeypatch.setattr(problems, "BLOCK_ELEMENTS", 150)
    monkeypatch.setattr(training, "BATCH_ELEMENTS", 1)
    for threads in (1, 2, 3):
        same_bits(reference, train(small, PGFL(5.0, 0.3), Ridge(), runs=5, rounds=10, participants=3, threads=threads))


def test_scheduling_draws_exactly_m_a_server_and_everyone_in_time():
    from pgfl.algorithms.schedules import Scheduler

    members = [np.arange(0, 5), np.arange(5, 7), np.arange(7, 7)]
    scheduler = Scheduler(3, members, [(0, 0), (0, 1), (0, 2)], seed=1)
    seen = set()
    for n in range(1, 200):
        drawn = scheduler.draw(n)
        assert (np.diff(drawn) > 0).all() and (drawn < 5).sum() == 3 and (drawn >= 5).sum() == 2
        seen |= set(drawn.tolist())
    assert seen == set(range(7))
    np.testing.assert_array_equal(drawn, Scheduler(3, members, [(0, 0), (0, 1), (0, 2)], seed=1).draw(199))


def test_decaying_tau_starts_at_round_one():
    assert Decaying(0.4, 0.98)(1) == pytest.approx(0.392)
    fixed = train(small(), PGFL(5.0, lambda n: 0.4 * 0.98**n), rounds=5)
    same_bits(fixed, train(small(), PGFL(5.0, Decaying(0.4, 0.98)), rounds=5))


@pytest.mark.parametrize("rho", [0.0, -1.0, np.nan, np.inf])
def test_rho_must_be_positive(rho):
    with pytest.raises(ConfigError, match="rho"):
        PGFL(rho)


@pytest.mark.parametrize("tau", [-0.1, 1.0, np.nan])
def test_tau_must_lie_below_one(tau):
    with pytest.raises(ConfigError, match="tau"):
        PGFL(1.0, tau)
    with pytest.raises(ConfigError, match="tau"):
        train(small(), PGFL(1.0, lambda n: tau), rounds=1)


def test_divergence_is_noticed_and_explained():
    result = train(small(), FedAvg(step_size=5.0, local_steps=5), Ridge(), rounds=300)
    assert result.verdict.kind == "diverging"
    assert result.rounds[-1] < 20
    with pytest.raises(Diverged, match=r"diverged by round \d+ in run 0.*lower algorithm.step_size"):
        train(small(), FedAvg(step_size=5.0, local_steps=5), Ridge(), rounds=300, runs=2)


# --- odd federations --------------------------------------------------------------------------------------------------


def test_a_model_per_device_needs_no_table_of_servers_times_clusters():
    """3,000 isolated servers and as many clusters: 9 million pairs if it were dense, 3,000 if it is not."""
    clients = 3000
    rng = np.random.default_rng(0)
    server = np.arange(clients)
    federation = Federation(
        rng.standard_normal((clients * 2, 3)),
        rng.standard_normal(clients * 2),
        np.arange(clients + 1) * 2,
        server,
        server,
        tuple(f"s{i:04d}" for i in server),
        tuple(f"q{i:04d}" for i in server),
        pgfl.Graph.from_edges(clients, []),
    )
    result = train(federation, PGFL(2.0, 0.4), rounds=3, metrics=[])
    assert result.models[0].servers.shape == (clients, 3)


def test_clients_that_nobody_hears_of_are_nan():
    federation = small(graph="none")
    moved = federation.replace(client_cluster=(federation.client_server == 0).astype(np.int64))
    result = train(moved, PGFL(5.0), rounds=3)
    assert np.isnan(result.server(moved.server_ids[1], moved.cluster_ids[1])).all()
    assert np.isfinite(result.server(moved.server_ids[0], moved.cluster_ids[1])).all()


@pytest.mark.parametrize(("rho", "warned"), [(1.5, True), (6.0, False)])
def test_steps_that_are_too_long_for_the_data_are_warned_about(rho, warned):
    """Ridge diverges there; Huber, whose slope is bounded, would go round in circles without an error."""
    federation = pgfl.synthetic_regression(seed=3)
    settings = {"rounds": 1, "metrics": ()}
    found = train(federation, PGFL(rho=rho, client="gradient"), Huber(), **settings).warnings
    assert any("may overshoot" in warning for warning in found) is warned
    assert not any("overshoot" in warning for warning in train(federation, PGFL(rho=0.1), Huber(), **settings).warnings)
    if warned:
        result = train(federation, PGFL(rho=rho, client="gradient"), Ridge(), rounds=300, metrics=())
        assert result.verdict.kind == "diverging" and "algorithm.rho" in result.verdict.advice


def test_warnings_about_private_steps_rest_on_public_bounds_alone():
    def warned(size, rho):
        rows = np.tile(size * np.eye(4)[:1], (20, 1))
        own = Federation.from_clients({"c": pgfl.ClientData("s", "q", rows, np.zeros(20))})
        privacy = Privacy(phi0=1e-3, x_norm=1.0)
        found = train(own, PGFL(rho=rho, client="gradient"), Huber(), rounds=1, privacy=privacy, metrics=())
        return [warning for warning in found.warnings if "overshoot" in warning]

    assert warned(1e-6, 0.5) == warned(1.0, 0.5) != []
    assert warned(1e-6, 1.1) == warned(1.0, 1.1) == []


def test_warnings_name_what_is_odd():
    federation = small()
    split = federation.replace(graph=pgfl.Graph.from_edges(4, [(0, 1), (2, 3)]))
    result = train(split, ExactMixing(3.0, 0.6), rounds=2, participants=9)
    text = " ".join(result.warnings)
    for word in ("swap", "fewer than 9", "2 parts", "server-0, server-1", "exact only"):
        assert word in text


def test_logistic_refuses_other_labels_and_takes_one_class():
    federation = small()
    with pytest.raises(DataError, match="labels 0 and 1"):
        train(federation, objective=Logistic(), rounds=1)
    ones = federation.replace(targets=np.ones_like(federation.targets))
    assert np.isfinite(train(ones, objective=Logistic(), rounds=5).models[0].servers).all()


def test_an_objective_for_every_cluster():
    federation = small()
    names = federation.cluster_ids
    result = train(federation, PGFL(5.0), {names[0]: Ridge(), names[1]: Huber(kappa=0.1)}, rounds=5)
    assert result.objectives == ["ridge", "huber"]
    with pytest.raises(ConfigError, match=f"cluster {names[1]}"):
        train(federation, PGFL(5.0), {names[0]: Ridge()}, rounds=1)


class SoftAbsolute(Objective):
    """√(1 + r²) − 1, given by value and gradient only."""

    lam = 0.01
    tolerance = 1e-7

    def value_and_gradient(self, w, features, targets, counts):
        residual = features @ w - targets
        root = np.sqrt(1 + residual**2)
        return (root - 1).sum() / counts, features.T @ (residual / root) / counts


def test_ones_own_objective_is_solved_to_its_tolerance():
    federation = small()
    result = train(federation, PGFL(5.0), SoftAbsolute(), rounds=30)
    assert result.curve("nmsd")[0, -1] < 0.5
    values = [SoftAbsolute().value_and_gradient(w, *federation.rows(k), len(federation.rows(k)[1]))[0]
              for k, w in enumerate(result.models[0].clients)]  # fmt: skip
    penalty = 0.01 * np.sum(result.models[0].clients ** 2, axis=1) / 5
    assert result.curve("objective")[0, -1] == pytest.approx(np.mean(values + penalty), rel=1e-12)
    assert train(federation, FedAvg(0.02), SoftAbsolute(), rounds=30).curve("nmsd")[0, -1] < 1.0
    with pytest.raises(PrivacyError, match="no bounded gradient"):
        train(federation, PGFL(5.0), SoftAbsolute(), rounds=2, privacy=Privacy(phi0=0.1, x_norm=1.0))


# --- privacy ----------------------------------------------------------------------------------------------------------


def test_spent_clients_take_no_part_and_training_goes_on():
    privacy = Privacy(epsilon=4.0, max_releases=5, index="release", x_norm=2.0, zeta=1.0)
    result = train(small(), PGFL(5.0), Huber(), rounds=40, participants=2, privacy=privacy)
    table = result.privacy[0]
    assert (table["releases"] <= 5).all() and (table["releases"] == 5).any() and table["refused"].sum() > 0
    assert (table["epsilon"] <= 4.0 + 1e-9).all()


def test_released_models_are_what_is_shown():
    privacy = Privacy(phi0=1e-3, zeta=0.99, x_norm=2.0)
    result = train(small(), PGFL(5.0), Huber(), rounds=3, participants=1, privacy=privacy)
    shown, clean = result.models[0].shareable_clients, result.models[0].clients
    took_part = result.privacy[0]["releases"] > 0
    assert np.isnan(shown[~took_part]).all() and (~took_part).any()
    assert (np.abs(shown[took_part] - clean[took_part]).max(axis=1) > 1e-3).all()


def test_the_papers_ridge_says_that_it_promises_nothing():
    with pytest.raises(PrivacyError, match="no bounded gradient"):
        train(small(), PGFL(5.0), Ridge(), rounds=2, privacy=Privacy(phi0=1e-3, x_norm=1.0))
    result = train(small(), PGFL(5.0), Ridge(), rounds=2, privacy=Privacy(phi0=1e-3, guarantee="none"))
    assert result.guarantee.startswith("no guarantee") and np.isinf(result.privacy[0]["epsilon"]).all()


def test_noise_is_scaled_as_theorem_three_says():
    """The released minus the clean models of round 1, standardised by Δ/√(2φ⁽¹⁾), are standard normal."""
    federation = pgfl.synthetic_regression(servers=20, clients_per_server=20, dimension=30, samples=(3, 3), x_norm=1.0)
    privacy = Privacy(phi0=1e-2, zeta=0.5, x_norm=1.0)
    result = train(federation, PGFL(2.0), Huber(lam=0.0, kappa=1.5), rounds=1, privacy=privacy)
    noise = result.models[0].released - result.models[0].clients
    sigma = (4 * 1.5 / (3 * 2.0)) / np.sqrt(2 * 1e-2 / 0.5)
    assert np.std(noise) == pytest.approx(sigma, rel=0.02)


# --- long runs --------------------------------------------------------------------------------------------------------

SETTINGS = {"rounds": 30, "runs": 3, "participants": 2}


def checkpoints(folder, every=7, fingerprint="same"):
    return Checkpoints(folder, fingerprint, every)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: a.kind)
def test_resumed_runs_are_the_same_bits(tmp_path, algorithm):
    whole = train(small, algorithm, Huber(), privacy=Privacy(phi0=0.01, x_norm=1.0), **SETTINGS)

    class Enough(Exception):
        pass

    def stop(done, total, info):
        if done >= 3 * 16:
            raise Enough

    arguments = {"privacy": Privacy(phi0=0.01, x_norm=1.0), **SETTINGS}
    with pytest.raises(Enough):
        train(small, algorithm, Huber(), checkpoints=checkpoints(tmp_path), progress=stop, **arguments)
    resumed = train(small, algorithm, Huber(), checkpoints=checkpoints(tmp_path), resume=True, **arguments)
    same_bits(whole, resumed)
    for a, b in zip(whole.privacy, resumed.privacy, strict=True):
        np.testing.assert_array_equal(a["rho"], b["rho"])


@pytest.fixture
def interruptible():
    """Ctrl-C raises, also where the tests were started in the background and ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_waits_for_the_round_and_keeps_it(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(
            small(), PGFL(5.0), rounds=30, checkpoints=checkpoints(tmp_path, 1000),
            progress=lambda *_: signal.raise_signal(signal.SIGINT),
        )  # fmt: skip
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    (kept,) = tmp_path.iterdir()
    with np.load(kept) as arrays:
        assert arrays["round"] == 2  # interrupted after the first
    resumed = train(small(), PGFL(5.0), rounds=30, checkpoints=checkpoints(tmp_path, 1000), resume=True)
    same_bits(resumed, train(small(), PGFL(5.0), rounds=30))


@pytest.mark.usefixtures("interruptible")
def test_a_second_interrupt_does_not_wait(tmp_path):
    def twice(*_):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train(small(), PGFL(5.0), rounds=30, checkpoints=checkpoints(tmp_path, 1000), progress=twice)
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_of_another_config_or_a_damaged_one_is_refused(tmp_path):
    train(small(), PGFL(5.0), rounds=5, checkpoints=checkpoints(tmp_path, 5))
    with pytest.raises(ResultError, match="another config"):
        train(small(), PGFL(5.0), rounds=5, checkpoints=checkpoints(tmp_path, 5, "other"), resume=True)
    (file,) = tmp_path.glob("*.npz")
    file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(ResultError, match="damaged"):
        train(small(), PGFL(5.0), rounds=5, checkpoints=checkpoints(tmp_path, 5), resume=True)


def test_a_full_disk_keeps_the_last_good_checkpoint(tmp_path, monkeypatch):
    train(small(), PGFL(5.0), rounds=5, checkpoints=checkpoints(tmp_path, 5))
    (file,) = tmp_path.glob("*.npz")
    good = file.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ResultError, match="disk is full"):
        train(small(), PGFL(5.0), rounds=10, checkpoints=checkpoints(tmp_path, 5), resume=True)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [good]


KILLED = """
    import os, signal, sys
    import pgfl
    from pgfl import files
    from pgfl.simulate.checkpoint import Checkpoints
    from pathlib import Path

    folder, moment = Path(sys.argv[1]), int(sys.argv[2])
    calls = 0

    def trap(name, inner):
        def call(*arguments):
            global calls
            calls += 1
            if calls == moment:
                os.kill(os.getpid(), signal.SIGKILL)
            return inner(*arguments)
        return call

    os.fsync, os.replace = trap("fsync", os.fsync), trap("replace", os.replace)
    federation = pgfl.synthetic_regression(servers=3, clients_per_server=3, clusters=2, dimension=4, graph="ring")
    kept = Checkpoints(folder, "f", 2)
    pgfl.train(federation, pgfl.PGFL(5.0, 0.2), rounds=60, participants=2, resume=True, checkpoints=kept)
    print(calls)
"""


@pytest.mark.proof
def test_killed_at_any_moment_of_a_save_it_resumes_bit_for_bit(tmp_path):
    """SIGKILL before each fsync and rename of the saves, again and again, until one process gets through."""
    script = tmp_path / "victim.py"
    script.write_text(textwrap.dedent(KILLED))
    folder = tmp_path / "checkpoints"
    for moment in range(1, 9):
        process = subprocess.run([sys.executable, script, folder, str(moment)], capture_output=True, text=True)
        assert process.returncode == -signal.SIGKILL, process.stderr
    federation = pgfl.synthetic_regression(servers=3, clients_per_server=3, clusters=2, dimension=4, graph="ring")
    arguments = {"rounds": 60, "participants": 2}
    resumed = train(federation, PGFL(5.0, 0.2), checkpoints=Checkpoints(folder, "f", 2), resume=True, **arguments)
    same_bits(train(federation, PGFL(5.0, 0.2), **arguments), resumed)


def test_the_accuracy_is_that_of_the_clients_with_a_test_set():
    """A test set for one of two clusters must not count the other cluster's clients as wrong."""
    federation = small()
    labelled = federation.replace(targets=(federation.targets > 0).astype(float))
    covered = labelled.cluster_ids[0]
    own = np.repeat(labelled.client_cluster == 0, labelled.counts)
    tests = {covered: pgfl.TestSet(labelled.features[own], labelled.targets[own])}
    result = train(labelled.replace(tests=tests), PGFL(5.0), Logistic(), rounds=40)
    shares = [
        np.mean((tests[covered].features @ result.client(client) > 0) == (tests[covered].targets > 0.5))
        for client, cluster in zip(labelled.client_ids, labelled.client_cluster, strict=True)
        if cluster == 0
    ]
    assert result.curve("accuracy")[0, -1] == pytest.approx(np.mean(shares))
