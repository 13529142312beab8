"""Bugs of a client inside a Flower federation."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

PROMISE = "tests/flower/test_promise.py::test_"

FLOWER: tuple[Mutant, ...] = (
    Mutant(
        "flower-any-trust",
        "a client that trusts its site takes part inside Flower",
        "A ServerApp that nobody trusts gets clean contributions.",
        "load_local",
        'settings.privacy.trust != "local"',
        "False",
        (PROMISE + "a_client_that_trusts_its_site_trusts_no_serverapp",),
    ),
    Mutant(
        "flower-exception-told",
        "the text of an exception goes to the ServerApp",
        "It may quote a record.",
        "flower.client:answer",
        "Trouble.FAILED",
        'str(__import__("sys").exc_info()[1])',
        (PROMISE + "no_exception_says_anything_of_the_data",),
    ),
    Mutant(
        "flower-exception-raised",
        "an unforeseen exception is raised, so that Flower reports it",
        "Flower sends its text to the ServerApp.",
        "flower.client:answer",
        "return decline(_NO_ROUND, Trouble.FAILED)",
        "raise",
        (PROMISE + "no_exception_says_anything_of_the_data",),
    ),
    Mutant(
        "flower-offer-unchecked",
        "a client inside Flower takes any training",
        "The ServerApp chooses ρ, κ and λ, and changes them after it was trusted.",
        "flower.client:_answer",
        "core.take_up(offer, invited.releases)",
        "core._begin(offer)",
        (PROMISE + "another_training_is_refused_until_the_owner_accepts_it",),
    ),
    Mutant(
        "flower-releases-unheeded",
        "a client inside Flower does not compare its ledger with what the ServerApp has seen",
        "A ledger put back from a backup spends again what is spent.",
        "flower.client:_answer",
        "invited.releases",
        "0",
        (PROMISE + "an_older_ledger_stops",),
    ),
    Mutant(
        "flower-two-at-a-time",
        "a client inside Flower answers while the same client runs elsewhere",
        "Two processes work on one account.",
        "flower.client:_answer",
        'exclusive_lock(Path(settings.home) / LOCK, f"Client {settings.name}")',
        "suppress()",
        (PROMISE + "a_client_that_runs_already_is_not_run_twice",),
    ),
    Mutant(
        "flower-round-beyond",
        "a client inside Flower answers a round that is beyond the training",
        "One hostile number locks it out of every earlier round.",
        "ClientCore._begin",
        "ClientRounds(role, self.account, training.digest, training.has_round)",
        "ClientRounds(role, self.account, training.digest)",
        (PROMISE + "a_round_beyond_the_last_is_refused_and_locks_nobody_out",),
    ),
)
