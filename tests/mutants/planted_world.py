"""Bugs of the network that a fault, a stranger or an operator's mistake would bring to light."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

ALIVE, COMMANDS = "tests/network/test_site_alive.py::", "tests/network/test_commands.py::"
GUARD, BACKUPS = "tests/network/test_guarded_listener.py::", "tests/network/test_backups.py::"

WORLD = (
    Mutant(
        "site-half-alive",
        "an exception in a round is logged and forgotten",
        "The process lives, the status says that it runs, and no round is ever completed again.",
        "Site._handle",
        "self._fail(error)",
        'log.error("a round failed: %s", error)',
        (ALIVE + "test_an_exception_ends_the_site_with_a_reason_and_a_code_to_restart_it[combine]",),
    ),
    Mutant(
        "any-cluster-admitted",
        "a client can be admitted to a cluster that is not trained",
        "After a typo a restart is refused.",
        "admit",
        "_check_cluster(cluster, home, store)",
        "",
        (COMMANDS + "test_a_cluster_that_is_not_trained_is_refused_at_once_and_stops_a_site_that_no_longer_trains_it",),
    ),
    Mutant(
        "connections-unlimited",
        "one address may open any number of connections",
        "A thousand idle ones lock the clients out.",
        "Listener._accept",
        "not behind and self._open[host] >= self.limits.per_address",
        "False",
        (GUARD + "test_a_thousand_idle_connections_do_not_lock_a_client_out",),
    ),
    Mutant(
        "trusting-clients-overtaken",
        "a round closes without a client that trusts its site once others have answered",
        "It pays for an answer that cannot count.",
        "SiteRounds._belongs_to_a_sum",
        "self.role.entrusted(client)",
        "False",
        (
            "tests/network/test_rounds.py::test_a_client_that_trusts_its_site_is_waited_for_because_its_answer_cannot_count_later",
        ),
    ),
    Mutant(
        "stragglers-charged-again",
        "a client whose answer is on the way is asked, and charged, once more",
        "It pays for every round in which it computes, and is always late.",
        "SiteRounds._due",
        "self.able - self._outstanding.keys() - self._late.keys()",
        "self.able",
        ("tests/network/test_rounds.py::test_a_round_closes_once_a_quorum_has_answered_and_the_usual_time_is_over",),
    ),
    Mutant(
        "late-updates-outweigh",
        "late updates together outweigh the answers in time",
        "Old gradients overshoot.",
        "late_weight",
        "np.minimum(1.0, in_time / old)",
        "1.0",
        ("tests/network/test_rounds.py::test_late_updates_together_weigh_no_more_than_the_answers_in_time",),
    ),
    Mutant(
        "slow-clients-overspend",
        "a simulated client that releases less often, with less noise, may release as often as the others",
        "It spends several times what it states.",
        "Budget.at_pace",
        "self.last // rounds",
        "self.last",
        (
            "tests/simulate/test_delays.py"
            "::test_a_slow_client_is_charged_once_for_every_answer_what_its_rounds_would_have_cost",
        ),
    ),
    Mutant(
        "simulated-stragglers-charged-again",
        "a simulated client whose answer is on its way is asked, and charged, once more",
        "The price of slow clients would be that of other accounts than those of a network.",
        "_Free.draw",
        "np.flatnonzero(self.asked_in == 0)",
        "np.arange(len(self.asked_in))",
        (
            "tests/simulate/test_delays.py::test_a_slow_client_is_charged_once_for_every_answer_what_its_rounds_would_have_cost",
        ),
    ),
    Mutant(
        "last-acceptance-untold",
        "a client does not learn that its last answer was accepted",
        "After a complete training its account says that the site has not confirmed one release.",
        "Participant._handle",
        "self.rounds.confirm(frame.header.accepted)",
        "pass",
        (BACKUPS + "test_after_a_complete_training_all_releases_are_confirmed",),
    ),
    Mutant(
        "site-restores-stale-accounts",
        "a site can be put back with accounts from before its last move",
        "Budget that is spent is spent again.",
        "_check_newest",
        "accounts.get(client, -1) < releases",
        "False",
        (BACKUPS + "test_a_site_never_comes_back_with_fewer_releases_on_an_account_than_it_moved_with",),
    ),
    Mutant(
        "moved-site-goes-on",
        "a site serves on after it has moved into a backup",
        "Two sites spend the same accounts.",
        "cli.site:serve",
        "check_not_moved(Path(loaded.home))",
        "",
        (BACKUPS + "test_a_site_moves_with_the_accounts_that_it_keeps_and_its_old_folder_serves_no_more",),
    ),
)
