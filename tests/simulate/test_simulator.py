"""The simulator: observers see every round, and it plays what `train` plays."""

import numpy as np
import pytest

from pgfl import PGFL, FedAvg, Huber, Privacy, synthetic_regression, train
from pgfl.config import parse
from pgfl.errors import ConfigError, Interrupted, ResultError
from pgfl.results.folder import CHECKPOINT, CONFIG, RunFolder, is_complete
from pgfl.simulate.communicator import SINGLE_PROCESS
from pgfl.simulate.engines import check_engine
from pgfl.simulate.observers import Observer
from pgfl.simulate.options import Performance, TrainingOptions
from pgfl.simulate.simulator import Replay, Simulator
from tests.sample_results import sample_result

PRIVACY = Privacy(phi0=1e-2, zeta=0.99, x_norm=2.0)


def federation(run=0):
    return synthetic_regression(servers=4, clients_per_server=5, clusters=2, dimension=6, samples=(2, 5), run=run)


class Noting(Observer):
    def __init__(self, name, notes):
        self.name, self.notes = name, notes

    def on_round(self, simulator):
        self.notes.append((self.name, simulator.state.round))


def test_observers_are_called_after_every_round_in_their_order():
    notes = []
    observers = [Noting("first", notes), Noting("second", notes)]
    simulator = Simulator([federation()], PGFL(), Huber(), TrainingOptions(rounds=3), observers=observers)
    simulator.run_round()
    assert notes == [("first", 1), ("second", 1)]
    simulator.run()
    assert notes[2:] == [("first", 2), ("second", 2), ("first", 3), ("second", 3)]
    simulator.run(5)
    assert simulator.state.round == 5


@pytest.mark.parametrize("algorithm", [PGFL(5.0, 0.3), FedAvg(0.02, 3)], ids=lambda algorithm: algorithm.kind)
def test_it_plays_what_train_plays(algorithm):
    options = {"rounds": 6, "participants": 2, "privacy": PRIVACY, "seed": 3}
    result = train(federation, algorithm, Huber(), runs=2, **options)
    simulator = Simulator([federation(0), federation(1)], algorithm, Huber(), TrainingOptions(**options))
    simulator.run()
    for run in range(2):
        for name, values in vars(simulator.models(run)).items():
            if name != "network":
                np.testing.assert_array_equal(values, getattr(result.models[run], name), name)
        for name, values in simulator.account(run).items():
            np.testing.assert_array_equal(values, result.privacy[run][name], name)


def test_a_replay_has_the_participants_and_the_noise_that_were_recorded():
    taking_part = {1: ["client-00", "client-07"], 2: ["client-19"]}
    replay = Replay(taking_part.__getitem__, lambda round, client: np.full(6, float(round)))
    simulator = Simulator([federation()], PGFL(), Huber(), replay=replay)
    moved, before = [], np.zeros((20, 6))
    for number in taking_part:
        simulator.run_round()
        models = simulator.models().clients
        moved.append(np.flatnonzero((models != before).any(axis=1)).tolist())
        released = np.asarray(simulator.state.released)[simulator.layout.runs[0].position]
        np.testing.assert_allclose(released[moved[-1]], models[moved[-1]] + number)
        before = models.copy()
    assert moved == [[0, 7], [19]]


@pytest.mark.parametrize(
    ("options", "words"),
    [({"performance": Performance(engine="jax")}, "jax engine"), ({"metrics": ("distance",)}, "one")],
)
def test_what_several_processes_cannot_do_is_refused(options, words):
    check_engine(TrainingOptions(**options), 1)
    with pytest.raises(ConfigError, match=words):
        check_engine(TrainingOptions(**options), 2)


# --- the folder of a run ----------------------------------------------------------------------------------------------


def test_a_run_folder_is_begun_and_saved(tmp_path):
    config, result = parse({"rounds": 4}), sample_result(rounds=4)
    result.config = config
    with RunFolder(tmp_path / "o", config, SINGLE_PROCESS) as folder:
        assert (tmp_path / "o" / CONFIG).exists() and not is_complete(folder.path)
        folder.save(result)
    assert is_complete(tmp_path / "o")
    with (
        pytest.raises(ResultError, match="another config"),
        RunFolder(tmp_path / "o", parse({"rounds": 5}), SINGLE_PROCESS),
    ):
        pass
    assert is_complete(tmp_path / "o")


def test_a_run_folder_is_abandoned_unless_there_is_something_to_go_on_with(tmp_path):
    with pytest.raises(ZeroDivisionError), RunFolder(tmp_path / "o", parse({}), SINGLE_PROCESS):
        1 / 0  # noqa: B018
    assert not (tmp_path / "o").exists()
    with pytest.raises(Interrupted, match="nothing was kept"), RunFolder(tmp_path / "o", parse({}), SINGLE_PROCESS):
        raise KeyboardInterrupt
    command = "mpiexec -n 3 pgfl run"
    (tmp_path / CHECKPOINT).mkdir()
    with (
        pytest.raises(Interrupted, match=f"{command} --resume --out"),
        RunFolder(tmp_path, parse({}), SINGLE_PROCESS, command),
    ):
        raise KeyboardInterrupt
    assert (tmp_path / CONFIG).exists()
