"""Who may take part with a client: names and identity keys, which the client's owner pins or a steward signs.

Without a roster a server could invent participants, and "the sum over ten clients" would be one client and nine of the
server's own making. A steward is anyone but the site: a key that the site has must not vouch for participants.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from pgfl.errors import PrivacyError
from pgfl.masking.primitives import digest

_PURPOSE = "roster"
_MOST_MEMBERS = 10_000


@dataclass(frozen=True)
class Roster:
    """Names and public keys (OpenSSH lines). One person, one name, one key."""

    keys: Mapping[str, str]

    def __post_init__(self) -> None:
        if not self.keys or len(self.keys) > _MOST_MEMBERS:
            raise PrivacyError(f"A roster names 1 to {_MOST_MEMBERS} clients, not {len(self.keys)}.")
        spelled: dict[str, str] = {}
        for name, line in self.keys.items():
            key = _public(line)
            if key is None:
                raise PrivacyError(f"The roster's key of {name} is no client's public key; take it from client.pub.")
            spelled[name] = _line(key)
        if len(set(spelled.values())) != len(spelled):
            raise PrivacyError("A roster lists one key under two names; every client has a key of its own.")
        object.__setattr__(self, "keys", spelled)

    @property
    def digest(self) -> str:
        """SHA-256 of all of it, for owners to compare."""
        return digest(_PURPOSE, {"keys": dict(self.keys)})

    def signed_by(self, name: str, signature: bytes, message: str) -> bool:
        """Whether the member of this name signed a message with its identity key."""
        line = self.keys.get(name)
        return line is not None and _verifies(line, signature, message)


def read_roster(path: Path, steward: str | None = None, site: bytes | None = None) -> Roster:
    """A roster file: {"keys": {name: key}, "signature": hex}. With a steward's key, only one that it signed.

    `site` is the certificate of the site, in PEM: its key must neither vouch for participants nor be one.
    """
    try:
        stored: Any = json.loads(path.read_text("utf-8"))
        keys = {str(name): str(line) for name, line in stored["keys"].items()}
        signature = bytes.fromhex(stored.get("signature") or "")
    except OSError as error:
        raise PrivacyError(f"The roster {path} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PrivacyError(f'{path} is not a roster; it is JSON like {{"keys": {{"name": "ecdsa-…"}}}}.') from error
    roster = Roster(keys)
    if steward is not None and not _verifies(steward, signature, roster.digest):
        raise PrivacyError(f"The roster {path} is not signed by the steward that client.toml names; ask for a new one.")
    if site is not None:
        _insist_on_others(path, roster, steward, site)
    return roster


def _insist_on_others(path: Path, roster: Roster, steward: str | None, site: bytes) -> None:
    """Refuse a site that vouches for participants, or takes part under a client's name."""
    key = x509.load_pem_x509_certificate(site).public_key()
    of_site = _line(key) if isinstance(key, ec.EllipticCurvePublicKey) else None
    vouching = None if steward is None else _public(steward)
    if vouching is not None and _line(vouching) == of_site:
        raise PrivacyError(
            "The steward in client.toml is the site itself, which could then invent participants; name somebody else."
        )
    if of_site in roster.keys.values():
        raise PrivacyError(f"The roster {path} lists the site's own key as a client; ask for one without it.")


def roster_text(roster: Roster, steward: ec.EllipticCurvePrivateKey | None = None) -> str:
    """The content of a roster file, signed if there is a steward."""
    content: dict[str, Any] = {"keys": dict(sorted(roster.keys.items()))}
    if steward is not None:
        content["signature"] = identity_signature(steward, roster.digest).hex()
    return json.dumps(content, indent=1) + "\n"


def identity_signature(key: ec.EllipticCurvePrivateKey, message: str) -> bytes:
    """A signature with a client's identity key."""
    return key.sign(message.encode(), ec.ECDSA(hashes.SHA384()))


def identity_line(key: ec.EllipticCurvePrivateKey) -> str:
    """The public half, as a roster lists it."""
    return _line(key.public_key())


def _line(key: ec.EllipticCurvePublicKey) -> str:
    return key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()


def _public(line: str) -> ec.EllipticCurvePublicKey | None:
    try:
        key = serialization.load_ssh_public_key(line.encode())
    except (ValueError, UnsupportedAlgorithm):
        return None
    return key if isinstance(key, ec.EllipticCurvePublicKey) else None


def _verifies(line: str, signature: bytes, message: str) -> bool:
    key = _public(line)
    try:
        if key is not None:
            key.verify(signature, message.encode(), ec.ECDSA(hashes.SHA384()))
    except InvalidSignature:
        return False
    return key is not None
