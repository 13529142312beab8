"""A client ends when it is told to, however often, and when what started it is gone, however that ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pgfl.network import processes as ending
from tests.network.client_folders import client_folder

PATIENCE = 60.0  # seconds: far more than it takes, far less than a client that waits for its site would live
JOIN = "from pgfl.cli import main; main()"
TOLD_AGAIN = """
import os, signal, threading
from pgfl.network.client.client import Participant
stop = Participant.stop
def stop_told_again(self):
    os.kill(os.getpid(), signal.SIGTERM)
    stop(self)
Participant.stop = stop_told_again
"""
PARENT = """
import sys, threading, time
from pathlib import Path
from pgfl.network import processes
for _ in range(20):
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
folder = Path(sys.argv[1])
client = processes.start([sys.executable, "-P", "-c", sys.argv[2], "client", "join", folder / "client.toml"],
                         folder / "log.txt")
print(client.pid, flush=True)
time.sleep(600)
"""
DEAF = "import signal; signal.signal = lambda *_: None; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n"


def until(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_client_without_its_site_ends_when_it_is_told_to_while_it_is_told_to(tmp_path):
    """A handler of signals that took a lock would wait for itself, for ever."""
    command = [sys.executable, "-P", "-c", TOLD_AGAIN + JOIN, "client", "join", str(client_folder(tmp_path))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as client:
        next(line for line in client.stderr if "the stream to" in line)
        client.terminate()
        try:
            said, _ = client.communicate(timeout=PATIENCE)
        finally:
            client.kill()
    assert client.returncode == 0
    assert "Client ann ended" in said


@pytest.mark.parametrize("before", ["", DEAF], ids=["by signals", "by the pipe alone"])
def test_a_client_does_not_outlive_what_started_it(tmp_path, before):
    client_folder(tmp_path)
    command = [sys.executable, "-c", PARENT, str(tmp_path), before + JOIN]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        client = int(parent.stdout.readline())
        try:
            log = tmp_path / "log.txt"
            until(lambda: "the stream to" in log.read_text() or not lives(client))
            assert lives(client), log.read_text()
            parent.kill()
            until(lambda: not lives(client))
        finally:
            parent.kill()
            if lives(client):
                os.kill(client, signal.SIGKILL)


def test_a_client_that_an_owner_starts_depends_on_no_parent(monkeypatch):
    monkeypatch.delenv("PGFL_PARENTS_PIPE", raising=False)
    ended = []
    ending.on_parent_exit(lambda: ended.append(True))
    assert not ended


@pytest.mark.proof
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_demonstration_cleans_up_when_it_is_terminated_or_its_terminal_is_closed(number):
    code = (
        "import time\nfrom pgfl.demo import demo_folder\nwith demo_folder(None) as folder:\n"
        "    print(folder, flush=True)\n    time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    ) as demo:  # fmt: skip
        folder = Path(demo.stdout.readline().strip())
        assert folder.is_dir()
        demo.send_signal(number)
        demo.wait(PATIENCE)
    assert not folder.exists()
