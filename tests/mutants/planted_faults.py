"""Bugs that a campaign of faults in real networks once brought to light, planted again."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

ALIVE, COMMANDS = "tests/network/test_site_alive.py::", "tests/network/test_commands.py::"

FAULTS: tuple[Mutant, ...] = (
    Mutant(
        "connecting-in-a-hurry",
        "an attempt to connect is given up after 200 ms",
        "At a round trip of 120 ms nobody connects.",
        "CONNECT_SECONDS",
        "20.0",
        "0.2",
        ("tests/network/test_long_links.py",),
    ),
    Mutant(
        "site-stop-ends-clients",
        "a site that is stopped tells its clients that training is over",
        "They end with exit code 0 and stay down.",
        "Site.stop",
        "if not self._over.done():\n    self._over.set_result(reason)",
        "self.sessions.dismiss_all(reason)\n...",
        (ALIVE + "test_a_site_that_is_stopped_is_not_the_end_of_training_and_its_clients_come_back",),
    ),
    Mutant(
        "end-untold",
        "a client that comes after the last round is not told that training is over",
        "It waits for ever.",
        "ClientSessions._stream_opened",
        "self._rounds.phase is Phase.FINISHED",
        "False",
        (ALIVE + "test_a_client_that_was_away_when_training_ended_learns_so_when_it_returns",),
    ),
    Mutant(
        "rounds-race",
        "rounds have no least time",
        "A hundred rounds are over before a late client has started.",
        "SiteRounds._wait",
        "self._opened_at + self.timing.pace",
        "self._opened_at",
        ("tests/network/test_rounds.py::test_a_round_takes_its_least_time",),
    ),
    Mutant(
        "changes-unacknowledged",
        "a running site does not acknowledge a change of members",
        "The operator who expels a client never learns whether it counts.",
        "Site._members_changed",
        "self.store.acknowledge(self._membership.change, changed.round)",
        "",
        (COMMANDS + "test_a_running_site_acknowledges_every_change_and_one_mistake_does_not_hold_up_the_others",),
    ),
    Mutant(
        "one-mistake-stops-all-changes",
        "a client in a cluster that is not trained holds up every change",
        "After a typo a running site ignores all changes, and an expelled client goes on.",
        "Site._poll_membership",
        "members = Members(self.state.clusters_of(coming), frozenset(coming.neighbours), coming.invited)",
        "clusters = {name: client.cluster for name, client in coming.clients.items()}\n"
        "if not set(clusters.values()) <= set(self.state.training.clusters):\n"
        "    return\n"
        "members = Members(clusters, frozenset(coming.neighbours), coming.invited)",
        (COMMANDS + "test_a_running_site_acknowledges_every_change_and_one_mistake_does_not_hold_up_the_others",),
    ),
    Mutant(
        "context-per-connection",
        "every connection to a site gets a TLS context of its own",
        "Strangers fill the memory.",
        "Port.tls",
        "self._tls is None or self._tls[0] != trusted",
        "True",
        ("tests/network/test_peers.py::test_one_context_serves_all_connections_until_the_links_change",),
    ),
    Mutant(
        "live-file-trusted",
        "what live.json holds is not checked",
        "A damaged file makes the status fail.",
        "LiveFigures.read",
        "cls.model_validate_json((home / LIVE).read_bytes())",
        'cls.model_construct(**__import__("json").loads((home / LIVE).read_text()))',
        (COMMANDS + "test_status_survives_whatever_is_in_the_live_file",),
    ),
    Mutant(
        "record-readable",
        "a site's record can be read by every user of the machine",
        "It says who takes part and what each of them has released.",
        "SiteStore.__init__",
        "os.chmod(path, 0o600)",
        "os.chmod(path, 0o644)",
        ("tests/network/test_store.py::test_only_the_owner_can_read_what_a_site_keeps",),
    ),
    Mutant(
        "log-flooded",
        "a line that others cause is logged every time",
        "Duplicates write 235 KB of log a second.",
        "RateLimitedLogger.warning",
        "about in self._last and now - self._last[about] < INTERVAL_SECONDS",
        "False",
        ("tests/network/test_rate_limited_logger.py",),
    ),
    Mutant(
        "phase-untold",
        "/metrics does not know the phase in which sums are unmasked",
        "A site with masked sums seems to be in no phase at all.",
        "_metrics",
        "tuple(Phase)",
        "tuple(phase for phase in Phase if phase is not Phase.UNMASKING)",
        ("tests/network/test_metrics.py",),
    ),
)
