"""Bare Flower of the same shape as a site with its clients: TLS, node authentication, rounds as Flower messages."""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path

from pgfl.deploy import identity, processes
from pgfl.deploy.flower import flower
from pgfl.deploy.settings_files import toml_of

APP = {
    "pyproject.toml": """
        [project]
        name = "bare"
        version = "1.0.0"
        [tool.flwr.app]
        publisher = "bench"
        [tool.flwr.app.components]
        serverapp = "bare:server"
        clientapp = "bare:client"
        [tool.flwr.app.config]
        nodes = 1
        rounds = 2
        out = ""
    """,
    "bare.py": """
        import json, pathlib, time
        import numpy as np
        from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
        from flwr.clientapp import ClientApp
        from flwr.serverapp import ServerApp
        server = ServerApp()
        client = ClientApp()
        @client.train()
        def answer(message, context):
            w = message.content["m"]["w"].numpy()
            return Message(RecordDict({"m": ArrayRecord({"w": Array(w + 1.0), "d": Array(w)})}), reply_to=message)
        @server.main()
        def main(grid, context):
            wanted = int(context.run_config["nodes"])
            while len(nodes := list(grid.get_node_ids())) < wanted:
                time.sleep(0.2)
            w, times = np.zeros(60), []
            for number in range(int(context.run_config["rounds"])):
                began = time.time()
                content = lambda: RecordDict({"m": ArrayRecord({"w": Array(w)}), "c": ConfigRecord({"round": number})})
                replies = list(grid.send_and_receive(
                    [Message(content(), node, "train", group_id=str(number)) for node in nodes], timeout=300))
                w = np.mean([r.content["m"]["w"].numpy() for r in replies], axis=0)
                times.append((time.time() - began, time.time()))
            out = pathlib.Path(context.run_config["out"])
            out.with_suffix(".part").write_text(json.dumps(times))
            out.with_suffix(".part").rename(out)
    """,
}


@dataclass
class BareRun:
    """What a run of bare Flower took: seconds of each round and to the end of the first, memory of a node at rest."""

    rounds: list[float]
    start: float
    node_megabytes: float


def run(clients: int, rounds: int) -> BareRun:
    """The way that Flower's documentation shows. Keys are registered before the clock starts, as ours are admitted."""
    with tempfile.TemporaryDirectory() as name:
        place = _Place(Path(name), clients)
        place.register()
        return place.run(rounds)


class _Place:
    def __init__(self, folder: Path, clients: int) -> None:
        self.folder, self.port = folder, processes.free_port()
        identity.create_site(folder, "north", [])
        self.certificate, self.key = folder / identity.SITE_CERTIFICATE, folder / identity.SITE_KEY
        self.clients = [folder / f"client-{number}" for number in range(clients)]
        for client in self.clients:
            identity.create_client(client, client.name)
        (folder / "app").mkdir()
        for file, text in APP.items():
            (folder / "app" / file).write_text(textwrap.dedent(text))
        self.environment = flower.environment(folder / "flower")
        self.environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        home = Path(self.environment["FLWR_HOME"])
        home.mkdir(parents=True)
        table = {"address": f"127.0.0.1:{self.port}", "root-certificates": str(self.certificate)}
        (home / "config.toml").write_text(toml_of({"superlink": {"default": "site", "site": table}}))

    def register(self) -> None:
        superlink = self._superlink()
        try:
            self._until_it_listens()
            for client in self.clients:
                self._flwr("supernode", "register", str(client / identity.CLIENT_PUBLIC), "site")
        finally:
            processes.stop(superlink)

    def run(self, rounds: int) -> BareRun:
        out, began = self.folder / "times.json", time.time()
        children = [self._superlink(), *map(self._supernode, self.clients)]
        try:
            self._until_it_listens()
            self._flwr("run", "app", "site", "-c", f'nodes={len(self.clients)} rounds={rounds} out="{out}"')
            samples = []
            while not out.exists():
                if time.time() > began + 900:
                    raise TimeoutError((self.folder / "superlink.log").read_text()[-2000:])
                samples.append(sum(map(proportional_megabytes, tree(children[1].pid))))
                time.sleep(0.5)
            times = json.loads(out.read_text())
        finally:
            processes.stop(*children)
        at_rest = statistics.quantiles(samples, n=4)[0]  # between tasks: the SuperNode and its executor
        return BareRun([seconds for seconds, _ in times], times[0][1] - began, at_rest)

    def _superlink(self) -> subprocess.Popen[bytes]:
        files = [("cert", self.certificate), ("key", self.key), ("ca-cert", self.certificate)]
        command = [
            *(processes.executable("flower-superlink"), "--host", "127.0.0.1", "--port", str(self.port)),
            *(part for kind, file in files for part in (f"--ssl-{kind}file", str(file))),
            *("--enable-supernode-auth", "--disable-runtime-dependency-installation"),
            *("--database", str(self.folder / "flower.db")),
        ]
        return processes.start(command, self.folder / "superlink.log", self.environment)

    def _supernode(self, client: Path) -> subprocess.Popen[bytes]:
        command = [
            *(processes.executable("flower-supernode"), "--superlink", f"127.0.0.1:{self.port}"),
            *("--root-certificates", str(self.certificate)),
            *("--auth-supernode-private-key", str(client / identity.CLIENT_KEY)),
            *("--host", "127.0.0.1", "--port", str(processes.free_port())),
        ]
        return processes.start(command, client / "log.txt", self.environment)

    def _until_it_listens(self) -> None:
        for _ in range(1200):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1.0).close()
                return
            except OSError:
                time.sleep(0.05)
        raise TimeoutError((self.folder / "superlink.log").read_text()[-2000:])

    def _flwr(self, *arguments: str) -> None:
        command, merged = [processes.executable("flwr"), *arguments], {**os.environ, **self.environment}
        for _ in range(20):
            done = subprocess.run(command, env=merged, cwd=self.folder, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return
            time.sleep(0.5)
        raise RuntimeError(done.stdout + done.stderr)


def tree(pid: int) -> list[int]:
    """A process and all that descend from it."""
    children = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False).stdout.split()
    return [pid, *(each for child in children for each in tree(int(child)))]


def proportional_megabytes(pid: int) -> float:
    """Memory of a process, shared pages divided among those who share them."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0  # it is over
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
