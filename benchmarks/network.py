"""The real network on this machine: python benchmarks/network.py [PART] [--json FILE]; without PART, all of them.

rounds    a round with 1, 5 and 10 clients as real processes, and the seconds from start to the first round
flower    the same shape through bare Flower messages (slow: minutes), and what a node of it takes in memory
peers     publication to acknowledgement between ready neighbours over TLS, d = 60 and d = 7,840
streams   rounds a second of one site as simulated streams grow to 200
memory    proportional set size of a client's process, and with its SuperNode
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np

from pgfl.data.synthetic import synthetic_regression
from pgfl.deploy import flower, identity, processes
from pgfl.deploy.local import LocalNetwork, to_toml
from pgfl.deploy.messages import encode_publication
from pgfl.deploy.peers import PeerLink, PeerService
from pgfl.deploy.settings import Training
from pgfl.deploy.site import STORE
from pgfl.deploy.store import Neighbour, SiteStore
from pgfl.deploy.wire import Kind, Limits, decode, encode
from pgfl.roles import Publication
from pgfl.topology import empty

DIMENSION, ENDLESS = 60, 10**6
POLICIES = {
    "private": {"enabled": True, "phi0": 1e-7, "zeta": 1.0, "max_releases": ENDLESS, "x_norm": 8.0},
    "without noise": {"enabled": False},
}


def training(dimension: int = DIMENSION, rounds: int = ENDLESS) -> Training:
    settings = {"rounds": rounds, "dimension": dimension, "clusters": ("cluster-0",), "objective": {"kind": "huber"}}
    return Training.model_validate(settings)


def one_site(folder: Path, clients: int, policy: str) -> LocalNetwork:
    federation = synthetic_regression(
        servers=1, clients_per_server=clients, clusters=1, dimension=DIMENSION, samples=(20, 20), graph=empty(1)
    )
    network = LocalNetwork(folder, federation, training(), POLICIES[policy])
    network.prepare()
    return network


def measure_rounds(sizes: tuple[int, ...] = (1, 5, 10), wanted: int = 150) -> list[dict[str, object]]:
    figures = []
    for policy in POLICIES:
        for clients in sizes:
            with tempfile.TemporaryDirectory() as folder:
                network = one_site(Path(folder), clients, policy)
                began = time.monotonic()
                try:
                    network.start()
                    network.wait(lambda: network.round_of("server-0") >= 1, 300, "the first round")  # noqa: B023
                    first = time.monotonic() - began
                    network.wait(lambda: network.round_of("server-0") >= wanted, 300, "the rounds")  # noqa: B023
                finally:
                    network.stop()
                seconds = [row["seconds"] for row in network.history("server-0") if row["round"] > 20]
            figures.append(
                {
                    "policy": policy,
                    "clients": clients,
                    "start_to_first_round_s": first,
                    "round_ms_median": 1e3 * statistics.median(seconds),
                    "round_ms_p95": 1e3 * float(np.quantile(seconds, 0.95)),
                }
            )
            print(json.dumps(figures[-1]), flush=True)
    return figures


# bare Flower ---------------------------------------------------------------------------------------------------------

BARE_APP = {
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
        import json, time
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
            open(context.run_config["out"], "w").write(json.dumps(times))
    """,
}


def measure_flower(sizes: tuple[int, ...] = (1, 5, 10), rounds: int = 2) -> list[dict[str, object]]:
    figures = []
    for clients in sizes:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            app = folder / "app"
            app.mkdir()
            for file, text in BARE_APP.items():
                (app / file).write_text(textwrap.dedent(text))
            times, began, memory = _bare_run(folder, app, clients, rounds)
        figures.append(
            {
                "clients": clients,
                "start_to_first_round_s": times[0][1] - began,
                "round_s_median": statistics.median(seconds for seconds, _ in times),
                "node_mb": memory,
            }
        )
        print(json.dumps(figures[-1]), flush=True)
    return figures


def _bare_run(folder: Path, app: Path, clients: int, rounds: int) -> tuple[list[list[float]], float, float]:
    """TLS and node authentication as in ours; the way that Flower's documentation shows."""
    identity.create_site(folder, "north", [])
    certificate, key, out = folder / identity.SITE_CERTIFICATE, folder / identity.SITE_KEY, folder / "times.json"
    port, environment = processes.free_port(), flower.environment(folder / "flower")
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    tls = ["--ssl-certfile", str(certificate), "--ssl-keyfile", str(key), "--ssl-ca-certfile", str(certificate)]
    home = Path(environment["FLWR_HOME"])
    home.mkdir(parents=True)
    table = {"address": f"127.0.0.1:{port}", "root-certificates": str(certificate)}
    (home / "config.toml").write_text(to_toml({"superlink": {"default": "site", "site": table}}))
    began = time.time()
    superlink = [processes.executable("flower-superlink"), "--host", "127.0.0.1", "--port", str(port), *tls]
    children = [
        processes.start(
            [*superlink, "--enable-supernode-auth", "--disable-runtime-dependency-installation"],
            folder / "superlink.log",
            environment,
        )
    ]
    try:
        for number in range(clients):
            client = folder / f"client-{number}"
            identity.create_client(client, f"client-{number}")
            _flwr(environment, "supernode", "register", str(client / identity.CLIENT_PUBLIC), "site")
            command = [
                *(processes.executable("flower-supernode"), "--superlink", f"127.0.0.1:{port}"),
                *("--root-certificates", str(certificate)),
                *("--auth-supernode-private-key", str(client / identity.CLIENT_KEY)),
                *("--host", "127.0.0.1", "--port", str(processes.free_port())),
            ]
            children.append(processes.start(command, client / "log.txt", environment))
        config = f'nodes={clients} rounds={rounds} out="{out}"'
        _flwr(environment, "run", str(app), "site", "-c", config)
        until, largest = time.time() + 600, 0.0
        while not out.exists() or not out.read_text():
            if time.time() > until:
                raise TimeoutError((folder / "superlink.log").read_text()[-2000:])
            largest = max(largest, sum(map(_proportional_megabytes, _tree(children[1].pid))))
            time.sleep(0.2)
        return json.loads(out.read_text()), began, largest
    finally:
        processes.stop(*children)


def _flwr(environment: dict[str, str], *arguments: str) -> None:
    command, merged = [processes.executable("flwr"), *arguments], {**os.environ, **environment}
    for _ in range(60):
        done = subprocess.run(command, env=merged, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        time.sleep(0.5)
    raise RuntimeError(done.stdout + done.stderr)


# peers ---------------------------------------------------------------------------------------------------------------


def measure_peers(dimensions: tuple[int, ...] = (60, 7840), exchanges: int = 200) -> list[dict[str, object]]:
    figures = [asyncio.run(_exchange(dimension, exchanges)) for dimension in dimensions]
    for row in figures:
        print(json.dumps(row), flush=True)
    return figures


async def _exchange(dimension: int, exchanges: int) -> dict[str, object]:
    limits, digest = Limits(dimension, frozenset({"a", "b", "c"})), "00" * 32
    reply = {"site": "south", "training": digest, "round": 0, "degree": 1, "finished": False}
    hello = {"site": "north", "training": digest, "round": 0, "degree": 1, "heard": 0}
    with tempfile.TemporaryDirectory() as folder:
        places = {}
        for name in ("north", "south"):
            certificate = identity.create_site(Path(folder) / name, name, [])
            places[name] = (certificate, (Path(folder) / name / identity.SITE_KEY).read_bytes())
        (north, north_key), (south, _) = places["north"], places["south"]
        service = PeerService(
            *(Path(folder) / "south" / name for name in (identity.SITE_CERTIFICATE, identity.SITE_KEY)),
            lambda: {"north": Neighbour(north, "")}, limits,
            lambda peer, frame: encode(Kind.ACKNOWLEDGED, reply),
        )  # fmt: skip
        port = await service.start("127.0.0.1:0")
        heard = asyncio.Event()
        link = PeerLink(
            "south", Neighbour(south, f"127.0.0.1:{port}"), north.pem, north_key, limits,
            lambda: encode(Kind.PEER_HELLO, hello), lambda *_: heard.set(), print,
        )  # fmt: skip
        link.start()
        await heard.wait()
        times = []
        models = {cluster: np.random.default_rng(0).normal(size=dimension) for cluster in "abc"}
        for round in range(1, exchanges + 1):
            heard.clear()
            began = time.perf_counter()
            link.publish(round, encode_publication("north", digest, Publication(round, 1, models)))
            await heard.wait()
            times.append(time.perf_counter() - began)
        await link.stop()
        await service.stop()
    median, slow = statistics.median(times), float(np.quantile(times, 0.95))
    return {"dimension": dimension, "clusters": 3, "exchange_ms_median": 1e3 * median, "exchange_ms_p95": 1e3 * slow}


# streams -------------------------------------------------------------------------------------------------------------


def measure_streams(sizes: tuple[int, ...] = (10, 50, 100, 200), seconds: float = 8.0) -> list[dict[str, object]]:
    figures = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            network = one_site(Path(folder), size, "without noise")
            site = network.home("server-0")
            store = SiteStore(site / STORE)
            for client in network.federation.client_ids:
                store.give_token(client, client)
            store.close()
            code = (
                "import asyncio, sys; from pathlib import Path; from pgfl.deploy.settings import load_site; "
                "from pgfl.deploy.site import Site; "
                "asyncio.run(Site(load_site(Path(sys.argv[1])), invite=False).run())"
            )
            child = processes.start([sys.executable, "-c", code, str(site / "site.toml")], site / "log.txt")
            try:
                rounds = asyncio.run(_simulated_streams(network, seconds))
            finally:
                processes.stop(child)
        figures.append({"streams": size, "rounds_per_s": rounds, "answers_per_s": rounds * size})
        print(json.dumps(figures[-1]), flush=True)
    return figures


async def _simulated_streams(network: LocalNetwork, seconds: float) -> float:
    """Clients without arithmetic: they answer at once with fixed vectors."""
    tasks = [asyncio.create_task(_answering(network, client)) for client in network.federation.client_ids]
    deadline = time.monotonic() + 120
    while network.round_of("server-0") < 5:
        if time.monotonic() > deadline:
            raise TimeoutError(network.log("server-0")[-2000:])
        await asyncio.sleep(0.2)
    before, began = network.round_of("server-0"), time.monotonic()
    await asyncio.sleep(seconds)
    rate = (network.round_of("server-0") - before) / (time.monotonic() - began)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return rate


async def _answering(network: LocalNetwork, client: str) -> None:
    import grpc
    import grpc.aio

    from pgfl.deploy.client_streams import SERVICE

    site = identity.SiteCertificate.read(network.home("server-0") / identity.SITE_CERTIFICATE)
    key = identity.read_client_key(network.home(client) / identity.CLIENT_KEY)
    limits, vectors = Limits(DIMENSION), np.ones((2, DIMENSION))
    options = [("grpc.ssl_target_name_override", site.tls_name)]
    address = f"127.0.0.1:{network.ports['server-0'][1]}"
    while True:
        async with grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(site.pem), options=options) as channel:
            call = channel.stream_stream(f"/{SERVICE}/Stream")()
            try:
                async for data in call:
                    frame = decode(data, limits, frozenset(Kind))
                    if frame.kind is Kind.CHALLENGE:
                        nonce = bytes.fromhex(frame.header["nonce"])
                        signature = identity.sign_challenge(key, site.fingerprint, nonce).hex()
                        fields = {"key": identity.public_key_of(key).line, "token": client, "signature": signature}
                        await call.write(encode(Kind.HELLO, {**fields, "releases": 0}))
                    elif frame.kind is Kind.REQUEST:
                        answer = {"round": frame.header["round"], "release": 1}
                        await call.write(encode(Kind.ANSWER, answer, vectors))
            except grpc.aio.AioRpcError:
                await asyncio.sleep(0.5)


# memory --------------------------------------------------------------------------------------------------------------


def measure_memory() -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        network = one_site(Path(folder), 1, "private")
        try:
            network.start()
            network.wait(lambda: network.round_of("server-0") >= 100, 200, "a hundred rounds")
            client = network.running["client-0"].pid
            figures: dict[str, object] = {
                "client_process_mb": _proportional_megabytes(client),
                "with_supernode_mb": sum(map(_proportional_megabytes, _tree(client))),
                "jax_loaded": "jaxlib" in Path(f"/proc/{client}/maps").read_text(),
            }
        finally:
            network.stop()
    print(json.dumps(figures), flush=True)
    return figures


def _tree(pid: int) -> list[int]:
    """A process and all that descend from it."""
    children = _output("pgrep", "-P", str(pid)).split()
    return [pid, *(each for child in children for each in _tree(int(child)))]


def _proportional_megabytes(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0  # it is over
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


PARTS = {
    "peers": measure_peers,
    "streams": measure_streams,
    "memory": measure_memory,
    "rounds": measure_rounds,
    "flower": measure_flower,
}


def compare(results: dict[str, Any]) -> dict[str, object]:
    """Ours beside bare Flower, for as many clients as both were measured with."""
    bare = {row["clients"]: row for row in results["flower"]}
    ratios: dict[str, object] = {}
    for row in results["rounds"]:
        beside = bare[row["clients"]]
        ratios[f"{row['policy']}, {row['clients']} clients"] = {
            "rounds_times_faster": 1e3 * beside["round_s_median"] / row["round_ms_median"],
            "start_relative": row["start_to_first_round_s"] / beside["start_to_first_round_s"],
        }
    print(json.dumps(ratios, indent=2), flush=True)
    return ratios


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", default="all", choices=[*PARTS, "all"])
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    results: dict[str, Any] = {name: part() for name, part in PARTS.items() if options.part in (name, "all")}
    if {"rounds", "flower"} <= results.keys():
        results["beside bare Flower"] = compare(results)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2))
