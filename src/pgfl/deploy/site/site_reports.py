"""What a running site reports: a line and a row for every round, `live.json`, and the figures for monitoring."""

from __future__ import annotations

import logging
import os
import shutil
from collections import Counter
from typing import Any

from pgfl.deploy.site.live_figures import LiveFigures
from pgfl.deploy.site.round_effects import Completed, Note
from pgfl.deploy.site.round_terms import Phase
from pgfl.deploy.site.site_clients import SiteClients
from pgfl.deploy.site.site_metrics import Figures, PhaseClock, RoundClock
from pgfl.deploy.site.site_parts import SiteParts
from pgfl.deploy.site.site_peers import SitePeers
from pgfl.deploy.site.site_port import SitePort
from pgfl.deploy.sparing_log import SparingLog

log = logging.getLogger(__name__)
_OVERTIME_SECONDS = 60.0  # for computing and saving a round


class SiteReports:
    """Reads from all parts of a site, and changes none of them."""

    def __init__(self, parts: SiteParts, clients: SiteClients, peers: SitePeers, port: SitePort) -> None:
        self._parts, self._clients, self._peers, self._port = parts, clients, peers, port
        self._rounds, self._role = parts.rounds, parts.role
        self._clock = RoundClock()
        self.phases = PhaseClock()
        self._sparing = SparingLog(log)

    def note(self, note: Note) -> None:
        """Log a line."""
        if note.about:
            self._sparing.info(note.about, note.text)
        else:
            log.info("%s", note.text)

    def round_row(self, done: Completed) -> dict[str, Any]:
        """The row of a completed round in the site's record."""
        return {
            "accepted": list(done.accepted),
            "late": list(done.late),
            "neighbours": list(done.neighbours),
            "absent": list(done.absent),
            "retired": list(done.retired),
            "clipped": sorted(self._role.clipped),
            "sat_out": self._sat_out(done.round),
            "over_cap": sorted(self._over_cap),
            "disagreement": float(done.snapshot["disagreement"]),
            "seconds": self._clock.tick(),
            "refused": self._refused(),
        }

    def log_round(self, done: Completed) -> None:
        """One line for a completed round, and one for each cluster that sat it out."""
        log.info(
            "round %d: %d accepted%s%s%s, disagreement %.3g",
            done.round,
            len(done.accepted),
            f", clipped {', '.join(sorted(self._role.clipped))}" if self._role.clipped else "",
            f", late {', '.join(done.late)}" if done.late else "",
            f", without site {', '.join(done.absent)}" if done.absent else "",
            float(done.snapshot["disagreement"]),
        )
        for pair, why in self._sat_out(done.round).items():
            self._sparing.info(f"sat out {pair} {why}", f"cluster {pair} sat round {done.round} out: {why}")

        for client in sorted(self._over_cap):
            self._sparing.info(
                f"over cap {client}",
                f"client {client} sits out: it asks for more than {self._parts.training.privacy.noise_cap:g} times the "
                "noise, or states more than so many times the bounds, of the median client of its cluster",
            )

    @property
    def _over_cap(self) -> set[str]:
        """The clients that state more than the agreed training allows."""
        judge = self._parts.masked or self._parts.trustee
        return set() if judge is None else judge.over_cap

    def _sat_out(self, round: int) -> dict[str, str]:
        if self._parts.masked is not None:
            return self._parts.masked.sat_out(round)
        return {} if self._parts.trustee is None else dict(self._parts.trustee.sat_out)

    def _refused(self) -> dict[str, int]:
        counted = (self._rounds, self._clients.streams, self._peers.service, self._port)
        return dict(sum((part.refused for part in counted), Counter[str]()))

    def figures(self) -> Figures:
        """What is measured, as of now."""
        timing, rounds = self._parts.settings.timing, self._rounds
        releases = {name: client.releases for name, client in self._parts.store.clients().items()}
        return Figures(
            site=self._parts.settings.name,
            phase=rounds.phase,
            round=rounds.round,
            rounds=rounds.rounds,
            clients_admitted=len(rounds.admitted),
            clients_connected=len(rounds.connected),
            neighbours_linked=len(rounds.neighbours),
            neighbours_up=len(rounds.up),
            disagreement=self._role.disagreement,
            seconds_since_round=self._clock.since,
            round_seconds=self._clock.seconds,
            refused=self._refused(),
            releases=releases,
            epsilon_left={
                name: budget.epsilon_left(releases[name])
                for name, budget in self._clients.budgets.items()
                if budget is not None and name in releases
            },
            phase_seconds=self.phases.seconds(rounds.phase),
            disk_free_bytes=shutil.disk_usage(self._parts.home).free,
            missing=rounds.missing if rounds.phase is Phase.WAITING else None,
            longest_round=timing.start + timing.answers + timing.exchange + timing.pace + _OVERTIME_SECONDS,
        )

    def write_live(self) -> None:
        """Write `live.json` anew."""
        rounds = self._rounds
        collecting = rounds.phase is Phase.COLLECTING
        LiveFigures(
            pid=os.getpid(),
            site=self._parts.settings.name,
            round=rounds.round,
            rounds=rounds.rounds,
            phase=rounds.phase,
            connected=sorted(rounds.connected),
            waiting_for=sorted(rounds.pending if collecting else rounds.awaited),
            up=sorted(rounds.up),
            missing=rounds.missing if rounds.phase is Phase.WAITING else None,
            disagreement=self._role.disagreement,
            refused=self._refused(),
            budgets={name: told for name, told in self._clients.budgets.items() if told is not None},
        ).write(self._parts.home)
