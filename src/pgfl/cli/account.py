"""`pgfl account`: ε from a schedule, or a schedule from a target ε."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated, Any

import typer

from pgfl.cli.shared import Json, figure_text, strict_json, with_note
from pgfl.privacy.request import Privacy

app = typer.Typer(add_completion=False)
BEYOND = f"An infinite figure (null in JSON) is beyond {sys.float_info.max:.2g}, the largest number: no promise."


class Index(StrEnum):
    """What the noise's index counts."""

    round = "round"
    release = "release"


@app.command()
def account(
    phi0: Annotated[
        float | None, typer.Option(help="The paper's φ(0); the first release spends φ(1) = φ(0)/ζ.")
    ] = None,
    phi1: Annotated[float | None, typer.Option(help="φ(1), what the first release spends.")] = None,
    target_epsilon: Annotated[
        float | None,
        typer.Option("--epsilon", "--target-epsilon", help="Find the schedule that ends at this ε."),
    ] = None,
    zeta: Annotated[
        float, typer.Option(help="The factor of the noise variance from one release to the next.")
    ] = Privacy.zeta,
    rounds: Annotated[int | None, typer.Option(help="Number of rounds.")] = None,
    delta: Annotated[float, typer.Option(help="δ, the failure probability.")] = Privacy.delta,
    max_releases: Annotated[
        int | None, typer.Option(help="With a target: the most releases of a client (default: all rounds).")
    ] = None,
    index: Annotated[
        Index | None, typer.Option(help="With a target: what the noise index counts (default: release).")
    ] = None,
    group: Annotated[
        int | None, typer.Option(help="Also report ε for a group of N records, e.g. a whole client.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compute ε of a noise schedule, exactly and by the paper's formula, or the schedule for a target ε."""
    from pgfl.errors import PrivacyError
    from pgfl.privacy import accounting
    from pgfl.privacy.budget import Budget

    given = [name for name, value in (("phi0", phi0), ("phi1", phi1), ("epsilon", target_epsilon)) if value is not None]
    if len(given) != 1:
        raise PrivacyError(
            f"Give exactly one of --phi0, --phi1 and --epsilon; {' and '.join(given) or 'none'} was given."
        )
    if target_epsilon is None:
        if max_releases is not None or index is not None:
            raise PrivacyError("--max-releases and --index go with --epsilon; a schedule spends for --rounds.")
        if rounds is None:
            raise PrivacyError("--rounds is missing: how many releases are to be counted?")
        figures = Budget.from_schedule(phi0=phi0, phi1=phi1, zeta=zeta, rounds=rounds, delta=delta).figures()
    else:
        most = max_releases if max_releases is not None else rounds
        if most is None:
            raise PrivacyError("Give --max-releases or --rounds: over how many releases is the target to be spread?")
        budget = Budget.from_target(
            epsilon=target_epsilon,
            delta=delta,
            zeta=zeta,
            max_releases=most,
            index="round" if index is Index.round else "release",
            rounds=rounds if index is Index.round else None,
        )
        figures = budget.figures(accounting.exact_rho(target_epsilon, delta))
    if group is not None:
        rho = accounting.group_rho(figures["rho"], group)
        figures["group"] = {
            "records": group,
            "rho": float(rho),
            "epsilon": float(accounting.group_epsilon(figures["rho"], delta, group)),
        }
    figures = with_note(figures, BEYOND)
    if as_json:
        typer.echo(strict_json(figures))
    else:
        _show(figures)


NAMES = {
    "phi0": "φ(0)",
    "phi1": "φ(1), the first release",
    "last_phi": "φ of the last release",
    "zeta": "ζ",
    "index": "index",
    "rounds": "rounds",
    "max_releases": "releases at most",
    "delta": "δ",
    "rho": "ρ of zCDP",
    "epsilon": "ε, exact",
    "epsilon_paper": "ε, by the paper's formula",
}


def _show(figures: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(show_header=False, box=None, pad_edge=False)
    for key, name in NAMES.items():
        if key in figures:
            table.add_row(name, figure_text(figures[key]))
    console.print(table)
    console.print("For one record replaced by another.", highlight=False)
    if group := figures.get("group"):
        console.print(
            f"Apart from that, for {group['records']} records replaced together, a weaker promise: "
            f"ρ {figure_text(group['rho'])}, ε {figure_text(group['epsilon'])}.",
            highlight=False,
            soft_wrap=True,
        )
    if note := figures.get("note"):
        console.print(note, highlight=False, soft_wrap=True)
