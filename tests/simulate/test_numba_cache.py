"""Machine code outlives the install that made it, never lies in the package, and can do without a place to lie."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pgfl

SCRIPT = """
import numpy as np
from pgfl.simulate.numba_kernels import settle
models, dual = np.ones((1, 3)), np.zeros((1, 3))
settle(np.arange(1), np.array([0, 1]), 0, models, models * 0.25, dual)
assert (dual == 0.75).all()
print(sum(settle.stats.cache_hits.values()), sum(settle.stats.cache_misses.values()))
"""

TRAININGS = """
import hashlib, sys
import numpy as np
from pgfl import PGFL, FedAvg, Huber, Logistic, Privacy, Ridge, synthetic_regression, train

made = synthetic_regression(servers=3, clients_per_server=3, dimension=24, samples=(2, 9), graph="ring", x_norm=1.0)
images = made.replace(features=np.where(np.arange(24) < 8, made.features, 0.0), targets=np.sign(made.targets) / 2 + 0.5)
private = Privacy(x_norm=1.0, phi0=1e-3)
played = [
    train(data, algorithm, objective, rounds=3, engine="numba", participants=participants, privacy=privacy)
    for data, algorithm, objective, participants, privacy in (
        (made, PGFL(), Ridge(), "all", None), (made, PGFL(), Ridge(), 2, None), (images, PGFL(), Logistic(), 2, None),
        (made, PGFL(rho=0.01), Huber(), "all", None), (made, PGFL(rho=40.0, client="gradient"), Huber(), 2, private),
        (made, PGFL(), Huber(), "all", private), (made, FedAvg(step=0.01), Ridge(), "all", None),
    )
]
models = b"".join(result.models[0].clients.tobytes() for result in played)
print(hashlib.sha256(models).hexdigest(), "numba.misc.gdb_hook" in sys.modules)
"""


def test_loaded_kernels_need_nothing_that_compiles_and_have_the_same_bits():
    """The first process compiles what is not there yet, the second loads all of it; `gdb_hook` is there to compile."""
    (first, _), (second, compiles) = (
        subprocess.run([sys.executable, "-c", TRAININGS], capture_output=True, text=True, check=True).stdout.split()
        for _ in range(2)
    )
    assert (second, compiles) == (first, "False")


def installed(folder: Path) -> Path:
    shutil.copytree(Path(pgfl.__file__).parent, folder / "pgfl", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def loaded_and_compiled(package: Path, cache: Path) -> tuple[int, int]:
    """How many kernels a fresh process found, and how many it had to compile."""
    own = {"PYTHONPATH": str(package), "XDG_CACHE_HOME": str(cache), "HOME": str(cache), "PYTHONDONTWRITEBYTECODE": "1"}
    inherited = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=inherited | own, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    found, made = done.stdout.split()
    return int(found), int(made)


def test_a_new_install_finds_what_an_older_one_compiled_and_neither_writes_into_itself(tmp_path):
    first, second = installed(tmp_path / "first"), installed(tmp_path / "second")
    before = {path.relative_to(first) for path in first.rglob("*")}
    assert loaded_and_compiled(first, tmp_path / "cache") == (0, 1)
    assert loaded_and_compiled(second, tmp_path / "cache") == (1, 0)
    for package in (first, second):
        assert {path.relative_to(package) for path in package.rglob("*")} == before
    changed = second / "pgfl" / "simulate" / "numba_lanes.py"
    changed.write_text(changed.read_text("utf-8") + "# another version\n", "utf-8")
    assert loaded_and_compiled(second, tmp_path / "cache") == (0, 1)


def test_without_a_folder_to_write_to_kernels_are_compiled_every_time(tmp_path):
    nowhere = tmp_path / "a file"
    nowhere.write_text("", "utf-8")
    package = installed(tmp_path / "package")
    assert [loaded_and_compiled(package, nowhere) for _ in range(2)] == [(0, 1), (0, 1)]
