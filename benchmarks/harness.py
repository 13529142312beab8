"""Measuring side by side: the two sides take turns in one run, because a shared machine is never equally busy twice.

A figure is a ratio: the median over turns, with the quartiles as its spread. Where both sides use one thread, CPU time
is measured, which another process cannot take away; else wall time. Start-up is measured apart.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

import numpy as np

HERE = Path(__file__).parent
BEHIND = 0.2  # a row may fall so far behind the committed one
QUICK = 4  # `--quick` takes so many times fewer turns
_quick = False
PACKAGES = ("pgfl", "numpy", "scipy", "numba", "jax", "opendp", "mpi4py")


@dataclass
class Row:
    """One line of the table. `ratio` is theirs over ours where more is better (`goal` "≥ …"), else ours over theirs."""

    name: str
    what: str
    beside: str
    goal: str
    ratio: float
    low: float
    high: float
    ours: str
    theirs: str
    start_up: str = ""
    clock: str = ""
    load: float | None = None  # of the machine before the case began

    def __post_init__(self) -> None:
        self.ratio, self.low, self.high = float(self.ratio), float(self.low), float(self.high)

    @property
    def met(self) -> bool:
        """Whether the median reaches the goal; a row without one (—) tells what is."""
        if self.goal == "—":
            return True
        sense, number = self.goal.split()[:2]
        limit = float(number.rstrip("×%s").replace(",", ""))
        return bool(self.ratio >= limit if sense == "≥" else self.ratio <= limit)


@dataclass
class Turns:
    """Seconds of both sides, turn by turn."""

    ours: np.ndarray
    theirs: np.ndarray

    def faster(self) -> tuple[float, float, float]:
        """How many times faster ours is: median and quartiles."""
        return quartiles(self.theirs / self.ours)

    def slower(self) -> tuple[float, float, float]:
        """How many times ours takes of theirs."""
        return quartiles(self.ours / self.theirs)


def quartiles(ratios: np.ndarray) -> tuple[float, float, float]:
    """The median, and the quartiles around it."""
    low, middle, high = np.percentile(ratios, [25, 50, 75])
    return float(middle), float(low), float(high)


def take_turns(
    ours: Callable[[], object],
    theirs: Callable[[], object],
    turns: int,
    repeat: tuple[int, int] = (1, 1),
    clock: Callable[[], float] = time.perf_counter,
) -> Turns:
    """Let both sides run `turns` times, one after the other; a turn repeats each side as often as `repeat` says."""
    turns = max(5, turns // QUICK) if _quick else turns
    seconds = np.empty((2, turns))
    for turn in range(turns):
        for side, (work, times) in enumerate(zip((ours, theirs), repeat, strict=True)):
            began = clock()
            for _ in range(times):
                work()
            seconds[side, turn] = (clock() - began) / times
    return Turns(*seconds)


def seconds(value: float) -> str:
    """A time for people."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def machine() -> dict[str, object]:
    """Where it was measured."""
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return {
        "processor": model,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        "load": round(os.getloadavg()[0], 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def versions() -> dict[str, str]:
    """What our own side runs on, as installed."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


Part = Literal["bench", "peers", "network"]
TITLES: dict[Part, str] = {
    "bench": "Beside plain loops, limits and itself",
    "peers": "Beside other federated-learning simulators",
    "network": "The real network",
}
COMMANDS: dict[Part, str] = {"bench": "make bench", "peers": "make bench-peers", "network": "make bench-network"}
Case = Callable[[], Iterator[Row]]
Cases = Mapping[str, Case]


def main(
    part: Part,
    about: str | None,
    cases: Cases,
    remarks: Sequence[str],
    quick: Sequence[str] = (),
    apart: Sequence[str] = (),
) -> int:
    """Measure all cases or those after `--only`, each in a process of its own; 1 if a goal was missed.

    The cases `apart` are measured only when they are named; their rows are kept until then.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--only", choices=cases, nargs="+", action="extend", help="measure some of the cases anew")
    parser.add_argument("--json", action="store_true", help="figures for machines")
    parser.add_argument(
        "--quick", action="store_true", help="fewer cases and turns, beside the committed figures; nothing is written"
    )
    chosen = parser.parse_args()
    if chosen.quick:
        return compared(part, [row for name in chosen.only or quick for row in _rows(cases[name], quick=True)])
    rows, figures = [], {}
    for name in chosen.only or [name for name in cases if name not in apart]:
        sys.stderr.write(f"{name} …\n")
        for row in _rows(cases[name]):
            rows.append(row)
            sys.stderr.write(f"{row.name:24s} {row.ratio:10.3g} ({row.low:.3g}–{row.high:.3g})  goal {row.goal}\n")
        figures = publish(part, rows, remarks, keep=True)
    if not chosen.only:
        figures = publish(part, rows, remarks, keep=bool(apart))
    return show(part, figures, chosen.json)


def _rows(case: Case, quick: bool = False) -> list[Row]:
    """What a case finds in a process of its own: no row depends on what was measured before it."""
    load = round(os.getloadavg()[0], 1)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
        rows = alone.submit(_measured, case, quick).result()
    for row in rows:
        row.load = load
    if quick:
        sys.stderr.write(".")
        sys.stderr.flush()
    return rows


def _measured(case: Case, quick: bool) -> list[Row]:
    global _quick
    _quick = quick
    return list(case())


def compared(part: Part, rows: Sequence[Row]) -> int:
    """Print rows beside the committed ones; 1 if any has fallen behind on the same kind of machine."""
    kept = HERE / f"results-{part}.json"
    committed = json.loads(kept.read_text()) if kept.exists() else {"machine": {}, "rows": []}
    here = machine()
    same = all(committed["machine"].get(key) == here[key] for key in ("processor", "cores"))
    before = {row["name"]: row for row in committed["rows"]} if same else {}
    lines, fallen = [("", "ratio", "committed", "goal", "")], []
    for row in rows:
        old = before.get(row.name)
        behind = old is not None and fell_behind(row, old["ratio"])
        fallen += [row.name] if behind else []
        remark = "FELL BEHIND" if behind else "" if row.met else "misses its goal"
        lines.append((row.name, f"{row.ratio:.3g}", f"{old['ratio']:.3g}" if old else "—", row.goal, remark))
    widths = [max(len(line[column]) for line in lines) for column in range(5)]
    table = "\n".join("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in lines)
    where = "" if same else " The committed figures are of another kind of machine, so nothing is compared."
    sys.stdout.write(f"\n{table}\n\nLoad {here['load']} on {here['cores']} cores.{where}\n")
    if fallen:
        sys.stdout.write(f"More than {BEHIND:.0%} behind the committed figures: {', '.join(fallen)}.\n")
    return 1 if fallen else 0


def fell_behind(row: Row, committed: float) -> bool:
    """Whether a ratio is worse than the committed one by more than the allowance; seconds are no ratio."""
    if row.goal.endswith(" s"):
        return False
    if row.goal.startswith("≥"):
        return row.ratio < committed * (1.0 - BEHIND)
    return row.ratio > committed * (1.0 + BEHIND)


def publish(part: Part, rows: Sequence[Row], remarks: Sequence[str], *, keep: bool) -> dict:
    """Write this part's figures and rebuild RESULTS.md from all parts; may `keep` rows that were not measured anew."""
    kept = HERE / f"results-{part}.json"
    before = json.loads(kept.read_text())["rows"] if keep and kept.exists() else []
    measured = {row.name: asdict(row) | {"met": row.met} for row in rows}
    figures = {
        "command": COMMANDS[part],
        "machine": machine(),
        "versions": versions(),
        "rows": [measured.pop(row["name"], row) for row in before] + list(measured.values()),
        "remarks": list(remarks),
    }
    kept.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n")
    write_page()
    return figures


def write_page() -> None:
    """RESULTS.md from the figures of all parts."""
    sections = []
    for each, title in TITLES.items():
        kept = HERE / f"results-{each}.json"
        if kept.exists():
            sections.append(_section(title, json.loads(kept.read_text())))
    intro = (
        "# Results\n\nMade by `make bench`, `make bench-peers` and `make bench-network`. Ratios are medians over "
        "turns, with quartiles; the two sides of a row take turns in one run. Rows can come from different runs "
        "(`--only` measures some anew). The last column is the machine's load, over one minute, before the row's case "
        "began; rows without one are older. Absolute times mean little on a shared machine.\n"
    )
    (HERE / "RESULTS.md").write_text("\n".join([intro, *sections]))


def show(part: Part, figures: dict, as_json: bool) -> int:
    """Print the figures; 1 if a goal was missed."""
    sys.stdout.write(json.dumps(figures, indent=1, ensure_ascii=False) if as_json else _section(TITLES[part], figures))
    return 0 if all(row["met"] for row in figures["rows"]) else 1


def _section(title: str, figures: dict) -> str:
    where = figures["machine"]
    lines = [
        f"## {title}",
        "",
        f"`{figures['command']}` on {where['processor']}, {where['cores']} cores, {where['memory_gib']} GiB, "
        f"{where['system']}, Python {where['python']}; "
        + ", ".join(f"{name} {number}" for name, number in figures["versions"].items())
        + ".",
        "",
        "| what | beside | goal | ratio (quartiles) | ours | theirs | start-up | clock | load |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in figures["rows"]:
        mark = "" if row["met"] else " **missed**"
        found = f"{row['ratio']:.3g} ({row['low']:.3g}–{row['high']:.3g}){mark}"
        load = "" if row.get("load") is None else f"{row['load']:.1f}"
        lines.append(
            f"| {row['what']} | {row['beside']} | {row['goal']} | {found} "
            f"| {row['ours']} | {row['theirs']} | {row['start_up']} | {row['clock']} | {load} |"
        )
    return "\n".join([*lines, "", *(f"- {remark}" for remark in figures["remarks"]), ""])
