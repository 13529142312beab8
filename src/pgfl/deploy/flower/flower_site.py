"""A site's part of Flower: its SuperLink, and a thread that tells it which keys are admitted and whom to invite."""

from __future__ import annotations

import json
import logging
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

from pgfl.deploy import identity, processes
from pgfl.deploy.flower import flower
from pgfl.deploy.guarded_listener import LIMITS, ConnectionLimits
from pgfl.deploy.invitations import Admitted, Invite
from pgfl.deploy.log_settings import LogSettings, rotate_in_place
from pgfl.deploy.site.site_settings import SiteSettings

log = logging.getLogger(__name__)
_PAUSE_SECONDS = 1.0
_ORPHAN_SECONDS = 15.0  # after a kill, the SuperLink of the site before may still hold its port


@dataclass
class SuperLink:
    """The SuperLink of a site as a child process, restarted if it dies; its state is in a file and survives."""

    home: Path
    host: str
    port: int
    certificate: Path
    key: Path
    limits: ConnectionLimits = LIMITS
    _child: subprocess.Popen[bytes] | None = None
    _channel: socket.socket | None = None

    def start(self) -> socket.socket:
        """Start it, or start it again; returns the socket over which its `NodeInviter` talks."""
        self.secret = flower.secret_file(self.home / "engine.secret")
        self.lock = flower.secret_file(self.home / "control.secret")
        tls = ["--ssl-certfile", self.certificate, "--ssl-keyfile", self.key, "--ssl-ca-certfile", self.certificate]
        self._close_channel()
        self._channel, its_end = socket.socketpair()
        command = [
            *(sys.executable, "-P", "-m", "pgfl.deploy.flower.superlink", self.lock),  # -P: not from this folder
            *(its_end.fileno(), self.limits.per_address, self.limits.together),
            *("--host", self.host, "--port", self.port, *tls, "--enable-supernode-auth"),
            *("--isolation", "process", "--superexec-auth-secret-file", self.secret),
            *("--database", self.home / "flower.db", "--disable-runtime-dependency-installation"),
        ]
        processes.make_private(*self.home.glob("flower.db*"))
        self._shown = self.certificate.read_bytes()
        with its_end:
            self._child = processes.start(
                [str(part) for part in command], self.log, flower.environment(self.home / "flower"), keep=its_end
            )
        return self._channel

    @property
    def log(self) -> Path:
        """Where its output goes."""
        return self.home / "superlink.log"

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._child is not None and self._child.poll() is None

    @property
    def outdated(self) -> bool:
        """Whether the site has switched to another certificate than it shows."""
        return self._child is not None and self._shown != self.certificate.read_bytes()

    def stop(self) -> None:
        """End it."""
        if self._child is not None:
            processes.stop(self._child, patience=flower.PATIENCE)
        self._close_channel()

    def _close_channel(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None


def inviter_of(settings: SiteSettings) -> FlowerInviter:
    """The inviter of a site, with its SuperLink."""
    home, listen = Path(settings.home), settings.listen
    certificate, key = home / identity.SITE_CERTIFICATE, home / identity.SITE_KEY
    superlink = SuperLink(home, listen.host, listen.flower, certificate, key, listen.limits())
    return FlowerInviter(superlink, settings.log)


@dataclass
class FlowerInviter:
    """`Inviter` over Flower: one thread answers the `NodeInviter` in the SuperLink's process, and keeps that alive."""

    link: SuperLink
    log_settings: LogSettings = field(default_factory=LogSettings)
    _over: threading.Event = field(default_factory=threading.Event)

    async def start(self, admitted: Admitted, invite: Invite) -> None:
        """Begin in the background; training does not wait for it where clients can reconnect by themselves."""
        await processes.until_free(self.link.host, self.link.port, _ORPHAN_SECONDS)
        self._admitted, self._invitation_for = admitted, invite
        self._thread = threading.Thread(target=self._run, name="flower-inviter", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the SuperLink."""
        self._over.set()
        self.link.stop()
        self._thread.join(3.0)

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self._converse(self.link.start())
            except Exception as error:
                if not self._over.is_set():
                    log.warning("Flower is interrupted (%s: %s); trying again", type(error).__name__, error)
            if not self._over.is_set():
                self.link.stop()
                self._over.wait(_PAUSE_SECONDS)

    def _converse(self, channel: socket.socket) -> None:
        """Answer until the SuperLink ends, or shows an old certificate."""
        with channel.makefile("rw", encoding="utf-8") as lines:
            for line in lines:
                if self._over.is_set():
                    return
                admitted = self._admitted()
                online = [client for client in json.loads(line)["online"] if client in admitted]
                invitations = {client: self._invitation_for(client) for client in online}
                invited = {client: [i.address, i.token] for client, i in invitations.items() if i is not None}
                keys = {client: key.line for client, key in admitted.items()}
                lines.write(json.dumps({"admitted": keys, "invitations": invited}) + "\n")
                lines.flush()
                for client in invited:
                    log.info("client %s is online with Flower and was invited", client)
                rotate_in_place(self.link.log, self.log_settings)
                if self.link.outdated:
                    log.info("the SuperLink is started again, with the new certificate")
                    return
        if not self._over.is_set():
            log.warning("the SuperLink has ended; it is started again")
