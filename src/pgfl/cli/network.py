"""`pgfl network`: a whole network on one machine, compared with the simulator."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer

from pgfl.cli.shared import TRUST_HELP, Json, Trust
from pgfl.errors import NetworkError

if TYPE_CHECKING:
    from rich.table import Table

    from pgfl.demo import Outcome
    from pgfl.network.local import LocalNetwork
    from pgfl.privacy.trust import Level

app = typer.Typer(no_args_is_help=True, help="Try a whole network on this machine.")


@app.callback()
def _group() -> None:
    """Try a whole network on this machine."""


@app.command()
def demo(
    sites: Annotated[int, typer.Option(min=1, max=20, help="Sites, in a line.")] = 3,
    clients: Annotated[
        int | None, typer.Option(min=1, max=20, help="Clients of each site: 2, or 4 where sums are masked.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, max=10_000, help="Number of rounds.")] = 5,
    objective: Annotated[str, typer.Option(help="huber, ridge or logistic")] = "huber",
    epsilon: Annotated[float, typer.Option(min=0.01, help="Each client's whole budget, at delta 1e-5.")] = 20.0,
    seed: Annotated[int, typer.Option(min=0, help="For the made-up data.")] = 0,
    trust: Annotated[Trust, typer.Option(help=f"{TRUST_HELP}.")] = Trust.local,
    keep: Annotated[
        Path | None, typer.Option(help="A new folder for keys, ledgers and logs; else they are deleted.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Start sites and clients as real processes (TLS, authentication, privacy), train, compare with the simulator."""
    from rich.console import Console
    from rich.live import Live

    from pgfl.demo import CLIENTS, ObjectiveName, Scenario, demo_folder, outcome_of, train

    level: Level = trust.value
    if objective not in get_args(ObjectiveName):
        raise NetworkError(f"--objective is huber, ridge or logistic; got {objective!r}.")
    with demo_folder(keep) as folder:
        size = CLIENTS[level] if clients is None else clients
        scenario = Scenario(sites, size, rounds, cast("ObjectiveName", objective), epsilon, seed, level)
        network = scenario.network(folder)
        if as_json:
            seconds = train(network)
        else:
            console = Console()
            with Live(console=console, refresh_per_second=4) as live:
                seconds = train(network, look=lambda: live.update(_table(network)))
            console.print()
        outcome = outcome_of(network, seconds)
    if as_json:
        typer.echo(json.dumps(asdict(outcome)))
    else:
        _print(outcome)
    if not outcome.agrees:
        raise typer.Exit(1)


def _table(network: LocalNetwork) -> Table:
    from rich.table import Table

    from pgfl.demo import progress

    columns = ("site", "round", "took part", "waits for", "without", "disagreement", "worst ε")
    table = Table(*columns, box=None, pad_edge=False)
    for site in network.federation.server_ids:
        now = progress(network, site)
        last = now.last
        table.add_row(
            site,
            f"{now.round}/{network.training.rounds}",
            f"{len(last['accepted'])} of {now.clients}" if last else f"{now.connected} there",
            ", ".join(now.waiting_for) or "—",
            ", ".join([*last["late"], *last["absent"]] if last else []) or "—",
            f"{last['disagreement']:.2e}" if last else "—",
            f"{now.worst_epsilon:.3g}" if now.worst_epsilon is not None else "—",
        )
    return table


def _print(outcome: Outcome) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    worst = max(value for value in outcome.epsilon.values() if value is not None)
    sizes = ((outcome.sites, "site"), (outcome.clients, "client"))
    here = ", ".join(f"{count} {what}{'s' * (count > 1)}" for count, what in sizes if count)
    console.print(f"{here}, {outcome.seconds:.1f} s in all.")
    against = {"site": ", against everyone but its own site", "masked": ", if at most 1 contributor colludes"}
    console.print(f"Worst ε of a client: {worst:.4g} at δ = 1e-5{against.get(outcome.trust, '')}.")
    if outcome.difference is None:
        console.print("Not compared with the simulator: " + "; ".join(outcome.not_compared_because) + ".")
    else:
        word = "agrees with" if outcome.agrees else "differs from"
        console.print(f"The network {word} the simulator: largest difference {outcome.difference:.2e}.")
