"""New keys and certificates while training runs: both the old and the new one are good until the new one is used.

A site makes its next certificate, hands it to its neighbours and clients, who trust it beside the present one, and then
switches. A client makes its next key and signs it with the present one; its site then knows it by the new key.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from pgfl.deploy import identity
from pgfl.deploy.identity import ClientKey, SiteCertificate
from pgfl.errors import NetworkError

NEXT = ".next"
ROTATION = "client.rotation"
_KEY_CONTEXT = b"pgfl next client key v1\0"


# A site ---------------------------------------------------------------------------------------------------------------


def prepare_site(home: Path, hosts: list[str]) -> SiteCertificate:
    """The next key and certificate of a site, beside the present ones; made once, then the same again."""
    name = SiteCertificate.read(home / identity.SITE_CERTIFICATE).name
    certificate, key = (next_of(home / file) for file in (identity.SITE_CERTIFICATE, identity.SITE_KEY))
    if not (certificate.exists() and key.exists()):
        folder = home / "next"
        made = identity.create_site(folder, name, hosts)
        os.replace(folder / identity.SITE_KEY, key)
        os.replace(folder / identity.SITE_CERTIFICATE, certificate)
        folder.rmdir()
        return made
    return SiteCertificate.read(certificate)


def switch_site(home: Path) -> SiteCertificate:
    """Use the next certificate from now on; done again after an interruption, it finishes."""
    certificate, key = (next_of(home / file) for file in (identity.SITE_CERTIFICATE, identity.SITE_KEY))
    if not certificate.exists():
        raise NetworkError(f"{home} has no next certificate; `pgfl site rotate` makes one to hand out first.")
    if key.exists():
        os.replace(key, home / identity.SITE_KEY)
    os.replace(certificate, home / identity.SITE_CERTIFICATE)
    return SiteCertificate.read(home / identity.SITE_CERTIFICATE)


def matching(certificate: SiteCertificate, key: bytes) -> bool:
    """Whether the key is the certificate's; in the middle of a switch it is not."""
    from cryptography import x509

    form = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    loaded = serialization.load_pem_private_key(key, password=None)
    public = x509.load_pem_x509_certificate(certificate.pem).public_key()
    return loaded.public_key().public_bytes(*form) == public.public_bytes(*form)


# A client's trust in its site -----------------------------------------------------------------------------------------


def trust_next(pinned: Path, offered: Path) -> SiteCertificate:
    """Trust the certificate that the site will switch to, beside the present one."""
    present, coming = SiteCertificate.read(pinned), SiteCertificate.read(offered)
    if present.name != coming.name:
        raise NetworkError(f"{offered} is the certificate of {coming.name}, but this client's site is {present.name}.")
    next_of(pinned).write_bytes(coming.pem)
    return coming


@dataclass
class TwoFiles:
    """A file and its next version: whichever works is used, and once the next one has worked the old one goes."""

    present: Path
    _on_next: bool = False

    @property
    def path(self) -> Path:
        """The one to try now."""
        return next_of(self.present) if self._on_next else self.present

    def try_other(self) -> bool:
        """Try the other one next time; False if there is only one."""
        self._on_next = not self._on_next and next_of(self.present).exists()
        return self._on_next

    def reset(self) -> None:
        """Begin with the present one again."""
        self._on_next = False

    def worked(self) -> bool:
        """The one that was tried is good; returns whether it was the next one, which now takes the place."""
        if not self._on_next:
            return False
        os.replace(next_of(self.present), self.present)
        self._on_next = False
        return True


# A client's key -------------------------------------------------------------------------------------------------------


def prepare_client(home: Path, name: str) -> ClientKey:
    """The next key of a client, and a file for the operator, signed with the present key."""
    present = identity.read_client_key(home / identity.CLIENT_KEY)
    following = next_of(home / identity.CLIENT_KEY)
    if not following.exists():
        folder = home / "next"
        identity.create_client(folder, name)
        os.replace(folder / identity.CLIENT_KEY, following)
        (folder / identity.CLIENT_PUBLIC).unlink()
        folder.rmdir()
    old, new = identity.public_key_of(present), identity.public_key_of(identity.read_client_key(following))
    signature = present.sign(_statement(new), ec.ECDSA(hashes.SHA384()))
    rotation = {"old": old.line, "new": new.line, "signature": signature.hex()}
    (home / ROTATION).write_text(json.dumps(rotation) + "\n")
    return new


def read_rotation(path: Path) -> tuple[ClientKey, ClientKey]:
    """The old and the new key of a client, if the old one signed the new one."""
    try:
        rotation = json.loads(path.read_text())
        old, new = (ClientKey.parse(str(rotation[which]).encode()) for which in ("old", "new"))
        old.public.verify(bytes.fromhex(rotation["signature"]), _statement(new), ec.ECDSA(hashes.SHA384()))
    except OSError as error:
        raise NetworkError(f"{path} cannot be read: {error.strerror}.") from error
    except InvalidSignature as error:
        raise NetworkError(f"{path} is not signed with the client's present key; ask its owner.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise NetworkError(f"{path} is not a client's rotation; ask its owner for {ROTATION}.") from error
    return old, new


def next_of(path: Path) -> Path:
    """Where the next version of a file is."""
    return path.with_name(path.name + NEXT)


def _statement(key: ClientKey) -> bytes:
    return _KEY_CONTEXT + key.line.encode()
