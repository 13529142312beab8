"""Keys and certificates of sites and clients, and TLS between those who have pinned each other's."""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import os
import re
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pgfl.errors import NetworkError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
ADDRESS = re.compile(r"[A-Za-z0-9_.:\[\]-]+:\d{1,5}")  # host:port, of which nothing can hide in a file or a log
SITE_KEY, SITE_CERTIFICATE = "site.key", "site.crt"
CLIENT_KEY, CLIENT_PUBLIC = "client.key", "client.pub"
_VALID_FOR = datetime.timedelta(days=3650)
_STREAM_CONTEXT = b"pgfl client stream v1\0"
_INTRODUCTION_CONTEXT = b"pgfl site introduction v1\0"


def check_name(kind: str, name: str) -> str:
    """A name that is safe in a file name, a certificate and a log line."""
    if not NAME.fullmatch(name):
        raise NetworkError(f"The {kind} name {name!r} may hold letters, digits, '.', '_' and '-' only, 63 at most.")
    return name


@dataclass(frozen=True)
class SiteCertificate:
    """A pinned certificate: the site's name and the exact bytes that its peers and clients trust."""

    name: str
    pem: bytes

    @classmethod
    def read(cls, path: Path) -> SiteCertificate:
        """From a file that a site's operator handed over."""
        try:
            return cls.parse(path.read_bytes())
        except OSError as error:
            raise NetworkError(f"The certificate {path} cannot be read: {error.strerror}.") from error
        except ValueError as error:
            raise NetworkError(
                f"{path} is not the certificate of a pgfl site; ask its operator for site.crt."
            ) from error

    @classmethod
    def parse(cls, pem: bytes) -> SiteCertificate:
        """From PEM bytes that hold exactly one certificate; re-encoded, so that equal certificates are equal bytes."""
        certificates = x509.load_pem_x509_certificates(pem)
        if len(certificates) != 1:
            raise ValueError("not exactly one certificate")
        names = certificates[0].subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        if len(names) != 1 or not NAME.fullmatch(str(names[0].value)):
            raise ValueError("no usable name")
        return cls(str(names[0].value), certificates[0].public_bytes(serialization.Encoding.PEM))

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate, as operators compare it over the telephone."""
        return x509.load_pem_x509_certificate(self.pem).fingerprint(hashes.SHA256()).hex()

    @property
    def tls_name(self) -> str:
        """The name in the certificate that a peer checks, whatever address the site is reached at."""
        return f"{self.name.lower()}.pgfl"


@dataclass(frozen=True)
class Neighbour:
    """One linked site and where it is reached; without an address, it calls."""

    certificate: SiteCertificate
    address: str
    coming: SiteCertificate | None = None  # which it will switch to

    @property
    def trusted(self) -> bytes:
        """The certificates that it may show."""
        return self.certificate.pem + (b"" if self.coming is None else self.coming.pem)


@dataclass(frozen=True)
class ClientKey:
    """A client's public key in OpenSSH form, without its comment."""

    line: str

    @classmethod
    def read(cls, path: Path) -> ClientKey:
        """From a `.pub` file that a client's owner handed over."""
        try:
            return cls.parse(path.read_bytes())
        except OSError as error:
            raise NetworkError(f"The public key {path} cannot be read: {error.strerror}.") from error
        except (ValueError, UnsupportedAlgorithm) as error:
            raise NetworkError(f"{path} is not a client's public key; ask its owner for client.pub.") from error

    @classmethod
    def parse(cls, line: bytes) -> ClientKey:
        """From one OpenSSH line; only ECDSA on P-384 is a client's key."""
        key = serialization.load_ssh_public_key(line)
        if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP384R1):
            raise ValueError("not an ECDSA key on P-384")
        return cls.of(key)

    @classmethod
    def of(cls, key: ec.EllipticCurvePublicKey) -> ClientKey:
        """From the key itself."""
        return cls(key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode())

    @property
    def public(self) -> ec.EllipticCurvePublicKey:
        """The key itself."""
        key = serialization.load_ssh_public_key(self.line.encode())
        assert isinstance(key, ec.EllipticCurvePublicKey)
        return key

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the key."""
        return hashlib.sha256(self.line.encode()).hexdigest()

    def verifies(self, signature: bytes, site: str, nonce: bytes) -> bool:
        """Whether the key's owner signed this site's challenge."""
        try:
            self.public.verify(signature, _challenge(site, nonce), ec.ECDSA(hashes.SHA384()))
        except InvalidSignature:
            return False
        return True


def sign_challenge(key: ec.EllipticCurvePrivateKey, site: str, nonce: bytes) -> bytes:
    """The client's proof for one stream to one site (the fingerprint of its certificate), so it cannot be relayed."""
    return key.sign(_challenge(site, nonce), ec.ECDSA(hashes.SHA384()))


def sign_introduction(key: Path, site: str, nonce: bytes, address: str) -> bytes:
    """The proof of a site that was invited by another one (the fingerprint of its certificate), for one connection."""
    loaded = serialization.load_pem_private_key(key.read_bytes(), password=None)
    assert isinstance(loaded, ec.EllipticCurvePrivateKey)  # as `create_site` makes it
    return loaded.sign(_introduction(site, nonce, address), ec.ECDSA(hashes.SHA384()))


def signed_by_site(certificate: SiteCertificate, signature: bytes, message: bytes) -> bool:
    """Whether the key of a certificate signed a message."""
    key = x509.load_pem_x509_certificate(certificate.pem).public_key()
    try:
        if isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(signature, message, ec.ECDSA(hashes.SHA384()))
            return True
    except InvalidSignature:
        pass
    return False


def proves_introduction(certificate: SiteCertificate, signature: bytes, site: str, nonce: bytes, address: str) -> bool:
    """Whether the owner of a certificate signed this site's challenge and the address."""
    return signed_by_site(certificate, signature, _introduction(site, nonce, address))


def create_site(home: Path, name: str, hosts: list[str]) -> SiteCertificate:
    """A new site: `site.key` (readable by its owner only) and `site.crt` to hand out."""
    check_name("site", name)
    if (home / SITE_KEY).exists():
        raise NetworkError(f"{home / SITE_KEY} exists already; a site keeps its key, choose another folder.")
    home.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP384R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    alternatives: list[x509.GeneralName] = [x509.DNSName(f"{name.lower()}.pgfl")]
    for host in dict.fromkeys([*hosts, "localhost", "127.0.0.1"]):
        try:
            alternatives.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            alternatives.append(x509.DNSName(host))
    own_key = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))  # a clock that is a little behind must not lock anyone out
        .not_valid_after(now + _VALID_FOR)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(own_key, critical=False)  # with the next line, which of two certificates of one name is meant
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own_key), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA384())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    _write_private(home / SITE_KEY, _pem(key, serialization.PrivateFormat.PKCS8))
    (home / SITE_CERTIFICATE).write_bytes(pem)
    return SiteCertificate(name, pem)


def create_client(home: Path, name: str) -> ClientKey:
    """A new client: `client.key` (readable by its owner only) and `client.pub` to hand to its site."""
    check_name("client", name)
    if (home / CLIENT_KEY).exists():
        raise NetworkError(f"{home / CLIENT_KEY} exists already; a client keeps its key, choose another folder.")
    home.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP384R1())
    _write_private(home / CLIENT_KEY, _pem(key, serialization.PrivateFormat.OpenSSH))
    public = ClientKey.of(key.public_key())
    (home / CLIENT_PUBLIC).write_text(f"{public.line} {name}\n")
    return public


def read_client_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """The client's private key."""
    try:
        key = serialization.load_ssh_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise NetworkError(
            f"The key {path} cannot be read: {error.strerror}; `pgfl client init` makes one. If it is lost, so is its "
            "name: make a client with a new name, and have the operator admit it."
        ) from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise NetworkError(f"{path} is not a client's key; `pgfl client init` makes one.") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise NetworkError(f"{path} is not an ECDSA key; `pgfl client init` makes one.")
    return key


def named_client_key(path: Path) -> tuple[str, str]:
    """The name and the key in a client's `.pub` file, as a roster lists them."""
    line = ClientKey.read(path).line
    name = path.read_text("utf-8").strip().removeprefix(line).strip()
    return check_name("client", name), line


def public_key_of(key: ec.EllipticCurvePrivateKey) -> ClientKey:
    """The public half."""
    return ClientKey.of(key.public_key())


def _pem(key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _challenge(site: str, nonce: bytes) -> bytes:
    return _STREAM_CONTEXT + site.encode() + b"\0" + nonce


def _introduction(site: str, nonce: bytes, address: str) -> bytes:
    return _INTRODUCTION_CONTEXT + site.encode() + b"\0" + nonce + b"\0" + address.encode()


def _write_private(path: Path, content: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)


PROTOCOL: Final = "pgfl-frames"  # by ALPN both ends know that the other speaks frames and nothing else
_LISTENER_SAYS: Final = {
    "CERTIFICATE_VERIFY_FAILED": "the certificate that it shows is not linked, or not valid today",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust the certificate of this site",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it does not trust the certificate of this site",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not trust the certificate of this site",
    "HTTP_REQUEST": "it does not speak TLS",
    "WRONG_VERSION_NUMBER": "it does not speak TLS",
}
_CALLER_SAYS: Final = {
    "CERTIFICATE_VERIFY_FAILED": "the certificate that it shows is not the pinned one, or not valid today",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it wants to see a certificate",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust the certificate that it is shown",
    "WRONG_VERSION_NUMBER": "it does not speak TLS",
}


def server_context(certificate: Path, key: Path, neighbours: bytes = b"") -> ssl.SSLContext:
    """For a site that shows this certificate. Who shows one, too, must show one of these (PEM)."""
    context = _strict(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.num_tickets = 0
    context.verify_mode = ssl.CERT_OPTIONAL
    _trust(context, neighbours)
    return context


def client_context(pinned: bytes, certificate: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
    """For a call to a site that shows a pinned certificate (PEM), and the name in it; perhaps showing one's own."""
    context = _strict(ssl.PROTOCOL_TLS_CLIENT)  # which checks the name
    _trust(context, pinned)
    if certificate is not None:
        context.load_cert_chain(certificate, key)
    return context


def fingerprint_context() -> ssl.SSLContext:
    """For a call to a site of which one knows the fingerprint: `TlsFrames` compares it before anything is sent."""
    context = _strict(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def describe_tls_error(error: ssl.SSLError, *, caller: bool) -> str:
    """What went wrong, about the other end; `caller` is the end that called."""
    reason = error.reason or type(error).__name__
    return (_CALLER_SAYS if caller else _LISTENER_SAYS).get(reason, f"TLS failed ({reason})")


def _strict(protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3  # which has no renegotiation
    context.set_alpn_protocols([PROTOCOL])
    return context


def _trust(context: ssl.SSLContext, certificates: bytes) -> None:
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the pinned certificate itself, not one of its name
    if certificates:
        context.load_verify_locations(cadata=certificates.decode())
