"""`pgfl ledger`: what a client has spent, and whether its ledger is as it was written."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pgfl.cli.shared import UNPROTECTED, Json, figure_text, strict_json, with_note

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Show or verify a client's privacy ledger.")
File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE", help="The ledger: a client's own, or the one its site keeps for it.", show_default=False
    ),
]
Client = Annotated[
    str | None, typer.Option("--client", help="Refuse the ledger of any other client.", show_default=False)
]
SHOWN = 20
APART = {"void": "void", "unprotected": "without noise", "entrusted": "clean to the site"}


@app.command()
def show(file: File, client: Client = None, as_json: Json = False) -> None:
    """What the client has agreed to and spent, release by release."""
    from pgfl.privacy.ledger.ledger import Ledger

    with Ledger.read(file) as ledger:
        _check_owner(ledger, client)
        ledger.verify()
        summary = ledger.summary()
        rows = [row.describe() for row in ledger.rows()]
    if as_json:
        typer.echo(strict_json(with_note(summary | {"rows": rows}, UNPROTECTED)))
    else:
        _show(summary, rows)


@app.command()
def verify(file: File, client: Client = None, as_json: Json = False) -> None:
    """Recompute every row; exit code 2 and one sentence if any was damaged, altered or removed."""
    from pgfl.privacy.ledger.ledger import Ledger

    with Ledger.read(file) as ledger:
        _check_owner(ledger, client)
        ledger.verify()
        summary = ledger.summary()
    if as_json:
        typer.echo(strict_json(with_note({"file": str(file), "whole": True} | summary, UNPROTECTED)))
    else:
        typer.echo(
            f"{file} is whole: {summary['releases']} releases of client {summary['client']}{_apart(summary)}, "
            f"ρ {figure_text(summary['rho'])}."
        )


def _check_owner(ledger: Any, client: str | None) -> None:
    if client is not None and ledger.client != client:
        from pgfl.errors import LedgerError

        raise LedgerError(
            f"{ledger.path} is the ledger of client {ledger.client}, not of {client}; name the right file."
        )


def _show(summary: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    console, policy = Console(), summary["policy"] or dict.fromkeys(("max_releases", "rho_budget"))
    table = Table(show_header=False, box=None, pad_edge=False)
    most = "" if policy["max_releases"] is None else f" of at most {policy['max_releases']}"
    budget = "" if policy["rho_budget"] is None else f" of at most {policy['rho_budget']:.6g}"
    for name, value in (
        ("client", summary["client"]),
        ("releases", f"{summary['releases']}{most}, {_fate(summary, rows)}{_apart(summary)}"),
        ("ρ of zCDP", f"{figure_text(summary['rho'])}{budget}"),
        ("ε, exact", figure_text(summary["epsilon"]) + _at(summary["delta"]) + _against(summary)),
        ("ε, by the paper's formula", figure_text(summary["epsilon_paper"])),
        ("budget", "spent" if summary["spent"] else "left for another release"),
    ):
        table.add_row(name, value)
    console.print(table)
    if not rows:
        return
    releases = Table(box=None, pad_edge=False)
    for name in ("release", "round", "φ", "ρ so far", "σ", "trust", "accepted", ""):
        left = name in ("round", "trust", "accepted", "")
        releases.add_column(name, justify="left" if left else "right", overflow="fold")
    for row in rows[-SHOWN:]:
        releases.add_row(
            str(row["number"]),
            row["round_key"],
            figure_text(row["phi"], 4),
            figure_text(row["rho"], 4),
            figure_text(row["sigma"], 4),
            row["trust"],
            "–" if _by_site(row) else "yes" if row["accepted"] else "no",
            ", ".join(text for name, text in APART.items() if row[name]),
        )
    if len(rows) > SHOWN:
        console.print(f"The last {SHOWN} releases:", highlight=False)
    console.print(releases)


def _at(delta: float | None) -> str:
    return "" if delta is None else f" at δ = {delta:g}"


def _by_site(row: dict[str, Any]) -> bool:
    """Return whether a site added this noise: then the row stands in the account that the site keeps."""
    return bool(row["trust"] == "site" and row["sigma"] > 0)


def _fate(summary: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    return "noised by the site" if rows and all(map(_by_site, rows)) else f"{summary['accepted']} accepted"


def _against(summary: dict[str, Any]) -> str:
    return ", against everyone but the client's own site" if summary["trust"] == "site" else ""


def _apart(summary: dict[str, Any]) -> str:
    """Return the releases that are void or without noise."""
    return "".join(f", {summary[name]} {text}" for name, text in APART.items() if summary[name])
