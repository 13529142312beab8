"""`pgfl client`: for the owner of a client."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated

import typer

from pgfl.cli.shared import (
    UNPROTECTED,
    Changes,
    FolderGroup,
    Json,
    Trust,
    folder_of,
    settings_in,
    strict_json,
    with_note,
)
from pgfl.errors import NetworkError

app = typer.Typer(
    cls=FolderGroup, no_args_is_help=True, help="A client: its key, its own privacy policy, and taking part."
)

Home = Annotated[Path, typer.Option("--home", help="The client's folder, or the settings file in it.")]


@app.command()
def init(
    name: Annotated[str, typer.Argument(help="The client's name, as its site will know it.")],
    home: Home = Path("."),
    address: Annotated[str, typer.Option("--address", help="host:port of the site.")] = "north.example.org:9094",
    fingerprint: Annotated[
        str, typer.Option("--fingerprint", help="Fingerprint of the site's certificate, from its operator.")
    ] = "0" * 64,
    key_only: Annotated[bool, typer.Option("--key-only", help="Make the key alone, for a roster.")] = False,
) -> None:
    """Make the client's key; the public half goes to the site's operator."""
    from pgfl.network.client.settings import load_client
    from pgfl.network.protocol.identity import CLIENT_PUBLIC, create_client
    from pgfl.network.settings import CLIENT, write_once
    from pgfl.privacy.usable import noise_in_words

    key = create_client(home, name)
    typer.echo(f"{home / CLIENT_PUBLIC} is the public key of {name}; hand it to the operator of the site.")
    typer.echo(f"fingerprint {key.fingerprint}")
    if not key_only and write_once(
        home / "client.toml", CLIENT.format(name=name, address=address, fingerprint=fingerprint)
    ):
        budget = load_client(home / "client.toml").privacy.request().policy().budget
        typer.echo(f"{home / 'client.toml'} is where to begin; the policy in it is yours alone: with its budget")
        typer.echo(f"{noise_in_words(budget)}.")


@app.command()
def join(
    invitation: Annotated[
        Path | None, typer.Argument(help="The invitation of the site's operator; needed the first time only.")
    ] = None,
    home: Home = Path("."),
    table: Annotated[Path | None, typer.Option("--table", help="Your table, csv or parquet, of an invitation.")] = None,
    target: Annotated[str | None, typer.Option("--target", help="The column to predict [default: y].")] = None,
    weight: Annotated[
        str | None, typer.Option("--weight", help="The column that says how much a row counts, if there is one.")
    ] = None,
    epsilon: Annotated[float | None, typer.Option("--epsilon", help="Your whole budget [default: 4].")] = None,
    trust: Annotated[
        Trust | None, typer.Option(help="Whom you trust [default: local], whatever the site says.")
    ] = None,
    roster: Annotated[Path | None, typer.Option("--roster", help="Who may take part in masked sums with you.")] = None,
    changes: Changes = None,
    yes: Annotated[bool, typer.Option("--yes", help="Agree to what is shown without being asked.")] = False,
    model: Annotated[Path | None, typer.Option("--model", help="Write the models here once training is over.")] = None,
) -> None:
    """Take part until training is over or the budget is spent; started again, it goes on where it was."""
    from pgfl.network.client.backup import LOCK, model_of_client
    from pgfl.network.client.client import Participant
    from pgfl.network.client.samples import load_samples_apart
    from pgfl.network.client.settings import load_client
    from pgfl.network.logs import start_logging
    from pgfl.network.processes import exclusive_lock, make_private, on_parent_exit, on_terminate, private_files
    from pgfl.privacy.rules import off_although_written

    if invitation is not None:
        own = {"target": target, "weight": weight, "privacy.epsilon": epsilon, "privacy.trust": trust and trust.value}
        own |= {"roster.file": None if roster is None else str(roster.resolve())}
        stated = [f"{key}={json.dumps(value)}" for key, value in own.items() if value is not None]
        _accept_invitation(invitation, folder_of(home), table, [*stated, *(changes or [])], yes)
    loaded = load_client(settings_in(home, "client.toml"))
    start_logging(loaded.log, Path(loaded.home))
    if off := off_although_written(dict(loaded.privacy)):
        typer.echo(off)
    ledger = Path(loaded.ledger)
    with private_files(), exclusive_lock(Path(loaded.home) / LOCK, f"Client {loaded.name}"):
        make_private(*ledger.parent.glob(f"{ledger.name}*"))
        participant = Participant(loaded, load_samples_apart(loaded))
        on_terminate(participant.stop)
        on_parent_exit(participant.stop)
        reason = participant.run()
    typer.echo(f"Client {loaded.name} ended: {reason}.")
    if model is not None and participant.training_over:
        model_of_client(loaded).save(model)
        typer.echo(f"{model} has the models; `pgfl predict {model} TABLE` uses them.")


def _accept_invitation(file: Path, home: Path, table: Path | None, changes: list[str], yes: bool) -> None:
    """Show the owner what the invitation asks for, and set the client up once the owner agrees."""
    from pgfl.network.client import set_up as setting_up
    from pgfl.network.invitation import Invitation

    if (home / setting_up.SETTINGS).exists():
        if setting_up.is_set_up(home, Invitation.read(file, "client", expired=True)):
            typer.echo(f"{home} is set up already; going on.")
        return
    invitation = Invitation.read(file, "client")
    if table is None:
        raise NetworkError(f"--table is missing; name the table with which {invitation.name} takes part.")
    proposal = setting_up.propose(invitation, home, table, changes)
    typer.echo(f"{invitation.site} invites {invitation.name} to train cluster {invitation.cluster}.")
    for line in proposal.lines:
        typer.echo(f"  {line}")
    if not yes and not _agrees():
        raise NetworkError("Not accepted: nothing was written, sent or charged.")
    setting_up.set_up(proposal, home)


def _agrees() -> bool:
    try:
        return typer.confirm("Take part in this training?", default=False)
    except typer.Abort:  # nobody is there to answer
        return False


@app.command()
def roster(
    file: Annotated[Path, typer.Argument(help="The roster to write.")],
    keys: Annotated[list[Path], typer.Argument(help="client.pub of every client that may take part.")],
    sign: Annotated[
        Path | None, typer.Option("--sign", help="client.key of a steward who vouches for it; never a site's key.")
    ] = None,
) -> None:
    """Write down who may take part in masked sums, for the owners of these clients."""
    from pgfl.masking.terms import Roster, identity_line, roster_text
    from pgfl.network.protocol.identity import named_client_key, read_client_key

    steward = None if sign is None else read_client_key(sign)
    written = Roster(dict(named_client_key(path) for path in keys))
    file.write_text(roster_text(written, steward), "utf-8")
    typer.echo(f"{file} names {len(written.keys)} clients: {', '.join(sorted(written.keys))}.")
    typer.echo(f"digest {written.digest}; every owner should see the same.")
    if steward is not None:
        typer.echo(f"steward {identity_line(steward)}")


@app.command()
def trust(
    certificate: Annotated[str, typer.Argument(help="The site's next certificate (a file), or its fingerprint.")],
    home: Home = Path("."),
) -> None:
    """Trust the certificate that the site will switch to, beside its present one. Works while the client runs."""
    from pgfl.network.client.settings import load_client
    from pgfl.network.protocol.identity import SiteCertificate
    from pgfl.network.rotation import PINS, SitePins

    loaded = load_client(settings_in(home, "client.toml"))
    given = re.fullmatch(r"[0-9a-f]{64}", certificate)
    fingerprint = certificate if given else SiteCertificate.read(Path(certificate)).fingerprint
    SitePins(Path(loaded.home) / PINS, loaded.site.fingerprint).trust(fingerprint)
    typer.echo(f"The site may switch to its next certificate (fingerprint {fingerprint}).")


@app.command()
def rotate(home: Home = Path(".")) -> None:
    """Make the client's next key; the site's operator runs `pgfl site rekey`. Works while the client runs."""
    from pgfl.network.client.settings import load_client
    from pgfl.network.rotation import ROTATION, prepare_client

    loaded = load_client(settings_in(home, "client.toml"))
    key = prepare_client(Path(loaded.home), loaded.name)
    typer.echo(f"{Path(loaded.home) / ROTATION} is for the operator of the site: pgfl site rekey {ROTATION}")
    typer.echo(f"fingerprint of the next key {key.fingerprint}")


@app.command()
def accept(home: Home = Path(".")) -> None:
    """Accept the changed training that the site offered last; the next join takes part in it."""
    from pgfl.network.client import accounts as acceptance
    from pgfl.network.client.settings import load_client

    loaded = load_client(settings_in(home, "client.toml"))
    offer, changes = acceptance.accept(Path(loaded.home))
    for change in changes:
        typer.echo(change)
    typer.echo(f"{loaded.name} accepts {offer.training.digest[:16]}: {offer.training.describe(offer.cluster)}.")


@app.command()
def model(
    out: Annotated[Path, typer.Argument(help="The file to write.")] = Path("model.pgfl"),
    home: Home = Path("."),
) -> None:
    """Write the client's released model and its cluster's to a file that `pgfl predict` reads."""
    from pgfl.network.client.backup import model_of_client
    from pgfl.network.client.settings import load_client

    found = model_of_client(load_client(settings_in(home, "client.toml")))
    found.save(out)
    typer.echo(
        f"{out}: of {' and '.join([*found.client_ids, *found.cluster_ids])}, round {found.provenance['rounds']}."
    )


@app.command()
def backup(
    archive: Annotated[Path, typer.Argument(help="The file to write; keep it secret, it has the client's key.")],
    move: Annotated[
        bool, typer.Option("--move", help="Move the account along: nothing more is released from this folder.")
    ] = False,
    home: Home = Path("."),
) -> None:
    """Back the client up. A copy of its account would soon be stale, so the account moves or is left out."""
    from pgfl.network.client.backup import back_up
    from pgfl.network.client.settings import load_client

    loaded = load_client(settings_in(home, "client.toml"))
    moved = back_up(loaded, settings_in(home, "client.toml"), archive, move)
    if moved is None:
        typer.echo(f"{archive}: key, settings and accepted training of {loaded.name}; its account stays here.")
    else:
        typer.echo(f"{archive}: all of {loaded.name}, and its account of {moved} releases has moved there.")


@app.command()
def restore(
    archive: Annotated[Path, typer.Argument(help="A file that `pgfl client backup` wrote.")],
    home: Home = Path("."),
) -> None:
    """Put a client back from a backup; never one with fewer releases than this folder knows of."""
    from pgfl.network.client.backup import restore as put_client_back

    name, moved = put_client_back(archive, home)
    account = "without an account; only the folder that has it can go on" if moved is None else f"with {moved} releases"
    typer.echo(f"{home}: {name}, {account}.")


@app.command()
def doctor(home: Home = Path("."), as_json: Json = False) -> None:
    """Look for what would keep the client from working; exit code 1 if there is anything to do, 2 after damage."""
    from pgfl.cli.shared import print_findings
    from pgfl.network.client.settings import load_client
    from pgfl.network.doctor import examine_client

    print_findings(examine_client(load_client(settings_in(home, "client.toml"))), as_json)


@app.command()
def status(home: Home = Path("."), as_json: Json = False) -> None:
    """What the client has released and spent."""
    from pgfl.network.client.settings import load_client
    from pgfl.privacy.ledger.ledger import Ledger

    loaded = load_client(settings_in(home, "client.toml"))
    if not loaded.privacy.enabled:
        typer.echo(
            json.dumps({"client": loaded.name, "privacy": "off"}) if as_json else f"{loaded.name}: privacy is off."
        )
        return
    with Ledger.read(Path(loaded.ledger)) as ledger:
        ledger.verify()
        summary = ledger.summary()
    if as_json:
        typer.echo(strict_json(with_note(summary, UNPROTECTED), indent=None))
    else:
        clean, against = "", ""
        if summary["entrusted"]:
            clean, against = f", {summary['entrusted']} left clean to the site", ", against everyone but the site"
        typer.echo(
            f"{loaded.name}: {summary['releases']} releases, {summary['accepted']} of them confirmed by the site"
            f"{clean}; epsilon {float(summary['epsilon']):.4g} at delta {summary['delta'] or loaded.privacy.delta:g}"
            f"{against}."
        )
