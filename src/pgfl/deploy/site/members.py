"""Whom a site knows: admitted clients and linked neighbours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pgfl.deploy.identity import ClientKey, SiteCertificate


@dataclass(frozen=True)
class Admitted:
    """One admitted client; `releases` is the largest release number it reported, `accepted` its last round."""

    name: str
    key: ClientKey
    cluster: str
    releases: int
    accepted: int | None


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
class Membership:
    """The members as of one moment, and the number of the operator's last change of them."""

    change: int
    clients: Mapping[str, Admitted]
    neighbours: Mapping[str, Neighbour]
    rollbacks: tuple[int, ...] = ()


def neighbour_of(name: str, pem: bytes, address: str) -> Neighbour:
    """From the row of the store; `pem` is its certificate and perhaps the next one."""
    end = b"-----END CERTIFICATE-----\n"
    first, _, second = pem.partition(end)
    coming = SiteCertificate(name, second) if second else None
    return Neighbour(SiteCertificate(name, first + end), address, coming)
