"""`make mutants`: plant every bug in a copy of the source, and see which tests and attacks notice it.

The work tree is never touched. The named tests and attacks run first; only if none of them notices, all others do.
Before anything is planted they run on an unchanged copy, because a test that fails anyway catches nothing.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.util import cache_from_source
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.mutant import NOT_KEPT, Mutant
from tests.mutants.planted import PLANTED
from tests.mutants.syntax import DoesNotFit, Package, edited

REPOSITORY = Path(__file__).resolve().parents[2]
COPIED = ("src", "tests", "docs", "examples", "benchmarks", "pyproject.toml", "README.md", "Makefile", "CHANGELOG.md")
WIDER = (
    "tests/privacy",
    "tests/algorithms/test_roles.py",
    "tests/simulate/test_training.py",
    "tests/federation",
    "tests/cli",
    "tests/network",
    "tests/masking",
)
TRIALS = 500  # a world, for an attack
DEPLOYED_TRIALS = 100  # the same for a real client, each of which costs a ledger
SHOWN = 3  # of those who caught a bug, in a table
PATIENCE = 900.0  # seconds for one command
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?)(?:\[| |$)", flags=re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """What became of one mutant: `caught`, `caught elsewhere`, `survived`, `does not fit: …` or `hung`."""

    mutant: Mutant
    verdict: str
    by: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        return self.verdict.startswith("caught")


@dataclass(frozen=True)
class Copy:
    """A copy of the repository, in which one bug after the other is planted and commands run."""

    folder: Path

    @classmethod
    def made_in(cls, folder: Path) -> Copy:
        folder.mkdir(parents=True)
        for name in COPIED:  # with what is compiled already: a process that compiles it takes three times as long
            source = REPOSITORY / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("reproduction", "_build"))
            elif source.exists():
                shutil.copy2(source, folder / name)
        return cls(folder)

    @cached_property
    def package(self) -> Package:
        return Package.at(self.folder / "src" / "pgfl")

    @contextmanager
    def planted(self, mutant: Mutant) -> Iterator[None]:
        """Edit the copy for a while."""
        path, text = planted_text(mutant, self.package)
        original = path.read_text("utf-8")
        _replace(path, text)
        try:
            yield
        finally:
            _replace(path, original)

    def failures(self, *tests: str, most: int = 0, jobs: int = 0) -> tuple[str, ...]:
        """The tests that fail, `most` at most; a run that cannot even collect them fails as a whole."""
        options = ("-q", "--tb=no", "-rfE", f"--maxfail={most}", f"-n{jobs}", "--dist=loadfile")
        done = self._python("-m", "pytest", *options, *tests)
        found = tuple(dict.fromkeys(FAILED.findall(done.stdout)))
        return found or (("pytest itself",) if done.returncode else ())

    def leaks(self, *attacks: str) -> tuple[str, ...]:
        """Those of the audit's attacks that measure more than is claimed, or cannot go on."""
        codes = {
            attack: self._python("-m", "tests.mutants.attack_one", attack, str(trials_of(attack))).returncode
            for attack in attacks
        }
        crashed = {attack: "" if code == NOT_KEPT else " (crashed)" for attack, code in codes.items() if code}
        return tuple(f"audit {attack}{ending}" for attack, ending in crashed.items())

    def _python(self, *command: str) -> subprocess.CompletedProcess[str]:
        left_out = ("PYTEST_", "COV_", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(left_out)}
        environment["PYTHONPATH"] = os.pathsep.join([str(self.folder / "src"), str(self.folder)])
        environment.setdefault("OMP_NUM_THREADS", "1")
        return subprocess.run(
            [sys.executable, *command],
            cwd=self.folder, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip


def _replace(path: Path, text: str) -> None:
    """Write a module, and forget what was compiled of it: Python would compare whole seconds and the length only."""
    path.write_text(text, "utf-8")
    Path(cache_from_source(str(path))).unlink(missing_ok=True)


def trials_of(attack: str) -> int:
    """How many trials a world an attack has."""
    return DEPLOYED_TRIALS if attack.endswith("/deployed") else TRIALS


def planted_text(mutant: Mutant, package: Package) -> tuple[Path, str]:
    """The file that a mutant edits, and its edited source."""
    module, definitions = package.find(mutant.where)
    return module.path, edited(module.text, definitions, mutant.old, mutant.new, mutant.at)


def caught_by_named(copy: Copy, mutant: Mutant, *, everyone: bool) -> tuple[str, ...]:
    """The first of the named tests and attacks that notices, or all that do."""
    failed = copy.failures(*mutant.tests, most=0 if everyone else 1) if mutant.tests else ()
    return failed if failed and not everyone else failed + copy.leaks(*mutant.attacks)


def judged(mutant: Mutant, copy: Copy, *, wider: tuple[str, ...] = WIDER, everyone: bool = False) -> Outcome:
    """Plant one mutant in a copy and look for who notices."""
    began = time.monotonic()
    try:
        with copy.planted(mutant):
            by = caught_by_named(copy, mutant, everyone=everyone)
        if by:
            return Outcome(mutant, "caught", by, time.monotonic() - began)
        for tests in wider:
            with copy.planted(mutant):
                failed = copy.failures(tests, most=3)
            if by := tuple(test for test in failed if not copy.failures(test)):
                return Outcome(mutant, "caught elsewhere", by, time.monotonic() - began)
        return Outcome(mutant, "survived", (), time.monotonic() - began)
    except DoesNotFit as reason:
        return Outcome(mutant, f"does not fit: {reason}")
    except subprocess.TimeoutExpired:
        return Outcome(mutant, "hung", (), time.monotonic() - began)


def failing_anyway(mutants: list[Mutant], copy: Copy, jobs: int = 0) -> tuple[str, ...]:
    """The named tests and attacks that fail on an unchanged copy."""
    tests = tuple(dict.fromkeys(test for mutant in mutants for test in mutant.tests))
    attacks = dict.fromkeys(attack for mutant in mutants for attack in mutant.attacks)
    failed = copy.failures(*tests, jobs=jobs if len(tests) > 1 else 0) if tests else ()
    return failed + copy.leaks(*attacks)


def table(outcomes: list[Outcome]) -> str:
    """Who caught what, as Markdown."""
    lines = ["| name | planted bug | where | caught by |", "|---|---|---|---|"]
    for outcome in outcomes:
        mutant, title = outcome.mutant, outcome.mutant.title.replace("|", "\\|")
        lines.append(f"| {mutant.name} | {title} | `{mutant.where}` | {reported(outcome)} |")
    return "\n".join(lines) + "\n"


def reported(outcome: Outcome) -> str:
    """Who caught it, in a few words."""
    if not outcome.good:
        return f"nobody: {outcome.verdict}"
    named = ", ".join(f"`{name}`" for name in outcome.by[:SHOWN])
    more = f" and {len(outcome.by) - SHOWN} more" if len(outcome.by) > SHOWN else ""
    return named + more


def page(outcomes: list[Outcome]) -> str:
    """docs/mutants.md."""
    caught = sum(outcome.good for outcome in outcomes)
    return (
        "# Mutation tests\n\n"
        "Would anyone notice if a promise of [privacy.md](privacy.md) were broken, or one about [tables](tables.md),\n"
        "[verdicts](verdict.md) and [predictions](predicting.md)? Each row below is a small edit of the source that\n"
        "breaks one. The edit is made in a copy of the repository, where the tests and attacks that\n"
        "must notice it are run. All of them pass without the edit; those in the last column failed with it. For\n"
        "example, `audit huber/simulator` is an attack of `pgfl audit` that measured a larger privacy loss than the\n"
        "account claims.\n\n"
        f"{caught} of {len(outcomes)} planted bugs were caught.\n\n"
        "The bugs are listed in `tests/mutants`. `make mutants` plants all of them, `make mutants ARGS='--only NAME'`\n"
        "plants one, and `make mutants ARGS=--write` writes this page. `make proofs` plants the ten worst.\n\n"
        f"{table(outcomes)}"
    )


def chosen(names: list[str] | None) -> list[Mutant]:
    known = {mutant.name: mutant for mutant in PLANTED}
    if unknown := [name for name in names or () if name not in known]:
        raise SystemExit(f"There is no planted bug called {unknown[0]}; --list names them all.")
    return [known[name] for name in names] if names else list(PLANTED)


def run(mutants: list[Mutant], jobs: int, *, everyone: bool) -> list[Outcome]:
    """All outcomes, in the order of the list; progress on the way."""
    outcomes: dict[str, Outcome] = {}
    copies: SimpleQueue[Copy] = SimpleQueue()

    def judged_in_a_free_copy(mutant: Mutant) -> Outcome:
        copy = copies.get()
        try:
            return judged(mutant, copy, everyone=everyone)
        finally:
            copies.put(copy)

    with tempfile.TemporaryDirectory(prefix="pgfl-mutants-") as folder, ThreadPoolExecutor(jobs) as pool:
        for number in range(jobs):
            copies.put(Copy.made_in(Path(folder) / str(number)))
        unchanged = copies.get()
        if failing := failing_anyway(mutants, unchanged, jobs):
            raise SystemExit(f"These fail without any bug planted: {', '.join(failing)}; mend them first.")
        copies.put(unchanged)
        print(f"All named tests and attacks pass on the unchanged source; {len(mutants)} bugs to plant.", flush=True)
        waiting = [pool.submit(judged_in_a_free_copy, mutant) for mutant in mutants]
        for done in as_completed(waiting):
            outcome = done.result()
            outcomes[outcome.mutant.name] = outcome
            by = f" by {outcome.by[0]}" if outcome.by else ""
            count = f"{len(outcomes)}/{len(mutants)}"
            print(f"{count} {outcome.mutant.name}: {outcome.verdict}{by} ({outcome.seconds:.0f} s)", flush=True)
    return [outcomes[mutant.name] for mutant in mutants]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--only", action="append", metavar="NAME", help="plant this one; may be given several times")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="how many to judge at the same time (2)")
    parser.add_argument("--list", action="store_true", help="name all planted bugs and end")
    parser.add_argument(
        "--write", action="store_true", help="write docs/mutants.md, with all who notice instead of the first"
    )
    options = parser.parse_args(arguments)
    mutants = chosen(options.only)
    if options.write and options.only:
        raise SystemExit("--write writes the page of all planted bugs; leave out --only.")
    if options.list:
        for mutant in mutants:
            print(f"{mutant.name}: {mutant.title} ({mutant.where})")
        return 0
    outcomes = run(mutants, max(1, options.jobs), everyone=options.write)
    print(f"\n{table(outcomes)}")
    if options.write:
        (REPOSITORY / "docs" / "mutants.md").write_text(page(outcomes), "utf-8")
    wrong = [outcome for outcome in outcomes if not outcome.good]
    for outcome in wrong:
        print(f"{outcome.mutant.name}: {outcome.verdict}. {outcome.mutant.why}")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
