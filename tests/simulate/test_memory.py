"""A run that would not fit is refused beforehand; threads that make no sense as well; the estimate is an estimate."""

import subprocess
import sys

import numpy as np
import pytest

from pgfl import PGFL, Ridge, synthetic_regression, train
from pgfl.config import parse
from pgfl.errors import ConfigError
from pgfl.experiment import run
from pgfl.simulate import memory
from pgfl.simulate.compiled import kind
from pgfl.simulate.compiled import lanes as numba_lanes
from pgfl.simulate.memory import expected_shape
from pgfl.simulate.options import Performance, TrainingOptions
from pgfl.simulate.simulator import Simulator

MILLION = {"servers": 10_000, "clients_per_server": 100, "dimension": 60, "samples": [2, 9]}
MEASURE = """
from pathlib import Path
import numpy as np
from pgfl import PGFL, synthetic_regression, train
from pgfl.simulate.memory import Shape
made = synthetic_regression(servers=200, clients_per_server=100, dimension=60, samples=(2, 9), seed=0, dtype=np.float32)
train(made, PGFL(), rounds=2, engine="numba", dtype=np.float32, metrics=("nmsd",))
lines = Path("/proc/self/status").read_text().splitlines()
peak = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
shape = Shape(made.size, len(made.features), 60, 600, dtype="float32", engine="numba")
print(peak, shape.total)
"""


def test_a_million_clients_are_estimated_within_twice_their_data():
    shape = expected_shape(parse({"data": MILLION, "dtype": "float32", "engine": "numba"}))
    assert shape.data == pytest.approx(1.32e9, rel=0.01)
    assert shape.data < shape.total < 2.2 * shape.data


def test_a_run_that_does_not_fit_is_refused_before_anything_is_made(monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: 2**30)
    config = parse({"data": MILLION})
    with pytest.raises(ConfigError, match=r"needs about \d+\.\d GiB of memory and 1\.0 GiB are free; lower dtype"):
        run(config)


def test_a_table_that_does_not_fit_is_refused_before_its_features_are_read(monkeypatch, tmp_path):
    rows = [f"k{k // 4},s{k // 20},c{k // 4 % 2},1," + ",".join(["0.5"] * 50) for k in range(400)]
    header = "client,server,cluster,y," + ",".join(f"x{i}" for i in range(50))
    (tmp_path / "clients.csv").write_text("\n".join([header, *rows]))
    table = {"kind": "table", "table": str(tmp_path / "clients.csv"), "intercept": True}
    config = parse({"data": table, "engine": "numpy"})
    shape = expected_shape(config)
    assert (shape.clients, shape.rows, shape.dimension, shape.pairs) == (100, 400, 51, 40)
    monkeypatch.setattr(memory, "available_memory", lambda: 2**20)
    monkeypatch.setattr("pgfl.federation.tables.read_table", None)
    with pytest.raises(ConfigError, match=r"needs about 0\.3 GiB .* lower dtype .*, the rows of data\.table or "):
        run(config)


def test_a_federation_that_is_too_large_is_refused_when_it_is_handed_over(monkeypatch):
    made = synthetic_regression(servers=3, clients_per_server=4, dimension=5, graph="ring", seed=0)
    monkeypatch.setattr(memory, "available_memory", lambda: 2**20)
    with pytest.raises(ConfigError, match="GiB are free"):
        train(made, rounds=1)


@pytest.mark.proof
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("zeros", [False, True])
def test_the_estimate_knows_what_kernels_keep_beside_the_rows(monkeypatch, dtype, zeros):
    made = synthetic_regression(servers=5, clients_per_server=60, dimension=60, samples=(2, 9), seed=0)
    if zeros:
        holes = np.random.default_rng(0).uniform(size=made.features.shape) > 0.03
        made = made.replace(features=np.where(holes, 0.0, made.features))
    checked = []
    monkeypatch.setattr(memory, "check", lambda shape, **more: checked.append(shape))
    train(made, PGFL(), rounds=1, engine="numba", dtype=np.dtype(dtype))
    played = Simulator(
        [made], PGFL(), Ridge(), TrainingOptions(1, dtype=np.dtype(dtype), performance=Performance(engine="numba"))
    ).engine
    kept, in_bytes = played.blocks[0].forms
    assert (kept is not None) == zeros and in_bytes is None
    used = sum(values.nbytes for values in (*played._coordinates, *(kept or ())))
    (shape,) = checked
    known, whole = shape.kernel_bytes, shape.total
    assert used <= known <= (2.0 if zeros else 1.1) * used
    monkeypatch.setattr(memory.Shape, "kernel_bytes", 0)
    assert shape.total == whole - known, "it is part of the total"
    assert kind.REGISTER == numba_lanes.BYTES


def test_where_nobody_can_tell_nothing_is_refused(monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: None)
    memory.check(memory.Shape(10**12, 10**13, 60, 1))


@pytest.mark.parametrize("threads", [0, -1, 100_000])
def test_threads_that_make_no_sense_are_one_sentence(threads):
    made = synthetic_regression(servers=2, clients_per_server=2, dimension=3, graph="line", seed=0)
    with pytest.raises(ConfigError, match="makes no sense on a machine with"):
        train(made, PGFL(), rounds=1, threads=threads)


@pytest.mark.proof
def test_the_estimate_covers_what_a_run_takes():
    done = subprocess.run([sys.executable, "-c", MEASURE], check=True, capture_output=True, text=True)
    peak, estimate = map(int, done.stdout.split())
    assert 0.4 * estimate < peak < estimate
