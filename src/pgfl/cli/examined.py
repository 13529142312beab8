"""How `pgfl site doctor` and `pgfl client doctor` print what they found."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgfl.deploy.doctor import Finding


def print_findings(findings: Sequence[Finding], as_json: bool) -> None:
    """One line per finding, with what to do; ends with exit code 1 if there is anything to do."""
    if as_json:
        typer.echo(json.dumps([{"what": found.what, "advice": found.advice} for found in findings]))
    for found in [] if as_json else findings:
        typer.echo(f"ok    {found.what}" if found.good else f"FIX   {found.what}\n      {found.advice}")
    if not all(found.good for found in findings):
        raise typer.Exit(1)
