"""Planted bugs of the account: a client's ledger, its anchor, and what a site remembers of releases."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

TESTS = "tests/privacy/test_ledger.py::"
SPENT = TESTS + "test_past_the_budget_nothing_is_drawn_or_written_and_retries_still_work"
FOLLOWS = TESTS + "test_a_release_follows_the_policy_by_release_number"
INFINITE = TESTS + "test_a_release_without_noise_makes_it_infinite_for_good"
MEMORY = "tests/network/test_site_memory.py::"
STORE = "tests/network/test_store.py::test_the_largest_release_number_is_remembered_whatever_became_of_it"

LEDGERS: tuple[Mutant, ...] = (
    Mutant(
        "ledger-one-release-too-many",
        "a ledger affords one release more than max_releases",
        "An account that is full is overdrawn by one.",
        "Ledger._affords",
        "number - 1",
        "number - 1 - (number - 1 == self.policy.max_releases)",
        (SPENT,),
    ),
    Mutant(
        "ledger-last-release-unpaid",
        "a budget in ρ is compared before the release is added",
        "The last release passes the target ε.",
        "Ledger._affords",
        "self.policy.budget.affordable(spent, number - 1)",
        "self.policy.budget.affordable(spent - float(self.policy.budget.price(number - 1)), number - 1)",
        (TESTS + "test_a_budget_in_rho_stops_before_it_is_passed",),
    ),
    Mutant(
        "ledger-counts-accepted-only",
        "only releases that the site accepted count towards the budget",
        "A site that accepts nothing is answered for ever.",
        "Ledger._next",
        "self._affords(number, before)",
        "self._affords(self.accepted + 1, before)",
        (SPENT,),
        worst=True,
    ),
    Mutant(
        "ledger-void-is-free",
        "releases whose bytes were lost do not count towards the budget",
        "They may have been sent.",
        "Ledger._next",
        "self._affords(number, before)",
        "self._affords(self._head().filled + 1, before)",
        (TESTS + "test_void_releases_count_towards_the_budget",),
    ),
    Mutant(
        "ledger-charges-afterwards",
        "a release is charged when it has been made",
        "Whoever kills the client in between gets it for nothing.",
        "Ledger.reserve",
        "slot = self._charge(round_key, lambda: self._next(str(round_key), float(sensitivity), trust, "
        "sigma), accepted)\n"
        "yield slot",
        "slot = self._next(str(round_key), float(sensitivity), trust, sigma)\n"
        "yield slot\n"
        "self._charge(round_key, lambda: slot, accepted)",
        (TESTS + "test_a_charge_is_there_before_the_body_runs",),
    ),
    Mutant(
        "ledger-gives-back",
        "a release that fails is given back",
        "Whether it failed is a question about the data, and is free.",
        "Ledger.reserve",
        "yield slot",
        "before = self._row('number = ?', slot.number - 1)\n"
        "try:\n"
        "    yield slot\n"
        "except BaseException:\n"
        "    with self._transaction():\n"
        "        self._connection.execute('DELETE FROM releases WHERE number = ?', (slot.number,))\n"
        "        digest = self._root if before is None else before.digest\n"
        "        self._connection.execute('UPDATE head SET releases = releases - 1, digest = ?', (digest,))\n"
        "    anchor.begin(self.path, Anchor(self._root, slot.number - 1, digest))\n"
        "    raise",
        (TESTS + "test_nothing_gives_a_charge_back",),
    ),
    Mutant(
        "ledger-made-anew",
        "a round that has a release can have another one",
        "A retry draws noise again.",
        "Ledger.reserve",
        "_check_sensitivity(sensitivity)",
        "...\nwhile self.find(str(round_key)) is not None:\n    round_key = f'{round_key} again'",
        (TESTS + "test_a_retry_returns_the_same_bytes_and_spends_nothing",),
    ),
    Mutant(
        "ledger-charge-not-synced",
        "a charge is not on the disk before its release is made",
        "A power cut undoes it.",
        "Ledger._charge",
        "self._transaction()",
        "self._transaction(synced=False)",
        (TESTS + "test_a_charge_is_synced_before_the_body_runs_and_its_bytes_cost_no_sync",),
    ),
    Mutant(
        "ledger-sigma-too-small",
        "a ledger's σ is that of 2φ",
        "A release leaks twice what is charged.",
        "Ledger._next",
        "sigma_for(sensitivity, phi)",
        "sigma_for(sensitivity, 2.0 * phi)",
        (FOLLOWS,),
    ),
    Mutant(
        "ledger-sigma-by-round",
        "a ledger's φ follows the site's round number",
        "A site that begins at a late round gets little noise.",
        "Ledger._next",
        "phi = float(self.policy.budget.phi(number))",
        'late = int("".join(filter(str.isdigit, round_key.rpartition("/")[2])))\n'
        "phi = float(accounting.phi(self.policy.phi0, self.policy.zeta, late))",
        (FOLLOWS,),
    ),
    Mutant(
        "ledger-unprotected-is-free",
        "a release without noise costs nothing",
        "Three clean models had left, and the ledger said ε = 0.28.",
        "Ledger._next_unprotected",
        "Slot(self.count + 1, round_key, phi=math.inf, rho=math.inf, sensitivity=math.inf, sigma=0.0)",
        "Slot(self.count + 1, round_key, phi=math.inf, rho=self.rho, sensitivity=math.inf, sigma=0.0)",
        (INFINITE,),
    ),
    Mutant(
        "ledger-private-again",
        "a ledger with a clean release goes on promising",
        "What it promises is not true any more.",
        "Ledger._affords",
        "self.policy is None or math.isinf(spent)",
        "self.policy is None",
        (INFINITE,),
    ),
    Mutant(
        "ledger-anchor-unchecked",
        "a ledger is not compared with its anchor",
        "An older copy, or one with its log cut short, spends again what is spent.",
        "Ledger.__init__",
        "self._check_anchor(noted)",
        "",
        (
            TESTS + "test_an_older_copy_is_found_by_the_anchor",
            TESTS + "test_a_log_that_was_cut_short_is_found_and_can_be_put_back",
        ),
    ),
    Mutant(
        "ledger-without-an-anchor",
        "a ledger without an anchor is given a new one",
        "Who removes the anchor can put back any copy.",
        "Ledger._check_anchor",
        "raise LedgerError(f'{self.path} lacks its anchor, {self.path.name}{anchor.ENDING}, so it may be an "
        "older copy; put the anchor back beside it, or leave the federation.')",
        "return anchor.begin(self.path, Anchor(self._root, self.count, self._head().digest))\n...",
        (TESTS + "test_a_copy_takes_both_ledger_and_anchor",),
    ),
    Mutant(
        "anchor-stands-still",
        "the anchor does not follow the releases",
        "It agrees with every older copy.",
        "Ledger._charge",
        "self._advance_anchor()",
        "",
        (TESTS + "test_an_older_copy_is_found_by_the_anchor",),
    ),
    Mutant(
        "empty-ledger-is-new",
        "an empty file is taken for a new ledger",
        "A file whose content was lost spends again what is spent.",
        "Ledger._to_write",
        "if may_be_new and (not (may_exist and path.exists())):\n    ...",
        "if may_be_new and path.exists() and (not path.stat().st_size):\n    path.unlink()\n...",
        (TESTS + "test_an_empty_file_is_no_new_ledger",),
    ),
    Mutant(
        "lost-ledger-is-new",
        "a ledger that is gone is begun anew although its anchor is there",
        "Who removes the file has a whole budget again.",
        "privacy.ledger.ledger:_begin",
        "(noted is not None and noted.releases) or ledger_file.log_size(path)",
        "False",
        (TESTS + "test_a_ledger_that_is_gone_is_not_begun_anew",),
    ),
    Mutant(
        "ledger-without-its-log",
        "a copy without its log is opened",
        "The last release may be in the log only, and not in the anchor yet.",
        "check_log",
        "_marked_as_logging(connection) and not log_size(path)",
        "False",
        (TESTS + "test_a_copy_without_its_log_is_refused_and_again",),
    ),
    Mutant(
        "ledger-unverified",
        "a ledger is opened without being verified",
        "Rows that were altered or removed count as they stand.",
        "Ledger._check_own",
        "self.verify()",
        "",
        (TESTS + "test_tampering_is_found",),
    ),
    Mutant(
        "ledger-rows-unjudged",
        "a row need not follow from the policy",
        "A row with a smaller φ, and its digest right, makes room in the budget.",
        "Ledger.verify",
        "digest != row[7] or not sealed(*row[7:]) or not self._follows(release_of(row), rho)",
        "digest != row[7] or not sealed(*row[7:])",
        (TESTS + "test_a_row_that_breaks_the_policy_is_found_even_with_its_digest_right",),
    ),
    Mutant(
        "ledger-any-policy",
        "a ledger goes on under another policy",
        "An owner's slip, or another's hand, lowers the noise under way.",
        "Ledger._check_own",
        "policy is not None and policy.text() != self._policy_text",
        "False",
        (TESTS + "test_another_clients_ledger_and_another_policy_are_refused",),
    ),
    Mutant(
        "ledger-two-processes",
        "two processes may release from one ledger",
        "Both make release n, and it is charged once.",
        "take_lock",
        'lock.execute("BEGIN EXCLUSIVE")',
        "",
        (
            TESTS + "test_one_process_at_a_time_and_readers_beside_it",
            TESTS + "test_the_same_process_cannot_open_it_twice_either",
        ),
    ),
    Mutant(
        "ledger-knows-better",
        "a ledger with fewer releases than the site has received goes on",
        "A ledger put back from a backup, with its anchor, spends again what is spent.",
        "Ledger.check_known",
        "releases > self.count",
        "False",
        (TESTS + "test_an_older_copy_with_its_older_anchor_is_found_by_the_site",),
    ),
    Mutant(
        "site-remembers-accepted-only",
        "a site remembers the releases of clients that it has accepted only",
        "A client restored from a backup is not told of answers that came too late.",
        "_SAW_RELEASE",
        '"UPDATE clients SET releases = ? WHERE name = ? AND releases < ?"',
        '"UPDATE clients SET releases = ? WHERE name = ? AND releases < ? AND accepted IS NOT NULL"',
        (MEMORY + "test_an_answer_that_is_not_accepted_is_remembered_and_an_older_ledger_stops",),
    ),
    Mutant(
        "site-remembers-the-last",
        "a site remembers the last number of a release and not the largest",
        "An old answer that is sent again hides what came after it.",
        "_SAW_RELEASE",
        '"UPDATE clients SET releases = ? WHERE name = ? AND releases < ?"',
        '"UPDATE clients SET releases = ? WHERE name = ? AND ? > 0"',
        (STORE,),
    ),
    Mutant(
        "site-forgets-the-expelled",
        "a client that was expelled and admitted again has released nothing",
        "An expulsion is a way to spend again.",
        "SiteStore._admit",
        "self._db.execute('INSERT INTO clients (name, key, cluster, admitted, releases) VALUES (?, ?, ?, ?, "
        "coalesce((SELECT releases FROM expelled WHERE key = ?), 0)) ON CONFLICT (name) DO UPDATE SET "
        "cluster = excluded.cluster', (name, key.line, cluster, time.time(), key.line))",
        "self._db.execute('INSERT INTO clients (name, key, cluster, admitted, releases) VALUES (?, ?, ?, ?, "
        "coalesce((SELECT 0 FROM expelled WHERE key = ?), 0)) ON CONFLICT (name) DO UPDATE SET cluster = "
        "excluded.cluster', (name, key.line, cluster, time.time(), key.line))",
        (STORE,),
    ),
    Mutant(
        "site-ignores-a-hello",
        "a site does not remember what a client says of itself when it comes",
        "An answer that was lost on the way is known to nobody but the client.",
        "ClientSessions._authenticate",
        "self._store.record_release(client, hello.releases)",
        "",
        (MEMORY + "test_what_a_client_reports_in_its_hello_is_remembered",),
    ),
)
