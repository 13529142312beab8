"""Bugs of invitations: who comes in with a code, and what an owner agrees to."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

CODES = "tests/network/test_invitations.py::"

INVITATIONS = (
    Mutant(
        "code-used-twice",
        "a code is not used up",
        "Whoever finds an old invitation is admitted under the client's name, or in its place after an expulsion.",
        "SiteStore._redeem",
        'state != "open"',
        'state == "revoked"',
        (
            CODES + "test_a_code_admits_one_key_once",
            CODES + "test_an_expelled_client_does_not_come_back_with_its_code",
        ),
    ),
    Mutant(
        "code-never-expires",
        "a code is good for ever",
        "An invitation in an old mail admits a stranger years later.",
        "SiteStore._redeem",
        "found.expires <= time.time()",
        "False",
        (CODES + "test_an_expired_code_admits_nobody",),
    ),
    Mutant(
        "code-kept",
        "a site keeps the codes themselves",
        "Whoever reads a backup of the site joins with every open invitation.",
        "digest_of_code",
        'hashlib.sha256(b"pgfl invitation v1\\0" + code.encode()).hexdigest()',
        "code",
        (CODES + "test_a_site_keeps_no_code",),
    ),
    Mutant(
        "code-guesses-unlimited",
        "wrong codes are not counted",
        "A stranger tries as many codes as the site can look up.",
        "Admission._redeem",
        "self._guesses.count(host)",
        "pass",
        (CODES + "test_a_stranger_who_guesses_is_stopped_and_others_are_not",),
    ),
    Mutant(
        "invitation-unsigned",
        "the signature of an invitation is not verified",
        "Who passes it on changes the training that the owner is shown and pins.",
        "Invitation.read",
        "not signed_by_site(shown, signature, found._message())",
        "False",
        (
            CODES + "test_an_edited_invitation_is_refused",
            CODES + "test_an_invitation_with_another_training_or_certificate_is_refused",
        ),
    ),
    Mutant(
        "invitation-accepted-unasked",
        "who says nothing has agreed",
        "A client takes part, and is charged, although its owner never agreed to the training.",
        "_accept_invitation",
        "not yes and not _agrees()",
        "False",
        (CODES + "test_nothing_is_written_before_the_owner_agrees",),
    ),
    Mutant(
        "invited-training-unpinned",
        "the training that the owner agreed to is not pinned",
        "A site shows one training in its invitation and carries out another.",
        "client.set_up:set_up",
        "write_text(home / PINNED, offer.text)",
        "...",
        (CODES + "test_a_training_that_changed_since_the_invitation_is_refused_with_what_changed",),
    ),
    Mutant(
        "introduction-unproven",
        "a site need not have the key of the certificate that it introduces",
        "Whoever has the code links a certificate that is not its own, or has a neighbour called elsewhere.",
        "Admission._linked",
        "not proves_introduction(neighbour, signature, own, nonce, header.address)",
        "False",
        (CODES + "test_an_introduction_needs_the_key_of_the_certificate",),
    ),
    Mutant(
        "restored-codes-good",
        "codes of a backup stay good",
        "A code that was used after the backup admits another key.",
        "site.backup:restore",
        "store.revoke_all()",
        "...",
        (CODES + "test_codes_of_a_backup_are_good_no_more",),
    ),
)
