"""Planted bugs in what happens once budgets are spent: clusters rest, and training ends."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

RESTING = "tests/simulate/test_resting.py::"
ENDING = "tests/simulate/test_ending.py::"

ENDINGS: tuple[Mutant, ...] = (
    Mutant(
        "clusters-mixed-after-the-end",
        "clusters go on learning from each other once all budgets are spent",
        "With τ = 0.4, 100 releases and 300 rounds all cluster models end equal.",
        "rests",
        "~able_near",
        "False",
        (RESTING + "test_cluster_models_stay_apart_and_stay_put_after_the_budgets_end",),
    ),
    Mutant(
        "rest-does-not-spread",
        "servers that only relay a cluster never rest",
        "They drift, and pull the servers that rest.",
        "exhausted",
        "np.logical_or(clients, rested)",
        "np.logical_or(clients, False)",
        (RESTING + "test_rest_spreads_over_servers_that_only_relay",),
    ),
    Mutant(
        "rest-noted-with-accounts-only",
        "what rests is looked at anew only when an account changes",
        "Rest that comes from pairs too small from the start never spreads.",
        "Network.note_spent",
        "spent is self._noted[0] and self.rested is self._noted[1]",
        "spent is self._noted[0]",
        (RESTING + "test_rest_spreads_from_a_pair_that_is_too_small_from_the_start",),
    ),
    Mutant(
        "absence-taken-for-the-end",
        "a simulated client that sits out a round counts as spent",
        "The paper's figures would change.",
        "Engine._participation",
        "self._spent(number)",
        "~np.isin(np.arange(self.layout.clients), self.scheduler.draw(number))",
        (RESTING + "test_a_momentary_absence_is_no_rest",),
    ),
    Mutant(
        "absence-at-a-site-taken-for-the-end",
        "a client that does not answer its site in a round counts as spent",
        "A slow client would change the models of its cluster everywhere.",
        "network.site.role:SiteRole.aggregate",
        "client not in retired",
        "client in answers",
        ("tests/network/test_equality.py::test_budgets_that_run_out_let_clusters_rest_at_every_site",),
    ),
    Mutant(
        "training-goes-on-without-clients",
        "a simulation plays all rounds although nobody can contribute",
        "Rounds without contributions only wear the models down.",
        "Simulator._check_end",
        'self.end("budget")',
        "pass",
        (ENDING + "test_training_ends_with_the_last_release",),
    ),
    Mutant(
        "a-run-goes-on-with-its-batch",
        "a run that is over is played on while others of its batch are not over",
        "Its models would depend on the batch.",
        "Simulator._check_end",
        "over.any()",
        "False",
        (ENDING + "test_runs_that_end_at_different_rounds_do_not_depend_on_their_batch",),
    ),
)
