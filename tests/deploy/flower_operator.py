"""What an operator could do who reads the secrets of a site's SuperLink: register nodes, start runs, send messages."""

from __future__ import annotations

import os
from dataclasses import dataclass

import httpx

from pgfl.deploy.flower import flower
from pgfl.deploy.flower.superlink import CONTROL_HEADER

for name, off in flower.QUIET.items():
    os.environ.setdefault(name, off)


@dataclass
class WithSecret:
    """Adds the secret that unlocks the control interface."""

    secret: str

    def intercept(self, context, call_next):
        context.request.headers[CONTROL_HEADER] = self.secret
        return call_next(context)


def control(link, *more):
    """A client of the control interface; it is locked to one without the secret."""
    from flwr.supercore.control import ControlHttpClient
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

    return ControlHttpClient.from_server_address(
        f"127.0.0.1:{link.port}",
        False,
        link.certificate.read_bytes(),
        [RuntimeVersionHttpInterceptor(component_name="flwr CLI"), *more],
    )


def acquire(link):
    """The token of the next task of a ServerApp, if there is one."""
    from flwr.proto.runtime_pb2 import AcquireTaskRequest
    from flwr.supercore.auth import load_superexec_auth_secret
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor, SuperExecAuthHttpInterceptor
    from flwr.supercore.runtime import RuntimeHttpClient

    secret = load_superexec_auth_secret(str(link.secret))
    protected = frozenset({"/flwr.proto.Runtime/AcquireTask"})
    client = RuntimeHttpClient.from_server_address(
        f"127.0.0.1:{link.port}",
        False,
        link.certificate.read_bytes(),
        [
            RuntimeVersionHttpInterceptor(component_name="SuperExec"),
            SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=protected),
        ],
    )
    return client.AcquireTask(AcquireTaskRequest(supported_task_types=["flwr-serverapp"])).token or None


def task_of(link, run, wait):
    """A grid with the task of this run, and the task."""
    from flwr.common.serde import run_from_proto
    from flwr.proto.runtime_pb2 import PullTaskInputRequest
    from flwr.superlink.grid import HttpGrid

    while True:
        token = wait(lambda: acquire(link))
        grid = HttpGrid(f"127.0.0.1:{link.port}", False, link.certificate.read_bytes(), token=token)
        try:
            task = grid._runtime_client.PullTaskInput(PullTaskInputRequest())
        except httpx.HTTPStatusError:  # the run of the site, which has no code
            continue
        if task.run.run_id == run:
            grid.set_run(run_from_proto(task.run))
            return grid, task


def identify(task):
    """Set in Flower's message classes whose messages this process writes."""
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = (
        task.task_id,
        task.run.run_id,
        task.context.node_id,
    )
