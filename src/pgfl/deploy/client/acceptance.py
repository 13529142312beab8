"""The training that a client's owner has accepted: pinned at the first join, and changed by the owner alone."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from pgfl.atomic_files import write_text
from pgfl.deploy.agreed_training import Training
from pgfl.errors import NetworkError

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
            f"The site has changed the training ({'; '.join(changes)}); if you agree, run `pgfl client accept` with "
            "your client.toml and join again, else ask the site's operator."
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
