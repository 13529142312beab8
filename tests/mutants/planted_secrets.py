"""Bugs of secrets, locks and small files: few bits, repeats, threads at once, and what a damaged file is taken for."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

RANDOM, LOCKS = "tests/test_secrets.py::", "tests/test_locks.py::"
GUARD, STORE, MEMORY = (
    "tests/studio/test_guard.py::",
    "tests/deploy/test_store.py::",
    "tests/deploy/test_site_memory.py::",
)
CONNECTION, ADDRESSES = "tests/deploy/test_frame_connection.py::", "tests/deploy/test_address_limits.py::"
DAMAGED = "tests/deploy/test_damaged_ledger.py::"
DRAWS = RANDOM + "test_thousands_of_draws_are_distinct_and_uniform_in_every_byte"
BITS = RANDOM + "test_every_bit_of_the_systems_randomness_changes_the_secret"

SECRETS = (
    # --- entropy ------------------------------------------------------------------------------------------------------
    Mutant(
        "challenge-constant",
        "a site's challenge is always the same",
        "A hello that was overheard once opens the stream again.",
        "_ClientStream.__init__",
        "secrets.token_bytes",
        "bytes",
        (DRAWS,),
    ),
    Mutant(
        "challenge-of-32-bits",
        "a site's challenge has 32 bits",
        "Somebody who collects signatures soon has the one that is asked for.",
        "_ClientStream.__init__",
        "secrets.token_bytes(32)",
        "__import__('hashlib').sha256(secrets.token_bytes(4)).digest()",
        (BITS,),
    ),
    Mutant(
        "challenge-other-than-sent",
        "another challenge is sent than is checked",
        "Nobody can prove who it is, or everybody.",
        "_ClientStream.opened",
        "self._nonce",
        "secrets.token_bytes(32)",
        (DRAWS,),
    ),
    Mutant(
        "studio-token-of-16-bits",
        "a token of the studio has 16 bits",
        "Another user of the machine guesses it in a second.",
        "new_secret",
        "secrets.token_urlsafe(24)",
        "secrets.token_urlsafe(2)",
        (DRAWS, BITS),
    ),
    Mutant(
        "studio-token-hashed",
        "a token of the studio looks long and has 32 bits",
        "Another user of the machine guesses it in a day.",
        "new_secret",
        "secrets.token_urlsafe(24)",
        "__import__('hashlib').sha256(secrets.token_bytes(4)).hexdigest()",
        (BITS,),
    ),
    # --- the studio ---------------------------------------------------------------------------------------------------
    Mutant(
        "studio-token-reused",
        "a token of the studio works again and again",
        "Whoever sees the address later is let in.",
        "Guard._takes",
        "self._tokens.remove(token)",
        "",
        (GUARD + "test_a_token_is_exchanged_once_for_a_cookie_that_scripts_cannot_read",),
    ),
    Mutant(
        "studio-token-on-the-command-line",
        "the browser is given the address with its token",
        "Every user of the machine can read command lines.",
        "_announce",
        "entrance.as_uri()",
        "address_of(guard)",
        (GUARD + "test_no_secret_is_on_the_command_line_of_the_browser",),
    ),
    Mutant(
        "studio-file-readable",
        "everybody can read the file that leads to the studio",
        "Every user of the machine can open it.",
        "write_entrance",
        "os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)",
        "os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)",
        (GUARD + "test_the_file_is_private_whatever_the_umask_is",),
    ),
    Mutant(
        "studio-cookie-is-the-token",
        "the cookie of the studio is the token",
        "A used token still opens the page, as a cookie.",
        "Guard.new_token",
        "new_secret()",
        "self._session",
        (GUARD + "test_a_token_is_exchanged_once_for_a_cookie_that_scripts_cannot_read",),
    ),
    # --- locks --------------------------------------------------------------------------------------------------------
    Mutant(
        "store-unlocked",
        "threads of a site share a transaction",
        "What one has written is undone by the failure of another.",
        "SiteStore._plain_errors",
        "with self._lock:\n    yield",
        "if True:\n    yield",
        (LOCKS + "test_a_thread_of_a_site_waits_for_another_ones_transaction",),
    ),
    Mutant(
        "draws-unlocked",
        "threads that draw noise share what they keep without a lock",
        "A round gets the noise of another.",
        "ServerNormals.__call__",
        "with self._lock:\n    drawn = self._of_round(block, within, dimension)",
        "if True:\n    drawn = self._of_round(block, within, dimension)",
        (LOCKS + "test_threads_that_draw_different_rounds_get_the_numbers_of_their_own",),
    ),
    Mutant(
        "pages-unlocked",
        "requests of a page are numbered without a lock",
        "Two requests get one number, and the older one wins.",
        "Workers.supersede",
        "with self._newest.get_lock():\n    self._newest[page] += 1\n    return int(self._newest[page])",
        "if True:\n    self._newest[page] += 1\n    return int(self._newest[page])",
        (LOCKS + "test_requests_of_a_page_from_many_threads_get_numbers_of_their_own",),
    ),
    Mutant(
        "kernels-unlocked",
        "workers compile kernels at the same time",
        "Each compiles all of them, and the page waits.",
        "kernels:load",
        "with one_at_a_time:\n"
        "    for kind in _KINDS:\n"
        "        run(parse({'rounds': 2, 'metrics': ['nmsd'], 'engine': 'numba', 'data': _TINY, **kind}))",
        "if True:\n"
        "    for kind in _KINDS:\n"
        "        run(parse({'rounds': 2, 'metrics': ['nmsd'], 'engine': 'numba', 'data': _TINY, **kind}))",
        (LOCKS + "test_kernels_are_compiled_by_one_at_a_time",),
    ),
    # --- connections --------------------------------------------------------------------------------------------------
    Mutant(
        "failing-conversation-stays",
        "a conversation that fails with its first frame leaves its connection open",
        "A stranger holds a connection that nobody looks after.",
        "FrameConnection._converse",
        "self._give_up(_UNHANDLED)",
        "",
        (CONNECTION + "test_a_conversation_that_fails_ends_its_connection_whenever_its_frame_comes",),
    ),
    Mutant(
        "last-reason-wins",
        "the last reason to hang up is told instead of the first",
        "A stranger's frame of 4 GiB is logged as a slow line.",
        "FrameConnection._give_up",
        "if not self._closing:\n    self._why = why",
        "self._why = why",
        (CONNECTION + "test_the_first_reason_is_the_one_that_is_told",),
    ),
    Mutant(
        "last-words-unread",
        "what the other end said last is not read if a write fails first",
        "A refused certificate is logged as a break.",
        "FrameConnection.connection_lost",
        "self._last_words() or (HUNG_UP if self.frames.ready else _EARLY)",
        "HUNG_UP if self.frames.ready else _EARLY",
        (CONNECTION + "test_what_the_other_end_said_last_is_read_even_if_a_write_fails_first",),
    ),
    Mutant(
        "addresses-whole",
        "connections are counted by whole IPv6 addresses",
        "One caller has 2⁶⁴ of them.",
        "counted_address",
        "IPv6Network((int(found), 64), strict=False)",
        "found",
        (ADDRESSES + "test_a_port_refuses_what_one_caller_opens_beyond_its_share",),
    ),
    Mutant(
        "addresses-mapped",
        "an IPv4 address that IPv6 maps counts as another",
        "One caller has two shares, and all mapped ones have one.",
        "counted_address",
        "found.ipv4_mapped or IPv6Network((int(found), 64), strict=False)",
        "IPv6Network((int(found), 64), strict=False)",
        (ADDRESSES + "test_a_port_refuses_what_one_caller_opens_beyond_its_share",),
    ),
    # --- files and memory ---------------------------------------------------------------------------------------------
    Mutant(
        "ledger-text-unread",
        "a ledger with bytes that are no text ends in a traceback",
        "The owner does not learn that it is damaged.",
        "plain_errors",
        "(sqlite3.Error, UnicodeError)",
        "sqlite3.Error",
        (DAMAGED + "test_commands_refuse_a_byte_that_no_text_has_with_the_code_for_damage",),
    ),
    Mutant(
        "status-unverified",
        "the status of a client shows figures that were not verified",
        "A damaged account looks like one with budget left.",
        "client:status",
        "ledger.verify()",
        "",
        (DAMAGED + "test_a_changed_figure_is_not_shown_as_the_account",),
    ),
    Mutant(
        "malformed-release-forgotten",
        "the release of a malformed answer is not remembered",
        "Its client deletes its ledger and is welcomed with 0 releases.",
        "ClientStreams.malformed",
        "self.on_refused_release(client, why.release)",
        "pass",
        (MEMORY + "test_the_release_behind_a_malformed_answer_is_remembered_and_an_older_ledger_stops",),
    ),
    Mutant(
        "malformed-header-forgotten",
        "only a malformed payload counts, not a malformed header",
        "Its client deletes its ledger and is welcomed with 0 releases.",
        "decode",
        "error.release = _stated_release(fields)",
        "if fields.keys() != _names_of_fields(message):\n    raise\n...",
        (MEMORY + "test_the_release_behind_a_malformed_answer_is_remembered_and_an_older_ledger_stops",),
    ),
    Mutant(
        "deleted-record-welcomed",
        "a site whose record was deleted begins an empty one",
        "It welcomes clients with deleted ledgers with 0 releases.",
        "SiteStore.__init__",
        "not path.exists() and made.exists()",
        "False",
        (STORE + "test_a_deleted_record_is_refused_and_the_sentence_says_the_way_out",),
    ),
)
