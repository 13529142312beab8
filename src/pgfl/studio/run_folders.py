"""Result folders: which there are, what they hold while a run goes on, and how runs differ."""

from __future__ import annotations

import csv
import json
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from pgfl.results.folder import CONFIG, LIVE, SUMMARY, is_complete
from pgfl.results.result_arrays import HISTORY

Status = Literal["done", "running", "interrupted"]
MOST_FOLDERS = 500
QUIET = 20.0
"""A run that has written nothing for so many seconds counts as interrupted; `pgfl run` writes twice a second."""
INDEX = ("run", "round")
NOT_COMPARED = ("name",)


@dataclass(frozen=True)
class RunEntry:
    """A result folder at a glance."""

    name: str
    path: Path
    status: Status
    changed: float
    summary: dict[str, Any]
    live: dict[str, Any]
    config: dict[str, Any]

    @property
    def when(self) -> str:
        """When it was last written to."""
        return datetime.fromtimestamp(self.changed).strftime("%Y-%m-%d %H:%M")

    @property
    def rounds(self) -> str:
        """How far it is."""
        if self.status == "done":
            return str(self.summary.get("rounds", ""))
        return f"{self.live.get('round', 0)} of {self.live.get('rounds', self.config.get('rounds', '?'))}"

    @property
    def metrics(self) -> tuple[str, ...]:
        """What was measured."""
        return tuple(name for name in history_of(self) if name not in INDEX)

    @property
    def epsilon(self) -> float | None:
        """What the worst client has spent, where a guarantee says so."""
        spent = (self.summary.get("privacy") or {}).get("epsilon") or {}
        guaranteed = self.config.get("privacy", {}).get("guarantee", "required") == "required"
        return spent.get("worst") if guaranteed else None

    @property
    def verdict(self) -> str:
        """What became of it, in one sentence."""
        return str((self.summary.get("verdict") or {}).get("sentence", ""))


def listed(root: Path) -> list[RunEntry]:
    """All result folders directly below a folder, or the folder itself, newest first."""
    if not root.is_dir():
        return []
    folders = [root] if _is_run(root) else [path for path in sorted(root.iterdir()) if path.is_dir() and _is_run(path)]
    found = [entry(path) for path in folders[:MOST_FOLDERS]]
    return sorted(found, key=lambda one: -one.changed)


def _is_run(path: Path) -> bool:
    return any((path / name).is_file() for name in (SUMMARY, CONFIG, LIVE))


def entry(path: Path) -> RunEntry:
    """One result folder; what cannot be read is empty."""
    done, live = is_complete(path), path / LIVE
    last = path / SUMMARY if done else live if live.exists() else path / CONFIG
    try:
        changed = last.stat().st_mtime
    except OSError:
        changed = 0.0
    fresh = time.time() - changed < QUIET
    status: Status = "done" if done else "running" if fresh else "interrupted"
    return RunEntry(
        path.name, path, status, changed, _json(path / SUMMARY) if done else {}, _json(live), _toml(path / CONFIG)
    )


def history_of(run: RunEntry) -> dict[str, list[float | None]]:
    """The history of run 0: whole, or as far as it has come."""
    table = run.live.get("history", {}) if run.status != "done" else _csv(run.path / HISTORY)
    if not table or "round" not in table:
        return {}
    first = [place for place, number in enumerate(table.get("run", [])) if number == 0]
    return {name: [values[place] for place in first] for name, values in table.items()}


def difference(runs: Sequence[RunEntry]) -> list[tuple[str, list[str]]]:
    """The keys in which configs differ, with the value of each run; a dash where it has none."""
    flat = [_flat(run.config) for run in runs]
    keys = [key for one in flat for key in one]
    found = []
    for key in dict.fromkeys(keys):
        values = [_text(one[key]) if key in one else "—" for one in flat]
        if len(set(values)) > 1 and key not in NOT_COMPARED:
            found.append((key, values))
    return found


def privacy_rows(runs: Sequence[RunEntry]) -> list[tuple[str, list[str]]]:
    """What is promised and spent, one column per run."""
    rows: list[tuple[str, list[str]]] = [
        ("guarantee", [str(run.summary.get("guarantee") or "no privacy") for run in runs]),
        ("noise", [str(run.summary.get("noise") or "—") for run in runs]),
    ]
    for figure in ("epsilon", "releases"):
        worst = [((run.summary.get("privacy") or {}).get(figure) or {}) for run in runs]
        for which in ("worst", "median"):
            values = ["—" if one.get(which) is None else f"{one[which]:.4g}" for one in worst]
            rows.append((f"{figure}, {which} client", values))
    return [row for row in rows if any(value != "—" for value in row[1])]


def _flat(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}


def _csv(path: Path) -> dict[str, list[float | None]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
    except (OSError, ValueError):
        return {}
    if not rows:
        return {}
    return {name: [_number(row[place]) for row in rows[1:]] for place, name in enumerate(rows[0])}


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value == value and abs(value) != float("inf") else None
