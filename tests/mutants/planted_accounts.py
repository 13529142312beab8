"""Planted bugs of accounts that records, threads and copies of folders get around."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MOVED = "tests/simulate/test_moved_records.py::"
RESUME = "tests/cli/test_resume_once.py::"
FITS = "tests/sklearn/test_fits_account.py::"
LEDGER = "tests/privacy/test_ledger.py::"
STORE = "tests/deploy/test_store.py::"

OF_ACCOUNTS: tuple[Mutant, ...] = (
    Mutant(
        "continuation-forgets-every-seventh",
        "a continuation forgets every seventh client",
        "Its records are spent on a second time, though most accounts look right.",
        "carried_accounts",
        "name not in new",
        "name not in new and place % 7 != 6",
        (MOVED + "test_each_of_many_clients_has_its_own_account",),
    ),
    Mutant(
        "new-name-starts-empty",
        "a client that was not there before starts with nothing",
        "Records that move to a new name have a second budget.",
        "carried_accounts",
        "earlier[column][number] if name in own else largest",
        "earlier[column][number] if name in own else 0",
        (
            MOVED + "test_a_renamed_client_keeps_what_it_has_spent",
            MOVED + "test_the_rules_cover_every_history",
        ),
    ),
    Mutant(
        "largest-account-of-one-column",
        "a new name inherits the releases of others, and not their ρ",
        "A budget in ρ begins anew.",
        "carried_accounts",
        '{name: earlier[name].max() for name in ("releases", "rho")}',
        '{"releases": earlier["releases"].max(), "rho": earlier["rho"].min()}',
        (MOVED + "test_the_rules_cover_every_history",),
    ),
    Mutant(
        "shrunk-client-accepted",
        "a client with fewer records than before goes on without a word",
        "Its other records may be anywhere.",
        "_check_unmoved",
        "count < had",
        "count < 0",
        (MOVED + "test_records_that_move_to_a_new_name_take_what_they_have_spent_with_them",),
    ),
    Mutant(
        "moved-rows-unnoticed",
        "records that were with another client before are not found",
        "A less-spent client takes over spent records.",
        "RecordDigests.moved_to",
        "had is not None",
        "False",
        (MOVED + "test_records_that_move_to_a_less_spent_client_are_refused_until_it_is_stated",),
    ),
    Mutant(
        "copied-rows-unnoticed",
        "records that are copied to another client are not found",
        "They move in two steps: a copy at first, and then the first client lets go.",
        "Moved.to",
        "self.moved.get(name, 0) + self.copied.get(name, 0)",
        "self.moved.get(name, 0)",
        (MOVED + "test_records_that_are_copied_to_a_less_spent_client_are_refused_until_it_is_stated",),
    ),
    Mutant(
        "copies-listed-as-new",
        "a client with copies of known records may be listed as new",
        "The copies have a budget of their own, and stay when the first client lets go.",
        "_check_new",
        "stated.moved_records is False",
        "True",
        (MOVED + "test_copies_of_records_are_not_new_unless_they_are_stated_to_be_equal_by_chance",),
    ),
    Mutant(
        "gone-records-forgotten",
        "digests of records that have left are dropped",
        "They come back elsewhere as if they were new.",
        "RecordDigests.joined",
        "~np.isin(self.digest, now.digest)",
        "np.zeros(len(self.digest), dtype=bool)",
        (
            MOVED + "test_what_left_is_not_forgotten_when_it_appears_elsewhere_later",
            MOVED + "test_the_rules_cover_every_history",
        ),
    ),
    Mutant(
        "name-that-comes-back-keeps-its-account",
        "a client that was away goes on with its old account",
        "What others spent on its records meanwhile is forgotten.",
        "carried_accounts",
        "before if stated.moved_records is False else set(last)",
        "before",
        (MOVED + "test_a_name_that_comes_back_has_what_others_spent_on_its_records_meanwhile",),
    ),
    Mutant(
        "known-client-listed-as-new",
        "a client with a history may be listed as new",
        "One word in a config resets its account.",
        "_check_new",
        "name in before",
        "name is before",
        (MOVED + "test_a_client_with_a_history_is_not_new",),
    ),
    Mutant(
        "part-of-a-history-for-all",
        "digests of the last training pass for those of all",
        "Records that left before are taken for new ones.",
        "Continuation.compare",
        "return None",
        "return digests",
        (MOVED + "test_without_the_digests_numbers_of_records_decide",),
    ),
    Mutant(
        "digests-under-one-key",
        "digests of records have the same key for everyone",
        "Whoever finds them confirms guesses at records.",
        "RecordDigests.of",
        "secrets.token_bytes",
        "bytes",
        (MOVED + "test_digests_of_records_are_the_owners_and_not_in_the_folder",),
    ),
    Mutant(
        "inherited-accounts-unsaid",
        "a result does not say which accounts were inherited",
        "Its reader takes them for what the clients spent themselves.",
        "Continuation._restore_accounts",
        'plan.inherited[run.clients] = carried["inherited"][run.order]',
        "",
        (MOVED + "test_the_result_says_which_accounts_were_inherited",),
    ),
    Mutant(
        "copy-resumed",
        "a copy of an interrupted float-safe run is resumed beside it",
        "Two models of the same rounds, and each account knows one of them.",
        "note_checkpoint",
        'round < last or (round == last and place not in ("", str(folder)))',
        "round < last",
        (RESUME + "test_a_copy_made_while_a_run_goes_on_is_not_resumed",),
    ),
    Mutant(
        "older-checkpoint-put-back",
        "an older checkpoint is resumed in the place of a newer one",
        "The rounds between them are released twice.",
        "note_checkpoint",
        'round < last or (round == last and place not in ("", str(folder)))',
        'round == last and place not in ("", str(folder))',
        (RESUME + "test_an_older_checkpoint_is_not_put_back_under_a_newer_one",),
    ),
    Mutant(
        "run-goes-on-unnoted",
        "a run notes only where it stops, not that it goes on",
        "A copy that is made while it runs is resumed as well.",
        "Checkpoints.on_round",
        "self._note(simulator, stops=self._stopping)\nif self._stopping:\n    raise KeyboardInterrupt",
        "if self._stopping:\n    self._note(simulator, stops=True)\n    raise KeyboardInterrupt",
        (RESUME + "test_a_copy_made_while_a_run_goes_on_is_not_resumed",),
    ),
    Mutant(
        "resume-note-without-lock",
        "the note of where a run is resumed is read and written without a lock",
        "Two that resume at once both go on.",
        "note_checkpoint",
        "fcntl.flock(note, fcntl.LOCK_EX)",
        "",
        (RESUME + "test_a_note_is_read_and_written_under_one_lock",),
    ),
    Mutant(
        "run-resumed-beside-itself",
        "two processes may go on with one run in its folder",
        "Each releases other models of the same rounds.",
        "Checkpoints.hold",
        "run_id not in self._holding",
        "False",
        (RESUME + "test_a_run_that_goes_on_is_not_resumed_beside_itself",),
    ),
    Mutant(
        "end-of-a-run-unnoted",
        "a run that is resumed without further checkpoints does not note its end",
        "Its last checkpoint is put back, and its last rounds are released twice.",
        "Checkpoints.on_round",
        'over and simulator.noise == "secure"',
        "False",
        (RESUME + "test_a_run_that_is_resumed_without_further_checkpoints_is_over_all_the_same",),
    ),
    Mutant(
        "continuation-begun-again",
        "a continuation that was kept is begun again where it was",
        "Its folder is moved away, and the same rounds are released once more.",
        "Owner.may_follow",
        "not is_kept(first.run_id)",
        "True",
        (RESUME + "test_a_continuation_is_not_begun_again_where_it_was_once_anything_of_it_is_kept",),
    ),
    Mutant(
        "continuation-begun-twice-at-once",
        "a continuation is begun again while it goes on",
        "Two processes release the same rounds.",
        "Owner.may_follow",
        "with one_process(first.run_id, Path(first.place)):\n    return not is_kept(first.run_id)",
        "return not is_kept(first.run_id)",
        (RESUME + "test_a_continuation_is_not_begun_twice_at_once_in_one_place",),
    ),
    Mutant(
        "continuation-note-without-lock",
        "the note of where a run is continued is read and written without a lock",
        "Two that continue at once both go on.",
        "continued_once:claim",
        "fcntl.flock(stream, fcntl.LOCK_EX)",
        "",
        (RESUME + "test_a_claim_is_read_and_written_under_one_lock",),
    ),
    Mutant(
        "fits-without-lock",
        "the account of fits adds up without its lock",
        "Of two fits at the same time one is forgotten.",
        "PrivacyAccount.charge",
        "with self._lock:\n"
        "    if self._most is not None and self.rho + rho > self._most:\n"
        '        raise BudgetSpent(f"This fit would carry the account past epsilon = {self.limit:g} '
        "({self.fits} fits have spent {self.epsilon:.3g}); search over fewer settings, or lower the "
        "estimator's epsilon.\")\n"
        "    self.rho, self.fits = (self.rho + rho, self.fits + 1)",
        "if True:\n"
        "    if self._most is not None and self.rho + rho > self._most:\n"
        '        raise BudgetSpent(f"This fit would carry the account past epsilon = {self.limit:g} '
        "({self.fits} fits have spent {self.epsilon:.3g}); search over fewer settings, or lower the "
        "estimator's epsilon.\")\n"
        "    self.rho, self.fits = (self.rho + rho, self.fits + 1)",
        (FITS + "test_a_charge_waits_for_the_one_before_it",),
    ),
    Mutant(
        "estimator-changes-its-account",
        "an estimator that was fitted takes another account",
        "Its earlier fits are forgotten.",
        "FederatedEstimator._charge",
        "before is not None and self.account is not None and self.account is not before",
        "False",
        (FITS + "test_an_estimator_does_not_forget_its_fits_in_another_account",),
    ),
    Mutant(
        "ledger-without-lock",
        "threads of one client write to its ledger without its lock",
        "A charge ends up in another one's transaction.",
        "Ledger._transaction",
        "with self._one_thread, plain_errors(self.path), writing(self._connection, synced=synced):\n    yield",
        "with plain_errors(self.path), writing(self._connection, synced=synced):\n    yield",
        (LEDGER + "test_a_release_waits_while_another_is_being_written",),
    ),
    Mutant(
        "site-record-without-lock",
        "threads of a site write to its record without its lock",
        "What a client has released is saved in another one's transaction, or not at all.",
        "SiteStore._plain_errors",
        "with self._lock:\n    yield",
        "yield",
        (STORE + "test_what_a_thread_saves_waits_for_what_another_one_is_saving",),
    ),
)
