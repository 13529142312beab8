"""`pgfl network`: a whole network on one machine, and what the simulator says to its outcome."""

from __future__ import annotations

import json
import signal
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import typer
from numpy.typing import NDArray

from pgfl.cli.options import Json
from pgfl.errors import NetworkError

if TYPE_CHECKING:
    from rich.table import Table

    from pgfl.core.federation import Federation
    from pgfl.deploy.local import LocalNetwork

app = typer.Typer(no_args_is_help=True, help="Try a whole network on this machine.")
AGREEMENT = 1e-10
_START_SECONDS, _ROUND_SECONDS, _END_SECONDS = 240.0, 30.0, 60.0
Kind = Literal["huber", "ridge", "logistic"]


@app.callback()
def _group() -> None:
    """Try a whole network on this machine."""


@app.command()
def demo(
    sites: Annotated[int, typer.Option(min=1, max=20, help="Sites, in a line.")] = 3,
    clients: Annotated[int, typer.Option(min=1, max=20, help="Clients of each site.")] = 2,
    rounds: Annotated[int, typer.Option(min=1, max=10_000)] = 5,
    objective: Annotated[str, typer.Option(help="huber, ridge or logistic")] = "huber",
    epsilon: Annotated[float, typer.Option(min=0.01, help="Each client's whole budget, at delta 1e-5.")] = 20.0,
    seed: Annotated[int, typer.Option(min=0, help="For the made-up data.")] = 0,
    keep: Annotated[
        Path | None, typer.Option(help="A new folder for keys, ledgers and logs; else they are deleted.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Start sites and clients as real processes (TLS, authentication, privacy), train, compare with the simulator."""
    from pgfl.deploy.local import LocalNetwork

    if objective not in ("huber", "ridge", "logistic"):
        raise NetworkError(f"--objective is huber, ridge or logistic; got {objective!r}.")
    federation = demo_federation(sites, clients, objective, seed)  # type: ignore[arg-type]
    with ExitStack() as stack:
        stack.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, signal.default_int_handler))
        folder = keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pgfl-demo-")))
        if folder.exists() and any(folder.iterdir()):
            raise NetworkError(f"{folder} is not empty; give a new folder to --keep.")
        privacy = demo_privacy(objective, epsilon, rounds)  # type: ignore[arg-type]
        training = demo_training(federation, objective, rounds)  # type: ignore[arg-type]
        network = LocalNetwork(folder, federation, training, privacy, demo_timing(), record_noise=True)
        began = time.monotonic()
        network.prepare()
        try:
            network.start()
            _watch(network, rounds, quiet=as_json)
        finally:
            network.stop()
        outcome = _outcome(network, time.monotonic() - began)
    if as_json:
        typer.echo(json.dumps(outcome))
    else:
        _tell(outcome)
    if not outcome["agrees"]:
        raise typer.Exit(1)


# what is demonstrated ------------------------------------------------------------------------------------------------


def demo_federation(sites: int, clients: int, objective: Kind, seed: int, dimension: int = 5) -> Federation:
    """Made-up data on a line of sites, in two clusters where there are two clients."""
    from pgfl.core.topology import line
    from pgfl.data.synthetic import synthetic_regression

    federation = synthetic_regression(
        servers=sites,
        clients_per_server=clients,
        clusters=min(2, sites * clients),
        dimension=dimension,
        samples=(20, 40),
        graph=line(sites),
        seed=seed,
    )
    if objective == "logistic":
        return federation.replace(targets=(federation.targets > 0).astype(float), truth=None)
    return federation


def demo_training(federation: Federation, objective: Kind, rounds: int) -> Any:
    """What the sites agree on."""
    from pgfl.deploy.training_files import Training

    return Training.model_validate(
        {
            "rounds": rounds,
            "dimension": federation.dimension,
            "clusters": tuple(federation.cluster_ids),
            "objective": {"kind": objective, "lam": 0.01},
            "algorithm": {"kind": "pgfl", "rho": 3.0, "tau": {"start": 0.3, "decay": 0.98}},
        }
    )


def demo_timing() -> dict[str, float]:
    """Everyone waits for everyone, however slow this machine is: only a whole round equals the simulator's."""
    return {"start": _START_SECONDS, "answers": _START_SECONDS, "exchange": _START_SECONDS}


def demo_privacy(objective: Kind, epsilon: float, rounds: int) -> dict[str, Any]:
    """Every client's own policy."""
    bounds: dict[str, float] = {"x_norm": 3.0}
    if objective == "ridge":
        bounds |= {"y_bound": 5.0, "w_norm": 4.0}
    return {"enabled": True, "epsilon": epsilon, "delta": 1e-5, "max_releases": rounds, "zeta": 0.99, **bounds}


# while it runs -------------------------------------------------------------------------------------------------------


def _watch(network: LocalNetwork, rounds: int, quiet: bool) -> None:
    from rich.console import Console
    from rich.live import Live

    def over() -> bool:
        return network.ended().keys() >= set(network.federation.server_ids)

    patience = _START_SECONDS + _ROUND_SECONDS * rounds
    if quiet:
        network.wait(over, patience, "the last round")
    else:
        with Live(_table(network), console=Console(), refresh_per_second=4) as live:

            def look() -> bool:
                live.update(_table(network))
                return over()

            network.wait(look, patience, "the last round")
        Console().print()
    network.wait(lambda: set(network.ended()) == set(network.running), _END_SECONDS, "the clients to end")


def _table(network: LocalNetwork) -> Table:
    from rich.table import Table

    columns = ("site", "round", "took part", "waits for", "without", "disagreement", "worst ε")
    table = Table(*columns, box=None, pad_edge=False)
    for site in network.federation.server_ids:
        live, members = network.live(site), network.clients_of(site)
        history = network.history(site)[-1:] if live else []
        last = history[0] if history else {}
        spent = [float(ledger["epsilon"]) for client in members if (ledger := _spending(network, client))]
        table.add_row(
            site,
            f"{live.get('round', 0)}/{network.training.rounds}",
            f"{len(last['accepted'])} of {len(members)}" if last else f"{len(live.get('connected', []))} there",
            ", ".join(live.get("waiting_for", [])) or "—",
            ", ".join([*last.get("late", []), *last.get("absent", [])]) or "—",
            f"{last['disagreement']:.2e}" if last else "—",
            f"{max(spent):.3g}" if spent else "—",
        )
    return table


def _spending(network: LocalNetwork, client: str) -> dict[str, Any] | None:
    from pgfl.errors import LedgerError
    from pgfl.privacy.ledger import Ledger

    path = network.home(client) / "ledger.db"
    if not path.exists():
        return None
    try:
        with Ledger.read(path) as ledger:
            return ledger.summary()
    except LedgerError:
        return None  # it is being written


# afterwards ----------------------------------------------------------------------------------------------------------


def _outcome(network: LocalNetwork, seconds: float) -> dict[str, Any]:
    histories = {site: network.history(site) for site in network.federation.server_ids}
    alone = [
        f"{site} went on without {', '.join(row['absent'])} in round {row['round']}"
        for site, rows in histories.items()
        for row in rows
        if row["absent"]
    ]
    spending = {client: _spending(network, client) or {} for client in network.federation.client_ids}
    later = [row["seconds"] for rows in histories.values() for row in rows[1:]]
    difference = None if alone else largest_difference(network)
    return {
        "sites": len(histories),
        "clients": len(spending),
        "rounds": {site: rows[-1]["round"] if rows else 0 for site, rows in histories.items()},
        "late": {site: sorted({name for row in rows for name in row["late"]}) for site, rows in histories.items()},
        "disagreement": {site: rows[-1]["disagreement"] if rows else None for site, rows in histories.items()},
        "releases": {client: figures.get("releases", 0) for client, figures in spending.items()},
        "epsilon": {client: figures.get("epsilon") for client, figures in spending.items()},
        "round_seconds": float(np.median(later)) if later else None,
        "seconds": seconds,
        "not_compared_because": alone,
        "difference": difference,
        "agrees": difference is not None and difference <= AGREEMENT,
    }


def _tell(outcome: Mapping[str, Any]) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    worst = max(value for value in outcome["epsilon"].values() if value is not None)
    here = [f"{count} {what}{'s' * (count > 1)}" for what in ("site", "client") if (count := outcome[f"{what}s"])]
    console.print(f"{', '.join(here)}, {outcome['seconds']:.1f} s in all.")
    console.print(f"Worst ε of a client: {worst:.4g} at δ = 1e-5.")
    if outcome["difference"] is None:
        console.print("Not compared with the simulator: " + "; ".join(outcome["not_compared_because"]) + ".")
    else:
        word = "agrees with" if outcome["agrees"] else "differs from"
        console.print(f"The network {word} the simulator: largest difference {outcome['difference']:.2e}.")


@dataclass
class _Replayed:
    """A noise source that adds what the clients drew: noise[client][round]."""

    noise: Mapping[int, Mapping[int, NDArray[np.float64]]]

    def release(self, models: NDArray[np.float64], sigma: Any, clients: NDArray[np.int64], round: int) -> Any:
        drawn = [self.noise[client][round] for client in clients.tolist()]
        return models + np.array(drawn).reshape(models.shape)


@dataclass
class _TookPart:
    """A scheduler that lets exactly those take part whose answers the sites accepted."""

    by_round: Mapping[int, NDArray[np.int64]]
    everyone_always: bool = False

    def draw(self, round: int) -> NDArray[np.int64]:
        return self.by_round[round]


def largest_difference(network: LocalNetwork) -> float:
    """Between the sites' models and the clients' clean models over the network, and the simulator's given the noise.

    The simulator gets the same data, the same participants and, coordinate by coordinate, the noise that was drawn.
    """
    from pgfl.privacy.request import Privacy
    from pgfl.simulate.engine import Engine
    from pgfl.simulate.flat_layout import lay_out
    from pgfl.simulate.problems import prepare

    training, asked = network.training, {k: v for k, v in network.privacy.items() if k != "enabled"}
    privacy = Privacy(**asked) if network.privacy.get("enabled") else None
    federation = privacy.bounded(network.federation) if privacy else network.federation
    algorithm = training.build_algorithm()
    layout = lay_out([federation], 0, algorithm.personalised)
    objectives = {
        q: training.build_objective(q, asked.get("w_norm") if privacy else None) for q in federation.cluster_ids
    }
    place = {federation.client_id(k): int(flat) for k, flat in enumerate(layout.runs[0].position)}
    accepted = _accepted(network)
    clean, noise = _recorded(network) if privacy else ({}, {})
    blocks: Any = prepare(layout, objectives, algorithm.rho, np.float64)
    engine = Engine(
        layout,
        blocks,
        algorithm,
        _TookPart({n: np.sort([place[c] for c in names]).astype(np.int64) for n, names in accepted.items()}),
        noise=_Replayed({place[client]: rows for client, rows in noise.items()}) if privacy else None,
    )
    largest = 0.0
    for number in sorted(accepted):
        state = engine.play()
        for client in accepted[number] if privacy else ():
            largest = max(largest, float(np.abs(state.model[place[client]] - clean[client][number]).max()))
    for site, clusters in _models(network).items():
        server = federation.server_ids.index(site)
        for cluster, model in clusters.items():
            q = federation.cluster_ids.index(cluster) if algorithm.personalised else 0
            (row,) = np.flatnonzero((layout.pair_server == server) & (layout.pair_cluster == q))
            largest = max(largest, float(np.abs(engine.state.server_models[row] - model).max()))
    return largest


def _accepted(network: LocalNetwork) -> dict[int, list[str]]:
    accepted: dict[int, list[str]] = {}
    for site in network.federation.server_ids:
        for row in network.history(site):
            accepted.setdefault(row["round"], []).extend(row["accepted"])
    return accepted


def _recorded(network: LocalNetwork) -> tuple[dict[str, dict[int, Any]], dict[str, dict[int, Any]]]:
    """Clean models and noise of every client by round, from its ledger and the recording beside it."""
    from pgfl.privacy.ledger import Ledger

    clean: dict[str, dict[int, Any]] = {}
    noise: dict[str, dict[int, Any]] = {}
    for client in network.federation.client_ids:
        clean[client], noise[client] = {}, {}
        with Ledger.read(network.home(client) / "ledger.db") as ledger:
            rounds = {row.number: int(row.round_key.rpartition("/")[2]) for row in ledger.rows()}
        for number, round in rounds.items():
            model, released = np.load(network.home(client) / "noise" / f"{number:06d}.npy", allow_pickle=False)
            clean[client][round], noise[client][round] = model, released - model
    return clean, noise


def _models(network: LocalNetwork) -> dict[str, dict[str, Any]]:
    models: dict[str, dict[str, Any]] = {}
    for site in network.federation.server_ids:
        saved = network.arrays(site)
        if saved is not None:
            names = json.loads(str(saved[1]["about"]))["clusters"]
            models[site] = dict(zip(names, saved[1]["state.model"], strict=True))
    return models
