"""The list of planted bugs fits the source, the runner tells the truth, and the ten worst are caught."""

import ast
import re
from collections import Counter
from dataclasses import replace
from functools import cache

import pytest

from pgfl.audit.cases import cases, deployed_cases
from pgfl.audit.findings import PLAY
from tests.mutants import run
from tests.mutants.planted import PLANTED

SOURCE = run.REPOSITORY / "src" / "pgfl"
ATTACKED = {case.name for case in [*cases(), *deployed_cases()]}
WORST = [mutant for mutant in PLANTED if mutant.worst]
HARMLESS = replace(
    PLANTED[0], name="harmless", new=f"{PLANTED[0].old}  # as it was", tests=("tests/core/test_streams.py",),
    attacks=("huber/simulator",),
)  # fmt: skip


@pytest.mark.parametrize("mutant", PLANTED, ids=lambda mutant: mutant.name)
def test_an_edit_fits_exactly_once_and_leaves_python(mutant):
    text = (SOURCE / mutant.file).read_text("utf-8")
    assert text.count(mutant.old) == 1
    edited = run.planted_text(mutant, SOURCE / mutant.file)
    assert ast.dump(ast.parse(edited)) != ast.dump(ast.parse(text))
    assert mutant.tests or mutant.attacks


@pytest.mark.parametrize("mutant", PLANTED, ids=lambda mutant: mutant.name)
def test_who_must_notice_exists(mutant):
    for test in mutant.tests:
        file, _, name = test.partition("[")[0].partition("::")
        found = functions_of(file)
        assert not name or name in found
    for attack in mutant.attacks:
        subject, _, path = attack.partition("/")
        assert subject in ATTACKED
        assert path in PLAY


@cache
def functions_of(file):
    tree = ast.parse((run.REPOSITORY / file).read_text("utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_names_are_unique_and_ten_are_the_worst():
    assert not [name for name, count in Counter(mutant.name for mutant in PLANTED).items() if count > 1]
    assert len(WORST) == 10


@pytest.mark.parametrize("mutant", WORST, ids=lambda mutant: mutant.name)
def test_the_worst_are_caught_by_those_who_must_notice(mutant, tmp_path):
    outcome = run.judged(mutant, tmp_path, wider=())
    assert outcome.verdict == "caught"
    named = {test.partition("[")[0] for test in mutant.tests} | {f"audit {attack}" for attack in mutant.attacks}
    assert set(outcome.by) <= named


def test_an_edit_that_no_longer_fits_is_said_so(tmp_path):
    outcome = run.judged(replace(PLANTED[0], old="text that is not there"), tmp_path)
    assert (outcome.verdict, outcome.good) == ("does not fit", False)


def test_an_edit_that_changes_nothing_survives_and_the_work_tree_is_not_touched(tmp_path):
    before = {path: path.read_bytes() for path in SOURCE.rglob("*.py")}
    assert run.judged(HARMLESS, tmp_path, wider=()).verdict == "survived"
    assert {path: path.read_bytes() for path in SOURCE.rglob("*.py")} == before
    assert list(tmp_path.iterdir()) == []


def test_a_test_that_fails_anyway_is_no_catch(tmp_path):
    broken = replace(HARMLESS, tests=("tests/no_such_file.py",), attacks=())
    assert run.failing_anyway([broken], tmp_path) == ("pytest itself",)


def test_the_command_lists_and_refuses(capsys):
    assert run.main(["--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(PLANTED)
    with pytest.raises(SystemExit, match="no planted bug called nothing"):
        run.main(["--only", "nothing"])


@pytest.mark.parametrize(("verdict", "code"), [("caught", 0), ("survived", 1), ("does not fit", 1), ("hung", 1)])
def test_the_exit_code_says_whether_all_are_caught(verdict, code, monkeypatch, capsys):
    outcome = run.Outcome(HARMLESS, verdict, ("tests/a.py::test_b",) if code == 0 else ())
    monkeypatch.setattr(run, "run", lambda mutants, jobs: [outcome])
    assert run.main(["--only", PLANTED[0].name]) == code
    assert f"| {'`tests/a.py::test_b`' if code == 0 else f'nobody: {verdict}'} |" in capsys.readouterr().out


def test_the_page_has_one_row_per_bug_and_says_who_caught_it():
    caught = run.Outcome(HARMLESS, "caught", tuple(f"tests/a.py::test_{n}" for n in range(5)))
    with_bars = replace(HARMLESS, name="bars", title="m at |C_s| = 1")
    rows = run.page([caught, run.Outcome(with_bars, "survived")]).splitlines()
    assert "1 of 2 planted bugs were caught." in rows
    named = ", ".join(f"`tests/a.py::test_{n}`" for n in range(3))
    assert rows[-2] == f"| harmless | {HARMLESS.title} | `{HARMLESS.file}` | {named} and 2 more |"
    assert rows[-1] == rf"| bars | m at \|C_s\| = 1 | `{HARMLESS.file}` | nobody: survived |"


def test_a_part_of_the_list_is_not_written_as_the_page():
    with pytest.raises(SystemExit, match="leave out --only"):
        run.main(["--write", "--only", PLANTED[0].name])


def test_the_page_has_a_row_for_every_planted_bug():
    page = (run.REPOSITORY / "docs" / "mutants.md").read_text("utf-8")
    assert re.findall(r"^\| ([\w-]+) \|", page, flags=re.MULTILINE)[1:] == [mutant.name for mutant in PLANTED]
