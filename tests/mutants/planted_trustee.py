"""Planted bugs in what a site does for the clients that trust it."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

TRUSTEE = "tests/deploy/test_trustee.py::test_"
CLIENT = "tests/deploy/test_entrusting.py::test_"
ACCOUNTS, SITE_ROLE = "deploy/site/trustee.py", "deploy/site/site_role.py"

TRUSTEES: tuple[Mutant, ...] = (
    Mutant(
        "site-publishes-before-noise",
        "the aggregate of clean contributions is published without the noise that was charged",
        "A neighbour sees the clean mean.",
        SITE_ROLE,
        "self._averaged(pair, noised.sum, noised.contributors)",
        "self._averaged(pair, np.sum([each.model for each in members.values()], axis=0), noised.contributors)",
        (TRUSTEE + "the_noise_of_what_leaves_is_as_strong_as_charged",),
    ),
    Mutant(
        "site-noise-of-a-mean",
        "the noise of a sum is calibrated to Δ/n, as if it were a mean",
        "It is n times too weak.",
        ACCOUNTS,
        "sum_sigma(deltas[client], ledger.next_phi)",
        "sum_sigma(deltas[client] / len(clean), ledger.next_phi)",
        (TRUSTEE + "the_charge_is_by_each_clients_own_effect_and_within_its_schedule",),
    ),
    Mutant(
        "site-count-of-the-admitted",
        "a sum is divided by the number of admitted clients, not of contributors",
        "Contributions of those who are away are counted as zeros.",
        SITE_ROLE,
        "self._averaged(pair, noised.sum, noised.contributors)",
        "self._averaged(pair, noised.sum, len(self.clients))",
        (TRUSTEE + "the_average_is_over_those_who_contributed",),
    ),
    Mutant(
        "site-noise-of-the-mildest",
        "the noise is what the client with the most records needs",
        "The records of the others are protected less than they are charged for.",
        ACCOUNTS,
        "sigma = max(float(sum_sigma(",
        "sigma = min(float(sum_sigma(",
        (TRUSTEE + "the_charge_is_by_each_clients_own_effect_and_within_its_schedule",),
    ),
    Mutant(
        "site-charge-missing",
        "only the first contributor of a sum is charged",
        "The others' accounts never end.",
        ACCOUNTS,
        "for client in deltas\n",
        "for client in list(deltas)[:1]\n",
        (TRUSTEE + "every_charge_is_on_disk_before_the_noise_is_drawn",),
    ),
    Mutant(
        "site-noise-redrawn",
        "a round that is asked again after a crash gets new noise for the same contributions",
        "The average of both draws has less noise than was charged.",
        ACCOUNTS,
        "            return NoisedSum(*before, self._charged(round, pair))\n",
        "            models = np.stack([clean[client].model for client in sorted(clean)])\n"
        "            summed = lattice.to_lattice(models).sum(axis=0)\n"
        "            return NoisedSum(lattice.from_lattice(self.noise(summed, 1.0)), len(clean), tuple(clean))\n",
        (TRUSTEE + "killed_before_the_round_is_saved_the_same_numbers_are_sent_again",),
    ),
    Mutant(
        "site-absent-uncounted",
        "a client that is away when a killed site asks again does not count, although it is in the sum",
        "Its record is in the model, and no round says so.",
        ACCOUNTS,
        "return NoisedSum(*before, self._charged(round, pair))",
        "return NoisedSum(*before, tuple(sorted(clean)))",
        (TRUSTEE + "who_is_away_when_a_killed_site_asks_again_is_still_in_the_sum_and_counted",),
    ),
    Mutant(
        "site-lost-noise-drawn-again",
        "a charge without its noise, left by a crash, does not keep the pair from being noised anew",
        "A void charge is not looked for; the round is charged and drawn a second time, or the site fails.",
        ACCOUNTS,
        'return "its noise was lost after it was charged", 0.0, {}',
        "pass",
        (TRUSTEE + "killed_between_charge_and_noise_the_pair_sits_out_and_is_not_charged_again",),
    ),
    Mutant(
        "site-sum-of-one",
        "the least number of contributors is not asked for",
        "A sum over one client is that client's own model.",
        ACCOUNTS,
        "if complaint := self.trust.complaint(len(clean)):",
        "if complaint := None:",
        (TRUSTEE + "a_pair_with_too_few_goes_without_a_sum_and_nobody_is_charged",),
    ),
    Mutant(
        "site-sum-not-kept",
        "a noised sum is used before it is on disk",
        "After a crash the same contributions are noised anew, or a paid round is lost.",
        ACCOUNTS,
        "            self.kept.keep_noised(round, pair, noised, len(clean))\n",
        "",
        (TRUSTEE + "killed_before_the_round_is_saved_the_same_numbers_are_sent_again",),
    ),
    Mutant(
        "site-clean-unclipped",
        "a clean contribution is not clipped to its public ball",
        "One client that lies or errs moves the sum ten times as far as an honest one can.",
        SITE_ROLE,
        "else replace(answer, model=nearer(ball, answer.model))",
        "else answer",
        (TRUSTEE + "a_liar_moves_the_sum_by_its_public_ball_at_most_and_words_about_it_are_constant",),
    ),
    Mutant(
        "site-clean-from-anyone",
        "a clean answer is taken from a client that the site keeps no account for",
        "It would be used without being charged.",
        SITE_ROLE,
        "if self.trustee is None or client not in self.trustee.accounts:",
        "if self.trustee is None:",
        (TRUSTEE + "a_clean_answer_is_refused_where_no_noise_would_be_added",),
    ),
    Mutant(
        "server-averages-clean",
        "a server averages clean answers like any others",
        "One slip, and they are published as they are.",
        "core/roles.py",
        "            if answer.clean:\n",
        "            if False:\n",
        (TRUSTEE + "a_clean_answer_is_refused_where_no_noise_would_be_added",),
    ),
    Mutant(
        "site-asks-the-spent",
        "a site asks clients whose account at it is spent",
        "The round fails, or their budget is passed.",
        ACCOUNTS,
        "asked = [client for client in clients if client not in self.spent]",
        "asked = list(clients)",
        (TRUSTEE + "a_client_past_its_budget_is_not_asked_and_the_others_go_on",),
    ),
    Mutant(
        "site-forgets-accounts",
        "accounts that were lost or put back from a backup are not noticed",
        "What is spent is spent again.",
        ACCOUNTS,
        "ledger.check_known(max(self.known.get(client, 0), terms.used))",
        "ledger.check_known(0)",
        (
            TRUSTEE + "other_terms_or_an_older_account_are_refused",
            TRUSTEE + "accounts_that_were_lost_are_noticed_by_what_clients_remember",
        ),
    ),
    Mutant(
        "client-trusts-unasked",
        "a client sends clean contributions because the training says so, whatever its owner says",
        "A site that nobody trusts gets clean models.",
        "deploy/client/client.py",
        'trusted = training.privacy.trust == "site" == privacy.trust',
        'trusted = training.privacy.trust == "site"',
        (CLIENT + "a_client_sends_clean_contributions_only_where_its_owner_and_the_training_say_so",),
    ),
    Mutant(
        "client-trusts-any-training",
        "a client whose owner trusts its site sends clean contributions in a training that adds no noise",
        "The site would publish them as they are.",
        "deploy/client/client.py",
        'trusted = training.privacy.trust == "site" == privacy.trust',
        'trusted = privacy.trust == "site"',
        (CLIENT + "a_client_sends_clean_contributions_only_where_its_owner_and_the_training_say_so",),
    ),
    Mutant(
        "ledger-clean-unmarked",
        "a contribution that left clean is written down as noised",
        "The ledger states ε against the site too.",
        "privacy/ledger.py",
        'return replace(self._next(str(round_key), float(sensitivity), "site"), sigma=0.0)',
        'return self._next(str(round_key), float(sensitivity), "local")',
        (
            "tests/privacy/test_ledger.py::"
            "test_what_is_entrusted_to_a_site_is_written_down_as_such_and_costs_what_the_schedule_says",
        ),
    ),
    Mutant(
        "ledger-less-noise-than-scheduled",
        "noise that is shared may be weaker than a client's schedule asks for",
        "A release costs more than its owner agreed to.",
        "privacy/ledger.py",
        "if not sigma >= least * (1.0 - _SUM_TOLERANCE):",
        "if False:",
        (
            "tests/privacy/test_ledger.py::"
            "test_shared_noise_costs_by_its_own_deviation_and_never_less_noise_than_scheduled",
        ),
    ),
)
