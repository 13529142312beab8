"""A client's account of what it releases, and the training that its owner has accepted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np

from pgfl.algorithms.accuracy import Refusal
from pgfl.algorithms.roles import Client
from pgfl.arrays import Floats
from pgfl.config import PrivacySettings
from pgfl.errors import LedgerError, NetworkError, PrivacyError
from pgfl.files import write_text
from pgfl.network.agreement import SiteTerms, Training
from pgfl.network.client.rounds import STATE
from pgfl.privacy.ledger.ledger import Ledger
from pgfl.privacy.ledger.rows import Release, Slot
from pgfl.privacy.noise import NoiseSource, SecureNoise
from pgfl.privacy.request import Privacy

PINNED, OFFERED = "training.json", "training-offered.json"


@dataclass(frozen=True)
class Offer:
    """A training, and the cluster in which the site wants this client."""

    training: Training
    cluster: str

    @property
    def text(self) -> str:
        """As it is stored."""
        return json.dumps({"cluster": self.cluster, "training": self.training.text, "hash": self.training.digest})

    def changes(self, other: Offer) -> list[str]:
        """The differences of another offer, one line per key."""
        moved = [] if self.cluster == other.cluster else [f"cluster: {self.cluster} -> {other.cluster}"]
        return moved + self.training.differences(other.training)


def check_accepted(home: Path, offer: Offer) -> bool:
    """Pin the first offer and return True; refuse another one until `accept`."""
    pinned = _read(home / PINNED)
    if pinned is None:
        write_text(home / PINNED, offer.text)
        return True
    changes = pinned.changes(offer)
    if changes:
        write_text(home / OFFERED, offer.text)
        raise NetworkError(
            f"The site has changed the training ({'; '.join(changes)}); if you agree, run `pgfl client accept` in "
            "its folder (or with --home) and join again, else ask the site's operator."
        )
    (home / OFFERED).unlink(missing_ok=True)  # the site took it back
    return False


def accepted(home: Path) -> Offer | None:
    """The training that the owner accepted; None before the first join."""
    return _read(home / PINNED)


def accept(home: Path) -> tuple[Offer, list[str]]:
    """Pin what the site offered last; returns it, and what it changes."""
    offered = _read(home / OFFERED)
    if offered is None:
        raise NetworkError("There is no changed training to accept; `pgfl client join` shows what the site offers.")
    pinned = _read(home / PINNED)
    write_text(home / PINNED, offered.text)
    (home / OFFERED).unlink()
    return offered, [] if pinned is None else pinned.changes(offered)


def _read(path: Path) -> Offer | None:
    try:
        stored = json.loads(path.read_text("utf-8"))
        return Offer(Training.parse(stored["training"]), str(stored["cluster"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, NetworkError):
        raise NetworkError(f"{path} cannot be read; remove it to accept the site's training anew.") from None


OnDraw = Callable[[int, Floats, Floats], None]


class NoiseRecorder:
    """Writes clean and released models side by side, for a demonstration that is compared with the simulator."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def __call__(self, number: int, model: Floats, released: Floats) -> None:
        """Record one release."""
        np.save(self.folder / f"{number:06d}.npy", np.stack([model, released]), allow_pickle=False)


@dataclass
class LedgerAccount:
    """The part that both accounts share: a ledger that knows every release and keeps the client's state."""

    ledger: Ledger
    _unmarked: list[str] = field(default_factory=list, init=False)

    @property
    def releases(self) -> int:
        """How many releases were charged."""
        return self.ledger.count

    @property
    def epsilon(self) -> float:
        """What they spent, as ε."""
        return self.ledger.epsilon()

    def find(self, key: str) -> Release | None:
        """The release that was charged under a key."""
        return self.ledger.find(key)

    def confirm(self, key: str) -> None:
        """The site took it. This is noted with the next release: alone it would cost as much as one."""
        if self.ledger.find(key) is None:
            raise LedgerError(
                f"The site accepted {key}, which {self.ledger.path} does not know: it was put back from a backup and "
                "would spend again what is spent; find the newer file, or leave the federation."
            )
        self._unmarked.append(key)

    def check_known(self, releases: int) -> None:
        """A ledger from a backup undercounts; stop."""
        self.ledger.check_known(releases)

    def state(self) -> bytes | None:
        """The client's state as of the last release."""
        return self.ledger.state(STATE)

    def close(self) -> None:
        """Close the ledger."""
        with suppress(LedgerError):
            for key in self._unmarked:
                self.ledger.confirm(key)
        self.ledger.close()


@dataclass
class PrivateAccount(LedgerAccount):
    """An `Account` with noise, within the owner's budget."""

    privacy: Privacy
    samples: int
    noise: NoiseSource
    on_draw: OnDraw | None = None  # gets the release number, the clean and the released model; demonstrations only
    entrusted: SiteTerms | None = None  # the site adds the noise, on these terms; else it is added here

    @property
    def clean(self) -> bool:
        """Whether releases leave without noise, to a site that adds it."""
        return self.entrusted is not None

    @classmethod
    def open(cls, path: Path, client: str, settings: PrivacySettings, samples: int, dimension: int) -> PrivateAccount:
        """The client's ledger, new the first time."""
        privacy = settings.request()
        policy = privacy.policy()
        return cls(Ledger.open_or_create(path, client, policy), privacy, samples, SecureNoise(dimension))

    def refusal(self, client: Client, server_clients: int) -> Refusal | None:
        """No sensitivity, or noise finer than the lattice: both are known before anything is charged."""
        try:
            sensitivity = self.sensitivity(client, server_clients)
        except PrivacyError:
            return Refusal.UNBOUNDED
        if self.entrusted is not None:
            return None  # what can be drawn is the site's to judge
        assert self.ledger.policy is not None  # as it was opened with one
        try:
            self.noise.check(self.ledger.policy.budget.sigma([sensitivity], self.releases + 1))
        except PrivacyError:
            return Refusal.TOO_LITTLE_NOISE
        return None

    @contextmanager
    def reserve(self, key: str, client: Client, server_clients: int) -> Iterator[Slot]:
        """Charge one release of the problem that this request makes the client solve."""
        reserve = self.ledger.reserve if self.entrusted is None else self.ledger.reserve_entrusted
        with reserve(key, self.sensitivity(client, server_clients), self._unmarked) as slot:
            self._unmarked.clear()  # marked in the commit of the charge
            yield slot

    def perturb(self, slot: Slot, model: Floats) -> Floats:
        """The model with the noise that the slot was charged for; as it is, where the site adds the noise."""
        released = model if self.entrusted is not None else self._noised(slot, model)
        self.record(slot.number, model, released)
        return released

    @contextmanager
    def reserve_masked(self, key: str, sensitivity: float, sigma: float) -> Iterator[Slot]:
        """Charge one contribution to a masked sum whose noise, that of all honest contributors together, has this σ."""
        with self.ledger.reserve(key, sensitivity, self._unmarked, trust="masked", sigma=sigma) as slot:
            self._unmarked.clear()  # marked in the commit of the charge
            yield slot

    def record(self, number: int, model: Floats, released: Floats) -> None:
        """Record the draw; demo mode only."""
        if self.on_draw is not None:
            self.on_draw(number, model, released)

    def _noised(self, slot: Slot, model: Floats) -> Floats:
        sigma, nobody = np.array([slot.sigma]), np.zeros(1, dtype=np.int64)
        released: Floats = self.noise.release(model[None], sigma, nobody, slot.number)[0]
        return released

    def sensitivity(self, client: Client, server_clients: int) -> float:
        """Δ of the problem that this request makes the client solve."""
        if self.entrusted is not None:
            dimension = len(client.dual)
            return self.entrusted.sensitivity(client.objective, client.algorithm, server_clients, dimension)
        counts, modulus = np.array([self.samples]), np.array([client.strong_convexity(server_clients)])
        tolerance = client.tolerance(server_clients)
        plain = self.privacy.sensitivity(client.objective, client.algorithm, counts, modulus, tolerance)
        return float(self.noise.widen(plain)[0])


@dataclass
class OpenAccount(LedgerAccount):
    """An `Account` without noise, where the owner switched privacy off: its ledger shows ε = ∞ from then on."""

    clean: ClassVar[bool] = False  # it asks no site for noise

    @classmethod
    def open(cls, path: Path, client: str) -> OpenAccount:
        """The client's ledger, new the first time."""
        return cls(Ledger.open_or_create(path, client, None))

    def refusal(self, client: Client, server_clients: int) -> Refusal | None:
        """Nothing is calibrated, so nothing is refused."""
        return None

    @contextmanager
    def reserve(self, key: str, client: Client, server_clients: int) -> Iterator[Slot]:
        """Write down that a clean model leaves."""
        with self.ledger.reserve_unprotected(key, self._unmarked) as slot:
            self._unmarked.clear()  # marked in the commit of the charge
            yield slot

    def perturb(self, slot: Slot, model: Floats) -> Floats:
        """The model as it is."""
        return model


Account = PrivateAccount | OpenAccount
