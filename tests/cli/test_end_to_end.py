"""`pgfl run` with everything behind it: presets, tables, bad input, kills and full disks."""

import errno
import json
import os
import signal
import sys

import numpy as np
import pytest

from pgfl import files
from pgfl.config import presets
from pgfl.results.result import Result
from tests.command_line import finish, refused, run, start

CLIENTS = """client,server,cluster,y,age,dose
ann,north,adults,1.0,0.5,1.0
ann,north,adults,2.0,1.5,0.5
bob,south,adults,1.5,0.7,0.9
cem,south,children,0.5,0.1,0.4
dee,south,children,0.7,0.2,0.6
"""
EDGES = "source,target\nnorth,south\n"
CONFIG = """rounds = 12
[data]
kind = "table"
table = "clients.csv"
[graph]
kind = "edges"
edges = "edges.csv"
[algorithm]
rho = 2.0
"""


@pytest.fixture
def study(tmp_path):
    """A user's folder; `study(clients=...)` changes a file in it and returns the config's path."""

    def write(config=CONFIG, clients=CLIENTS, edges=EDGES):
        folder = tmp_path / "study"
        folder.mkdir(exist_ok=True)
        for name, text in (("mine.toml", config), ("clients.csv", clients), ("edges.csv", edges)):
            (folder / name).write_text(text, encoding="utf-8")
        return folder / "mine.toml"

    return write


SLOW = ("exact", "million-clients", "private-hinge-mnist")


@pytest.mark.parametrize(
    "preset", [pytest.param(name, marks=pytest.mark.proof) if name in SLOW else name for name in presets()]
)
def test_every_preset_runs_and_leaves_a_whole_folder(preset, curves, tmp_path):
    small = ("rounds=4", "runs=2", "record_every=1", "data.servers=4", "data.clients_per_server=6")
    settings = [word for key in small for word in ("--set", key)]
    code, out, _ = run("run", preset, *settings, "--out", tmp_path / "o", "--json")
    assert code == 0
    summary = json.loads(out)
    assert summary["rounds"] == 4
    assert summary["private"] == ("privacy.csv" in os.listdir(tmp_path / "o"))
    assert {"config.toml", "history.csv", "models.npz", "models-1.npz", "curves.png", "report.html"} <= set(
        os.listdir(tmp_path / "o")
    )
    assert "checkpoint" not in os.listdir(tmp_path / "o")
    result = Result.load(tmp_path / "o")
    assert len(result.client_ids) == 24
    assert result.history["round"].tolist() == [0, 1, 2, 3, 4] * 2
    assert np.isfinite(result.cluster(result.cluster_ids[0], run=1)).all()


def test_the_default_preset_learns_and_keeps_its_promise(tmp_path):
    code, out, _ = run("run", "--json", "--out", tmp_path / "o")
    assert code == 0
    summary = json.loads(out)
    assert 10 * np.log10(summary["final"]["nmsd"]) < -7
    assert summary["privacy"]["epsilon"]["worst"] <= 1.0 + 1e-9
    assert (summary["clients"], summary["servers"], summary["dimension"]) == (150, 10, 60)


def test_one_s_own_tables(study, tmp_path):
    code, _out, _ = run("run", study(), "--out", tmp_path / "o")
    assert code == 0
    with np.load(tmp_path / "o" / "models.npz") as arrays:
        assert arrays["client_ids"].tolist() == ["ann", "bob", "cem", "dee"]
        assert arrays["server_ids"].tolist() == ["north", "south"]
        assert arrays["cluster_ids"].tolist() == ["adults", "children"]
        assert arrays["clients"].shape == (4, 2)
        assert np.isfinite(arrays["servers"]).all()
    again = tmp_path / "o" / "config.toml"
    code, _, _ = run("run", again, "--out", tmp_path / "again")
    assert code == 0
    assert (tmp_path / "again" / "history.csv").read_bytes() == (tmp_path / "o" / "history.csv").read_bytes()


BAD = {
    "missing table": ({"config": CONFIG.replace("clients.csv", "absent.csv")}, "absent.csv"),
    "missing edges": ({"config": CONFIG.replace("edges.csv", "absent.csv")}, "absent.csv"),
    "missing column": ({"clients": CLIENTS.replace("cluster", "group")}, "cluster"),
    "missing target": ({"clients": CLIENTS.replace("y,age", "z,age")}, "y"),
    "no features": ({"clients": "client,server,cluster,y\nann,north,a,1\nbob,south,a,2\n"}, "feature"),
    "text in a feature": ({"clients": CLIENTS.replace("1.5,0.5", "tall,0.5")}, "age"),
    "NaN in a feature": ({"clients": CLIENTS.replace("1.5,0.5", "nan,0.5")}, "age"),
    "infinity in a feature": ({"clients": CLIENTS.replace("1.5,0.5", "inf,0.5")}, "age"),
    "empty cell": ({"clients": CLIENTS.replace("1.5,0.5", ",0.5")}, "age"),
    "client at two servers": ({"clients": CLIENTS.replace("ann,north,adults,2", "ann,south,adults,2")}, "ann"),
    "client in two clusters": ({"clients": CLIENTS.replace("ann,north,adults,2", "ann,north,children,2")}, "ann"),
    "edge to an unknown server": ({"edges": EDGES + "north,west\n"}, "west"),
    "self edge": ({"edges": EDGES + "north,north\n"}, "north"),
    "repeated edge": ({"edges": EDGES + "south,north\n"}, "north"),
    "logistic labels": ({"config": CONFIG + '[objective]\nkind = "logistic"\n'}, "0"),
    "unknown cluster": ({"config": CONFIG + "[objective.clusters.teens]\nlam = 1.0\n"}, "teens"),
    "unknown key": ({"config": CONFIG + "rhoo = 1.0\n"}, "`algorithm.rho`"),
    "tau": ({"config": CONFIG + "tau = 1.5\n"}, "`algorithm.tau`"),
    "rho": ({"config": CONFIG.replace("rho = 2.0", "rho = 0")}, "`algorithm.rho`"),
    "privacy without bounds": ({"config": CONFIG + "[privacy]\nenabled = true\nphi0 = 1e-3\n"}, "x_norm"),
    "empty table": ({"clients": ""}, "clients.csv"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence_and_leaves_nothing(case, study, tmp_path):
    changes, words = BAD[case]
    assert words in refused("run", study(**changes), "--out", tmp_path / "o", "--json")
    assert not (tmp_path / "o").exists()


def test_odd_but_good_input_works(study, tmp_path):
    lonely = "client,server,cluster,y,x\nann,north,a,1,1\nbob,south,b,0,1\ncem,west,b,0,1\n"
    config = CONFIG + 'participants = 9\n[objective]\nkind = "logistic"\n'
    code, out, _ = run("run", study(config=config, clients=lonely), "--out", tmp_path / "o", "--json")
    assert code == 0
    reported = " ".join(json.loads(out)["warnings"])
    assert "west" in reported
    assert "all clients take part" in reported


# ------------------------------------------------------------------------------------------------------- interruptions

LONG = ["private-huber"]
for override in (
    "rounds=60",
    "checkpoint_every=10",
    "data.servers=4",
    "runs=2",
    "algorithm.client=admm",
    "algorithm.full_records=1",
):
    LONG += ["--set", override]


def content(folder) -> dict:
    """Everything that a result folder holds, apart from times."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.suffix == ".npz":
            with np.load(path) as arrays:
                found |= {f"{name}/{key}": arrays[key].tobytes() for key in arrays.files}
        elif path.suffix in (".csv", ".toml"):
            found[name] = path.read_bytes()
    return found


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("long") / "o"
    assert run("run", *LONG, "--out", folder, "--json").code == 0
    return content(folder)


KILLED = """
import os, signal, sys
from pgfl import files as atomic_files
from pgfl.cli import main
from pgfl.simulate.checkpoint import Checkpoints
left, save = [int(sys.argv.pop(1))], Checkpoints.save
def killed(checkpoints, simulator):
    left[0] -= 1
    if left[0] == 0:
        atomic_files.os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)
    save(checkpoints, simulator)
Checkpoints.save = killed
main()
"""


@pytest.mark.parametrize(
    "number", [pytest.param(2, marks=pytest.mark.proof), 5, pytest.param(9, marks=pytest.mark.proof)]
)
def test_a_killed_run_goes_on_to_the_same_bits(number, uninterrupted, tmp_path):
    """It is killed while it writes a checkpoint, of the first run or of the second."""
    folder = tmp_path / "o"
    checkpoint = folder / "simulation_only" / "checkpoint"
    killed = finish(start(sys.executable, "-c", KILLED, number, "run", *LONG, "--out", folder, "--json"))
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert any(checkpoint.iterdir())
    assert run("run", "--resume", "--out", folder, "--json")[0] == 0
    assert content(folder) == uninterrupted
    assert not checkpoint.exists()


def test_a_full_disk_keeps_the_last_checkpoint(uninterrupted, tmp_path, monkeypatch):
    folder, synchronised, fsync = tmp_path / "o", [], os.fsync

    def fills_up(descriptor):
        synchronised.append(descriptor)
        if len(synchronised) > 9:
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", fills_up)
        code, _, err = run("run", *LONG, "--out", folder, "--json")
    assert code == 1  # worth another start, once there is room
    assert "disk is full" in err
    assert list((folder / "simulation_only" / "checkpoint").iterdir())
    assert run("run", "--resume", "--out", folder, "--json")[0] == 0
    assert content(folder) == uninterrupted


def test_another_config_or_changed_data_is_refused(study, tmp_path, monkeypatch):
    config = CONFIG.replace("rounds = 12", "rounds = 12\ncheckpoint_every = 1")
    with monkeypatch.context() as patch:
        patch.setattr("pgfl.results.result.Result.save", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert run("run", study(config=config), "--out", tmp_path / "o", "--json")[0] == 130
    code, _, err = run("run", study(config=config.replace("2.0", "3.0")), "--out", tmp_path / "o", "--resume")
    assert code == 2
    assert "algorithm.rho was 2.0 and is 3.0" in err
    code, _, err = run(
        "run", study(config=config, clients=CLIENTS.replace("0.7", "0.8")), "--out", tmp_path / "o", "--resume"
    )
    assert code == 2
    assert "other" in err
    assert run("run", study(config=config), "--out", tmp_path / "o", "--resume", "--json")[0] == 0
