"""Flower 1.41, as much of it as a site needs: addresses, secrets, and one task of the Runtime API.

Flower carries membership: which nodes are there, with which keys, and the message that invites a node to a run. Its
engine would run code that a SuperLink ships; a thread of the site stands in its place and runs nothing but the
installed pgfl. It leans on flwr's internals, hence the exact pin in pyproject.toml.
"""

from __future__ import annotations

import os
import secrets
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flwr.proto.runtime_pb2 import PullTaskInputResponse
    from flwr.supercore.protobuf.client import ProtobufClientInterceptor
    from flwr.supercore.runtime import RuntimeHttpClient

QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
PATIENCE = 2.0  # seconds that Flower's processes get to end by themselves; their state is in files
_HEARTBEAT_SECONDS = 15.0
_ACQUIRE = frozenset({"/flwr.proto.Runtime/AcquireTask"})


def environment(home: Path) -> dict[str, str]:
    """For Flower's processes: its folder is ours; telemetry and update checks are off unless the user set them."""
    return {**{name: os.environ.get(name, off) for name, off in QUIET.items()}, "FLWR_HOME": str(home.resolve())}


def be_quiet() -> None:
    """The same for the parts of Flower inside this process; before the first import of flwr."""
    for name, off in QUIET.items():
        os.environ.setdefault(name, off)


def in_brief(error: Exception) -> str:
    """An error for a log line; those of HTTP run over several."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]:.200s}"


def secret_file(path: Path) -> Path:
    """A file with a fresh secret that only its owner can read."""
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secrets.token_hex(32))
    return path


def runtime_client(
    address: str, certificate: bytes, component: str, *more: ProtobufClientInterceptor
) -> RuntimeHttpClient:
    """A client of the Runtime API of a SuperLink."""
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
    from flwr.supercore.runtime import RuntimeHttpClient

    return RuntimeHttpClient.from_server_address(
        address, False, certificate, [RuntimeVersionHttpInterceptor(component_name=component), *more]
    )


def acquirer(address: str, certificate: bytes, secret: Path) -> RuntimeHttpClient:
    """A client that may ask for tasks, because it shares the engine's secret."""
    from flwr.supercore.auth import load_superexec_auth_secret
    from flwr.supercore.interceptors import SuperExecAuthHttpInterceptor

    shared = load_superexec_auth_secret(str(secret))
    return runtime_client(
        address,
        certificate,
        "SuperExec",
        SuperExecAuthHttpInterceptor(master_secret=shared, protected_methods=_ACQUIRE),
    )


def acquire(client: RuntimeHttpClient, kind: str) -> str | None:
    """The token of the next task of this kind, if there is one."""
    from flwr.proto.runtime_pb2 import AcquireTaskRequest

    return client.AcquireTask(AcquireTaskRequest(supported_task_types=[kind])).token or None


def identify(task: PullTaskInputResponse) -> None:
    """Set in Flower's message classes whose messages this process writes."""
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = (
        task.task_id,
        task.run.run_id,
        task.context.node_id,
    )


class Heartbeat:
    """Keeps a task alive from a thread; a missed beat is no reason to stop training."""

    def __init__(self, client: RuntimeHttpClient) -> None:
        from flwr.proto.runtime_pb2 import SendTaskHeartbeatRequest  # here: two threads must not import flwr at once

        self._client, self._beating = client, SendTaskHeartbeatRequest()
        self._over = threading.Event()
        threading.Thread(target=self._beat, name="flower-heartbeat", daemon=True).start()

    def _beat(self) -> None:
        while not self._over.is_set():
            with suppress(Exception):
                self._client.SendTaskHeartbeat(self._beating)
            self._over.wait(_HEARTBEAT_SECONDS)

    def stop(self) -> None:
        """No more beats."""
        self._over.set()
