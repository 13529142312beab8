"""What is checked before a change is merged is the same on GitHub, in `.ci/run` and before a commit."""

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]


def read(name):
    return (ROOT / name).read_text("utf-8")


def recipe(target):
    """The commands of a make target, without comments."""
    (block,) = re.findall(rf"^{target}:.*\n((?:\t.*\n)+)", read("Makefile"), re.MULTILINE)
    return [line.split("  #")[0].strip().lstrip("@").replace("$(BIN)", ".venv/bin") for line in block.splitlines()]


def test_github_runs_what_the_repository_runs():
    (job,) = yaml.safe_load(read(".github/workflows/ci.yml"))["jobs"].values()
    commands = [step["run"] for step in job["steps"] if "run" in step]
    required = [line for line in read(".ci/run").splitlines() if line.startswith("make ")]
    assert required
    assert [command for command in commands if not command.startswith("make install")] == required


def test_github_tests_the_oldest_python_that_is_supported():
    (job,) = yaml.safe_load(read(".github/workflows/ci.yml"))["jobs"].values()
    (oldest,) = re.findall(r'requires-python = ">=([\d.]+)"', read("pyproject.toml"))
    assert job["strategy"]["matrix"]["python"][0] == oldest


def test_the_hooks_run_the_programs_of_make_check():
    (repository,) = yaml.safe_load(read(".pre-commit-config.yaml"))["repos"]
    assert repository["repo"] == "local"
    checked = " ".join([*recipe("check"), *recipe("types-of-package")])
    for hook in repository["hooks"]:
        program = hook["entry"].removesuffix(" --fix")
        assert hook["language"] == "system"
        assert program in checked
