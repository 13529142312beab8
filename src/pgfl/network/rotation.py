"""Backups of a site's or client's folder, and new keys and certificates while training runs."""

from __future__ import annotations

import io
import json
import logging
import os
import tarfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from pgfl import __version__
from pgfl.errors import NetworkError
from pgfl.files import write_atomically, write_text
from pgfl.network.logs import RateLimitedLogger
from pgfl.network.protocol import identity
from pgfl.network.protocol.identity import ClientKey, SiteCertificate
from pgfl.privacy.ledger.anchor import ENDING

log = logging.getLogger(__name__)
_ABOUT = "backup.json"
_MOST_BYTES = 1 << 34


def write_archive(path: Path, kind: str, name: str, files: Mapping[str, bytes]) -> None:
    """An archive of these files that only its owner can read; a file that exists is never replaced."""
    if path.exists():
        raise NetworkError(f"{path} exists already; a backup never replaces another one, choose another name.")
    about = {"kind": kind, "name": name, "pgfl": __version__, "made": time.time()}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for member, content in {_ABOUT: json.dumps(about).encode(), **files}.items():
            entry = tarfile.TarInfo(member)
            entry.size, entry.mode = len(content), 0o600
            archive.addfile(entry, io.BytesIO(content))
    write_private(path, packed.getvalue())


def read_archive(path: Path, kind: str, is_member: Callable[[str], bool]) -> tuple[str, dict[str, bytes]]:
    """The name of whose archive it is, and its files; anything that `write_archive` cannot have written is refused."""
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(path, mode="r:gz") as archive:
            for entry in archive:
                known = entry.name == _ABOUT or is_member(entry.name)
                if not known or not entry.isfile() or entry.size > _MOST_BYTES:
                    raise NetworkError(f"{path} holds {entry.name!r}, which no backup of a {kind} has; do not use it.")
                content = archive.extractfile(entry)
                assert content is not None  # as it is a file
                found[entry.name] = content.read()
        about = json.loads(found.pop(_ABOUT))
        if about["kind"] != kind:
            raise NetworkError(f"{path} is the backup of a {about['kind']}, not of a {kind}.")
        return str(about["name"]), found
    except OSError as error:
        raise NetworkError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (tarfile.TarError, EOFError, ValueError, KeyError) as error:
        raise NetworkError(f"{path} is no backup of a {kind}, or it is damaged; use another one.") from error


def put_back(home: Path, files: Mapping[str, bytes]) -> list[str]:
    """Write the files that the folder does not have; one that is there and differs is refused before any is written."""
    home.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        if (home / name).exists() and (home / name).read_bytes() != content:
            raise NetworkError(f"{home / name} exists and differs from the backup's; restore into an empty folder.")
    missing = [name for name in files if not (home / name).exists()]
    for name in missing:
        (home / name).parent.mkdir(mode=0o700, exist_ok=True)
        write_private(home / name, files[name])
    return missing


def releases_in(path: Path, files: Mapping[str, bytes], ledger: str) -> int:
    """How many releases a ledger in an archive has, by its anchor, which it is checked against when it is opened."""
    lines = [line.split(b" ") for line in files.get(f"{ledger}{ENDING}", b"").splitlines()]
    try:
        return max(int(fields[1]) for fields in lines)
    except (ValueError, IndexError) as error:
        raise NetworkError(f"{path} has a ledger without its anchor; use another backup.") from error


def write_private(path: Path, content: bytes) -> None:
    """Put bytes in a file that only its owner can read, whole or not at all."""

    def write(file: BinaryIO) -> None:
        os.fchmod(file.fileno(), 0o600)
        file.write(content)

    write_atomically(path, write)


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


class ActiveCertificate:
    """The certificate that a running site shows, reloaded when its operator switches to the next one."""

    def __init__(self, home: Path, name: str) -> None:
        """Read the folder; refuse a certificate of another name."""
        self.certificate_file, self.key_file = home / identity.SITE_CERTIFICATE, home / identity.SITE_KEY
        self.certificate = SiteCertificate.read(self.certificate_file)
        if self.certificate.name != name:
            raise NetworkError(
                f"site.toml calls this site {name}, its certificate {self.certificate.name}; use one name."
            )
        _read_key(self.key_file)  # a key that cannot be read is found now
        self._limited_log = RateLimitedLogger(log)

    @property
    def fingerprint(self) -> str:
        """The fingerprint that clients and neighbours pin."""
        return self.certificate.fingerprint

    def reload(self) -> bool:
        """Read the folder again; return whether the operator has switched to another certificate."""
        try:
            shown, key = SiteCertificate.read(self.certificate_file), _read_key(self.key_file)
        except NetworkError as error:
            self._limited_log.warning("certificate", f"the certificate cannot be read: {error}")
            return False
        if shown == self.certificate or shown.name != self.certificate.name or not matching(shown, key):
            return False
        log.info("this site shows the certificate with fingerprint %s… from now on", shown.fingerprint[:16])
        self.certificate = shown
        return True


def _read_key(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise NetworkError(f"The key {path} cannot be read: {error.strerror}; `pgfl site init` makes one.") from error


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
class RotatedFile:
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
