"""The state of a run after its last round: what further rounds depend on, besides the models.

Under privacy it is a function of what clients released, as everything else outside `simulation_only` is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from pgfl.array_types import AnyArray, AnyFloats
from pgfl.atomic_files import write_atomically
from pgfl.errors import ResultError

STATE = "state.npz"
MOST_NUMBERS = 10_000_000
"""Duals with more numbers than this are not kept: a continuation then restarts from the servers' models."""

MOST_SERVER_NUMBERS = 50_000_000
"""Server states with more numbers than this are not kept, and the run cannot be continued."""

ACCOUNT = ("releases", "rho", "refusals")


@dataclass(frozen=True, eq=False)
class TrainingState:
    """The state of one run.

    `duals` has one row per client of the result; `servers` has the server rule's own arrays, one row per pair of names
    in `pairs`. Both are None where they were too large to keep. `accounts` holds, under `client`, everyone who was ever
    in this training, also those who have left, with what they have spent, how many `records` they had last, and whether
    they `inherited` an account. `played` lists the seeds that rounds were
    drawn with, as (seed, participants, last round). `privacy` and `budget` are those of the run.
    """

    round: int
    algorithm: str
    played: tuple[tuple[int, int | str, int], ...]
    duals: AnyFloats | None = None
    pairs: tuple[tuple[str, str], ...] = ()
    known: AnyArray | None = None
    servers: Mapping[str, AnyFloats] | None = None
    accounts: Mapping[str, AnyArray] | None = None
    privacy: Mapping[str, Any] | None = None
    budget: Mapping[str, Any] | None = None

    def save(self, path: Path) -> None:
        """Write the state to a file."""
        write_atomically(path, self._write)

    def _write(self, stream: BinaryIO) -> None:
        page = {
            "round": self.round,
            "algorithm": self.algorithm,
            "played": self.played,
            "pairs": self.pairs,
            "privacy": self.privacy,
            "budget": self.budget,
        }
        arrays: dict[str, Any] = {"page": np.array(json.dumps(page, ensure_ascii=False))}
        if self.duals is not None:
            arrays["duals"] = self.duals
        if self.known is not None:
            arrays["known"] = self.known
        arrays |= {f"servers/{name}": values for name, values in (self.servers or {}).items()}
        arrays |= {f"accounts/{name}": values for name, values in (self.accounts or {}).items()}
        np.savez(stream, **arrays)

    @classmethod
    def load(cls, path: Path) -> TrainingState:
        """Read a state; `folder.load` reports a damaged file."""
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        page = json.loads(str(arrays["page"]))
        return cls(
            round=int(page["round"]),
            algorithm=str(page["algorithm"]),
            played=tuple((int(seed), participants, int(last)) for seed, participants, last in page["played"]),
            duals=arrays.get("duals"),
            pairs=tuple((server, cluster) for server, cluster in page["pairs"]),
            known=arrays.get("known"),
            servers=_under("servers/", arrays) or None,
            accounts=_under("accounts/", arrays) or None,
            privacy=page["privacy"],
            budget=page["budget"],
        )


def _under(prefix: str, arrays: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
    return {name.removeprefix(prefix): values for name, values in arrays.items() if name.startswith(prefix)}


def nothing_to_go_on_with(folder: Path | None) -> ResultError:
    """The error for a result that was saved without a state."""
    return ResultError(
        f"{folder or 'This result'} keeps no state to go on with: an older version or several processes wrote it, or "
        "it is very large; start a new run."
    )
