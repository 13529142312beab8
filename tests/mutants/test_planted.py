"""The list of planted bugs fits the source, the runner tells the truth, and the ten worst are caught."""

import ast
import re
import textwrap
from collections import Counter
from dataclasses import replace
from functools import cache

import pytest

from pgfl.lab.audit.cases import cases, deployed_cases
from pgfl.lab.audit.findings import PLAY
from tests.mutants import run
from tests.mutants.planted import PLANTED
from tests.mutants.syntax import DoesNotFit, Package, edited

SOURCE = run.REPOSITORY / "src" / "pgfl"
ATTACKED = {case.name for case in [*cases(), *deployed_cases()]}
WORST = [mutant for mutant in PLANTED if mutant.worst]
HARMLESS = replace(
    PLANTED[0], name="harmless", new=f"({PLANTED[0].old})", attacks=(),
    tests=("tests/algorithms/test_streams.py::test_every_argument_matters",),
)  # fmt: skip


def test_every_bug_has_its_place_and_those_who_must_notice_exist():
    package = Package.at(SOURCE)
    assert {mutant.name: wrong for mutant in PLANTED if (wrong := wrong_with(mutant, package))} == {}
    assert [path for path in run.WIDER if not (run.REPOSITORY / path).exists()] == []


def wrong_with(mutant, package):
    """Return what has to be changed in the list, as a sentence."""
    try:
        path, text = run.planted_text(mutant, package)
        compile(text, path, "exec")
    except (DoesNotFit, SyntaxError) as error:
        return str(error)
    if ast.unparse(ast.parse(mutant.old)) == ast.unparse(ast.parse(mutant.new)):
        return "the edit changes nothing"
    if not mutant.tests and not mutant.attacks:
        return "nobody must notice it"
    unknown = [test for test in mutant.tests if not is_test(test)]
    unknown += [attack for attack in mutant.attacks if not is_attack(attack)]
    return f"there is no {unknown[0]}" if unknown else None


def is_test(test):
    file, _, name = test.partition("[")[0].partition("::")
    return (run.REPOSITORY / file).is_file() and (not name or name in functions_of(file))


def is_attack(attack):
    subject, _, path = attack.partition("/")
    return subject in ATTACKED and path in PLAY


@cache
def functions_of(file):
    return set(re.findall(r"^(?:async )?def (\w+)", (run.REPOSITORY / file).read_text("utf-8"), flags=re.MULTILINE))


def test_what_is_wrong_in_the_list_is_said():
    package = Package.at(SOURCE)
    first = PLANTED[0]
    assert wrong_with(first, package) is None
    assert "defined in no module" in wrong_with(replace(first, where="Nobody.release"), package)
    assert "must have one definition" in wrong_with(replace(first, where="main"), package)
    assert wrong_with(replace(first, old="absent + 1", new="absent"), package) == "found 0 times: absent + 1"
    assert wrong_with(replace(first, at=2), package).startswith("found 1 times")
    assert wrong_with(replace(first, new="return"), package).startswith("found 0 times")
    assert wrong_with(replace(first, new="1 +"), package).startswith("not Python")
    assert wrong_with(HARMLESS, package) == "the edit changes nothing"
    assert wrong_with(replace(first, tests=(), attacks=()), package) == "nobody must notice it"
    assert wrong_with(replace(first, tests=("tests/test_rooms.py::test_x",)), package).startswith("there is no")
    assert wrong_with(replace(first, attacks=("huber/nowhere",)), package) == "there is no huber/nowhere"


PROPERTY = """\
@property
    def load(self):
        return [self.of(  # the first
            "größe", 1), self.of("größe", 1)]"""
SHIP = f"""\
LIMIT: Final = 3  # as agreed


class Ship:
    {PROPERTY}

    @load.setter
    def load(self, value):
        global log
        if value:
            self.stow(value)
        elif self.full: raise Full(
            f"{{value}} is too much")
        else:
            for case in value:
                self.stow(case)
"""


@pytest.mark.parametrize(
    ("where", "old", "new", "at", "before", "after"),
    [
        ("LIMIT", "3", "4", None, "= 3  #", "= (4)  #"),
        ("ship:LIMIT", "3", "4", None, "= 3  #", "= (4)  #"),
        ("Ship.load", "self.of('größe', 1)", "0", 2, 'self.of("größe", 1)]', "(0)]"),
        ("Ship.load", "self.full", "a or b", None, "self.full", "(a or b)"),
        ("Ship.load", "self.stow(case)", "", None, "self.stow(case)", "pass"),
        ("Ship.load", "self.stow(case)", "...\nlog()", None, "stow(case)", "stow(case)\n                log()"),
        ("Ship.load", "for case in value: ...", "if a:\n    ok()\n...", None,
         "            for", "            if a:\n                ok()\n            for"),
        ("Ship.load", "global log", "", None, "global log", "pass"),
        ("Ship.load", "raise Full(...)", "return", None, 'raise Full(\n            f"{value} is too much")', "return"),
        ("Ship", "@property\ndef load(self): ...", "load = 0", None, PROPERTY, "load = 0"),
    ],
)  # fmt: skip
def test_only_the_named_syntax_is_replaced(where, old, new, at, before, after, tmp_path):
    (tmp_path / "ship.py").write_text(SHIP, "utf-8")
    module, definitions = Package.at(tmp_path).find(where)
    assert SHIP.count(before) == 1
    assert edited(module.text, definitions, old, new, at) == SHIP.replace(before, after)


def test_a_moved_and_reformatted_function_is_found_again(tmp_path):
    (tmp_path / "fleet").mkdir()
    moved = "if True:\n" + textwrap.indent(ast.unparse(ast.parse(SHIP)), "    ")
    (tmp_path / "fleet" / "ship_of_line.py").write_text(moved, "utf-8")
    module, definitions = Package.at(tmp_path).find("Ship.load")
    assert module.name == "fleet.ship_of_line"
    assert "if (False):" in edited(module.text, definitions, "value", "False", 1)


def test_names_are_unique_and_ten_are_the_worst():
    assert not [name for name, count in Counter(mutant.name for mutant in PLANTED).items() if count > 1]
    assert len(WORST) == 10


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    return run.Copy.made_in(tmp_path_factory.mktemp("mutants") / "copy")


@pytest.mark.proof
@pytest.mark.parametrize("mutant", WORST, ids=lambda mutant: mutant.name)
def test_the_worst_are_caught_by_those_who_must_notice(mutant, copy):
    outcome = run.judged(mutant, copy, wider=())
    assert outcome.verdict == "caught"
    named = {test.partition("[")[0] for test in mutant.tests} | {f"audit {attack}" for attack in mutant.attacks}
    assert set(outcome.by) <= named


@pytest.mark.proof
def test_an_attack_that_measures_no_more_than_is_claimed_is_no_catch(copy):
    assert copy.leaks("huber/simulator") == ()


def test_an_edit_that_no_longer_fits_is_said_so(copy):
    outcome = run.judged(replace(PLANTED[0], old="text_that_is_not_there"), copy)
    assert (outcome.verdict, outcome.good) == ("does not fit: found 0 times: text_that_is_not_there", False)


def test_an_edit_that_changes_nothing_survives_and_nothing_stays_of_it(copy):
    before = {path: path.read_bytes() for path in SOURCE.rglob("*.py")}
    assert run.judged(HARMLESS, copy, wider=()).verdict == "survived"
    assert {path: path.read_bytes() for path in SOURCE.rglob("*.py")} == before
    copied = copy.folder / "src" / "pgfl"
    assert {path: (copied / path.relative_to(SOURCE)).read_bytes() for path in before} == before


def test_what_was_compiled_of_a_bug_is_not_used_afterwards(copy):
    """Python takes compiled code for current if the source's length and the second of its change are the same."""
    mutant = replace(PLANTED[0], where="LEAST_UNITS", old="1000", new="10")  # (10) is as long as 1000
    asked = ("-c", "from pgfl.privacy.lattice import LEAST_UNITS; print(LEAST_UNITS)")
    with copy.planted(mutant):
        assert copy._python(*asked).stdout == "10\n"
    assert copy._python(*asked).stdout == "1000\n"


def test_a_test_that_fails_anyway_is_no_catch(copy):
    broken = replace(HARMLESS, tests=("tests/no_such_file.py",), attacks=())
    assert run.failing_anyway([broken], copy) == ("pytest itself",)


def test_the_command_lists_and_refuses(capsys):
    assert run.main(["--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(PLANTED)
    with pytest.raises(SystemExit, match="no planted bug called nothing"):
        run.main(["--only", "nothing"])


@pytest.mark.parametrize(("verdict", "code"), [("caught", 0), ("survived", 1), ("does not fit", 1), ("hung", 1)])
def test_the_exit_code_says_whether_all_are_caught(verdict, code, monkeypatch, capsys):
    outcome = run.Outcome(HARMLESS, verdict, ("tests/a.py::test_b",) if code == 0 else ())
    monkeypatch.setattr(run, "run", lambda mutants, jobs, everyone: [outcome])
    assert run.main(["--only", PLANTED[0].name]) == code
    assert f"| {'`tests/a.py::test_b`' if code == 0 else f'nobody: {verdict}'} |" in capsys.readouterr().out


def test_the_page_has_one_row_per_bug_and_says_who_caught_it():
    caught = run.Outcome(HARMLESS, "caught", tuple(f"tests/a.py::test_{n}" for n in range(5)))
    with_bars = replace(HARMLESS, name="bars", title="m at |C_s| = 1")
    rows = run.page([caught, run.Outcome(with_bars, "survived")]).splitlines()
    assert "1 of 2 planted bugs were caught." in rows
    named = ", ".join(f"`tests/a.py::test_{n}`" for n in range(3))
    assert rows[-2] == f"| harmless | {HARMLESS.title} | `{HARMLESS.where}` | {named} and 2 more |"
    assert rows[-1] == rf"| bars | m at \|C_s\| = 1 | `{HARMLESS.where}` | nobody: survived |"


def test_a_part_of_the_list_is_not_written_as_the_page():
    with pytest.raises(SystemExit, match="leave out --only"):
        run.main(["--write", "--only", PLANTED[0].name])


def test_the_page_has_a_row_for_every_planted_bug():
    page = (run.REPOSITORY / "docs" / "mutants.md").read_text("utf-8")
    assert re.findall(r"^\| ([\w-]+) \|", page, flags=re.MULTILINE)[1:] == [mutant.name for mutant in PLANTED]
