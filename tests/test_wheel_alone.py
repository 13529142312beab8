"""The wheel in a new environment, with the newest versions that `pyproject.toml` allows: what a newcomer gets."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from pgfl.cli import COMMANDS
from tests.declared import extra_of, modules

pytestmark = pytest.mark.proof

ROOT = Path(__file__).parents[1]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
NAMES = [name for name, _ in modules() if not name.endswith("__main__")]  # those run when they are imported
IMPORT_ALL = """
import importlib, json, sys
outcomes = {}
for name in json.loads(sys.argv[1]):
    try:
        importlib.import_module(name)
        outcomes[name] = "imported"
    except Exception as error:
        outcomes[name] = f"{type(error).__name__}: {error}"
print(json.dumps(outcomes))
"""
HELP_OF_ALL = """
import contextlib, io, json, typer
from pgfl.cli import COMMANDS, execute
pages = {}
commands = [[]]
for name in COMMANDS:
    group = typer.main.get_command(COMMANDS[name])
    commands += [[name], *([name, below] for below in getattr(group, "commands", {}))]
for command in commands:
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        code = execute([*command, "--help"])
    pages[" ".join(["pgfl", *command])] = [code, shown.getvalue()]
print(json.dumps(pages))
"""
REFUSED = [
    (["network", "demo"], "network"),
    (["site", "init", "north"], "network"),
    (["site", "status"], "network"),
    (["client", "init", "ann"], "network"),
    (["client", "doctor", "client.toml"], "network"),
    (["audit", "--quick"], "network"),
    (["studio", "--no-open"], "studio"),
    (["run", "private-huber", "--engine", "numba", "--out", "n"], "fast"),
    (["run", "private-huber", "--engine", "jax", "--out", "j"], "jax"),
    (["run", "private-huber", "--engine", "mpi", "--out", "m"], "mpi"),
    (["export", "trained", "--to", "onnx", "--cluster", "cluster-0", "--out", "model.onnx"], "onnx"),
    (["export", "trained", "--to", "sklearn", "--cluster", "cluster-0", "--out", "model.joblib"], "sklearn"),
]
"""A command of every feature that needs an extra."""

NO_COMMAND = ("accounting", "flower", "encoders")  # for Python, for `flwr run`, for configs that name an encoder


class Installed:
    """A new environment with the wheel, and a folder to work in."""

    def __init__(self, folder, wheel, extras=()):
        self.bin, self.work = folder / "venv" / "bin", folder / "work"
        self.work.mkdir(parents=True)
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        wanted = f"{wheel}[{','.join(extras)}]" if extras else str(wheel)
        pip = [self.bin / "python", "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--no-compile"]
        subprocess.run([*pip, wanted], check=True)

    def run(self, program, *arguments):
        clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        command = [self.bin / program, *arguments]
        return subprocess.run(command, cwd=self.work, env=clean, capture_output=True, text=True, check=False)

    def answer(self, script, *arguments):
        done = self.run("python", "-c", script, *arguments)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def bare(wheel, tmp_path_factory):
    return Installed(tmp_path_factory.mktemp("bare"), wheel)


def test_every_module_that_needs_no_extra_is_imported(bare):
    outcomes = bare.answer(IMPORT_ALL, json.dumps(NAMES))
    assert len(outcomes) == len(NAMES) > 200
    wrong = {name: outcome for name, outcome in outcomes.items() if outcome != "imported"}
    assert not {name: outcome for name, outcome in wrong.items() if extra_of(name) is None}
    for room in ("network", "masking", "sklearn"):
        assert outcomes[f"pgfl.{room}"].startswith("MissingExtra: "), room


def test_every_command_has_a_help_page(bare):
    pages = bare.answer(HELP_OF_ALL)
    assert {command.split()[1] for command in pages if " " in command} == set(COMMANDS)
    assert len(pages) > 40
    for command, (code, page) in pages.items():
        assert (code, f"Usage: {command} " in page) == (0, True), page


def test_mistakes_are_one_sentence(bare):
    for arguments in (["runn"], ["run", "--nonsense"], ["run", "--rounds", "many"], ["predict"]):
        done = bare.run("pgfl", *arguments)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert done.stderr.startswith("pgfl: ")
    assert "Usage: " in bare.run("pgfl", "site").stdout


def test_it_trains_and_each_missing_extra_is_one_sentence(bare):
    done = bare.run("pgfl", "run", "private-huber", "--out", "trained")
    assert done.returncode == 0, done.stderr
    assert "Verdict: useful" in done.stdout
    assert {extra for _, extra in REFUSED} == EXTRAS.keys() - {"docs", "dev", *NO_COMMAND}
    for command, extra in REFUSED:
        done = bare.run("pgfl", *command)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), (command, done.stderr)
        assert done.stderr.startswith("pgfl: ")
        assert f"pip install 'pgfl[{extra}]'" in done.stderr, done.stderr


def test_with_all_extras_every_module_is_imported(wheel, tmp_path):
    whole = Installed(tmp_path, wheel, [name for name in EXTRAS if name not in ("docs", "dev")])
    outcomes = whole.answer(IMPORT_ALL, json.dumps(NAMES))
    assert not {name: outcome for name, outcome in outcomes.items() if outcome != "imported"}
    done = whole.run("pgfl", "run", "private-huber", "--out", "trained")
    assert done.returncode == 0, done.stderr
