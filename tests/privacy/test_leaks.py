"""Nothing but releases leaves: attackers with all messages, and every file that is meant for others."""

import csv
import json
import math
import re

import numpy as np
import pytest

from pgfl import PGFL, Huber, Privacy, experiment, train
from pgfl.algorithms.roles import Accepted, Client, RoundRequest, Server
from pgfl.config import parse
from pgfl.errors import ResultError
from pgfl.federation.federation import ClientData, Federation, TestSet
from pgfl.lab.audit.cases import huber
from pgfl.lab.audit.planted_bugs import clean_dual
from pgfl.lab.audit.subjects import Mechanism
from pgfl.metrics import DEFAULT_METRICS, MEASURES
from pgfl.privacy.noise import SecureNoise, SeededNoise
from pgfl.results.arrays import SIMULATION_ONLY
from pgfl.results.folder import RunFolder
from pgfl.results.result import Result
from pgfl.simulate import progress as live_history
from pgfl.simulate.checkpoint import Checkpoints
from pgfl.simulate.communicator import SINGLE_PROCESS
from pgfl.simulate.observers import Observer
from pgfl.simulate.options import Performance, TrainingOptions
from pgfl.simulate.simulator import Simulator

DIMENSION, ROUNDS, SIGMA, RHO = 20, 8, 0.02, 2.0
METRICS = (*DEFAULT_METRICS, "distance")


def planted(algorithm):
    """The algorithm with a dual that is built from the clean model."""
    case = huber()
    return clean_dual(Mechanism(case.objective, algorithm, case.privacy)).algorithm


# --- an attacker who has every message -------------------------------------------------------------------------------


class Overheard:
    """All messages of a network of roles with two servers, and apart from them, what the clients kept to themselves."""

    def __init__(self, make_algorithm, seed=0):
        rng = np.random.default_rng(seed)
        servers = {"a": Server(PGFL(rho=RHO), DIMENSION, ["b"]), "b": Server(PGFL(rho=RHO), DIMENSION, ["a"])}
        self.clients = {
            f"{server}{number}": Client(
                Huber(lam=0.01), make_algorithm(), rng.standard_normal((30, DIMENSION)), rng.standard_normal(30)
            )
            for server in servers
            for number in range(3)
        }
        self.requests, self.answers, self.clean = {}, {}, {}
        accepted = dict.fromkeys(self.clients)
        for n in range(1, ROUNDS + 1):
            for name, client in self.clients.items():
                request = RoundRequest(n, 3, servers[name[0]].model("q"), accepted[name])

                def release(model, name=name, n=n):
                    self.clean[name, n] = model.copy()
                    return model + SIGMA * rng.standard_normal(DIMENSION)

                self.requests[name, n], self.answers[name, n] = request, client.answer(request, release)
            sent = {
                s: server.aggregate(n, [("q", self.answers[k, n]) for k in self.clients if k[0] == s])
                for s, server in servers.items()
            }
            for server in servers.values():
                server.combine(n, sent)
            accepted = {name: Accepted(n, servers[name[0]].model("q")) for name in self.clients}

    def guesses_from_duals(self):
        """w_k = accepted − (φ' − φ)/ρ for whoever built the dual, which is φ/ρ, from w_k."""
        for name in self.clients:
            for n in range(1, ROUNDS):
                step = self.answers[name, n + 1].dual - self.answers[name, n].dual
                yield self.clean[name, n], self.requests[name, n + 1].accepted.model - step

    def everything_said(self, name, n):
        """All vectors around one round of one client, a row each."""
        rows = [
            message.dual if kind == "dual" else message.model
            for at in (n - 1, n, n + 1)
            for other in self.clients
            for kind, message in (("dual", self.answers[other, at]), ("model", self.answers[other, at]))
        ]
        requests = [self.requests[name, at] for at in (n - 1, n, n + 1)]
        rows += [r.model for r in requests if r.model is not None] + [r.accepted.model for r in requests if r.accepted]
        return np.array(rows)


def test_the_dual_gives_the_clean_model_away_only_if_it_is_planted():
    errors = [np.linalg.norm(guess - clean) for clean, guess in Overheard(lambda: PGFL(rho=RHO)).guesses_from_duals()]
    noise = SIGMA * DIMENSION**0.5
    assert 0.4 * noise < min(errors)
    assert max(errors) < 2.0 * noise
    leaked = Overheard(lambda: planted(PGFL(rho=RHO)))
    for clean, guess in leaked.guesses_from_duals():
        np.testing.assert_allclose(guess, clean, atol=1e-8, rtol=0)


def learnt_attack(overheard):
    """The best linear use of all messages, learnt on half of the coordinates; its error on the other half."""
    errors = []
    for name in overheard.clients:
        messages, clean = [], []
        for n in range(3, ROUNDS):
            messages.append(overheard.everything_said(name, n))
            clean.append(overheard.clean[name, n])
        messages, clean = np.concatenate(messages, axis=1), np.concatenate(clean)
        known = np.arange(len(clean)) % 2 == 0
        weights = np.linalg.lstsq(messages[:, known].T, clean[known], rcond=1e-13)[0]
        errors.append(np.sqrt(np.mean((weights @ messages[:, ~known] - clean[~known]) ** 2)))
    return errors


def test_an_attack_that_learns_from_all_messages_stays_at_the_noise_unless_the_dual_is_clean():
    assert min(learnt_attack(Overheard(lambda: PGFL(rho=RHO), seed=1))) > 0.4 * SIGMA
    assert max(learnt_attack(Overheard(lambda: planted(PGFL(rho=RHO)), seed=1))) < 1e-8


class Wiretap(Observer):
    """Observes all that is sent in every round of a simulation."""

    def __init__(self):
        self.rounds = []

    def on_round(self, simulator):
        state, layout = simulator.state, simulator.layout
        received = np.asarray(state.server_models)[layout.client_pair]
        self.rounds.append([np.array(values) for values in (state.model, state.released, received, state.dual)])


def federation(seed=0, scale=1.0):
    """Six clients at three servers; `scale` changes the labels and nothing else."""
    rng = np.random.default_rng(seed)
    clients = {}
    for number in range(6):
        rows = rng.standard_normal((25, DIMENSION))
        labels = scale * (rows[:, 0] + 0.1 * rng.standard_normal(25))
        clients[f"c{number}"] = ClientData(f"s{number % 3}", f"q{number % 2}", rows, labels)
    return Federation.from_clients(clients, [("s0", "s1"), ("s1", "s2")])


def _held_out():
    rng = np.random.default_rng(9)
    rows = {q: rng.standard_normal((60, DIMENSION)) for q in ("q0", "q1")}
    owners = {q: np.repeat(np.arange(int(q[1]), 6, 2), 20) for q in rows}
    return {q: TestSet(features, features[:, 0], owners[q]) for q, features in rows.items()}


HELD_OUT = _held_out()


def private(noise="seeded", **settings):
    return Privacy(**{"phi0": 2.0, "zeta": 0.99, "x_norm": 3.0, "noise": noise, **settings})


@pytest.mark.parametrize(
    ("engine", "bug"),
    [
        ("numpy", False),
        pytest.param("numba", False, marks=pytest.mark.proof),
        ("jax", False),
        ("numpy", True),
        ("jax", True),
    ],
)
def test_a_simulated_dual_gives_the_clean_model_away_only_if_it_is_planted(engine, bug):
    algorithm, wiretap = PGFL(rho=RHO, tau=0.2), Wiretap()
    options = TrainingOptions(rounds=ROUNDS, privacy=private(), performance=Performance(engine=engine))
    chosen = planted(algorithm) if bug else algorithm
    simulator = Simulator([federation()], chosen, Huber(), options, observers=[wiretap])
    simulator.run()
    noise = simulator.plan.budget.sigma(simulator.plan.sensitivity, 1) * DIMENSION**0.5
    for (_, _, _, before), (clean, _, received, dual) in zip(wiretap.rounds[:-1], wiretap.rounds[1:], strict=True):
        error = np.linalg.norm(received - (dual - before) - clean, axis=1)
        assert (error < 1e-8).all() if bug else (error > 0.3 * noise).all()


# --- files that are meant for others ---------------------------------------------------------------------------------

NUMBER = re.compile(r"-?\d+\.\d+(?:e[-+]?\d+)?")


def numbers_in(path):
    """Every number with a fraction that a file holds, whatever its format."""
    if path.suffix in (".npz", ".pgfl"):
        with np.load(path) as archive:
            parts = [archive[name] for name in archive.files]
        arrays = [np.asarray(part) for part in parts]
        pages = [str(part) for part in parts if isinstance(part, bytes) or part.dtype.kind == "U"]
        written = [float(text) for page in pages for text in NUMBER.findall(page)]
        return np.concatenate([*(a.ravel() for a in arrays if a.dtype.kind == "f"), written])
    if path.suffix == ".png":
        return np.empty(0)
    return np.array([float(text) for text in NUMBER.findall(path.read_text("utf-8"))])


def numbers_of(folder, inside):
    files = [p for p in folder.rglob("*") if p.is_file() and (SIMULATION_ONLY in p.parts) == inside]
    assert files
    found = np.unique(np.concatenate([numbers_in(file) for file in files]))
    return found[np.isfinite(found) & (np.abs(found) > 1e-9) & (found % 0.25 != 0)]


def shared(some, others):
    """The numbers of `some` that are among `others` to ten digits."""
    place = np.clip(np.searchsorted(others, some), 1, len(others) - 1)
    nearest = np.minimum(np.abs(others[place] - some), np.abs(others[place - 1] - some))
    return some[nearest <= 1e-10 * np.abs(some)]


def test_no_number_of_the_clean_models_or_their_measures_is_in_a_file_for_others(tmp_path):
    made = federation().replace(tests=HELD_OUT)
    result = train(made, PGFL(rho=RHO), Huber(), rounds=5, privacy=private(), metrics=METRICS)
    result.save(tmp_path / "private")
    clean = numbers_of(tmp_path / "private", inside=True)
    assert len(clean) > 6 * DIMENSION
    start = np.sort([values[0] for values in result.history.values()])  # of models that are all zero
    both = shared(clean, numbers_of(tmp_path / "private", inside=False))
    assert len(both) == len(shared(both, start))
    assert len(shared(np.ravel(result.models[0].clients), clean)) == 6 * DIMENSION, "the search must be able to find"
    train(federation(), PGFL(rho=RHO), Huber(), rounds=5).save(tmp_path / "open")
    assert not (tmp_path / "open" / SIMULATION_ONLY).exists()


class SameReleases:
    """Noise that drowns its model altogether: what is released depends on the client and the round alone."""

    def __call__(self, models, sigma, clients, round):
        rows = [np.random.default_rng([round, int(k)]).standard_normal(np.shape(models)[1]) for k in clients]
        return np.array(rows)


def files_for_others(folder):
    return {
        p.relative_to(folder): p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file() and SIMULATION_ONLY not in p.parts
    }


@pytest.mark.parametrize(
    ("noise", "engine", "tau"),
    [
        ("seeded", "numpy", 0.1),
        ("seeded", "numpy", "auto"),
        ("secure", "numpy", 0.1),
        pytest.param("secure", "numba", 0.1, marks=pytest.mark.proof),
    ],
)
def test_files_for_others_are_a_function_of_the_releases(tmp_path, monkeypatch, noise, engine, tau):
    """Two runs with other labels, hence other clean models, but the same releases leave the same bytes."""
    for source in (SeededNoise, SecureNoise):
        monkeypatch.setattr(source, "release", lambda self, *given: SameReleases()(*given))
    results = []
    for name, scale in (("one", 1.0), ("other", 3.0)):
        checkpoints = Checkpoints(tmp_path / name / "checkpoint", "same", 2, keep_clean=False)
        result = train(
            federation(scale=scale).replace(tests=HELD_OUT),
            PGFL(rho=RHO, tau=tau),
            Huber(kappa=5.0),
            rounds=6,
            participants=1,
            privacy=private(noise),
            metrics=METRICS,
            checkpoints=checkpoints,
            engine=engine,
        )
        result.seconds = 0.0
        kept = files_for_others(tmp_path / name)
        assert any(path.parts[0] == "checkpoint" for path in kept)
        result.save(tmp_path / name)
        results.append((result, kept | files_for_others(tmp_path / name)))
    (one, files), (other, files_of_other) = results
    if noise == "seeded":
        assert not np.allclose(one.models[0].clients, other.models[0].clients), "clean models must differ"
    assert set(files) == set(files_of_other)
    names = {"models.npz", "history.csv", "privacy.csv", "summary.json", "report.html", "curves.png", "held_out.csv"}
    assert names <= {p.name for p in files}
    assert "clients.csv" not in {p.name for p in files}
    assert one.measures and one.verdict
    for path, content in files.items():
        assert content == files_of_other[path], path


def test_without_privacy_the_same_comparison_finds_the_difference(tmp_path):
    """The check above can fail: where nothing is private the files do depend on the data."""
    for name, scale in (("one", 1.0), ("other", 3.0)):
        result = train(federation(scale=scale), PGFL(rho=RHO), Huber(kappa=5.0), rounds=2, metrics=METRICS)
        result.seconds = 0.0
        result.save(tmp_path / name)
    one, other = (files_for_others(tmp_path / name) for name in ("one", "other"))
    assert {path.name for path in one if one[path] != other[path]} >= {"models.npz", "history.csv", "summary.json"}


# --- checkpoints of a table ------------------------------------------------------------------------------------------


class CutShort(Exception):
    """The machine went down."""


def table_config(path, labels, noise="secure", rows_of_c1=3, **settings):
    """A run on a table whose records are known but for the first label, which is labels[0]."""
    records = [("c0", "s0", label) for label in labels] + [("c1", "s1", 0.5)] * rows_of_c1
    lines = [f"{client},{server},q,{label},{0.1 * row}" for row, (client, server, label) in enumerate(records)]
    path.write_text("client,server,cluster,y,x\n" + "\n".join(lines) + "\n")
    return parse(
        {
            "rounds": 6,
            "checkpoint_every": 2,
            "data": {"kind": "table", "table": str(path), "test": str(path)},
            "graph": {"kind": "line"},
            "objective": {"kind": "huber", "kappa": 5.0},
            "privacy": {"enabled": True, "phi0": 2.0, "x_norm": 3.0, "noise": noise},
            **settings,
        }
    )


@pytest.fixture(autouse=True)
def one_run_id(monkeypatch):
    """The id of a run is random, and so the same in both worlds with the same probability."""
    monkeypatch.setattr("pgfl.simulate.checkpoint.Checkpoints._run_id", lambda self, simulator: "run")
    monkeypatch.setattr("pgfl.simulate.checkpoint.note_checkpoint", lambda *noted, **stops: None)  # one world at a time


@pytest.fixture
def cut_short(monkeypatch):
    """Runs a config until round 4, with releases that depend on the client and the round alone; its folder is left."""

    def run(config, out):
        with monkeypatch.context() as patched:
            for source in (SeededNoise, SecureNoise):
                patched.setattr(source, "release", lambda self, *given: SameReleases()(*given))
            save = Checkpoints.save

            def save_and_go_down(self, simulator):
                save(self, simulator)
                if simulator.state.round == 4:
                    raise CutShort

            patched.setattr(Checkpoints, "save", save_and_go_down)
            patched.setattr(live_history, "BETWEEN_WRITES", math.inf)  # else the clock decides whether there is one
            with pytest.raises(CutShort), RunFolder(out, config, SINGLE_PROCESS):
                experiment.run(config, out=out)
        return files_for_others(out)

    return run


def test_a_checkpoint_confirms_no_guess_at_a_label(tmp_path, cut_short):
    """Two worlds that differ in one label, with the same releases, leave the same bytes: no guess can be told apart."""
    path = tmp_path / "clients.csv"
    measured = tuple(name for name in METRICS if name not in MEASURES)  # which are figures of data.test
    worlds = [
        cut_short(table_config(path, [label, 0.25, 0.75], metrics=measured), tmp_path / name)
        for name, label in (("one", 1.0), ("other", -1.0))
    ]
    assert {file.parts[0] for file in worlds[0]} == {"config.toml", "checkpoint"}
    assert worlds[0] == worlds[1]
    assert not (tmp_path / "one" / SIMULATION_ONLY).exists()


def test_the_same_comparison_finds_a_digest_of_the_records(tmp_path, cut_short):
    """The check above can fail: seeded checkpoints hold one, and are kept under simulation_only/ therefore."""
    path, found = tmp_path / "clients.csv", []
    for name, label in (("one", 1.0), ("other", -1.0)):
        config = table_config(path, [label, 0.25], noise="seeded")
        others = cut_short(config, tmp_path / name)
        assert {file.parts[0] for file in others} == {"config.toml"}
        (file,) = (tmp_path / name / SIMULATION_ONLY).rglob("runs-*.npz")
        with np.load(file) as archive:
            found.append(str(archive["fingerprint"]))
    assert found[0] != found[1]


def test_a_float_safe_run_goes_on_with_its_table_and_not_with_another_one(tmp_path, cut_short):
    path = tmp_path / "clients.csv"
    config = table_config(path, [1.0, 0.25])
    cut_short(config, tmp_path / "out")
    for other in ({"labels": [1.0, 0.25, 0.5]}, {"labels": [1.0, 0.25], "rows_of_c1": 4}):
        changed = table_config(path, **other)
        with pytest.raises(ResultError, match="another config or other data"):
            experiment.run(changed, out=tmp_path / "out", resume=True)
    table_config(path, [1.0, 0.25])
    result = experiment.run(config, out=tmp_path / "out", resume=True)
    assert result.privacy[0]["releases"].tolist() == [6, 6]


CLEAN_MEASURES = {"objective", "primal_residual", "distance"}


def test_float_safe_noise_leaves_nothing_clean_anywhere(tmp_path):
    class Interrupted(Exception):
        pass

    class Cut(Checkpoints):
        """A machine that goes down once round 4 is saved."""

        def save(self, simulator):
            super().save(simulator)
            if simulator.state.round == 4:
                raise Interrupted

    place = (tmp_path / "checkpoint", "same", 2, False)
    settings = {"rounds": 6, "privacy": private("secure"), "metrics": METRICS}
    with pytest.raises(Interrupted):
        train(federation(), PGFL(rho=RHO), Huber(), checkpoints=Cut(*place), **settings)
    (file,) = (tmp_path / "checkpoint").iterdir()
    with np.load(file) as archive:
        assert not {"model", "clean"} & set(archive.files)
        assert {"released", "dual", "shown"} <= set(archive.files)
        assert not CLEAN_MEASURES & set().union(*json.loads(str(archive["shown"])))
    result = train(federation(), PGFL(rho=RHO), Huber(), checkpoints=Checkpoints(*place), resume=True, **settings)
    assert result.models[0].clients is None
    assert result.clean_history is None
    result.save(tmp_path)
    assert not (tmp_path / SIMULATION_ONLY).exists()
    assert Result.load(tmp_path).models[0].clients is None
    with open(tmp_path / "history.csv") as stream:
        assert not CLEAN_MEASURES & set(next(csv.reader(stream)))


def test_seeded_noise_puts_clean_measures_in_their_own_folder_only(tmp_path):
    result = train(federation(), PGFL(rho=RHO), Huber(), rounds=3, privacy=private(), metrics=METRICS)
    result.save(tmp_path)
    with open(tmp_path / "history.csv") as public, open(tmp_path / SIMULATION_ONLY / "history.csv") as clean:
        assert not CLEAN_MEASURES & set(next(csv.reader(public)))
        assert set(next(csv.reader(clean))) >= CLEAN_MEASURES
