"""A site as the trustee of clients that send it clean contributions: their accounts, and the noise it adds for them.

What leaves is the sum over a cluster's clean contributors with noise on it, σ = max_k Δ_k/√(2φ_k). Client k is charged
Δ_k²/(2σ²) ≤ φ_k for it, by its own schedule. The order is that of a device. Every contributor's charge is on disk
before the noise is drawn. The noised sum is on disk before it is used. A round that comes again, after a crash, gets
the same numbers, or none if they were lost: the same contributions are never noised twice. Clean contributions are held
in memory only, until their sum is noised.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from pgfl.algorithms.algorithms import Algorithm
from pgfl.arrays import Floats
from pgfl.errors import LedgerError, PrivacyError
from pgfl.network.agreement import SiteTerms, Training
from pgfl.network.site.bounds import Ball, ClientBound
from pgfl.network.site.store import SiteStore
from pgfl.privacy import lattice
from pgfl.privacy.ledger.ledger import Ledger
from pgfl.privacy.ledger.rows import Slot
from pgfl.privacy.trust import over_cap, sum_sigma

LEDGERS = "ledgers"  # the folder of the accounts in a site's folder
LARGEST_SUM = 2.0**21  # of contributions on the lattice, so that it cannot wrap


@dataclass(frozen=True)
class NoisedSum:
    """A sum of clean contributions with noise on it, how many there are in it, and whose."""

    sum: Floats
    contributors: int
    names: tuple[str, ...]


OnDraw = Callable[[int, str, Floats, Floats], None]
Noise = Callable[[lattice.Points, float], lattice.Points]


@dataclass(frozen=True)
class Contribution:
    """A clean contribution, clipped to its public ball, and the ball."""

    cluster: str
    model: Floats
    ball: Ball


@dataclass
class Account:
    """One client's terms, and its ledger at this site."""

    terms: SiteTerms
    ledger: Ledger
    stated: dict[tuple[str, int], tuple[float, float]] = field(default_factory=dict)  # see `Trustee._stated`


@dataclass
class Trustee:
    """The accounts of all clients that trust this site in one training, and the noise for them.

    A *pair* is a cluster at this site. Where models are not personalised, all clusters are one pair.
    """

    training: Training
    folder: Path
    store: SiteStore  # keeps noised sums until their round is saved
    on_draw: OnDraw | None = None  # gets the round, the pair, the clean and the noised sum; demonstrations only
    noise: Noise = lattice.with_noise
    known: dict[str, int] = field(default_factory=dict)  # how many charges of each client the site remembers
    accounts: dict[str, Account] = field(default_factory=dict)
    spent: set[str] = field(default_factory=set)  # the clients whose budget is spent
    over_cap: set[str] = field(default_factory=set)  # the clients that state too much, and so sit out
    sat_out: dict[str, str] = field(default_factory=dict)  # pairs without a sum in the last round, and why

    def __post_init__(self) -> None:
        self.algorithm: Algorithm = self.training.build_algorithm()
        self.trust = self.training.privacy.level

    # accounts ---------------------------------------------------------------------------------------------------------

    def accept(self, client: str, terms: SiteTerms) -> None:
        """Keep the account of a client on its own terms; `LedgerError` if they are not those of its account."""
        account = self.accounts.get(client)
        if account is not None and account.terms == terms:
            return
        self.close_account(client)
        self.folder.mkdir(mode=0o700, exist_ok=True)
        ledger = Ledger.open_or_create(self.folder / f"{client}.db", client, terms.policy)
        try:
            ledger.check_known(max(self.known.get(client, 0), terms.used))
        except LedgerError:
            ledger.close()
            raise
        self.accounts[client] = Account(terms, ledger)
        self._update_spent(client)

    def close_account(self, client: str) -> None:
        """A client that does not trust this site, or not any more; its account stays on disk."""
        account = self.accounts.pop(client, None)
        self.spent.discard(client)
        if account is not None:
            account.ledger.close()

    def close(self) -> None:
        """Close all ledgers."""
        for client in list(self.accounts):
            self.close_account(client)

    def charges(self) -> dict[str, int]:
        """How many releases every client was charged for, to be remembered apart from the ledgers."""
        return {**self.known, **{client: account.ledger.count for client, account in self.accounts.items()}}

    def _update_spent(self, client: str) -> None:
        if self.accounts[client].ledger.spent:
            self.spent.add(client)

    def update_over_cap(self, cluster_of: Mapping[str, str], pair_of: Mapping[str, str]) -> None:
        """Find out who asks for more noise, or for a wider ball, than the agreed training allows.

        All of it follows from the public terms of all who have an account here, whether they answer or not.
        """
        stated: defaultdict[str, dict[str, tuple[float, float]]] = defaultdict(dict)
        for client in (self.accounts.keys() & cluster_of.keys()) - self.spent:
            stated[pair_of[client]][client] = self._stated(client, cluster_of[client], len(cluster_of))
        cap, self.over_cap = self.training.privacy.noise_cap, set()
        for of_pair in stated.values():
            for which in (0, 1):
                self.over_cap |= over_cap({client: both[which] for client, both in of_pair.items()}, cap)

    def _stated(self, client: str, cluster: str, server_clients: int) -> tuple[float, float]:
        """The σ that a client asks for, and the radius of its ball, both infinite if its bounds give none."""
        account = self.accounts[client]
        if (cluster, server_clients) not in account.stated:
            try:
                ball = self.ball(client, cluster, None, server_clients)
                delta = self._sensitivity(client, cluster, server_clients)
            except PrivacyError:
                ball, delta = None, math.inf
            account.stated = {(cluster, server_clients): (delta, math.inf if ball is None else ball.radius)}
        delta, radius = account.stated[cluster, server_clients]
        return float(sum_sigma(delta, account.ledger.next_phi)), radius

    def eligible(self, clients: Iterable[str], pair_of: Mapping[str, str]) -> list[str]:
        """Filter out clients that would pay for nothing.

        These are spent, state too much, or belong to a pair of which too few are asked.
        """
        asked = [client for client in clients if client not in self.spent | self.over_cap]
        clean = Counter(pair_of[client] for client in asked if client in self.accounts)
        return [c for c in asked if c not in self.accounts or self.trust.takes_part(clean[pair_of[c]])]

    # contributions ----------------------------------------------------------------------------------------------------

    def ball(self, client: str, cluster: str, sent: Floats | None, server_clients: int) -> Ball | None:
        """Where an honest clean contribution of this client lies, which was sent this model; None if anywhere."""
        terms = self.accounts[client].terms
        objectives = {cluster: self.training.build_objective(cluster, terms.bounds.w_norm)}
        bound = ClientBound(self.algorithm, objectives, terms.bounds, noise=0.0)
        return bound.ball(cluster, sent, np.zeros(self.training.dimension), server_clients)

    def noised_sum(
        self, round: int, pair: str, clean: Mapping[str, Contribution], server_clients: int
    ) -> NoisedSum | None:
        """The noised sum of a pair's clean contributions, the same if it was made before.

        None if the pair sits the round out: nobody is charged then, except for noise that was lost in a crash.
        """
        before = self.store.noised(round, pair)
        if before is not None:
            return NoisedSum(*before, self._charged(round, pair))
        why, sigma, deltas = self._judged(round, pair, clean, server_clients)
        if why is not None:
            self.sat_out[pair] = why
            return None
        models = np.stack([clean[client].model for client in sorted(clean)])
        with ExitStack() as charged:
            slots = [
                charged.enter_context(self._charge(client, round, pair, deltas[client], sigma)) for client in deltas
            ]
            noised = lattice.from_lattice(self.noise(lattice.to_lattice(models).sum(axis=0), sigma))
            self.store.keep_noised(round, pair, noised, len(clean))
            for slot in slots:
                slot.payload = hashlib.sha256(noised.tobytes()).digest()  # a receipt; the sum itself is kept apart
        for client in deltas:
            self._update_spent(client)
        if self.on_draw is not None:
            self.on_draw(round, pair, models.sum(axis=0), noised)
        return NoisedSum(noised, len(clean), tuple(sorted(clean)))

    def _judged(
        self, round: int, pair: str, clean: Mapping[str, Contribution], server_clients: int
    ) -> tuple[str | None, float, dict[str, float]]:
        """Why there is no sum, from public quantities alone; else the σ of its noise, and every contributor's Δ."""
        if complaint := self.trust.complaint(len(clean)):
            return complaint, 0.0, {}
        ledgers = {client: self.accounts[client].ledger for client in sorted(clean)}
        if any(self._was_charged(client, round, pair) for client in clean):
            return "its noise was lost after it was charged", 0.0, {}
        largest = max(float(np.linalg.norm(c.ball.centre)) + c.ball.radius for c in clean.values())
        if not largest * len(clean) < LARGEST_SUM:
            return "its models are too large for float-safe noise", 0.0, {}
        deltas = {client: self._sensitivity(client, clean[client].cluster, server_clients) for client in ledgers}
        sigma = max(float(sum_sigma(deltas[client], ledger.next_phi)) for client, ledger in ledgers.items())
        if sigma < lattice.LEAST_UNITS * lattice.STEP:
            return "the noise would be finer than float-safe noise allows", 0.0, {}
        return None, sigma, deltas

    def _was_charged(self, client: str, round: int, pair: str) -> bool:
        return self.accounts[client].ledger.find(self._key(round, pair)) is not None

    def _charged(self, round: int, pair: str) -> tuple[str, ...]:
        """Who was charged for a sum, whether or not they are back: all of these are in it."""
        away = sorted({path.stem for path in self.folder.glob("*.db")} - self.accounts.keys())
        found = [client for client in self.accounts if self._was_charged(client, round, pair)]
        for client in away:
            with suppress(LedgerError), Ledger.read(self.folder / f"{client}.db") as ledger:
                found += [client] if ledger.find(self._key(round, pair)) is not None else []
        return tuple(sorted(found))

    def _charge(self, client: str, round: int, pair: str, delta: float, sigma: float) -> AbstractContextManager[Slot]:
        ledger = self.accounts[client].ledger
        return ledger.reserve(self._key(round, pair), delta, trust="site", sigma=sigma)

    def _sensitivity(self, client: str, cluster: str, server_clients: int) -> float:
        terms = self.accounts[client].terms
        objective = self.training.build_objective(cluster, terms.bounds.w_norm)
        return terms.sensitivity(objective, self.algorithm, server_clients, self.training.dimension)

    def _key(self, round: int, pair: str) -> str:
        return f"{self.training.digest[:16]}/{pair}/{round}"


class SumRecorder:
    """Writes clean and noised sums side by side, for a demonstration that is compared with the simulator."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def __call__(self, round: int, pair: str, clean: Floats, noised: Floats) -> None:
        """Record one sum."""
        np.save(self.folder / f"{round:06d}-{pair}.npy", np.stack([clean, noised]), allow_pickle=False)
