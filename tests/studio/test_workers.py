"""Workers of the studio end with the process that started them, however it ends."""

import os
import signal
import subprocess
import sys
import time

import pytest

OWNER = """
from pgfl.studio.workers import Workers
if __name__ == "__main__":
    workers = Workers()
    print(*workers._pool._processes, flush=True)
    input()
"""


def _alive(process):
    try:
        with open(f"/proc/{process}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.proof
def test_workers_do_not_outlive_an_owner_that_was_killed(tmp_path):
    script = tmp_path / "owner.py"
    script.write_text(OWNER)
    with subprocess.Popen([sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        workers = [int(number) for number in owner.stdout.readline().split()]
        assert workers and all(map(_alive, workers))
        os.kill(owner.pid, signal.SIGKILL)
    until = time.monotonic() + 60
    while any(map(_alive, workers)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(_alive, workers))
