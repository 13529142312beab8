"""Bugs that a campaign of faults in real networks once brought to light, planted again."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

ALIVE, COMMANDS = "tests/deploy/test_site_alive.py::", "tests/deploy/test_commands.py::"

FAULTS: tuple[Mutant, ...] = (
    Mutant(
        "connecting-in-a-hurry",
        "an attempt to connect is given up after 200 ms",
        "At a round trip of 120 ms nobody connects.",
        "deploy/tls_frames.py",
        "CONNECT_SECONDS: Final = 20.0",
        "CONNECT_SECONDS: Final = 0.2",
        ("tests/deploy/test_long_links.py",),
    ),
    Mutant(
        "site-stop-ends-clients",
        "a site that is stopped tells its clients that training is over",
        "They end with exit code 0 and stay down.",
        "deploy/round_streams.py",
        "        await self._port.close()\n",
        '        for client in self._open:\n            self.send(client, encode(messages.Stop(reason="stopped")))\n'
        "        await self._port.close()\n",
        (ALIVE + "test_a_site_that_is_stopped_is_not_the_end_of_training_and_its_clients_come_back",),
    ),
    Mutant(
        "end-untold",
        "a client that comes after the last round is not told that training is over",
        "It waits for ever.",
        "deploy/site/site_clients.py",
        "        if self._rounds.phase is Phase.FINISHED:\n            self._dismiss(",
        "        if False:\n            self._dismiss(",
        (ALIVE + "test_a_client_that_was_away_when_training_ended_learns_so_when_it_returns",),
    ),
    Mutant(
        "rounds-race",
        "rounds have no least time",
        "A hundred rounds are over before a late client has started.",
        "deploy/site/site_rounds.py",
        "until = max(until, self._opened_at + self.timing.pace)",
        "until = max(until, self._opened_at)",
        ("tests/deploy/test_rounds.py::test_a_round_takes_its_least_time",),
    ),
    Mutant(
        "changes-unacknowledged",
        "a running site does not acknowledge a change of members",
        "The operator who expels a client never learns whether it counts.",
        "deploy/site/site.py",
        "        self.store.acknowledge(self._coming.change, changed.round)\n",
        "",
        (COMMANDS + "test_a_running_site_acknowledges_every_change_and_one_mistake_does_not_hold_up_the_others",),
    ),
    Mutant(
        "one-mistake-stops-all-changes",
        "a client in a cluster that is not trained holds up every change",
        "After a typo a running site ignores all changes, and an expelled client goes on.",
        "deploy/site/site.py",
        "            members = Members(self.parts.clusters_of(coming), frozenset(coming.neighbours))\n",
        "            clusters = {name: client.cluster for name, client in coming.clients.items()}\n"
        "            if not set(clusters.values()) <= set(self.parts.training.clusters):\n"
        "                return\n"
        "            members = Members(clusters, frozenset(coming.neighbours))\n",
        (COMMANDS + "test_a_running_site_acknowledges_every_change_and_one_mistake_does_not_hold_up_the_others",),
    ),
    Mutant(
        "context-per-connection",
        "every connection to the port of neighbours gets a TLS context of its own",
        "Strangers fill the memory.",
        "deploy/site/peer_links.py",
        "if self._tls is None or self._tls[0] != pinned:",
        "if True:",
        ("tests/deploy/test_peers.py::test_one_context_serves_all_connections_until_the_links_change",),
    ),
    Mutant(
        "superlink-imports-from-here",
        "the SuperLink imports from the folder that the site is started in",
        "A file called http.py there is run.",
        "deploy/flower/flower_site.py",
        '(sys.executable, "-P", "-m",',
        '(sys.executable, "-m",',
        ("tests/deploy/test_flower.py::test_a_hostile_bundle_does_not_run_and_control_is_locked",),
    ),
    Mutant(
        "live-file-trusted",
        "what live.json holds is not checked",
        "A damaged file makes the status fail.",
        "deploy/site/live_figures.py",
        "return cls.model_validate_json((home / LIVE).read_bytes())",
        'return cls.model_construct(**__import__("json").loads((home / LIVE).read_text()))',
        (COMMANDS + "test_status_survives_whatever_is_in_the_live_file",),
    ),
    Mutant(
        "record-readable",
        "a site's record can be read by every user of the machine",
        "It holds the tokens with which clients come back.",
        "deploy/site/site_store.py",
        "os.chmod(path, 0o600)",
        "os.chmod(path, 0o644)",
        ("tests/deploy/test_store.py::test_only_the_owner_can_read_what_a_site_keeps",),
    ),
    Mutant(
        "log-flooded",
        "a line that others cause is logged every time",
        "Duplicates write 235 KB of log a second.",
        "deploy/sparing_log.py",
        "        if about in self._last and now - self._last[about] < AGAIN_SECONDS:\n",
        "        if False:\n",
        ("tests/deploy/test_sparing_log.py",),
    ),
    Mutant(
        "phase-untold",
        "/metrics does not know the phase in which sums are unmasked",
        "A site with masked sums seems to be in no phase at all.",
        "deploy/site/site_metrics.py",
        "    phases = tuple(Phase)\n",
        "    phases = tuple(phase for phase in Phase if phase is not Phase.UNMASKING)\n",
        ("tests/deploy/test_metrics.py",),
    ),
)
