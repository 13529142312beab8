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

from pgfl.atomic_files import write_text
from pgfl.deploy import identity
from pgfl.deploy.identity import ClientKey, SiteCertificate
from pgfl.errors import NetworkError

NEXT = ".next"
ROTATION = "client.rotation"
PINS = "site-pins.json"  # in a client's folder
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


@dataclass(frozen=True)
class SitePins:
    """The fingerprints that a client accepts from its site: that in client.toml and, while the site rotates, the next.

    A file in the client's folder keeps the next one, and that it has taken the place of the one in client.toml. It is
    void once the owner changes client.toml.
    """

    path: Path
    written: str  # in client.toml

    def present(self) -> str:
        """The fingerprint that the site has now, as far as this client knows."""
        return self._read()[0]

    def accepted(self) -> frozenset[str]:
        """Those that the site may show."""
        return frozenset(filter(None, self._read()))

    def trust(self, coming: str) -> None:
        """Accept the fingerprint to which the site will switch, beside the present one."""
        self._write(self.present(), coming)

    def saw(self, shown: str) -> bool:
        """The site proved to be this one; returns whether it is the next, which takes the place of the present."""
        present, coming = self._read()
        if shown != coming or shown == present:
            return False
        self._write(coming, "")
        return True

    def _read(self) -> tuple[str, str]:
        """The present and the next fingerprint; that is empty where there is none."""
        try:
            kept = json.loads(self.path.read_text())
            return (str(kept["present"]), str(kept["next"])) if kept["written"] == self.written else (self.written, "")
        except FileNotFoundError:
            return self.written, ""
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise NetworkError(
                f"{self.path} is damaged; delete it and write the fingerprint of the site's present certificate into "
                "client.toml."
            ) from error

    def _write(self, present: str, coming: str) -> None:
        write_text(self.path, json.dumps({"written": self.written, "present": present, "next": coming}) + "\n")


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
