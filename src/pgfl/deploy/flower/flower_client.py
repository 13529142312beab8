"""A client's part of Flower: it is online as a node while it waits for an invitation, and signs off once it has one."""

from __future__ import annotations

import http.client
import logging
import ssl
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from pgfl.deploy import identity
from pgfl.deploy.client.client_settings import ClientSettings
from pgfl.deploy.flower.fleet_node import HEARTBEAT_SECONDS, FleetNode, NodeRefused
from pgfl.deploy.flower.join_message import read_invitation
from pgfl.deploy.invitations import Invitation, Invited
from pgfl.deploy.rotation import next_of
from pgfl.deploy.sparing_log import SparingLog
from pgfl.errors import NetworkError

log = logging.getLogger(__name__)
_POLL_SECONDS, _LONGEST_POLL_SECONDS = 0.2, 4.0
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.2, 10.0
_SLOWER = 1.1  # from one attempt to the next


def invitations_of(settings: ClientSettings) -> FlowerInvitations:
    """The invitations to a client."""
    site = settings.site
    return FlowerInvitations(site.superlink, Path(site.certificate), Path(settings.home) / identity.CLIENT_KEY)


@dataclass
class FlowerInvitations:
    """`Invitations` over Flower, in one thread. While `invited` is busy with one, the client is no node of Flower's."""

    superlink: str
    certificate: Path
    key: Path
    _over: threading.Event = field(default_factory=threading.Event)
    _next: bool = False  # try the next key and certificate, where there are any
    _sparing: SparingLog = field(default_factory=lambda: SparingLog(log))

    def start(self, invited: Invited) -> None:
        """Begin in the background."""
        self._invited = invited
        self._thread = threading.Thread(target=self._run, name="flower-invitations", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._over.set()
        self._thread.join(5.0)

    def _run(self) -> None:
        pause = _PAUSE_SECONDS
        while not self._over.is_set():
            try:
                invitation = self._wait_online()
            except (OSError, ValueError, http.client.HTTPException, NodeRefused, NetworkError) as error:
                why, self._next = _in_words(error), not self._next
                self._sparing.warning(why, f"no invitation: {why}")
                self._over.wait(pause)
                pause = min(_SLOWER * pause, _LONGEST_PAUSE_SECONDS)
                continue
            pause = _PAUSE_SECONDS
            if invitation is not None:
                self._invited(invitation)

    def _version(self, path: Path) -> Path:
        return next_of(path) if self._next and next_of(path).exists() else path

    def _wait_online(self) -> Invitation | None:
        """Be online until an invitation comes, or it is over."""
        certificate, key = (self._version(path) for path in (self.certificate, self.key))
        with FleetNode(self.superlink, certificate, identity.read_client_key(key)) as node:
            beaten, pause = time.monotonic(), _POLL_SECONDS
            while not self._over.is_set():
                message = node.receive()
                if message is not None:
                    invitation = read_invitation(message.metadata.message_type, message.metadata.group_id)
                    if invitation is not None:
                        return invitation
                    kind = message.metadata.message_type
                    log.warning("a Flower message of type %.60r was refused: not an invitation", kind)
                    continue
                if time.monotonic() - beaten > HEARTBEAT_SECONDS / 2:
                    node.beat()
                    beaten, pause = time.monotonic(), _POLL_SECONDS
                self._over.wait(pause)
                pause = min(_SLOWER * pause, _LONGEST_POLL_SECONDS)
        return None


def _in_words(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return "the site shows another certificate than the one that this client pins"
    return str(error) or type(error).__name__
