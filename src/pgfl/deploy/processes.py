"""Child processes that never outlive their parent, and free ports on loopback."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from pgfl.errors import NetworkError

_LAUNCH = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)  # PR_SET_PDEATHSIG
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execvp(sys.argv[2], sys.argv[2:])
"""  # run in the child, because Python code between fork and exec can hang where gRPC has threads
_children: set[subprocess.Popen[bytes]] = set()


def free_port(host: str = "127.0.0.1") -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def start(command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start a child in a group of its own; on Linux it gets SIGTERM when the calling thread ends, however it ends."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _LAUNCH, str(os.getpid()), *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **(environment or {})},
        )
    _children.add(child)
    return child


def stop(child: subprocess.Popen[bytes], patience: float = 5.0) -> None:
    """Ask a child's group to end, then make it."""
    for number, wait in ((signal.SIGTERM, patience), (signal.SIGKILL, 5.0)):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(wait)
        if child.poll() is not None and not _group_lives(child.pid):
            break
    _children.discard(child)


def kill(child: subprocess.Popen[bytes]) -> None:
    """kill -9 the child alone, as an accident would."""
    child.kill()
    child.wait()


def executable(name: str) -> str:
    """A command that was installed beside this Python."""
    beside = Path(sys.executable).with_name(name)
    if not beside.exists():
        raise NetworkError(f"{name} is not installed; install pgfl with its extra 'network'.")
    return str(beside)


def _group_lives(group: int) -> bool:
    for _ in range(10):
        try:
            os.killpg(group, 0)
        except (ProcessLookupError, PermissionError):
            return False
        time.sleep(0.02)
    return True


@atexit.register
def _stop_all() -> None:
    for child in list(_children):
        stop(child, patience=2.0)
