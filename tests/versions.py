"""Run the quick tests with the lowest and the highest versions that `pyproject.toml` allows: `make versions`.

The lowest run on the oldest supported Python, for which they were built; the highest on every Python that is found.
Every run has a new virtual environment, which is deleted afterwards.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = [name for name in PROJECT["optional-dependencies"] if name not in ("docs", "flower")]
"""No quick test builds the site; flwr states narrow bounds of its own on Typer, FastAPI and cryptography."""
SHOWN = ("numpy", "scipy", "polars", "opendp", "pydantic", "typer", "numba", "jax", "cryptography", "nicegui")


def lowest():
    """A line `name==version` for every lower bound that the project states."""
    groups = [PROJECT["dependencies"], *(PROJECT["optional-dependencies"][name] for name in EXTRAS)]
    for requirement in (Requirement(text) for group in groups for text in group):
        for bound in requirement.specifier:
            if bound.operator in (">=", "=="):
                yield f"{requirement.name}=={bound.version}"


def pythons():
    """One interpreter of each supported minor version: from the path, then from pyenv, the newest first."""
    supported = SpecifierSet(PROJECT["requires-python"])
    folders = [Path(folder) for folder in os.environ["PATH"].split(os.pathsep)]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    folders += sorted((folder / "bin" for folder in pyenv.glob("*")), reverse=True)
    found = {}
    for path in (path for folder in folders for path in sorted(folder.glob("python3.*"))):
        if re.fullmatch(r"python3\.\d+", path.name) and path.name not in found:
            ask = [path, "-c", "import ensurepip, platform; print(platform.python_version())"]
            answer = subprocess.run(ask, capture_output=True, text=True, check=False)
            if answer.returncode == 0 and Version(answer.stdout.strip()) in supported:
                found[path.name] = path
    return sorted(found.values(), key=lambda path: int(path.name.removeprefix("python3.")))


def run(python, bound, workers):
    """Install into a new environment, run the quick tests, and return a row of the table."""
    with tempfile.TemporaryDirectory(prefix="pgfl-versions-") as folder:
        subprocess.run([python, "-m", "venv", Path(folder, "venv")], check=True)
        inside = Path(folder, "venv", "bin", "python")
        pip = [inside, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        constraints = Path(folder, "constraints.txt")
        constraints.write_text("\n".join(lowest()) if bound == "lowest" else "", "utf-8")
        wanted = f"{ROOT}[{','.join(EXTRAS)}]"
        installed = subprocess.run([*pip, "install", "--constraint", constraints, "--editable", wanted], check=False)
        if installed.returncode:
            return [python.name, bound, "cannot be installed"]
        freeze = subprocess.run([*pip, "freeze"], capture_output=True, text=True, check=True).stdout
        versions = dict(line.lower().split("==") for line in freeze.splitlines() if "==" in line)
        tests = [inside, "-m", "pytest", "-n", str(workers), "-m", "quick", "tests"]
        done = subprocess.run(tests, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout)
    summary = done.stdout.strip().splitlines()[-1].strip("= ") if done.stdout.strip() else "no test ran"
    which = ", ".join(f"{name} {versions[name]}" for name in SHOWN if name in versions)
    return [python.name, bound, summary if done.returncode == 0 else f"FAILED: {summary}", which]


def main():
    """Run what is asked for, print a table, and fail if any run failed."""
    parser = argparse.ArgumentParser(prog="make versions", description=__doc__)
    parser.add_argument("--only", choices=("lowest", "highest"), help="only these versions")
    parser.add_argument("--python", help="only this interpreter, as in python3.12")
    parser.add_argument("--workers", type=int, default=2, help="processes that run tests")
    asked = parser.parse_args()
    found = pythons()
    runs = [(found[0], "lowest"), *((python, "highest") for python in found)]
    rows = []
    for python, bound in runs:
        if asked.only in (None, bound) and asked.python in (None, python.name):
            print(f"{python.name}, {bound} versions …", flush=True)
            rows.append(run(python, bound, asked.workers))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    sys.exit(not rows or any(not row[2][0].isdigit() for row in rows))


if __name__ == "__main__":
    main()
