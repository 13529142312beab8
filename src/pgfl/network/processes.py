"""Processes: termination, child processes, locks, and free ports on loopback."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import queue
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from pgfl.errors import NetworkError

_PIPE = "PGFL_PARENTS_PIPE"
_PATIENCE = 20.0  # seconds; then a process whose parent has exited is killed


def uptime() -> tuple[str, float]:
    """Return which start of this machine it is, and the seconds since then; "" where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip(), time.clock_gettime(
            time.CLOCK_BOOTTIME
        )
    except (OSError, AttributeError):
        return "", 0.0


def on_terminate(end: Callable[[], object]) -> None:
    """Call `end` at the first SIGTERM or SIGINT, in a thread of its own.

    A signal interrupts the main thread anywhere, even while it handles the signal before. A handler that waits for a
    lock may therefore wait for itself; `SimpleQueue.put` never waits.
    """
    received: queue.SimpleQueue[None] = queue.SimpleQueue()

    def wait() -> None:
        received.get()
        end()

    threading.Thread(target=wait, name="on terminate", daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: received.put(None))


def on_parent_exit(end: Callable[[], object], patience: float = _PATIENCE) -> None:
    """Call `end` when the pgfl process that started this one has exited; do nothing if another program started it.

    Exit at once if `end` has not ended this process after `patience` seconds.
    """
    if (pipe := os.environ.pop(_PIPE, None)) is None:
        return

    def wait() -> None:
        os.read(int(pipe), 1)  # nobody writes: it returns when the other end is closed
        try:
            end()
        finally:
            time.sleep(patience)
            os._exit(1)

    threading.Thread(target=wait, name="on parent exit", daemon=True).start()


def lifetime_pipe() -> tuple[int, dict[str, str]]:
    """Return the end of a pipe for a child to inherit, and its environment; this process holds the other end open."""
    end, _ = _pipe(os.getpid())
    return end, {_PIPE: str(end)}


@cache
def _pipe(_process: int) -> tuple[int, int]:
    """One for all children of a process; a fork has its own."""
    return os.pipe()


_LAUNCH = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)  # PR_SET_PDEATHSIG
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execvp(sys.argv[2], sys.argv[2:])
"""  # run in the child, because Python code between fork and exec can hang where there are threads
_PORTS = (20_000, 32_000)  # below 32768, where Linux begins with the ports of outgoing connections
_BACKLOG = 1024  # connections that wait to be accepted, as when all clients of a site come back at once
_given_ports: set[int] = set()
_children: set[subprocess.Popen[bytes]] = set()


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; raises `OSError` where one cannot listen."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host.strip("[]"), port), family=family, backlog=_BACKLOG)


def free_port(host: str = "127.0.0.1") -> int:
    """A free port that no other pgfl process of this user is given while this one lives, and this one only once.

    It is not among those that systems give to outgoing connections.
    """
    for _ in range(1000):
        port = random.SystemRandom().randrange(*_PORTS)
        if port in _given_ports or not _claim(port):
            continue
        with contextlib.suppress(OSError):
            listen(host, port).close()
            _given_ports.add(port)
            return port
    raise NetworkError(f"No free port was found on {host} between {_PORTS[0]} and {_PORTS[1] - 1}.")


def _claim(port: int) -> bool:
    """Lock this port's byte of a file that all pgfl processes of a user share; the kernel unlocks it at the end."""
    try:
        fcntl.lockf(_claims(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


@cache
def _claims() -> int:
    path = Path(tempfile.gettempdir()) / f"pgfl-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


@contextlib.contextmanager
def exclusive_lock(path: Path, what: str) -> Iterator[None]:
    """Hold a lock on this file, so that no second process works on the same folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise NetworkError(f"{what} runs already on {path.parent}; stop it first.") from error
        yield


@contextlib.contextmanager
def private_files() -> Iterator[None]:
    """Inside, only the owner can read what this process creates; children always create such files."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def make_private(*paths: Path) -> None:
    """Make existing files readable by their owner only."""
    for path in paths:
        with contextlib.suppress(OSError):
            path.chmod(0o600)


def start(
    command: Sequence[str],
    log: Path,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a child in a group of its own that does not outlive this process, however this one ends.

    A site or a client notices by a pipe. On Linux every child also gets SIGTERM when the calling thread ends, sometimes
    more than once.
    """
    pipe, variables = lifetime_pipe()
    log.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as output:
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _LAUNCH, str(os.getpid()), *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            umask=0o077,
            pass_fds=(pipe,),
            env={**os.environ, **(environment or {}), **variables},
        )
    _children.add(child)
    return child


def stop(*children: subprocess.Popen[bytes], patience: float = 8.0) -> None:
    """Ask the children's groups to end, all at once, then make them."""
    left = list(children)
    for number, wait in ((signal.SIGTERM, patience), (signal.SIGKILL, 5.0)):
        for child in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, number)
        until = time.monotonic() + wait
        while left and time.monotonic() < until:
            left = [child for child in left if child.poll() is None or _group_lives(child.pid)]
            time.sleep(0.02)
    _children.difference_update(children)


def kill(child: subprocess.Popen[bytes]) -> None:
    """kill -9 the child alone, as an accident would."""
    child.kill()
    child.wait()


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


@atexit.register
def _stop_all() -> None:
    stop(*_children, patience=2.0)
