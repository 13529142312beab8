"""What keeps a site or a client from working, found before it does: keys, certificates, ports, links, files, disk."""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import os
import shutil
import socket
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509

from pgfl import __version__
from pgfl.errors import PgflError, is_damage
from pgfl.network import processes
from pgfl.network.client.accounts import accepted
from pgfl.network.client.samples import load_samples
from pgfl.network.client.settings import ClientSettings
from pgfl.network.protocol import identity
from pgfl.network.protocol.identity import SiteCertificate
from pgfl.network.protocol.listener import allow_many_files
from pgfl.network.protocol.proxies import DIRECT, Proxies, host_and_port
from pgfl.network.protocol.tls_frames import BadConnection
from pgfl.network.rotation import PINS, SitePins
from pgfl.network.site.settings import SiteSettings
from pgfl.network.site.status import is_running
from pgfl.network.site.store import STORE, SiteStore
from pgfl.privacy.ledger.ledger import Ledger
from pgfl.privacy.usable import noise_in_words, unusable

_LEAST_DISK_BYTES = 1 << 30
_LEAST_FILES = 1024
_SOON = datetime.timedelta(days=60)
_CONNECT_SECONDS, _REPLY_SECONDS = 10.0, 3.0
_FAR_SECONDS = 0.5
_LOST_KEY = (
    "`pgfl client init` makes one; if it is lost, so is its name: make a client with a new name in a new folder, "
    "and have the operator admit it"
)


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; `advice` says what to do if it is not good."""

    what: str
    advice: str | None = None
    damaged: bool = False  # a file is, and a restart does not mend it

    @property
    def good(self) -> bool:
        """Whether nothing is to be done."""
        return self.advice is None


def examine_site(settings: SiteSettings) -> list[Finding]:
    """Everything that a site needs."""
    home = Path(settings.home)
    return [
        _version(),
        _private(home / identity.SITE_KEY),
        *_certificate(home / identity.SITE_CERTIFICATE, settings.name),
        _port(settings, is_running(home)),
        *_tried("record", lambda: list(_record(settings))),
        _disk(home),
        _files(),
    ]


def examine_client(settings: ClientSettings) -> list[Finding]:
    """Everything that a client needs."""
    home = Path(settings.home)
    return [
        _version(),
        _private(home / identity.CLIENT_KEY),
        _reached("the site", settings.site.address, settings.proxies()),
        *_tried("certificate", lambda: list(_shown(settings))),
        *_tried("data", lambda: [_samples(settings)]),
        *_tried("ledger", lambda: list(_ledger(settings))),
        *_tried("training", lambda: [_training(home)]),
        *_tried("privacy", lambda: list(_noise(settings))),
        _disk(home),
    ]


def _version() -> Finding:
    return Finding(f"pgfl {__version__}; all machines of a network must run the same version")


def _private(path: Path) -> Finding:
    if not path.exists() and path.name == identity.CLIENT_KEY:
        return Finding(f"{path} is missing", _LOST_KEY)
    if not path.exists():
        return Finding(f"{path} is missing", "make it with `pgfl site init`")
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        return Finding(f"{path} can be read by others", f"chmod 600 {path}")
    return Finding(f"{path} is private")


def _certificate(path: Path, name: str) -> Iterator[Finding]:
    try:
        certificate = SiteCertificate.read(path)
    except PgflError as error:
        yield Finding(f"certificate {path}", str(error))
        return
    ends = x509.load_pem_x509_certificate(certificate.pem).not_valid_after_utc
    begins = x509.load_pem_x509_certificate(certificate.pem).not_valid_before_utc
    now = datetime.datetime.now(datetime.UTC)
    advice = None
    if certificate.name != name:
        advice = f"site.toml calls this site {name}, its certificate {certificate.name}; use one name"
    elif now < begins:
        advice = "it is not valid yet: set this machine's clock"
    elif ends - now < _SOON:
        advice = (
            "it ends soon or has ended: make a new one in a new folder and hand it out, or set this machine's clock"
        )
    shown = certificate.fingerprint[:16]
    yield Finding(f"certificate of {certificate.name} until {ends:%Y-%m-%d}, fingerprint {shown}…", advice)


def _port(settings: SiteSettings, running: bool) -> Finding:
    host, port = settings.listen.host, settings.listen.port
    if running:
        return _reached("own port", f"{_local(host)}:{port}")
    try:
        processes.listen(host, port).close()
    except OSError as error:
        return Finding(f"port {port}: {error.strerror}", "free it, or change listen.port")
    return Finding(f"port {port} is free")


def _local(host: str) -> str:
    return "127.0.0.1" if host in ("0.0.0.0", "::", "") else host


def _connect(address: str, proxies: Proxies, seconds: float) -> socket.socket:
    """Connect as a call does, through the proxy if there is one; raise `OSError`, `ValueError` or `BadConnection`."""
    if (proxy := proxies.of(address)) is None:
        return socket.create_connection(host_and_port(address), timeout=seconds)

    async def tunnel() -> socket.socket:
        async with asyncio.timeout(seconds):
            return await proxy.tunnel(address)

    connection = asyncio.run(tunnel())
    connection.settimeout(seconds)
    return connection


def _reached(what: str, address: str, proxies: Proxies = DIRECT) -> Finding:
    began = time.monotonic()
    try:
        with closing(_connect(address, proxies, _CONNECT_SECONDS)):
            seconds = time.monotonic() - began
    except (OSError, ValueError, BadConnection) as error:
        reason = f"{what} at {address} is not reached ({error})"
        return Finding(reason, "is it running, and does the firewall let it through?")
    advice = "rounds will be slow: a round trip takes more than half a second" if seconds > _FAR_SECONDS else None
    return Finding(f"{what} at {address}: connected in {1000 * seconds:.0f} ms", advice)


def _shown(settings: ClientSettings) -> Iterator[Finding]:
    """Whether the site shows a certificate that this client accepts; nothing if it cannot be asked."""
    try:
        plain = _connect(settings.site.address, settings.proxies(), _REPLY_SECONDS)
        with closing(plain), closing(identity.fingerprint_context().wrap_socket(plain)) as secure:
            shown = hashlib.sha256(secure.getpeercert(binary_form=True) or b"").hexdigest()
    except (OSError, ValueError, BadConnection):
        return
    if shown in SitePins(Path(settings.home) / PINS, settings.site.fingerprint).accepted():
        yield Finding(f"the site shows the pinned certificate, fingerprint {shown[:16]}…")
    else:
        yield Finding(f"the site shows another certificate, fingerprint {shown[:16]}…", "ask its operator")


def _record(settings: SiteSettings) -> Iterator[Finding]:
    with closing(SiteStore(Path(settings.home) / STORE)) as store:
        clients, neighbours = store.clients(), store.neighbours()
        members = f"{len(clients)} clients, {len(neighbours)} neighbours"
        yield Finding(f"{STORE} is intact: round {store.last_round()}, {members}")
    for name, client in clients.items():
        if client.cluster not in settings.training.clusters:
            yield Finding(f"client {name} is in cluster {client.cluster}", "admit it to a cluster that is trained")
    if not clients:
        yield Finding("no client is admitted", "admit one with `pgfl site admit`")
    for name, neighbour in neighbours.items():
        if neighbour.address:
            yield _reached(f"neighbour {name}", neighbour.address, settings.proxies())
        else:
            yield Finding(f"neighbour {name} calls this site; no address of it is known here")


def _samples(settings: ClientSettings) -> Finding:
    rows, features = load_samples(settings).features.shape
    return Finding(f"{settings.data}: {rows} rows of {features} features")


def _ledger(settings: ClientSettings) -> Iterator[Finding]:
    path = Path(settings.ledger)
    if not path.exists():
        yield Finding(f"{path} will be made by the first join")
        return
    yield _private(path)
    with Ledger.read(path) as ledger:
        ledger.verify()
        yield Finding(f"{path} is intact: {ledger.count} releases, epsilon {ledger.epsilon():.4g}")


def _training(home: Path) -> Finding:
    offer = accepted(home)
    if offer is None:
        return Finding("no training is accepted yet; the first join pins one")
    return Finding(f"accepted training {offer.training.digest[:16]}…: {offer.training.describe(offer.cluster)}")


def _noise(settings: ClientSettings) -> Iterator[Finding]:
    """What the owner's budget means in noise, for the accepted training if there is one."""
    if settings.privacy.enabled:
        offer, budget = accepted(Path(settings.home)), settings.privacy.request().policy().budget
        rounds = None if offer is None else offer.training.rounds
        yield Finding(noise_in_words(budget, rounds), unusable(budget, rounds))


def _disk(home: Path) -> Finding:
    free = shutil.disk_usage(home).free
    return Finding(f"{free / 2**30:.1f} GiB free for {home}", "free some space" if free < _LEAST_DISK_BYTES else None)


def _files() -> Finding:
    most = allow_many_files()
    few = most < _LEAST_FILES
    return Finding(f"{most} open files are allowed", "raise the limit (LimitNOFILE, ulimit -n)" if few else None)


def _tried(what: str, look: Callable[[], list[Finding]]) -> list[Finding]:
    """Findings, or the error that looking for them ended in."""
    try:
        return look()
    except (PgflError, OSError) as error:
        return [Finding(what, str(error) or os.strerror(getattr(error, "errno", 0) or 0), is_damage(error))]
