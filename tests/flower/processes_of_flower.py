"""A SuperLink and SuperNodes as real processes on loopback, started as their operators would."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

from pgfl.network import processes
from pgfl.network.settings import toml_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower"
BIN = Path(sys.executable).parent
PATIENCE = 1200.0  # seconds; far more than a machine under load needs


class Flower:
    """One federation in a folder: `start`, `run`, `stop`."""

    def __init__(self, folder):
        self.folder, self.port = folder, processes.free_port()
        self.environment = {
            "FLWR_HOME": str(folder / "flwr"), "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1",
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        self.running = []
        (folder / "flwr").mkdir(parents=True)
        link = {"default": "here", "here": {"address": f"127.0.0.1:{self.port}", "insecure": True}}
        (folder / "flwr" / "config.toml").write_text(toml_of({"superlink": link}))

    def command(self, name, *arguments):
        command = [str(BIN / name), "--insecure", "--host", "127.0.0.1", *map(str, arguments)]
        self.running.append(processes.start(command, self.folder / f"{name}-{len(self.running)}.log", self.environment))

    def start(self, clients):
        """A SuperLink, and a SuperNode for every client.toml."""
        self.start_link()
        for path in clients:
            node = ("--port", processes.free_port(), "--node-config", f'client="{path}"')
            self.command("flower-supernode", "--superlink", f"127.0.0.1:{self.port}", *node)
        self.wait_for_link()

    def start_link(self, *arguments):
        """A SuperLink; nothing is installed for an app."""
        self.command("flower-superlink", "--port", self.port, "--disable-runtime-dependency-installation", *arguments)

    def wait_for_link(self):
        until = time.monotonic() + PATIENCE
        while not self.listens():
            assert time.monotonic() < until, self.log()
            time.sleep(0.2)

    def listens(self):
        """Whether the SuperLink takes connections."""
        with closing(socket.socket()) as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def app(self, graph):
        """The example's app, with another graph."""
        app = self.folder / "app"
        app.mkdir()
        for file in ("pyproject.toml", "pgfl_app.py"):
            shutil.copy(EXAMPLE / file, app)
        (app / "graph.toml").write_text(toml_of(graph))
        return app

    def run(self, app, home, *arguments, key="home"):
        """`flwr run`, until the ServerApp has ended; what it logged."""
        environment = {**os.environ, **self.environment}
        command = [BIN / "flwr", "run", app, "here", "--stream", "-c", f'{key}="{home}"', *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)
        return re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)

    def log(self):
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("*.log")))

    def stop(self):
        processes.stop(*self.running)
