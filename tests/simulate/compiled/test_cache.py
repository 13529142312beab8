"""Bits do not depend on what is in the cache, and machine code outlives the install that made it.

It never lies in the package, and can do without a place to lie.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import pgfl
from pgfl.simulate.compiled import cache as numba_compiled
from pgfl.simulate.compiled import kernels as numba_kernels
from pgfl.simulate.compiled import margins as numba_margins

SCRIPT = """
import numpy as np
from pgfl.simulate.compiled.kernels import settle
models, dual = np.ones((1, 3)), np.zeros((1, 3))
settle(np.arange(1), np.array([0, 1]), 0, models, models * 0.25, dual)
assert (dual == 0.75).all()
print(sum(settle.stats.cache_hits.values()), sum(settle.stats.cache_misses.values()))
"""

LOADED = """
import runpy, sys
print(runpy.run_path(sys.argv[1])["digest"]("factors"), "numba.misc.gdb_hook" in sys.modules)
"""
FAMILIES = Path(__file__).with_name("kernel_families.py")


def started(cache: Path, *names: str) -> subprocess.Popen[str]:
    """A process with a cache of its own that trains; without names, one that factors."""
    inherited = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    own = {"XDG_CACHE_HOME": str(cache), "HOME": str(cache)}
    command = [str(FAMILIES), *names] if names else ["-c", LOADED, str(FAMILIES)]
    return subprocess.Popen([sys.executable, *command], env=inherited | own, stdout=subprocess.PIPE, text=True)


def trained(cache: Path, *orders: Sequence[str]) -> list[tuple[dict[str, str], list[str]]]:
    """The digests of trainings in so many orders, each in a process of its own that is started with the others.

    With them come the names of the kernels that none of the trainings called.
    """
    processes = [started(cache, *order) for order in orders]
    outputs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(orders)
    return [tuple(json.loads(output)) for output in outputs]


@pytest.mark.proof
def test_one_process_that_loads_has_the_bits_of_two_that_compile_at_once_and_compiles_nothing(tmp_path):
    """`gdb_hook` is there to compile; half of the start went there."""
    at_once = [started(tmp_path) for _ in range(2)]
    bits = {process.communicate()[0].split()[0] for process in at_once}
    loaded, compiles = started(tmp_path).communicate()[0].split()
    assert (bits, compiles) == ({loaded}, "False")


@pytest.mark.proof
def test_bits_of_every_family_depend_neither_on_the_cache_nor_on_other_processes(tmp_path):
    """Two processes that compile at once, in opposite orders; one that finds a part; one that finds everything."""
    names = list(json.loads(subprocess.check_output([sys.executable, FAMILIES, "--names"], text=True)))
    (bits, never_called), (reversed_bits, _) = trained(tmp_path / "at once", names, names[::-1])
    assert never_called == [], "a family is missing"
    assert reversed_bits == bits
    ((loaded, _),) = trained(tmp_path / "at once", names)
    assert loaded == bits, "all loaded"
    ((half, _),) = trained(tmp_path / "in part", names[1::2])
    assert half == {name: bits[name] for name in names[1::2]}, "without what the other half compiles"
    ((mixed, _),) = trained(tmp_path / "in part", names[::-1])
    assert mixed == bits, "half of them loaded"


def _solve(matrix, vector, size):
    numba_margins.cholesky(matrix, size)
    numba_margins.substitute(matrix, vector, size)


def test_a_kernel_shares_nothing_with_another():
    """A function that it shared by name would be replaced by another kernel's copy, if that is loaded first."""
    matrix, vector, kernel = np.diag([4.0, 9.0]).reshape(-1), np.array([8.0, 27.0]), numba_compiled.compiled(_solve)
    kernel._cache.disable()  # what is loaded cannot be looked at
    kernel(matrix, vector, 2)
    assert vector.tolist() == [2.0, 3.0]
    (found,) = kernel.overloads.values()
    shared = [one.name for one in found.library.get_defined_functions() if one.linkage.name != "internal"]
    assert len(shared) == 2 and all("_solve" in name for name in shared), "it and what Python calls"


def test_python_cannot_call_a_part():
    with pytest.raises(TypeError):
        numba_margins._short(0.5, 1.0)


@pytest.mark.parametrize("damage", [lambda kept: kept[:-9], lambda kept: kept[:99] + b"?" + kept[100:], lambda _: b""])
def test_a_damaged_file_is_compiled_again_and_replaced(damage, tmp_path, monkeypatch):
    monkeypatch.setattr(numba_compiled, "folder", lambda: str(tmp_path))
    (tmp_path / "tag").touch()
    (file,) = _settled(tmp_path, hits=0)
    intact = file.read_bytes()
    file.write_bytes(damage(intact))
    assert _settled(tmp_path, hits=0) == [file]
    assert len(file.read_bytes()) > 1000
    assert _settled(tmp_path, hits=1) == [file]


def _settled(folder: Path, hits: int) -> list[Path]:
    """Call a small kernel as a new process would; returns the files of kernels."""
    kernel = numba_compiled.compiled(numba_kernels.settle.py_func)
    models, dual = np.ones((1, 3)), np.zeros((1, 3))
    kernel(np.arange(1), np.array([0, 1]), 0, models, models * 0.25, dual)
    assert (dual == 0.75).all()
    assert sum(kernel.stats.cache_hits.values()) == hits
    return [path for path in folder.iterdir() if path.name != "tag"]


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


@pytest.mark.proof
def test_a_new_install_finds_what_an_older_one_compiled_and_neither_writes_into_itself(tmp_path):
    first, second = installed(tmp_path / "first"), installed(tmp_path / "second")
    before = {path.relative_to(first) for path in first.rglob("*")}
    assert loaded_and_compiled(first, tmp_path / "cache") == (0, 1)
    assert loaded_and_compiled(second, tmp_path / "cache") == (1, 0)
    for package in (first, second):
        assert {path.relative_to(package) for path in package.rglob("*")} == before
    changed = second / "pgfl" / "simulate" / "compiled" / "lanes.py"
    changed.write_text(changed.read_text("utf-8") + "# another version\n", "utf-8")
    assert loaded_and_compiled(second, tmp_path / "cache") == (0, 1)


@pytest.mark.proof
def test_without_a_folder_to_write_to_kernels_are_compiled_every_time(tmp_path):
    nowhere = tmp_path / "a file"
    nowhere.write_text("", "utf-8")
    package = installed(tmp_path / "package")
    assert [loaded_and_compiled(package, nowhere) for _ in range(2)] == [(0, 1), (0, 1)]
