"""The status of a site for its operator: the command, and a self-contained page."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from pgfl import __version__
from pgfl.drawing.pages import Templates, counted
from pgfl.drawing.plots import cluster_colour, curves_svg
from pgfl.errors import LedgerError, NetworkError
from pgfl.network.invitation import shown_time
from pgfl.network.processes import exclusive_lock
from pgfl.network.settings import toml_of
from pgfl.network.site.reports import LiveFigures
from pgfl.network.site.role import LEAST_ROUNDS, Movement
from pgfl.network.site.settings import SiteSettings
from pgfl.network.site.store import LOCK, STORE, SiteStore
from pgfl.network.site.trustee import LEDGERS
from pgfl.privacy.card import NOT_COVERED, PrivacyCard
from pgfl.privacy.ledger.ledger import Ledger


def status_of(home: Path) -> dict[str, Any]:
    """The figures of the site in this folder, for people and JSON."""
    with closing(SiteStore.of_site(home)) as store:
        clients, neighbours = store.clients().values(), store.neighbours().values()
        history, last, invited = store.history(1), store.last_round(), store.invitations()
    running = is_running(home)
    live = LiveFigures.read(home) if running else LiveFigures()
    return {
        "running": running,
        "round": last,
        "last": history[-1] if history else None,
        "connected": live.connected,
        "up": live.up,
        "waiting_for": live.waiting_for,
        "missing": live.missing,
        "refused": live.refused,
        "problem": live.problem,
        "clients": [
            {"name": c.name, "cluster": c.cluster, "releases": c.releases, "accepted": c.accepted}
            | entrusted_account(home, c.name)
            | {"epsilon_left": _left(live, c.name, c.releases), "answers": live.answers.get(c.name, {})}
            for c in clients
        ],
        "invitations": [{"kind": each.kind, "name": each.name, "until": shown_time(each.expires)} for each in invited],
        "neighbours": [{"name": n.certificate.name, "address": n.address} for n in neighbours],
    }


def entrusted_account(home: Path, client: str) -> dict[str, Any]:
    """What a client has spent that trusts this site, from the account that the site keeps for it; nothing of others."""
    path = home / LEDGERS / f"{client}.db"
    if not path.exists():
        return {"trust": "local", "epsilon": None, "delta": None, "spent": None}
    try:
        with Ledger.read(path) as ledger:
            summary = ledger.summary()
    except LedgerError:  # it is being made
        return {"trust": "site", "epsilon": None, "delta": None, "spent": None}
    return {"trust": "site"} | {name: summary[name] for name in ("epsilon", "delta", "spent")}


def _left(live: LiveFigures, client: str, releases: int) -> float | None:
    """The ε that is left to a client, if it is connected or was, and tells its budget."""
    budget = live.budgets.get(client)
    return None if budget is None else budget.epsilon_left(releases)


def is_running(home: Path) -> bool:
    """Whether a process serves the site in this folder."""
    try:
        with exclusive_lock(home / LOCK, "site"):
            return False
    except NetworkError:
        return True


def when_applied(home: Path, change: int, seconds: float) -> str:
    """From which round on a change counts, as the running site acknowledges it, in words."""
    if not is_running(home):
        return "applied when the site starts"
    until = time.monotonic() + seconds
    with closing(SiteStore.of_site(home)) as store:
        while time.monotonic() < until:
            taken_over, round = store.acknowledged()
            if taken_over >= change:
                return f"applied from round {round}"
            time.sleep(0.1)
    return "not applied yet: the running site takes it over after the round that is under way"


SHOWN = 20  # rounds in the table
TEMPLATES, STYLE = Templates("pgfl.network.site"), Templates("pgfl.results.report")

Row = Mapping[str, Any]


def page_of_site(settings: SiteSettings) -> str:
    """The page of the site with these settings, as HTML."""
    home, training = Path(settings.home), settings.training
    status = status_of(home)
    with closing(SiteStore(home / STORE)) as store:
        saved, history = store.load_state(), store.history()
    if saved is None or not history:
        raise NetworkError(f"Site {settings.name} has completed no round yet; wait for its first one.")
    verdict = Movement.restored(saved[1]).verdict(training.rounds)
    early = f"It is too early for a verdict: there is one from round {LEAST_ROUNDS} on."
    return TEMPLATES.rendered(
        "site_page.html.jinja",
        title=f"Site {settings.name}",
        style=STYLE.trusted("page.css"),
        subtitle=_subtitle(settings, status),
        verdict=verdict,
        privacy=_privacy(settings, status),
        notices=[*([] if verdict else [early]), *_notices(status, history)],
        plots=_plots(history),
        clients=_clients(status),
        neighbours=[_neighbour(neighbour, history) for neighbour in status["neighbours"]],
        refused=sorted(_refused(status, history).items()),
        rounds=_rounds(history),
        digest=training.digest[:16],
        training=toml_of({"training": training.model_dump(exclude_none=True)}),
    )


def _subtitle(settings: SiteSettings, status: Row) -> list[str]:
    return [
        f"round {status['round']} of {settings.training.rounds}",
        "running" if status["running"] else "not running",
        counted(len(status["clients"]), "client"),
        counted(len(status["neighbours"]), "neighbour"),
        counted(len(settings.training.clusters), "cluster"),
        f"trust {settings.training.privacy.trust}",
        f"pgfl {__version__}",
    ]


def _privacy(settings: SiteSettings, status: Row) -> list[tuple[str, str]]:
    """Return the lines of the privacy card: of the client that spent most where this site keeps the accounts.

    A client that trusts nobody keeps its own account, and the site sees its releases only.
    """
    trust = settings.training.privacy.level
    promise, training = trust.promise, settings.training.digest[:16]
    known = [client for client in status["clients"] if client["epsilon"] is not None]
    if known:
        worst = max(known, key=lambda client: float(client["epsilon"]))
        card = PrivacyCard(
            label=promise.label, epsilon=worst["epsilon"], delta=worst["delta"], unit=promise.unit,
            against=promise.against, assuming=promise.assuming, not_covered=promise.not_covered,
            releases=worst["releases"], noise="secure", date=f"{datetime.now():%Y-%m-%d}", version=__version__,
            config=training,
        )  # fmt: skip
        return card.lines
    uncovered = "; ".join((promise.not_covered, *NOT_COVERED))
    return [
        ("Guarantee", promise.label),
        ("Budget spent", "each client keeps its own account, and this site does not see it: `pgfl client status`"),
        ("Not covered", uncovered),
        ("Made", f"{datetime.now():%Y-%m-%d}, pgfl {__version__}"),
        ("Config", training),
    ]


def _notices(status: Row, history: Sequence[Row]) -> list[str]:
    waits = [f"The next round waits: {status['missing']}."] if status["missing"] else []
    sat_out = history[-1].get("sat_out", {})
    demanding = [
        f"Client {name} sits out: it asks for more noise, or states wider bounds, than `noise_cap` allows."
        for name in history[-1].get("over_cap", ())
    ]
    return [
        *waits,
        *(f"Cluster {pair} sat the last round out: {why}." for pair, why in sorted(sat_out.items())),
        *demanding,
    ]


def _plots(history: Sequence[Row]) -> list[dict[str, Any]]:
    rounds = np.array([row["round"] for row in history])
    apart = np.array([row["disagreement"] for row in history], dtype=float)
    seconds = np.array([row["seconds"] for row in history], dtype=float)
    accepted, late = (np.array([float(len(row[name])) for row in history]) for name in ("accepted", "late"))
    with np.errstate(divide="ignore"):
        decibels = 10.0 * np.log10(apart)
    first, second = cluster_colour(0), cluster_colour(1)
    counts = [("accepted", first, rounds, accepted), ("late", second, rounds, late)]
    found = [
        (
            "Disagreement",
            curves_svg("disagreement", "dB", [("", first, rounds, decibels)]),
            "Between what this site and its neighbours published, relative to the models' size.",
            [],
        ),
        (
            "Clients",
            curves_svg("clients", "", counts),
            "How many answers were used in each round, and how many were late.",
            [(colour, name) for name, colour, _, _ in counts],
        ),
        (
            "Time",
            curves_svg("round", "s", [("", first, rounds[1:], seconds[1:])]),
            "From the end of one round to the end of the next.",
            [],
        ),
    ]
    return [
        {"title": title, "svg": svg, "words": words, "legend": legend} for title, svg, words, legend in found if svg
    ]


def _clients(status: Row) -> dict[str, Any]:
    rows = [
        (
            client["name"],
            client["cluster"],
            client["releases"],
            client["accepted"] or "–",
            client["trust"],
            "–" if client["epsilon"] is None else f"{client['epsilon']:.3g}{' (spent)' if client['spent'] else ''}",
        )
        for client in status["clients"]
    ]
    words = (
        "ε is what a client that trusts this site has spent, against everyone but the site. What others have spent "
        "only they know."
    )
    return {"columns": ("client", "cluster", "releases", "last round", "trust", "ε"), "rows": rows, "words": words}


def _neighbour(neighbour: Row, history: Sequence[Row]) -> tuple[str, str, int]:
    name = neighbour["name"]
    return name, neighbour["address"], sum(name in row["absent"] for row in history)


def _refused(status: Row, history: Sequence[Row]) -> Row:
    """What was refused, by reason; counts begin anew with every start of the site."""
    found: Row = status["refused"] or history[-1].get("refused", {})
    return found


def _rounds(history: Sequence[Row]) -> dict[str, Any]:
    columns = ("round", "accepted", "late", "clipped", "without", "disagreement", "seconds")
    rows = [
        (
            row["round"],
            len(row["accepted"]),
            ", ".join(row["late"]) or "–",
            ", ".join(row.get("clipped", [])) or "–",
            ", ".join([*row["absent"], *row.get("sat_out", {})]) or "–",
            f"{row['disagreement']:.3g}",
            f"{row['seconds']:.2f}",
        )
        for row in reversed(history[-SHOWN:])
    ]
    return {"columns": columns, "rows": rows}
