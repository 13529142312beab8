"""A client's part of Flower: its SuperNode, and a thread in the place of Flower's engine.

The thread takes the tasks that the SuperLink sends. It reads the invitation in the message and nothing else: the
bundle that comes along is not unpacked, not imported and not run, whatever is in it.
"""

from __future__ import annotations

import logging
import subprocess
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pgfl.deploy import identity, processes
from pgfl.deploy.client.client_settings import ClientSettings
from pgfl.deploy.flower import flower
from pgfl.deploy.invitations import Invited

log = logging.getLogger(__name__)
_POLL_SECONDS = 0.5
_REASONS = {
    "CERTIFICATE_VERIFY_FAILED": "the site shows another certificate than the one that this client pins",
    "activate SuperNode": "the site has not admitted this client, or still holds its session before",
    "Invalid SuperNode authentication": "the site does not accept the signature; is this machine's clock right?",
}
_RESTART_SECONDS, _LONGEST_RESTART_SECONDS = 5.0, 20.0


@dataclass
class SuperNode:
    """The SuperNode of a client as a child process on loopback; restarted while it is refused or dies."""

    home: Path
    superlink: str
    certificate: Path
    key: Path
    port: int = 0
    _child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, or start it again, on a port of its own."""
        self.port = processes.free_port()
        self._log_before = self._log.stat().st_size if self._log.exists() else 0
        self.secret = flower.secret_file(self.home / "engine.secret")
        command = [
            *(processes.executable("flower-supernode"), "--superlink", self.superlink),
            *("--root-certificates", self.certificate, "--auth-supernode-private-key", self.key),
            *("--host", "127.0.0.1", "--port", self.port, "--isolation", "process"),
            *("--superexec-auth-secret-file", self.secret),
        ]
        self._child = processes.start(
            [str(part) for part in command], self._log, flower.environment(self.home / "flower")
        )

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._child is not None and self._child.poll() is None

    @property
    def why_it_ended(self) -> str:
        """The reason in its own log, in our words where we know it."""
        with suppress(OSError), self._log.open("rb") as written:
            written.seek(self._log_before)
            text = written.read().decode(errors="replace")
            return next((why for words, why in _REASONS.items() if words in text), "see supernode.log")
        return "see supernode.log"

    @property
    def _log(self) -> Path:
        return self.home / "supernode.log"

    def stop(self) -> None:
        """End it; it signs off at the SuperLink."""
        if self._child is not None:
            processes.stop(self._child, patience=flower.PATIENCE)


def invitations_of(settings: ClientSettings) -> FlowerInvitations:
    """The invitations to a client, with its SuperNode."""
    home, site = Path(settings.home), settings.site
    return FlowerInvitations(SuperNode(home, site.superlink, Path(site.certificate), home / identity.CLIENT_KEY))


@dataclass
class FlowerInvitations:
    """`Invitations` over Flower: one thread keeps the SuperNode alive, waits for invitations, and answers them."""

    node: SuperNode
    _over: threading.Event = field(default_factory=threading.Event)

    def start(self, invited: Invited) -> None:
        """Begin in the background. Flower gets its answer to an invitation when `invited` returns."""
        self._invited = invited
        self._thread = threading.Thread(target=self._run, name="flower-invitations", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and the SuperNode."""
        self._over.set()
        self._thread.join(5.0)
        self.node.stop()

    def _run(self) -> None:
        flower.be_quiet()
        pause = _RESTART_SECONDS
        while not self._over.is_set():
            try:
                self.node.start()
                asking = flower.acquirer(f"127.0.0.1:{self.node.port}", None, self.node.secret)
                while self.node.alive and not self._over.wait(_POLL_SECONDS):
                    with suppress(OSError, *_transport_errors()):
                        token = flower.acquire(asking, "flwr-clientapp")
                        if token is not None:
                            self._take(token)
            except Exception as error:
                log.warning("Flower is interrupted (%s); trying again", flower.in_brief(error))
            if not self._over.is_set():
                log.warning("the SuperNode ended: %s; again in %g s", self.node.why_it_ended, pause)
                self.node.stop()
                self._over.wait(pause)
                pause = min(2 * pause, _LONGEST_RESTART_SECONDS)

    def _take(self, token: str) -> None:
        from flwr.app import ConfigRecord, Message, RecordDict
        from flwr.app.error import Error
        from flwr.common.constant import ErrorCode
        from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor
        from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

        client = flower.runtime_client(
            f"127.0.0.1:{self.node.port}", None, "flwr-clientapp", RuntimeTokenHttpInterceptor(token)
        )
        heartbeat = flower.Heartbeat(client)
        try:
            message, context, _, _ = pull_task_input(client)
            invitation = flower.read_invitation(message)
            if invitation is None:
                log.warning(
                    "a Flower message of type %.60r was refused: not an invitation", message.metadata.message_type
                )
                reply = Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, "refused"), reply_to=message)
            else:
                reply = Message(
                    RecordDict({"over": ConfigRecord({"summary": self._invited(invitation)})}), reply_to=message
                )
            push_message(client, reply, context)
            push_task_output(client, context, "completed", "")
        except Exception as error:
            log.info("a Flower task could not be answered (%s)", type(error).__name__)
        finally:
            heartbeat.stop()
            client.close()


def _transport_errors() -> tuple[type[Exception], ...]:
    import httpx

    return (httpx.HTTPError,)
