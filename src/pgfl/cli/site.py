"""`pgfl site`: for the operator of a site."""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pgfl.cli.shared import TRUST_HELP, Changes, FolderGroup, Json, Trust, folder_of, settings_in
from pgfl.errors import NetworkError
from pgfl.suggestions import unknown_name

if TYPE_CHECKING:
    from pgfl.network.site.set_up import Guest
    from pgfl.network.site.store import SiteStore

app = typer.Typer(cls=FolderGroup, no_args_is_help=True, help="A site: its key, whom it trusts, and its rounds.")
Home = Annotated[Path, typer.Option("--home", help="The site's folder.", callback=lambda home: folder_of(home))]
Served = Annotated[Path, typer.Option("--home", help="The site's folder, or the settings file in it.")]
Days = Annotated[float, typer.Option("--days", min=0.01, max=3650.0, help="For how many days it is good.")]
Address = Annotated[
    str | None, typer.Option("--address", help="host:port of this site, as those who are invited see it.")
]
Wait = Annotated[float, typer.Option("--wait", min=0.0, help="Seconds to wait until a running site applies it.")]
WAIT_SECONDS = 60.0


@app.command()
def init(
    name: Annotated[str, typer.Argument(help="The site's name, as its neighbours will know it.")],
    host: Annotated[
        list[str] | None, typer.Option("--host", help="A name or address it is reached at; repeatable.")
    ] = None,
    home: Home = Path("."),
    neighbour: Annotated[
        list[Path] | None,
        typer.Option("--neighbour", help="The invitation of a neighbour, whose training this site takes; repeatable."),
    ] = None,
    invite_site: Annotated[
        list[str] | None, typer.Option("--invite-site", help="Write an invitation for this neighbour; repeatable.")
    ] = None,
    invite: Annotated[
        list[str] | None,
        typer.Option("--invite", help="Write an invitation for this client, NAME or NAME:CLUSTER; repeatable."),
    ] = None,
    rounds: Annotated[int | None, typer.Option("--rounds", min=1, help="Number of rounds [default: 100].")] = None,
    dimension: Annotated[
        int | None, typer.Option("--dimension", min=1, help="Feature columns, plus 1 with an intercept [default: 10].")
    ] = None,
    cluster: Annotated[
        list[str] | None, typer.Option("--cluster", help="A cluster that is trained; repeatable.")
    ] = None,
    trust: Annotated[Trust | None, typer.Option(help=f"{TRUST_HELP} [default: local].")] = None,
    port: Annotated[int | None, typer.Option("--port", min=1, max=65535, help="Port [default: 9094].")] = None,
    changes: Changes = None,
) -> None:
    """Make the site's key, certificate and settings, link it with who invited it, and invite others."""
    from pgfl.network.protocol.identity import SITE_CERTIFICATE
    from pgfl.network.site.set_up import Guest, set_up_site
    from pgfl.network.site.set_up import invite as write_invitation

    stated: dict[str, object] = {
        "training.rounds": rounds, "training.dimension": dimension, "training.clusters": cluster,
        "training.privacy.trust": trust and trust.value, "listen.port": port,
        "training.algorithm.client": "gradient" if trust in (Trust.site, Trust.masked) else None,
    }  # fmt: skip
    given = [f"{key}={json.dumps(value)}" for key, value in stated.items() if value is not None]
    certificate, settings = set_up_site(home, name, host or [], neighbour or [], [*given, *(changes or [])])
    typer.echo(f"{home / SITE_CERTIFICATE} is the certificate of {name}.")
    typer.echo(f"fingerprint {certificate.fingerprint}")
    training = settings.training
    typer.echo(f"training {training.describe(training.clusters[0])} ({training.digest[:16]})")
    guests = [Guest("site", guest) for guest in invite_site or []]
    guests += [Guest.client(guest, training.clusters) for guest in invite or []]
    for guest in guests:
        _invited(guest, write_invitation(home, guest))


@app.command()
def invite(
    name: Annotated[str, typer.Argument(help="The name of the client or, with --site, of the neighbour.")],
    cluster: Annotated[str | None, typer.Option("--cluster", help="The cluster whose model the client trains.")] = None,
    site: Annotated[bool, typer.Option("--site", help="Invite a neighbouring site.")] = False,
    home: Home = Path("."),
    address: Address = None,
    days: Days = 7.0,
    out: Annotated[Path | None, typer.Option("--out", help="The file to write.")] = None,
) -> None:
    """Write an invitation that works once; an earlier one for this name is revoked. Works while the site runs."""
    from pgfl.network.site.set_up import Guest
    from pgfl.network.site.set_up import invite as write_invitation
    from pgfl.network.site.settings import load_site

    clusters = load_site(home / "site.toml").training.clusters
    guest = Guest("site", name) if site else Guest.client(f"{name}:{cluster or ''}", clusters)
    _invited(guest, write_invitation(home, guest, address, days, out))


@app.command()
def revoke(
    name: Annotated[str, typer.Argument(help="The name that was invited.")],
    home: Home = Path("."),
    wait: Wait = WAIT_SECONDS,
) -> None:
    """Revoke an invitation that was not used yet, for example a lost one. Works while the site runs."""
    with _store(home) as store:
        change = store.revoke(name)
    _applied(f"the invitation for {name} is revoked", home, change, wait)


@app.command()
def link(
    certificate: Annotated[Path, typer.Argument(help="The neighbour's certificate, from its operator.")],
    address: Annotated[
        str | None, typer.Option("--address", help="host:port of the neighbour; without one, it calls this site.")
    ] = None,
    home: Home = Path("."),
    wait: Wait = WAIT_SECONDS,
) -> None:
    """Trust a neighbour by its certificate; it must link this site too. Works while the site runs."""
    from pgfl.network.protocol.identity import SiteCertificate

    neighbour = SiteCertificate.read(certificate)
    if address is not None and ":" not in address:
        raise NetworkError(f"--address is host:port, as in north.example.org:9094; got {address!r}.")
    with _store(home) as store:
        change = store.link(neighbour, address or "")
    _applied(f"{neighbour.name} is a neighbour (fingerprint {neighbour.fingerprint})", home, change, wait)


@app.command()
def trust(
    certificate: Annotated[Path, typer.Argument(help="The next certificate of a neighbour, from its operator.")],
    home: Home = Path("."),
    wait: Wait = WAIT_SECONDS,
) -> None:
    """Trust the certificate that a neighbour will switch to, beside its present one, until it is used."""
    from pgfl.network.protocol.identity import SiteCertificate

    coming = SiteCertificate.read(certificate)
    with _store(home) as store:
        change = store.trust_next(coming)
    _applied(f"{coming.name} may switch to its next certificate (fingerprint {coming.fingerprint})", home, change, wait)


@app.command()
def rotate(
    home: Home = Path("."),
    switch: Annotated[bool, typer.Option("--switch", help="Use the next certificate, which all others trust.")] = False,
    host: Annotated[
        list[str] | None, typer.Option("--host", help="A name or address it is reached at; repeatable.")
    ] = None,
) -> None:
    """Make the site's next key and certificate, or switch to them. Works while the site runs."""
    from pgfl.network.protocol.identity import SITE_CERTIFICATE
    from pgfl.network.rotation import next_of, prepare_site, switch_site

    if switch:
        shown = switch_site(home)
        typer.echo(f"{shown.name} shows the certificate with fingerprint {shown.fingerprint} from now on.")
        return
    coming = prepare_site(home, host or [])
    typer.echo(f"{next_of(home / SITE_CERTIFICATE)} is the next certificate of {coming.name}; hand it out.")
    typer.echo(f"fingerprint {coming.fingerprint}")
    typer.echo("Neighbours run `pgfl site trust`, clients `pgfl client trust`; then run `pgfl site rotate --switch`.")


@app.command()
def rekey(
    rotation: Annotated[Path, typer.Argument(help="client.rotation, from the client's owner.")],
    home: Home = Path("."),
    wait: Wait = WAIT_SECONDS,
) -> None:
    """Know a client by its next key, which it signed with the present one. Name and account stay."""
    from pgfl.network.rotation import read_rotation

    old, new = read_rotation(rotation)
    with _store(home) as store:
        name, change = store.rekey(old, new)
    _applied(f"{name} has the key with fingerprint {new.fingerprint}", home, change, wait)


@app.command()
def unlink(
    name: Annotated[str, typer.Argument(help="The neighbour's name.")],
    home: Home = Path("."),
    wait: Wait = WAIT_SECONDS,
) -> None:
    """Stop trusting a neighbour; its operator should unlink this site too. Works while the site runs."""
    with _store(home) as store:
        change = store.unlink(name)
    _applied(f"{name} is unlinked", home, change, wait)


@app.command()
def admit(
    key: Annotated[Path, typer.Argument(help="The client's public key, from its owner.")],
    cluster: Annotated[str, typer.Option("--cluster", help="The cluster whose model the client trains.")],
    name: Annotated[str | None, typer.Option("--name", help="The client's name; else the comment in its key.")] = None,
    home: Home = Path("."),
    wait: Wait = WAIT_SECONDS,
) -> None:
    """Admit a client to a cluster. Works while the site runs; it takes part from the next round on."""
    from pgfl.network.protocol.identity import ClientKey

    parsed = ClientKey.read(key)
    name = name or " ".join(key.read_text().split()[2:]) or key.stem
    with _store(home) as store:
        _check_cluster(cluster, home, store)
        change = store.admit(name, parsed, cluster)
    _applied(f"{name} is admitted to cluster {cluster} (fingerprint {parsed.fingerprint})", home, change, wait)


@app.command()
def expel(
    name: Annotated[str, typer.Argument(help="The client's name.")], home: Home = Path("."), wait: Wait = WAIT_SECONDS
) -> None:
    """Remove a client. Its name stays bound to its key."""
    with _store(home) as store:
        change = store.expel(name)
    _applied(f"{name} is expelled", home, change, wait)


@app.command()
def rollback(
    round: Annotated[int, typer.Argument(min=0, help="The round whose models to restore; 0 starts over.")],
    home: Home = Path("."),
    wait: Wait = WAIT_SECONDS,
) -> None:
    """Restore the models of an earlier round, e.g. after a poisoning attack. Round numbers and budgets continue."""
    with _store(home) as store:
        change, found = store.roll_back(round)
    _applied(f"the models of round {found} are restored", home, change, wait)
    typer.echo(f"Every other site must do the same, else its neighbours refuse it: pgfl site rollback {round}")


@app.command()
def serve(home: Served = Path(".")) -> None:
    """Run the site until the last round is done; started again, it goes on from the last completed round."""
    from pgfl.network.logs import start_logging
    from pgfl.network.processes import exclusive_lock, on_parent_exit, private_files
    from pgfl.network.site.backup import check_not_moved
    from pgfl.network.site.settings import load_site
    from pgfl.network.site.site import Site
    from pgfl.network.site.store import LOCK

    loaded = load_site(settings_in(home, "site.toml"))
    check_not_moved(Path(loaded.home))
    start_logging(loaded.log, Path(loaded.home))
    with private_files(), exclusive_lock(Path(loaded.home) / LOCK, f"Site {loaded.name}"):
        site = Site(loaded)

        async def run() -> str:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, site.stop, "stopped by its operator")
            on_parent_exit(lambda: loop.call_soon_threadsafe(site.stop, "its parent process has exited"))
            return await site.run()

        reason = asyncio.run(run())
    typer.echo(f"Site {loaded.name} ended: {reason}.")


@app.command()
def model(
    out: Annotated[Path, typer.Argument(help="The file to write.")] = Path("model.pgfl"),
    home: Served = Path("."),
) -> None:
    """Write the site's models of its clusters to a file that `pgfl predict` reads; works while the site runs."""
    from pgfl.network.site.backup import model_of_site
    from pgfl.network.site.settings import load_site

    found = model_of_site(load_site(settings_in(home, "site.toml")))
    found.save(out)
    typer.echo(f"{out}: the models of {', '.join(found.cluster_ids)} after round {found.provenance['rounds']}.")


@app.command()
def backup(
    archive: Annotated[Path, typer.Argument(help="The file to write; keep it secret, it has the site's key.")],
    home: Home = Path("."),
    move: Annotated[
        bool,
        typer.Option("--move", help="Move the stopped site and its accounts of clients: this folder serves no more."),
    ] = False,
) -> None:
    """Back the site up: key, certificate, settings and record. Works while the site runs, unless it moves."""
    from pgfl.network.site.backup import back_up

    round, accounts = back_up(home, archive, move)
    moved = "" if accounts is None else f", which has moved there (accounts of clients: {accounts})"
    typer.echo(f"{archive}: the site as of round {round}{moved}.")


@app.command()
def restore(
    archive: Annotated[Path, typer.Argument(help="A file that `pgfl site backup` wrote.")], home: Home = Path(".")
) -> None:
    """Put a site back into an empty folder; it catches up with its neighbours when it is served."""
    from pgfl.network.site.backup import restore as put_site_back

    name, round, accounts = put_site_back(archive, home)
    typer.echo(f"{home}: {name} as of round {round}{f' (accounts of clients: {accounts})' if accounts else ''}.")


@app.command()
def page(
    out: Annotated[Path, typer.Argument(help="The file to write.")] = Path("site.html"),
    home: Served = Path("."),
) -> None:
    """Write a page of the training at this site: rounds, clients, budgets, a verdict; works while the site runs."""
    from pgfl.files import write_text
    from pgfl.network.site.settings import load_site
    from pgfl.network.site.status import page_of_site

    write_text(out, page_of_site(load_site(settings_in(home, "site.toml"))))
    typer.echo(f"{out} is the page; open it in a browser.")


@app.command()
def doctor(home: Served = Path("."), as_json: Json = False) -> None:
    """Look for what would keep the site from working; exit code 1 if there is anything to do, 2 after damage."""
    from pgfl.cli.shared import print_findings
    from pgfl.network.doctor import examine_site
    from pgfl.network.site.settings import load_site

    print_findings(examine_site(load_site(settings_in(home, "site.toml"))), as_json)


@app.command()
def status(home: Home = Path("."), as_json: Json = False) -> None:
    """Where the site is: its last round, its clients, its neighbours, and what it refused."""
    from rich.console import Console
    from rich.table import Table

    from pgfl.network.site.status import status_of

    figures = status_of(home)
    if as_json:
        typer.echo(json.dumps(figures))
        return
    console = Console()
    running = "runs" if figures["running"] else "does not run"
    console.print(f"round {figures['round']}; the site {running}", highlight=False)
    if figures["problem"]:
        console.print(f"not healthy: {figures['problem']}", highlight=False)
    table = Table("client", "cluster", "releases", "last round", "connected", "trust", "ε", "ε left")
    for client in figures["clients"]:
        connected = "yes" if client["name"] in figures["connected"] else "no"
        table.add_row(
            client["name"],
            client["cluster"],
            str(client["releases"]),
            str(client["accepted"] or "—"),
            connected,
            client["trust"],
            "—" if client["epsilon"] is None else f"{client['epsilon']:.3g}{' (spent)' if client['spent'] else ''}",
            "—" if client["epsilon_left"] is None else f"{client['epsilon_left']:.3g}",
        )
    console.print(table)
    for client in figures["clients"]:
        if client["answers"]:
            outcomes = ", ".join(f"{count} {outcome}" for outcome, count in sorted(client["answers"].items()))
            console.print(f"client {client['name']} since the start: {outcomes}", highlight=False)
    if over_cap := (figures["last"] or {}).get("over_cap"):
        console.print(f"over training.privacy.noise_cap, sits out: {', '.join(over_cap)}", highlight=False)
    for neighbour in figures["neighbours"]:
        state = "there" if neighbour["name"] in figures["up"] else "not reached"
        where = f"at {neighbour['address']}" if neighbour["address"] else "(it calls)"
        console.print(f"neighbour {neighbour['name']} {where}: {state}", highlight=False)
    for invited in figures["invitations"]:
        console.print(f"invited: {invited['kind']} {invited['name']}, until {invited['until']}", highlight=False)
    if figures["refused"]:
        console.print("refused: " + ", ".join(f"{n} {why}" for why, n in figures["refused"].items()), highlight=False)


def _check_cluster(cluster: str, home: Path, store: SiteStore) -> None:
    """Refuse a cluster that is not trained, by the site.toml in the folder or else by what was served last."""
    from pgfl.network.site.settings import load_site

    settings = home / "site.toml"
    clusters = list(load_site(settings).training.clusters) if settings.exists() else store.clusters()
    if clusters and cluster not in clusters:
        raise NetworkError(unknown_name("cluster", cluster, clusters))


def _invited(guest: Guest, file: Path) -> None:
    where = f"client {guest.name} of cluster {guest.cluster}" if guest.kind == "client" else f"site {guest.name}"
    typer.echo(f"{file} is the invitation for {where}; keep it secret, it works once.")


def _applied(what: str, home: Path, change: int, wait: float) -> None:
    from pgfl.network.site.status import when_applied

    typer.echo(f"{what}; {when_applied(home, change, wait)}.")


def _store(home: Path) -> closing[SiteStore]:
    from pgfl.network.site.store import SiteStore

    return closing(SiteStore.of_site(home))
