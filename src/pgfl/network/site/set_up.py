"""Setting a site up: its folder, the neighbours that invited it, and the invitations that it hands out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pgfl.errors import NetworkError
from pgfl.network.invitation import DAYS, Invitation, own_address
from pgfl.network.protocol.identity import (
    SITE_CERTIFICATE,
    SITE_KEY,
    SiteCertificate,
    check_name,
    create_site,
)
from pgfl.network.rotation import write_private
from pgfl.network.settings import SITE, applied, parse_settings, toml_of, write_once
from pgfl.network.site.introduction import remember_invitation
from pgfl.network.site.settings import SiteSettings, load_site
from pgfl.network.site.store import SiteStore
from pgfl.suggestions import unknown_name

SETTINGS = "site.toml"


@dataclass(frozen=True)
class Guest:
    """Who is invited: a client of a cluster, or a site."""

    kind: Literal["client", "site"]
    name: str
    cluster: str = ""

    @classmethod
    def client(cls, text: str, clusters: Sequence[str]) -> Guest:
        """From NAME or NAME:CLUSTER; the cluster may be left out where there is one."""
        name, _, cluster = text.partition(":")
        if not cluster and len(clusters) != 1:
            raise NetworkError(f"Say which cluster {name} trains, as in {name}:{clusters[0]} ({', '.join(clusters)}).")
        cluster = cluster or clusters[0]
        if cluster not in clusters:
            raise NetworkError(unknown_name("cluster", cluster, clusters))
        return cls("client", check_name("client", name), cluster)


def set_up_site(
    home: Path, name: str, hosts: list[str], neighbours: Sequence[Path], changes: Sequence[str]
) -> tuple[SiteCertificate, SiteSettings]:
    """Make the site's folder; return its certificate and settings.

    `changes` are key=value for site.toml; the training comes from the neighbours, who must agree.
    """
    invitations = [Invitation.read(path, "site") for path in neighbours]
    for path, invitation in zip(neighbours, invitations, strict=True):
        if invitation.name != name:
            raise NetworkError(
                f"{path} invites site {invitation.name}, not {name}; a site takes the name it has there."
            )
    digests = {invitation.agreed.digest: invitation for invitation in invitations}
    if len(digests) > 1:
        here, other = list(digests.values())[:2]
        said = "; ".join(here.agreed.differences(other.agreed))
        raise NetworkError(f"{here.site} and {other.site} propose different trainings ({said}); they must agree first.")
    text = SITE.format(name=name)
    if invitations:
        if set_here := [change for change in changes if change.strip().startswith("training.")]:
            raise NetworkError(f"The training is that of {invitations[0].site}; leave out {set_here[0]}.")
        training = {"training": invitations[0].agreed.model_dump(exclude_none=True)}
        text = text[: text.index("[training]")] + toml_of(training)
    text = applied(text, changes)
    written = parse_settings(text, SiteSettings, home / SETTINGS)
    if invitations and written.training.digest not in digests:
        raise NetworkError(f"The training of {invitations[0].site} cannot be written down here; upgrade pgfl.")
    certificate = create_site(home, name, hosts)
    write_once(home / SETTINGS, text)
    settings = load_site(home / SETTINGS)
    with closing(SiteStore.of_site(home)) as store:
        for invitation in invitations:
            store.link(invitation.shown, invitation.address)
            address = own_address(home, settings.listen.port) if hosts else ""
            remember_invitation(store, invitation.site, invitation.code, address)
    return certificate, settings


def invite(home: Path, guest: Guest, address: str | None = None, days: float = DAYS, out: Path | None = None) -> Path:
    """Write an invitation, which its owner alone can read; return its file."""
    settings = load_site(home / SETTINGS)
    path = out or home / f"{guest.name}-invitation.pgfl"
    if guest.kind == "site" and guest.name == settings.name:
        raise NetworkError(f"{guest.name} is this site itself; name the neighbour to invite.")
    if guest.kind == "client" and guest.cluster not in settings.training.clusters:
        raise NetworkError(unknown_name("cluster", guest.cluster, settings.training.clusters))
    address, expires = address or own_address(home, settings.listen.port), time.time() + 86_400.0 * days
    with closing(SiteStore.of_site(home)) as store:
        code = store.invite(guest.kind, guest.name, guest.cluster, expires)
    shown = SiteCertificate.read(home / SITE_CERTIFICATE)
    invitation = Invitation(
        kind=guest.kind, name=guest.name, cluster=guest.cluster, site=settings.name, address=address,
        certificate=shown.pem.decode(), training=settings.training.text, code=code, expires=expires,
    )  # fmt: skip
    write_private(path, invitation.signed(home / SITE_KEY).text().encode())
    return path
