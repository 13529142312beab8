"""A site's part of Flower: its SuperLink, the keys registered there, and one run that invites nodes to our streams."""

from __future__ import annotations

import hashlib
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pgfl.deploy import identity, processes
from pgfl.deploy.flower import flower
from pgfl.deploy.flower.join_message import write_invitation
from pgfl.deploy.flower.superlink import CONTROL_HEADER
from pgfl.deploy.guarded_listener import LIMITS, ConnectionLimits
from pgfl.deploy.identity import ClientKey
from pgfl.deploy.invitations import Admitted, Invite
from pgfl.deploy.log_settings import LogSettings, rotate_in_place
from pgfl.deploy.site.site_settings import SiteSettings

if TYPE_CHECKING:
    from flwr.supercore.control import ControlHttpClient

log = logging.getLogger(__name__)
_BUNDLE = {
    "pyproject.toml": b"""[project]
name = "pgfl-membership"
version = "1.0.0"
[tool.flwr.app]
publisher = "pgfl"
[tool.flwr.app.components]
serverapp = "pgfl_membership:server"
clientapp = "pgfl_membership:client"
""",
    "pgfl_membership.py": b'raise SystemExit("pgfl runs what is installed, never what is shipped")\n',
}
_EVERYWHERE = ("0.0.0.0", "::", "")
_POLL_SECONDS = 0.5
_REGISTERED_BEFORE = 412  # Flower's answer to a key that it knows
_JOIN_SECONDS = 600.0  # then an invitation is no good any more; nobody answers it
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

    def start(self) -> None:
        """Start it, or start it again."""
        self.secret = flower.secret_file(self.home / "engine.secret")
        self.lock = flower.secret_file(self.home / "control.secret")
        tls = ["--ssl-certfile", self.certificate, "--ssl-keyfile", self.key, "--ssl-ca-certfile", self.certificate]
        command = [
            *(sys.executable, "-P", "-m", "pgfl.deploy.flower.superlink", self.lock),
            *(self.limits.per_address, self.limits.together),  # -P: not from this folder
            *("--host", self.host, "--port", self.port, *tls, "--enable-supernode-auth"),
            *("--isolation", "process", "--superexec-auth-secret-file", self.secret),
            *("--database", self.home / "flower.db", "--disable-runtime-dependency-installation"),
        ]
        processes.make_private(*self.home.glob("flower.db*"))
        self._shown = self.certificate.read_bytes()
        self._child = processes.start(
            [str(part) for part in command], self.log, flower.environment(self.home / "flower")
        )

    @property
    def log(self) -> Path:
        """Where its output goes."""
        return self.home / "superlink.log"

    @property
    def address(self) -> str:
        """Where this site's own process reaches it."""
        return f"{'127.0.0.1' if self.host in _EVERYWHERE else self.host}:{self.port}"

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

    def control(self) -> ControlHttpClient:
        """A client of the control interface that carries this site's secret."""
        from flwr.supercore.control import ControlHttpClient
        from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

        return ControlHttpClient.from_server_address(
            self.address,
            False,
            self.certificate.read_bytes(),
            [RuntimeVersionHttpInterceptor(component_name="flwr CLI"), _ControlSecret(self.lock.read_text().strip())],
        )


class _ControlSecret:
    """Adds the secret that `pgfl.deploy.flower.superlink` asks for."""

    def __init__(self, secret: str) -> None:
        self._secret = secret

    def intercept(self, context: Any, call_next: Callable[[Any], Any]) -> Any:
        """Put it in the header."""
        context.request.headers[CONTROL_HEADER] = self._secret
        return call_next(context)


def inviter_of(settings: SiteSettings) -> FlowerInviter:
    """The inviter of a site, with its SuperLink."""
    home, listen = Path(settings.home), settings.listen
    certificate, key = home / identity.SITE_CERTIFICATE, home / identity.SITE_KEY
    superlink = SuperLink(home, listen.host, listen.flower, certificate, key, listen.limits())
    return FlowerInviter(superlink, settings.log)


@dataclass
class FlowerInviter:
    """`Inviter` over Flower: one thread registers admitted keys, starts a run, and invites nodes."""

    link: SuperLink
    log_settings: LogSettings = field(default_factory=LogSettings)
    _over: threading.Event = field(default_factory=threading.Event)
    _registered: set[str] = field(default_factory=set)

    async def start(self, admitted: Admitted, invite: Invite) -> None:
        """Begin in the background; training does not wait for it where clients can reconnect by themselves."""
        await processes.until_free(self.link.host, self.link.port, _ORPHAN_SECONDS)
        self._admitted, self._invitation_for = admitted, invite
        self._thread = threading.Thread(target=self._run, name="flower-inviter", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the run and the SuperLink."""
        self._over.set()
        self._thread.join(3.0)
        self.link.stop()

    def _run(self) -> None:
        flower.be_quiet()
        while not self._over.is_set():
            grid = None
            try:
                if not self.link.alive:
                    self.link.start()
                grid = self._begin_run()
                log.info("Flower run %s invites nodes", grid.run.run_id)
                while self.link.alive and not self._over.wait(_POLL_SECONDS):
                    self._register(self._control)
                    self._invite(grid)
                    rotate_in_place(self.link.log, self.log_settings)
                    if self.link.outdated:
                        log.info("the SuperLink is started again, with the new certificate")
                        self.link.stop()
            except Exception as error:
                if not self._over.is_set():
                    log.warning("Flower is interrupted (%s); trying again", flower.in_brief(error))
                    self._over.wait(1.0)
            finally:
                if grid is not None:
                    with suppress(Exception):
                        self._end_run(grid)

    def _begin_run(self) -> Any:
        """Register, start a run, and take its ServerApp task before anybody else could."""
        import httpx
        from flwr.cli.build import build_fab_from_files
        from flwr.common.serde import run_from_proto
        from flwr.proto.control_pb2 import StartRunRequest
        from flwr.proto.fab_pb2 import Fab
        from flwr.proto.runtime_pb2 import PullTaskInputRequest
        from flwr.superlink.grid import HttpGrid

        self._registered.clear()
        self._control = self.link.control()
        patience = time.monotonic() + 60.0
        while not self._over.is_set():
            try:
                self._register(self._control)
                break
            except httpx.TransportError:
                if time.monotonic() > patience or not self.link.alive:
                    raise
                self._over.wait(0.1)
        content, _ = build_fab_from_files(_BUNDLE)
        bundle = Fab(hash_str=hashlib.sha256(content).hexdigest(), content=content)
        run = self._control.StartRun(StartRunRequest(fab=bundle)).run_id
        address, certificate = self.link.address, self.link.certificate.read_bytes()
        asking = flower.acquirer(address, certificate, self.link.secret)
        while not self._over.is_set():
            token = flower.acquire(asking, "flwr-serverapp")
            if token is None:
                self._over.wait(0.1)
                continue
            grid = HttpGrid(address, False, certificate, token=token)
            grid._retry_invoker.max_tries = 1  # a SuperLink that died is started again, not waited for
            task = grid._runtime_client.PullTaskInput(PullTaskInputRequest())
            if task.run.run_id != run:
                continue  # left behind by an earlier start of this site
            flower.identify(task)
            grid.set_run(run_from_proto(task.run))
            self._heartbeat = flower.Heartbeat(grid._runtime_client)
            return grid
        raise RuntimeError("stopped before the run began")

    def _end_run(self, grid: Any) -> None:
        from flwr.proto.runtime_pb2 import PushTaskOutputRequest

        self._heartbeat.stop()
        grid._runtime_client.PushTaskOutput(PushTaskOutputRequest(sub_status="completed", details=""))
        grid.close()

    def _register(self, control: Any) -> None:
        import httpx
        from flwr.proto.control_pb2 import RegisterNodeRequest

        for client, key in self._admitted().items():
            if key.fingerprint not in self._registered:
                try:
                    request = RegisterNodeRequest(public_key=_flowers_form(key), name=client)
                    control.RegisterNode(request)
                except httpx.HTTPStatusError as error:
                    if error.response.status_code != _REGISTERED_BEFORE:
                        raise
                    log.debug("client %s is registered with Flower already", client)
                self._registered.add(key.fingerprint)

    def _invite(self, grid: Any) -> None:
        clients = {_flowers_form(key): client for client, key in self._admitted().items()}
        for node in grid.get_nodes():
            client = clients.get(node.public_key)
            invitation = None if client is None else self._invitation_for(client)
            if invitation is not None:
                grid.push_messages([write_invitation(invitation, node.node_id, _JOIN_SECONDS)])
                log.info("client %s is online with Flower and was invited", client)


@cache
def _flowers_form(key: ClientKey) -> bytes:
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes

    form: bytes = public_key_to_bytes(key.public)
    return form
