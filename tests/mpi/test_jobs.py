"""`mpiexec -n N pgfl run` from the outside: its folder, its checkpoints, its errors."""

import json
import shutil
import signal
import sys

import numpy as np
import pytest

from pgfl import experiment
from pgfl.config import load_config, to_toml
from pgfl.errors import ConfigError, MissingExtra
from pgfl.results.folder import SUMMARY
from pgfl.results.result import Result
from pgfl.simulate.mpi import communicator as mpi_communicator
from tests.command_line import PGFL, finish, start, wait_for
from tests.mpi.rank_cases import PRIVATE, config
from tests.mpi.rank_jobs import HERE, MARK, MPIEXEC, YIELDING, kill_rank, launch, sentences

RUN = (*PGFL, "run", "--engine", "mpi", "--json")
BUDGET = PRIVATE | {"max_releases": 60}  # spent after some 120 rounds, where the run ends
LONG = {"rounds": 240, "record_every": 50, "checkpoint_every": 20, "privacy": BUDGET}


def written(folder, name, **changes):
    path = folder / "config.toml"
    path.write_text(to_toml(config(name, folder, **changes)))
    return path


def assert_same_folder(result: Result, folder):
    other = Result.load(folder)
    for metric in result.metrics:
        np.testing.assert_array_equal(result.history[metric], other.history[metric], strict=True)
    for ours, theirs in zip(result.models, other.models, strict=True):
        np.testing.assert_array_equal(ours.shareable_clients, theirs.shareable_clients, strict=True)
        np.testing.assert_array_equal(ours.servers[ours.present], theirs.servers, strict=True)
    for ours, theirs in zip(result.privacy, other.privacy, strict=True):
        np.testing.assert_array_equal(ours["rho"], theirs["rho"], strict=True)
        assert ours["client"].tolist() == theirs["client"].tolist()


def waiting(ranks, folder, path, out):
    """A run whose ranks have all saved a checkpoint, and wait."""
    command = (sys.executable, HERE / "wait_at_a_checkpoint.py", "run", path, "--engine", "mpi", "--json", "--out", out)
    (folder / "waiting").mkdir()
    marks = {MARK: folder.name, "PGFL_TEST_WAITING": str(folder / "waiting")}
    job = start(MPIEXEC, "-n", ranks, *command, **YIELDING, **marks)
    wait_for(lambda: job.poll() is not None or len(list((folder / "waiting").iterdir())) == ranks)
    return job


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    return experiment.run(config("private", tmp_path_factory.mktemp("plain"), **LONG))


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A run of three ranks of which one was killed after a checkpoint."""
    folder = tmp_path_factory.mktemp("killed")
    path, out = written(folder, "private", **LONG), folder / "out"
    job = waiting(3, folder, path, out)
    kill_rank(1, folder.name)
    return out, finish(job)


@pytest.mark.proof
def test_a_killed_rank_ends_the_run_with_a_sentence(killed):
    out, done = killed
    assert done.returncode != 0
    advice = f"mpiexec -n 3 pgfl run --engine mpi --resume --out {out}"
    said = [f"pgfl: A rank died before the end, which stopped the others; go on with {advice}."]
    assert sentences(done) == said
    assert not (out / SUMMARY).exists()


@pytest.mark.proof
def test_an_interrupt_says_how_to_go_on(tmp_path):
    path, out = written(tmp_path, "private", **LONG), tmp_path / "out"
    job = waiting(2, tmp_path, path, out)
    job.send_signal(signal.SIGINT)
    done = finish(job)
    (sentence,) = sentences(done)
    assert done.returncode == 130
    assert f"Interrupted; go on with `mpiexec -n 2 pgfl run --engine mpi --resume --out {out}`." in sentence


@pytest.mark.proof
@pytest.mark.parametrize("count", [1, 2])
def test_a_killed_run_goes_on_with_another_number_of_ranks_as_if_nothing_had_happened(
    count, killed, uninterrupted, tmp_path
):
    out = shutil.copytree(killed[0], tmp_path / "out")
    (done_rounds,) = (out / "simulation_only/checkpoint/run-0").glob("round-*")
    assert 0 < int(done_rounds.name.removeprefix("round-")) < LONG["rounds"]
    done = launch(count, *RUN, "--resume", "--out", out)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rounds"] == LONG["rounds"]
    assert json.loads(done.stdout)["spent_at"] == uninterrupted.spent_at != [None]
    assert_same_folder(uninterrupted, out)
    assert not (out / "simulation_only/checkpoint").exists()


@pytest.mark.proof
def test_a_checkpoint_that_lacks_a_rank_or_is_damaged_is_not_used(killed, tmp_path):
    out = shutil.copytree(killed[0], tmp_path / "out")
    (part,) = out.glob("simulation_only/checkpoint/run-0/round-*/rank-1-of-3.npz")
    part.write_bytes(part.read_bytes()[:-200])
    done = launch(2, *RUN, "--resume", "--out", out)
    assert done.returncode == 2
    assert [line for line in sentences(done) if "is damaged" in line] == sentences(done) != []


@pytest.mark.proof
def test_an_error_on_one_rank_ends_all_with_its_sentence(tmp_path):
    path = written(tmp_path, "ridge", checkpoint_every=0)
    command = (sys.executable, HERE / "fail_on_one_rank.py", "run", path, "--engine", "mpi", "--out", tmp_path / "out")
    done = launch(3, *command)
    assert done.returncode == 1
    first, *more = sentences(done)
    assert first == "pgfl: Rank 1 of 3: The primal problem of client ann was not solved."
    watch = "pgfl: A rank died before the end, which stopped the others; nothing was kept."
    assert more in ([], [watch])  # the launcher may be gone before the watch has spoken


@pytest.mark.parametrize(
    ("count", "options", "sentence"),
    [
        pytest.param(
            8, [], "8 ranks are more than the 7 servers that have clients; start at most 7.", marks=pytest.mark.proof
        ),
        pytest.param(
            2,
            ["--engine", "jax"],
            "2 ranks were started, but the jax engine runs in one process; add --engine numba",
            marks=pytest.mark.proof,
        ),
        (2, ["--set", "algorithm.roh=3"], "Unknown key `algorithm.roh`"),
        (2, ["--set", 'metrics=["distance"]'], 'The metric "distance" needs all data in one place'),
    ],
)
def test_what_cannot_be_run_is_said_once(count, options, sentence, tmp_path):
    done = launch(count, *RUN, written(tmp_path, "ridge", rounds=200), "--out", tmp_path / "out", *options)
    assert done.returncode == 2, done.stderr
    assert len(sentences(done)) == 1
    assert sentences(done)[0].startswith(f"pgfl: {sentence}")
    assert "Traceback" not in done.stderr


@pytest.mark.proof
def test_a_run_that_diverges_ends_early_with_its_verdict(tmp_path):
    diverging = ("--set", "algorithm.kind=fedavg", "--set", "algorithm.step_size=50")
    done = launch(2, *RUN, written(tmp_path, "ridge", rounds=200), "--out", tmp_path / "out", *diverging)
    assert done.returncode == 1
    assert json.loads(done.stdout)["verdict"]["kind"] == "diverging"
    assert json.loads(done.stdout)["ended_by"] == "diverging"
    assert sentences(done) == []


@pytest.mark.proof
@pytest.mark.parametrize(
    "engine",
    ["numpy", "numba", "mpi-numba"],
)
def test_any_engine_runs_on_ranks_as_in_one_process(engine, tmp_path):
    path = written(tmp_path, "huber", engine="numpy" if engine == "numpy" else "numba")
    alone = experiment.run(load_config(path))  # first, because both ranks would compile what this one keeps for them
    done = launch(2, *PGFL, "run", path, "--engine", engine, "--json", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert_same_folder(alone, tmp_path / "out")


@pytest.mark.proof
def test_a_run_of_ranks_does_not_silently_start_again_without_them(killed, tmp_path):
    out = shutil.copytree(killed[0], tmp_path / "out")
    done = finish(start(*PGFL, "run", "--engine", "numpy", "--resume", "--out", out))
    assert done.returncode == 2
    assert "was written by several ranks; go on with mpiexec" in sentences(done)[0]


@pytest.mark.proof
def test_a_run_of_one_process_does_not_silently_start_again_on_ranks(tmp_path):
    path, out = written(tmp_path, "ridge"), tmp_path / "out"
    (out / "checkpoint").mkdir(parents=True)
    (out / "checkpoint" / "runs-0-0.npz").touch()
    done = launch(2, *RUN, path, "--resume", "--out", out)
    assert done.returncode == 2
    assert len(sentences(done)) == 1
    assert "was written by one process; go on without mpiexec" in sentences(done)[0]


@pytest.mark.proof
def test_data_that_one_rank_cannot_use_is_said_once(tmp_path):
    rows = [f"k{k},s{k},a,{'2' if k == 3 else k % 2},{k}" for k in range(4)]
    (tmp_path / "clients.csv").write_text("\n".join(["client,server,cluster,y,x", *rows]))
    changes = {"data": {"kind": "table", "table": "clients.csv"}, "graph": {"kind": "line"}}
    path = written(tmp_path, "ridge", objective={"kind": "logistic"}, metrics=("objective",), **changes)
    done = launch(3, *RUN, path, "--out", tmp_path / "out")
    assert done.returncode == 2
    assert len(sentences(done)) == 1
    assert "needs labels 0 and 1" in sentences(done)[0]


def test_without_a_launcher_it_says_how_to_start(monkeypatch):
    for name in ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MPI_LOCALRANKID", "PALS_RANKID"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match=r"started by an MPI launcher; run .*mpiexec -n 2 pgfl run … --engine mpi\.$"):
        mpi_communicator.world()
    monkeypatch.setattr(mpi_communicator, "find_launcher", lambda: None)
    with pytest.raises(ConfigError, match=r"and none is found: pip install 'pgfl\[mpi\]' brings one"):
        mpi_communicator.world()


def test_without_mpi4py_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(mpi_communicator, "find_spec", lambda name: None)
    with pytest.raises(
        MissingExtra, match=r"needs mpi4py and an MPI library; install them with pip install 'pgfl\[mpi\]'"
    ):
        mpi_communicator.world()


def test_a_launcher_of_another_mpi_is_noticed(tmp_path):
    job = start(*RUN, "--out", tmp_path / "out", OMPI_COMM_WORLD_RANK="0", OMPI_COMM_WORLD_SIZE="3")
    done = finish(job)
    assert done.returncode == 2
    assert "started 3 ranks, but the MPI library knows of 1" in sentences(done)[0]
