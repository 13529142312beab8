"""The walk of docs/tutorials/network.md: its own commands, in separate folders, counted and timed."""

from __future__ import annotations

import re
import shlex
import shutil
import time

import numpy as np
import pytest

from pgfl.network import processes
from tests.command_line import PGFL, ROOT, finish, start

PAGE = (ROOT / "docs" / "tutorials" / "network.md").read_text("utf-8")
FIRST, MASKED = PAGE.split("## 6. ")
STEP = re.compile(
    r"^%%on (\w+)\npgfl (.*)$|^(\w+)\$ pgfl (.*)$|^\*\*Hand over\*\* `(\S+)`: (\w+) → (\w+)\.$", re.MULTILINE
)
MOST_COMMANDS, MOST_HAND_OVERS = 10, 4


def steps(text):
    """The commands as (machine, words), and the files that are handed over as (file, from, to), in order."""
    for here, first, there, second, *handed in STEP.findall(text):
        yield tuple(handed) if handed[0] else (here or there, shlex.split(first or second))


def commands(text):
    return [step for step in steps(text) if len(step) == 2]


def hand_overs(text):
    return [step for step in steps(text) if len(step) == 3]


def test_a_first_model_takes_ten_commands_no_edit_and_two_files_between_machines():
    assert len(commands(FIRST)) == MOST_COMMANDS
    assert [(here, there) for _, here, there in hand_overs(FIRST)] == [("north", "south"), ("south", "west")]
    assert len(hand_overs(FIRST)) <= MOST_HAND_OVERS
    machines = {machine for machine, _ in commands(FIRST)}
    assert len(hand_overs(FIRST)) == len(machines) - 1, "one for each machine but the first: none can be spared"
    invited = [words for _, words in commands(FIRST) if words[:2] == ["client", "join"]]
    assert len(hand_overs(FIRST)) + len(invited) == 5, "if every ward has a machine of its own"
    assert not re.search(r"\bedit\b (?!and)", FIRST.replace("no file to edit", ""))
    assert {words[0] for _, words in commands(FIRST)} == {"site", "client", "predict"}


def test_deployment_installs_with_the_same_line():
    (line,) = re.findall(r"^    (pip install .*)$", PAGE, re.MULTILINE)
    assert f"    {line}\n" in (ROOT / "docs" / "deployment.md").read_text("utf-8")


def made_up_rows(folder, seed):
    x = np.random.default_rng(seed).uniform(-0.5, 0.5, size=(400, 3))
    rows = np.column_stack([x, x @ [1.0, -2.0, 0.5]])
    np.savetxt(folder / "rows.csv", rows, delimiter=",", header="age,dose,weight,y", comments="")


def walked(folder, text):
    """Walk: set up in order, serve and join beside each other, predict at the end; returns the seconds."""
    machines = {machine for machine, _ in commands(text)}
    for seed, machine in enumerate(sorted(machines)):
        (folder / machine).mkdir()
        made_up_rows(folder / machine, seed)
    ports = {port: str(processes.free_port()) for port in set(re.findall(r"--port (\d+)", text))}
    began, running = time.monotonic(), []

    def typed(machine, words):
        words = [ports.get(word, word) for word in words]
        return start("sh", "-c", 'cd "$0" && echo y | exec "$@"', folder / machine, *PGFL, *words)

    try:
        for step in steps(text):
            if len(step) == 3:
                file, here, there = step
                shutil.move(folder / here / file, folder / there / file.rpartition("/")[2])
                continue
            machine, words = step
            if words[0] == "predict":
                for beside, child in running:
                    ended = finish(child)
                    assert ended.returncode == 0, (beside, ended.stdout, ended.stderr)
            child = typed(machine, words)
            if words[1] in ("serve", "join"):
                running.append((words, child))
            else:
                ended = finish(child)
                assert ended.returncode == 0, (words, ended.stdout, ended.stderr)
    finally:
        for _, child in running:
            if child.poll() is None:
                child.terminate()
    return time.monotonic() - began


def share_explained(table):
    """How much of the variance of y the predictions explain."""
    rows = np.genfromtxt(table, delimiter=",", names=True)
    predicted = next(rows[name] for name in rows.dtype.names if name.startswith("pred"))
    return 1.0 - np.mean((rows["y"] - predicted) ** 2) / np.var(rows["y"])


@pytest.mark.proof
@pytest.mark.parametrize(("text", "machine"), [(FIRST, "north"), (MASKED, "clinic")], ids=["local", "masked"])
def test_the_walk_ends_with_a_model_that_predicts(tmp_path, text, machine):
    seconds = walked(tmp_path, text)
    print(f"walked {len(commands(text))} commands in {seconds:.1f} s")
    explained = share_explained(tmp_path / machine / "predicted.csv")
    print(f"R2 = {explained:.2f}")
    assert explained > 0.15, "ten rounds are few, but there is a model"
