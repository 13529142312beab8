"""Planted bugs of what comes after a training: going on with it, several fits, and files of models."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

CONTINUING = "tests/simulate/test_continuing.py::"
ESTIMATORS = "tests/sklearn/test_estimators.py::"
MODEL = "tests/results/test_model.py::"

LATER: tuple[Mutant, ...] = (
    Mutant(
        "continuation-resets-accounts",
        "a continued run starts with empty accounts",
        "Clients spend their budget a second time.",
        "simulate/continuing.py",
        "        plan.restore(restored)\n",
        "        plan.restore(plan.state())\n",
        (CONTINUING + "test_the_account_goes_on_also_for_a_client_with_new_rows",),
    ),
    Mutant(
        "continuation-repeats-rounds",
        "a continued run counts its rounds from 0",
        "Seeded noise is drawn a second time, and the difference of two releases has none.",
        "simulate/continuing.py",
        "simulator.state.round = self.round",
        "simulator.state.round = 0",
        (CONTINUING + "test_noise_is_never_drawn_twice",),
    ),
    Mutant(
        "continuation-cuts-streams-anew",
        "a continued run may change how streams of noise are cut",
        "With other participants the same numbers come again.",
        "simulate/continuing.py",
        "and seed == options.seed and participants != options.participants:",
        "and seed == options.seed and participants is None:",
        (CONTINUING + "test_a_seed_whose_streams_were_cut_otherwise_is_refused",),
    ),
    Mutant(
        "continuation-forgets-who-left",
        "the accounts of clients that have left are dropped",
        "A client that comes back has a new budget.",
        "simulate/continuing.py",
        'gone = ~np.isin(before.accounts["client"], table["client"])',
        'gone = np.zeros(len(before.accounts["client"]), dtype=bool)',
        (CONTINUING + "test_a_client_that_left_is_forgotten_but_for_its_account",),
    ),
    Mutant(
        "continuation-without-noise",
        "a continued run that does not mention privacy has none",
        "The records leave in the clear after a private run.",
        "simulate/continuing.py",
        "        return continued(spent, asked, rounds)\n",
        "        return None if asked is None else continued(spent, asked, rounds)\n",
        (CONTINUING + "test_privacy_is_carried_over_when_it_is_not_mentioned",),
    ),
    Mutant(
        "continuation-after-clean-releases",
        "noise may be added to a run that had none",
        "The account says nothing of what left in the clear.",
        "simulate/continuing.py",
        "            if asked is not None:\n",
        "            if asked is not None and asked.guarantee != 'required':\n",
        (CONTINUING + "test_what_was_released_in_the_clear_does_not_become_private",),
    ),
    Mutant(
        "larger-epsilon-from-nothing",
        "a larger epsilon is spent as if nothing had been spent",
        "The new rounds alone cost what all rounds may cost.",
        "privacy/carried_budget.py",
        "left, more = total - spent.rho,",
        "left, more = total,",
        (CONTINUING + "test_a_spent_target_is_refused_until_a_larger_one_is_stated_and_the_total_is_reported",),
    ),
    Mutant(
        "longer-target",
        "the schedule of a target goes on past its end",
        "A spent target is spent again.",
        "privacy/carried_budget.py",
        "    if budget.rho_budget is not None or budget.last is None:\n        return budget\n"
        "    return replace(budget, last=max(budget.last, rounds))\n",
        "    return replace(budget, last=max(budget.last or 0, rounds), rho_budget=None, max_releases=None)\n",
        (CONTINUING + "test_a_spent_target_is_refused_until_a_larger_one_is_stated_and_the_total_is_reported",),
    ),
    Mutant(
        "continuation-forked",
        "a float-safe run may be continued many times",
        "Every continuation reports its own releases, and nobody their sum.",
        "simulate/continuing.py",
        '        if simulator.noise == "secure" and not self._claimed:\n',
        '        if simulator.noise == "forked" and not self._claimed:\n',
        (CONTINUING + "test_float_safe_releases_are_continued_once_or_their_sum_would_be_forgotten",),
    ),
    Mutant(
        "fits-are-not-added-up",
        "an account keeps the last fit only",
        "A search over twenty settings reports what one of them costs.",
        "sklearn/fits_account.py",
        "self.rho, self.fits = self.rho + rho, self.fits + 1",
        "self.rho, self.fits = max(self.rho, rho), self.fits + 1",
        (ESTIMATORS + "test_a_search_adds_up_what_its_fits_spend",),
    ),
    Mutant(
        "search-without-account",
        "copies of a private estimator fit without an account",
        "A search spends many times what is promised, in silence.",
        "sklearn/federated_estimator.py",
        "if self.account is None and self in _CLONES:",
        "if False:",
        (ESTIMATORS + "test_a_search_without_an_account_is_refused",),
    ),
    Mutant(
        "account-copied",
        "clones have accounts of their own",
        "What a search spends is counted nowhere.",
        "sklearn/fits_account.py",
        "    def __sklearn_clone__(self) -> PrivacyAccount:\n        return self\n",
        "    def __sklearn_clone__(self) -> PrivacyAccount:\n        return PrivacyAccount(self.limit, self.delta)\n",
        (ESTIMATORS + "test_a_search_adds_up_what_its_fits_spend",),
    ),
    Mutant(
        "estimator-bounds-from-records",
        "a private estimator computes missing bounds from the records",
        "The largest value of a column is in the model file.",
        "sklearn/federated_estimator.py",
        "        if self.feature_bounds is None:\n            if self.epsilon is not None:\n",
        "        if self.feature_bounds is None:\n            if False:\n",
        (ESTIMATORS + "test_privacy_refuses_bounds_that_nobody_stated",),
    ),
    Mutant(
        "model-file-clean",
        "the model file holds clean client models",
        "What never left the client is in the file that is handed on.",
        "results/model.py",
        "clients=models.clients if models.released is None else models.released,",
        "clients=models.clients,",
        (MODEL + "test_the_page_is_plain_json_and_nothing_private_but_what_was_released_is_in_the_file",),
    ),
)
