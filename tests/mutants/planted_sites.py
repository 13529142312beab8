"""Planted bugs in what a site spends, whom it trusts, and what it takes from others."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

ROUNDS = "tests/network/test_rounds.py::"
STORE = "tests/network/test_store.py::"
BOUNDS = "tests/network/test_public_bounds.py::"

SITES: tuple[Mutant, ...] = (
    Mutant(
        "site-trains-alone",
        "a site opens rounds without a quorum",
        "A site that was cut off spent two thirds of its clients' releases alone.",
        "SiteRounds._wait",
        "if self.missing:\n    return self._wait_or_give_up(now)",
        "",
        (
            ROUNDS + "test_by_default_a_site_that_is_cut_off_spends_nothing_alone",
            ROUNDS + "test_a_start_waits_until_the_neighbours_are_ready_too",
        ),
    ),
    Mutant(
        "site-trains-apart-for-ever",
        "rounds that are trained apart are not counted",
        "The cap on them never applies.",
        "SiteRounds._exchange",
        "0 if len(present) >= self._needed_neighbours else self.apart + 1",
        "0",
        (ROUNDS + "test_only_so_many_rounds_are_trained_apart",),
    ),
    Mutant(
        "members-change-in-a-round",
        "a change of members counts at once",
        "An expulsion during an exchange wedged the site.",
        "SiteRounds.change",
        "if self.phase is Phase.FINISHED:\n    return self._adopt()",
        "return self._adopt() + self._advance(now)",
        (
            ROUNDS + "test_a_change_of_members_counts_between_rounds_and_holds_no_round_up",
            ROUNDS + "test_an_expulsion_during_the_exchange_leaves_the_round_whole",
        ),
    ),
    Mutant(
        "name-bound-while-admitted-only",
        "the name of an expelled client can be given to another key",
        "The revoked key trained on the new one's account.",
        "SiteStore._admit",
        "bound is not None and bound[0] != key.line",
        "False",
        (STORE + "test_a_key_has_one_name_and_a_name_one_key",),
    ),
    Mutant(
        "record-not-checked",
        "rows of a site's record are not compared with their digests",
        "A changed link is trusted.",
        "Seals.damaged",
        "self._db.execute(wrong).fetchone()[0]",
        "False",
        (STORE + "test_a_bit_that_changes_on_the_disk_is_noticed_or_harmless",),
    ),
    Mutant(
        "claimed-round-answered",
        "a client answers a round beyond the last of its training",
        "A site that claims round 2⁵³ − 1 locks the client out of all others.",
        "ClientRounds.rejection_by_round",
        "not self.has_round(request.round)",
        "False",
        ("tests/network/test_client_rounds.py::test_a_claimed_round_beyond_the_last_is_declined_and_locks_nobody_out",),
    ),
    Mutant(
        "answers-unclipped",
        "what a client contributes is not clipped to the public ball",
        "One client moves the model as far as the refusal allows, round after round.",
        "SiteRole._bounded",
        "replace(answer, model=ball.clipped(answer.model), dual=self._dual(client))",
        "replace(answer, dual=self._dual(client))",
        (BOUNDS + "test_a_lie_within_the_refusal_is_clipped_to_the_ball_and_its_harm_is_bounded_by_the_radius",),
    ),
    Mutant(
        "answers-not-refused",
        "an answer far outside of the public ball is not refused",
        "Nobody learns who lies.",
        "network.site.role:SiteRole.judge",
        "far <= self.bound.refuse",
        "True",
        (BOUNDS + "test_an_answer_of_norm_900_million_is_refused_and_named_and_hurts_nobody",),
    ),
    Mutant(
        "dual-of-the-message",
        "a site takes the centre of the ball from the dual in the message",
        "A liar chooses the centre, and its ball is anywhere.",
        "network.site.role:SiteRole.judge",
        "if not np.allclose(answer.dual, self._dual(client), rtol=1e-09, atol=1e-09):\n"
        "    self._restart_dual(client)\n"
        "    return 'its dual does not follow from its answers; it begins anew'",
        "self._duals[client] = answer.dual\n"
        "if False:\n"
        "    self._restart_dual(client)\n"
        "    return 'its dual does not follow from its answers; it begins anew'",
        (BOUNDS + "test_the_dual_in_a_message_is_never_used_and_one_that_does_not_follow_begins_anew",),
    ),
    Mutant(
        "neighbours-unclipped",
        "a neighbour's models are taken as they come although a radius is set",
        "One lying site moves all others.",
        "SiteRole._near",
        "return near",
        "return publication",
        (BOUNDS + "test_a_lying_neighbour_moves_a_site_no_further_than_the_radius",),
    ),
    Mutant(
        "liars-unbounded-by-default",
        "without stated bounds any answer counts",
        "One liar below the norm limit left models at 1e8 for good.",
        "UsualDistance.too_far",
        "away > self.most * usual > 0.0",
        "False",
        (BOUNDS + "test_by_default_a_client_far_from_all_others_is_refused_and_moves_nothing",),
    ),
    Mutant(
        "one-neighbour-believed",
        "a site follows any round that a single neighbour claims",
        "One lie skipped all rounds of a federation.",
        "SiteRounds._credible",
        "max(agreed, min(ahead, self._plausible(now)))",
        "ahead",
        (ROUNDS + "test_one_neighbours_claim_moves_nobody_who_has_another_neighbour",),
    ),
    Mutant(
        "last-round-skipped",
        "a site that catches up may skip the last round",
        "A claim ended the training, and all processes with exit code 0.",
        "SiteRounds._catch_up",
        "min(believed, self.rounds - 1)",
        "believed",
        (ROUNDS + "test_what_two_neighbours_agree_on_is_followed_but_the_last_round_is_never_skipped",),
    ),
    Mutant(
        "rollback-keeps-duals",
        "duals survive a rollback",
        "They belong to the models that were taken back, and bring the poison along.",
        "network.site.role:SiteRole.roll_back",
        "round + 1",
        "0",
        (BOUNDS + "test_a_rollback_takes_models_back_and_duals_begin_anew_while_rounds_go_on",),
    ),
)
