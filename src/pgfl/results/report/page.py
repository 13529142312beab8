"""`report.html`: one page that needs nothing but itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from importlib import resources
from typing import Any

import numpy as np

from pgfl.results.report.figures import NOISE, SPENDING, figure, guarantee, short
from pgfl.results.report.network_picture import legend, picture
from pgfl.results.report.panels import EVERYONE, INK, Curve, Panel, cluster_colour, panels
from pgfl.results.result import Result

NO_FETCHES = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
MOST_CLUSTER_ROWS = 30


def page(result: Result) -> str:
    """The whole page as HTML."""
    summary = result.summary()
    title = escape(str(summary["name"]))
    sections = [
        f"<header><h1>{title}</h1><p>{_subtitle(summary)}</p></header>",
        _notices(result),
        f'<section class="two">{_outcome(result)}{_network(result)}</section>',
        '<section id="charts"></section><noscript>The curves are in curves.png beside this page.</noscript>',
        _privacy(result),
        _config(result),
    ]
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{NO_FETCHES}"><title>{title} – pgfl</title>
<style>{_asset("page.css")}</style></head><body><main>
{"".join(sections)}
</main><script id="panels" type="application/json">{_embedded([_panel(panel) for panel in panels(result)])}</script>
<script>{_asset("page.js")}</script></body></html>
"""


def _subtitle(summary: dict[str, Any]) -> str:
    clusters = summary["clusters"] if isinstance(summary["clusters"], int) else len(summary["clusters"])
    parts = [
        _counted(summary["clients"], "client"),
        _counted(summary["servers"], "server"),
        _counted(clusters, "cluster"),
        f"d = {summary['dimension']}",
        _counted(summary["rounds"], "round"),
        *([_counted(summary["runs"], "run")] if summary["runs"] > 1 else []),
        f"{summary['seconds']:.2f} s",
        f"pgfl {escape(summary['version'])}",
    ]
    return " · ".join(parts)


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' if number != 1 else ''}"


def _notices(result: Result) -> str:
    notices = "".join(f'<p class="notice">{escape(warning)}</p>' for warning in result.warnings)
    if result.noise == "seeded":
        notices += '<p class="notice">The noise of this run was seeded: good for a simulation, not for real data.</p>'
    return notices


def _outcome(result: Result) -> str:
    """What each cluster ended with; the page shows what may be shown to anyone."""
    final = {name: result.curve(name)[:, -1].mean() for name in result.metrics}
    columns: list[str] = [name for name in ("nmsd", "accuracy", "objective") if name in final]
    head = "".join(f"<th>{label}</th>" for label in ("", *map(_label, columns)))
    body = [_outcome_row(EVERYONE, "currentColor", [final[name] for name in columns], columns)]
    for index, cluster in enumerate(result.cluster_ids[:MOST_CLUSTER_ROWS]):
        values = [final.get(f"{name}_{cluster}", np.nan) for name in columns]
        if np.isfinite(values).any():
            body.append(_outcome_row(cluster, cluster_colour(index), values, columns))
    others = [name for name in ("primal_residual", "dual_residual", "disagreement", "distance") if name in final]
    rows = "".join(f"<tr><td>{name.replace('_', ' ')}</td><td>{final[name]:.4g}</td></tr>" for name in others)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>" if columns else ""
    notes = "".join(f"<p>{escape(note)}</p>" for note in result.notes)
    return f"<div><h2>Outcome</h2>{table}{notes}{f'<table><tbody>{rows}</tbody></table>' if rows else ''}</div>"


def _outcome_row(name: str, colour: str, values: Sequence[float], columns: list[str]) -> str:
    cells = "".join(f"<td>{figure(column, value)}</td>" for column, value in zip(columns, values, strict=True))
    return f'<tr><td><span class="key"><i style="background:{colour}"></i>{escape(name)}</span></td>{cells}</tr>'


def _label(metric: str) -> str:
    return {"nmsd": "NMSD", "accuracy": "accuracy", "objective": "objective"}[metric]


def _network(result: Result) -> str:
    drawn = picture(result)
    inside = f"{drawn}<p>{legend(result)}</p>" if drawn else "<p>The network is too large for a picture.</p>"
    return f"<div><h2>Network</h2>{inside}</div>"


def _privacy(result: Result) -> str:
    if not result.private:
        return "<section><h2>Privacy</h2><p>Privacy was off: client models were shared as they are.</p></section>"
    spending = result.spending()
    rows = "".join(
        f"<tr><td>{label}</td><td>{short(told['worst'])}</td><td>{short(told['median'])}</td></tr>"
        for name, label in SPENDING.items()
        if (told := spending.get(name))
    )
    promise = f"<p>{escape(guarantee(result.guarantee))}</p>" if result.guarantee else ""
    return (
        f"<section><h2>Privacy</h2>{promise}<table><thead><tr><th></th><th>worst client</th><th>median client</th>"
        f"</tr></thead><tbody>{rows}</tbody></table><p>Noise: {escape(NOISE.get(result.noise or '', 'none'))}. "
        "Every client's figures are in privacy.csv.</p></section>"
    )


def _config(result: Result) -> str:
    if result.config is None:
        return ""
    from pgfl.config import to_toml

    return f"<section><details><summary>Config</summary><pre>{escape(to_toml(result.config))}</pre></details></section>"


def _panel(panel: Panel) -> dict[str, Any]:
    return {
        "title": panel.title,
        "unit": panel.unit,
        "named": panel.named,
        "x": panel.x.tolist(),
        "curves": [_curve(curve) for curve in panel.curves],
    }


def _curve(curve: Curve) -> dict[str, Any]:
    bands = {"low": curve.low, "high": curve.high} if curve.low is not None and curve.high is not None else {}
    colour = "var(--ink)" if curve.colour == INK else curve.colour
    return {"name": curve.name, "colour": colour, "y": _numbers(curve.y)} | {
        name: _numbers(band) for name, band in bands.items()
    }


def _numbers(values: np.ndarray[Any, Any]) -> list[float | None]:
    return [float(f"{value:.6g}") if np.isfinite(value) else None for value in values.tolist()]


def _embedded(data: Any) -> str:
    """JSON that cannot end its script element."""
    return json.dumps(data, ensure_ascii=True, allow_nan=False).replace("<", "\\u003c")


def _asset(name: str) -> str:
    return (resources.files("pgfl.results.report") / name).read_text("utf-8")
