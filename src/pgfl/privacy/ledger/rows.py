"""The rows of a ledger: what a client has agreed to spend, its releases, and digests over rows."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Self

from pgfl.errors import PrivacyError
from pgfl.privacy.budget import Budget
from pgfl.privacy.trust import Level


@dataclass(frozen=True)
class Policy:
    """What a client has agreed to, for good: its budget, by release, and its data bounds, as they are stored.

    At least one of `max_releases` and `rho_budget` caps what can be spent.
    """

    phi0: float
    zeta: float
    delta: float
    max_releases: int | None = None
    rho_budget: float | None = None
    bounds: Mapping[str, float | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.max_releases is None and self.rho_budget is None:
            raise PrivacyError("A ledger needs a budget: set max_releases or a target epsilon.")
        object.__setattr__(self, "bounds", dict(self.bounds))
        _ = self.budget  # which refuses what is no budget

    @classmethod
    def of(cls, budget: Budget, bounds: Mapping[str, float | None] | None = None) -> Self:
        """The policy that keeps to a budget by release."""
        if budget.index != "release":
            raise PrivacyError("A ledger counts releases, so its noise schedule must be by release.")
        return cls(budget.phi0, budget.zeta, budget.delta, budget.max_releases, budget.rho_budget, dict(bounds or {}))

    @cached_property
    def budget(self) -> Budget:
        """The schedule and what may be spent of it."""
        return Budget(self.phi0, self.zeta, self.delta, self.max_releases, self.rho_budget)

    def text(self) -> str:
        """One spelling of the policy, as it is stored and hashed."""
        return json.dumps(asdict(self), sort_keys=True)


NO_POLICY = json.dumps(None)  # of a ledger that was begun with privacy off


TABLES = """
CREATE TABLE about (format INTEGER NOT NULL, client TEXT NOT NULL, policy TEXT NOT NULL, digest BLOB NOT NULL);
CREATE TABLE head (
    releases INTEGER NOT NULL, filled INTEGER NOT NULL, accepted INTEGER NOT NULL, kept INTEGER NOT NULL,
    digest BLOB NOT NULL
);
CREATE TABLE releases (
    number INTEGER PRIMARY KEY, round_key TEXT NOT NULL UNIQUE, phi REAL NOT NULL, rho REAL NOT NULL,
    sensitivity REAL NOT NULL, sigma REAL NOT NULL, trust TEXT NOT NULL, digest BLOB NOT NULL, payload BLOB, seal BLOB,
    accepted BLOB
);
CREATE TABLE state (key TEXT PRIMARY KEY, value BLOB NOT NULL, digest BLOB NOT NULL);
"""
COLUMNS = "number, round_key, phi, rho, sensitivity, sigma, trust, digest, payload, seal, accepted"


@dataclass
class Slot:
    """A release that is charged. Set its `payload`, and put in `state` what is to be stored together with it."""

    number: int
    round_key: str
    phi: float
    rho: float
    sensitivity: float
    sigma: float
    trust: Level = "local"
    payload: bytes | None = None
    state: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Release:
    """A recorded release: its number n, its φ, the ρ spent up to and with it, its noise, and its bytes.

    A void one has none: it was charged, but failed or was killed before its bytes were stored.
    """

    number: int
    round_key: str
    phi: float
    rho: float
    sensitivity: float
    sigma: float
    trust: Level
    digest: bytes
    payload: bytes
    accepted: bool

    @property
    def void(self) -> bool:
        """Whether it is charged without bytes, for good."""
        return not self.payload

    @property
    def unprotected(self) -> bool:
        """Whether it left without noise."""
        return math.isinf(self.phi)

    @property
    def entrusted(self) -> bool:
        """Whether it left clean, to a site that adds the noise."""
        return self.trust == "site" and self.sigma == 0.0

    def describe(self) -> dict[str, Any]:
        """The row for people and JSON, without the bytes themselves."""
        figures = {name: getattr(self, name) for name in ("phi", "rho", "sensitivity", "sigma", "trust")}
        marks = {name: getattr(self, name) for name in ("accepted", "void", "unprotected", "entrusted")}
        named = {"number": self.number, "round_key": self.round_key}
        return {**named, **figures, **marks, "bytes": len(self.payload), "digest": self.digest.hex()}


class Head(NamedTuple):
    """How many releases there are, have their bytes, are accepted; how much state is kept; the last row's digest."""

    releases: int
    filled: int
    accepted: int
    kept: int
    digest: bytes


def release_of(row: tuple[Any, ...]) -> Release:
    """From the row of the table."""
    number, round_key, phi, rho, sensitivity, sigma, trust, digest, payload, _, accepted = row
    return Release(number, round_key, phi, rho, sensitivity, sigma, trust, digest, payload or b"", accepted is not None)


def sealed(row: bytes, payload: bytes | None, seal: bytes | None, accepted: bytes | None) -> bool:
    """Whether a row's bytes and acceptance are those that were written, where there are any."""
    filled = None if payload is None else digest_of(row, "payload", payload)
    return seal == filled and accepted in (None, digest_of(row, "accepted"))


def digest_of(*parts: object) -> bytes:
    """SHA-256 over parts with their types and lengths, so that no two lists of parts look alike."""
    seal = hashlib.sha256()
    for part in parts:
        raw = part if isinstance(part, bytes) else (part.hex() if isinstance(part, float) else str(part)).encode()
        seal.update(f"{type(part).__name__}:{len(raw)}:".encode())
        seal.update(raw)
    return seal.digest()
