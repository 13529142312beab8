"""`pgfl run` and the ways in which a command line can be wrong, with a made-up experiment behind it."""

import errno
import json
import shlex
import subprocess
import sys
import types
from importlib.metadata import EntryPoint

import pytest

from pgfl import cli
from pgfl.config import Config
from pgfl.errors import Diverged
from pgfl.results.folder import CHECKPOINT, begin_folder
from pgfl.results.result import Result
from tests.command_line import PGFL, refused, run
from tests.sample_results import sample_result


class Experiment:
    """Stands in for `pgfl.experiment`."""

    def __init__(self):
        self.calls, self.failure, self.noise = [], None, None

    def run(self, config, *, out, resume, progress, communicator, observers):
        self.calls.append((config, out, resume))
        if progress is not None:
            progress(1, config.rounds, {"nmsd": 0.1})
        if self.failure is not None:
            raise self.failure
        result = sample_result(rounds=config.rounds, noise=self.noise)
        result.config = config
        return result


@pytest.fixture
def experiment(monkeypatch, tmp_path):
    made = Experiment()
    module = types.ModuleType("pgfl.experiment")
    module.run = made.run
    monkeypatch.setitem(sys.modules, "pgfl.experiment", module)
    monkeypatch.setattr("pgfl.experiment", module, raising=False)
    monkeypatch.chdir(tmp_path)
    return made


def test_a_run_leaves_the_whole_folder_and_prints_a_table(experiment, tmp_path):
    experiment.noise = "seeded"
    code, out, _ = run("run", "paper-fig1", "--set", "rounds=12", "--seed", "4", "--out", "here")
    assert code == 0
    config, folder, resume = experiment.calls[0]
    assert isinstance(config, Config)
    assert (config.rounds, config.seed, str(folder), resume) == (12, 4, "here", False)
    expected = {"config.toml", "history.csv", "models.npz", "privacy.csv", "curves.png", "report.html", "summary.json"}
    assert expected <= {file.name for file in (tmp_path / "here").iterdir()}
    for text in (
        "NMSD",
        "adults",
        "dB",
        "rounds",
        "12",
        "time",
        "ε, exact",
        "worst client",
        "Result: here",
        "Warning: τ",
    ):
        assert text in out, text
    assert Result.load(tmp_path / "here").config == config


def test_without_arguments_the_default_preset_runs_in_a_fresh_folder(experiment, tmp_path):
    assert run("run")[0] == 0
    assert run("run")[0] == 0
    assert experiment.calls[0][0].name == "private-huber"
    assert len(list((tmp_path / "results").glob("private-huber-*"))) == 2


def test_json_is_all_that_stdout_holds(experiment):
    code, out, err = run("run", "paper-fig2", "--json", "--out", "o", "--engine", "jax")
    assert (code, err) == (0, "")
    summary = json.loads(out)
    assert summary["out"] == "o"
    assert summary["final"]["nmsd"] > 0
    assert experiment.calls[0][0].engine == "jax"


def test_a_folder_with_a_result_is_refused_before_any_work(experiment):
    assert run("run", "fedavg", "--out", "o")[0] == 0
    assert "already holds a result" in refused("run", "fedavg", "--out", "o")
    assert len(experiment.calls) == 1


def test_resume_takes_the_folder_s_config_and_finished_runs_are_shown_again(experiment, tmp_path):
    from pgfl.config import load_config

    begin_folder(tmp_path / "o", load_config("paper-fig2", ["rounds=7"]))
    assert "--resume" in refused("run", "paper-fig2", "--set", "rounds=7", "--out", "o")
    assert run("run", "--resume", "--out", "o")[0] == 0
    config, _, resume = experiment.calls[0]
    assert (config.rounds, config.algorithm.participants, resume) == (7, 3, True)
    (tmp_path / "o" / "report.html").unlink()
    code, out, err = run("run", "--resume", "--out", "o")
    assert code == 0
    assert "is complete" in err
    assert "NMSD" in out
    assert (tmp_path / "o" / "report.html").exists()
    assert len(experiment.calls) == 1
    assert "another config" in refused("run", "paper-fig1", "--resume", "--out", "o")
    assert "--resume needs --out" in refused("run", "--resume")


def test_the_progress_bar_shows_what_training_tells():
    from pgfl import Huber, Privacy, synthetic_regression, train
    from pgfl.results.report.figures import news as figures

    reported = []
    federation = synthetic_regression(servers=4, clients_per_server=3, dimension=4, samples=(2, 4))
    privacy = Privacy(phi0=1e-3, zeta=0.99, x_norm=1.0)
    for settings in ({}, {"objective": Huber(), "privacy": privacy}):
        train(federation, rounds=2, progress=lambda done, total, info: reported.append(figures(info)), **settings)
    assert "NMSD" in reported[0]
    assert "spent ε" in reported[-1]


def test_where_there_is_no_terminal_progress_is_told_in_lines(capsys, monkeypatch):
    from pgfl.cli import shared as progress

    monkeypatch.setattr(progress, "BETWEEN_LINES", 0.0)
    with progress.rounds(shown=True) as tell:
        for done in (1, 2, 4):
            tell(done, 4, {"memory_gib": 2.3})
    first, second = capsys.readouterr().err.splitlines()  # after one round nobody knows what is left
    assert first.startswith("pgfl: round 2 of 4, ") and first.endswith(" left  2.3 GiB")
    assert second.startswith("pgfl: round 4 of 4, 0:00:00 left")
    monkeypatch.setattr(progress, "BETWEEN_LINES", 60.0)
    with progress.rounds(shown=True) as tell:
        tell(1, 4, {})
        tell(2, 4, {})
    assert capsys.readouterr().err == ""


def test_an_interrupt_tells_how_to_go_on(experiment, tmp_path):
    experiment.failure = KeyboardInterrupt()
    code, _, err = run("run", "fedavg", "--out", "o")
    assert code == 130
    assert "nothing was kept" in err
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / CHECKPOINT).write_bytes(b"")
    code, _, err = run("run", "fedavg", "--out", "p", "--resume")
    assert code == 130
    assert "pgfl run --resume --out p" in err


@pytest.mark.parametrize(
    ("failure", "code", "words"),
    [
        (Diverged("Training diverged by round 8; raise algorithm.rho."), 1, "raise algorithm.rho"),
        (PermissionError(errno.EACCES, "Permission denied", "/o/x"), 2, "no permission for /o/x"),
        (OSError(errno.ENOSPC, "No space left on device", "/o/x"), 1, "disk is full while writing /o/x"),
        (OSError(errno.EIO, "Input/output error", "/o/x"), 2, "/o/x: Input/output error."),
        (MemoryError(), 1, "not enough memory"),
    ],
)
def test_foreseen_failures_are_one_sentence(experiment, failure, code, words):
    experiment.failure = failure
    assert words in refused("run", "fedavg", "--out", "o", "--json", code=code)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rum"], "did you mean run?"),
        (["run", "--ouut", "x"], "--ouut"),
        (["run", "--engine", "abacus"], "`engine` must be one of numpy, numba"),
        (["run", "--seed", "many"], "Invalid value for '--seed'"),
        (["run", "a", "b"], "unexpected extra argument"),
        (["run", "nothing.toml"], "nothing.toml does not exist"),
        (["run", "--set", "algorithm.rhoo=1"], "did you mean `algorithm.rho`?"),
        (["run", "--seed", "-1"], "`seed` must be at least 0"),
        (["presets", "paper-fig"], "did you mean paper-fig"),
    ],
)
def test_a_wrong_command_line_is_one_sentence_and_exit_code_2(experiment, arguments, words):
    assert words in refused(*arguments)
    assert experiment.calls == []


def test_presets_are_listed_for_people_and_machines():
    code, out, _ = run("presets")
    assert code == 0
    assert "private-huber  " in out
    listed = json.loads(run("presets", "--json")[1])
    assert {"name", "description"} == set(listed[0])
    assert 'kind = "huber"' in run("presets", "private-huber")[1]


def test_every_command_in_the_table_has_a_page_of_help():
    for command in cli.COMMANDS:
        code, out, _ = run(command, "--help")
        assert code == 0
        assert f"pgfl {command}" in out
    code, out, _ = run("--help")
    assert code == 0
    assert all(help_line.split(",")[0] in out for help_line in cli.HELP.values())
    assert run()[0] == 2


def test_a_command_of_another_package_that_cannot_be_loaded_hides_no_other(monkeypatch):
    entry = EntryPoint("broken", "no_such_package:app", cli.COMMANDS.group)
    monkeypatch.setitem(vars(cli.COMMANDS), "_entries", {"broken": entry})
    code, out, _ = run("--help")
    assert code == 0
    assert "broken" in out and "describe" in out
    code, _, err = run("broken")
    assert code == 2
    assert err.startswith("pgfl: The command 'broken' of the package 'no_such_package:app' cannot be loaded")


def test_help_imports_nothing_heavy():
    heavy = {"numpy", "pydantic", "polars", "matplotlib", "scipy", "networkx", "jax", "opendp", "cryptography"}
    script = (
        "import sys; from pgfl.cli import execute; execute(['--help']); "
        "print(*sorted(set(sys.modules) & set(sys.argv[1:])))"
    )
    done = subprocess.run([sys.executable, "-c", script, *heavy], capture_output=True, text=True, check=True)
    assert set(done.stdout.splitlines()[-1].split()) <= {"numpy"}


def test_a_closed_pipe_is_no_error():
    command = f"{shlex.join(PGFL)} presets | head -c 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.stdout == "e"
    assert done.stderr == ""


def test_progress_that_is_not_counted_is_told_in_per_cent(capsys, monkeypatch):
    from pgfl.cli import shared as progress

    monkeypatch.setattr(progress, "BETWEEN_LINES", 0.0)
    with progress.bar(None, shown=True) as tell:
        for done in (0.0, 1.5, 3.0):
            tell(done, 6.0, "fig1")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("pgfl: 50 %, 0:00:0") and line.endswith(" left  fig1")


DIVERGES = """rounds = 300
[data]
kind = "table"
table = "clients.csv"
test = "clients.csv"
[graph]
kind = "line"
[algorithm]
kind = "fedavg"
step_size = 5.0
"""


def write_study(folder, text):
    rows = [f"c{k},s{k % 2},q,{k + n},{k + 0.5 * n},{n - k}" for k in range(4) for n in range(6)]
    (folder / "clients.csv").write_text("client,server,cluster,y,a,b\n" + "\n".join(rows) + "\n")
    (folder / "mine.toml").write_text(text)
    return folder / "mine.toml"


def test_a_diverging_run_leaves_its_result_and_fails(tmp_path):
    code, out, _ = run("run", write_study(tmp_path, DIVERGES), "--out", tmp_path / "out")
    assert code == Diverged.exit_code == 1
    assert out.startswith("Verdict: diverging\n")
    assert "Lower algorithm.step_size" in " ".join(out.split())
    summary = json.loads((tmp_path / "out" / "summary.json").read_text("utf-8"))
    assert summary["verdict"]["kind"] == "diverging"
    assert summary["rounds"] < 50
    assert "<h2>Diverging</h2>" in (tmp_path / "out" / "report.html").read_text("utf-8")
    assert run("run", "--resume", "--out", tmp_path / "out")[0] == 1


def test_a_table_s_training_stops_when_it_has_converged_unless_it_never_should(tmp_path):
    config = write_study(tmp_path, DIVERGES.replace('kind = "fedavg"\nstep_size = 5.0', "rho = 20.0"))
    code, out, _ = run("run", config, "--out", tmp_path / "out")
    assert (code, out.splitlines()[0]) == (0, "Verdict: converged")
    assert "and training stopped there" in " ".join(out.split())
    assert "R²" in out and "baseline" in out and "accuracy" not in out
    summary = json.loads((tmp_path / "out" / "summary.json").read_text("utf-8"))
    assert summary["rounds"] < 300
    assert 'stop = "converged"' in (tmp_path / "out" / "config.toml").read_text("utf-8")
    assert run("run", config, "--set", 'stop="never"', "--out", tmp_path / "whole")[0] == 0
    assert json.loads((tmp_path / "whole" / "summary.json").read_text("utf-8"))["rounds"] == 300
    assert "stop" in refused("run", config, "--set", 'stop="soon"', "--out", tmp_path / "no")
