"""Every secret of masks is drawn from the whole of its range, never twice, and never the same in two processes."""

from __future__ import annotations

import itertools
import multiprocessing
import zlib

import numpy as np
import pytest

from pgfl.masking import primitives
from pgfl.masking.collector import CohortGathering
from pgfl.masking.member import Member
from pgfl.masking.preparation import Batch
from tests.masking.masked_group import identity, names_of, roster_of

DRAWS = 4000
KEY, NONCE = bytes(32), slice(0, 12)


def batches():
    """Batches without end, each of a client's own making."""
    return (Batch.begin(f"{number:032x}", "c00", identity("c00"), 40) for number in itertools.count())


def shares_of_zero():
    """All shares of one seed but those of as many holders as the threshold follow from them: four are independent."""
    return (share for _ in itertools.count() for share in primitives.split(bytes(16), 5, 4))


DRAWN = {
    "seed": lambda: (primitives.fresh_seed() for _ in itertools.count()),
    "nonce": lambda: (primitives.sealed(KEY, b"text", b"about")[NONCE] for _ in itertools.count()),
    "share": shares_of_zero,
    "batch": lambda: (bytes.fromhex(CohortGathering(frozenset(), 1, 1).batch) for _ in itertools.count()),
    "self seed": lambda: (slot.self_seed for batch in batches() for slot in batch.slots),
    "key seed": lambda: (slot.key_seed for batch in batches() for slot in batch.slots),
    "mask key": lambda: (key for batch in batches() for key in batch.announcement.masks),
    "transport key": lambda: (
        Batch.begin("b", "c00", identity("c00"), 1).announcement.transport for _ in itertools.count()
    ),
}
FIXED_BITS = {"mask key": 31, "transport key": 31}  # the last byte of an X25519 key is below 128


@pytest.mark.parametrize("what", DRAWN)
def test_every_byte_of_every_secret_is_random(what):
    """No draw repeats, each byte takes all values equally often, and together they cannot be packed."""
    count = DRAWS // 2 if what == "transport key" else DRAWS
    drawn = list(itertools.islice(DRAWN[what](), count))
    assert len(set(drawn)) == count
    table = np.frombuffer(b"".join(drawn), dtype=np.uint8).reshape(count, -1)
    assert table.shape[1] >= 12
    for place, column in enumerate(table.T):
        kinds = 128 if FIXED_BITS.get(what) == place else 256
        counts = np.bincount(column, minlength=kinds)
        square = float(np.sum((counts - count / kinds) ** 2) / (count / kinds))
        assert square < kinds + 8 * (2 * kinds) ** 0.5 + 20, (what, place)  # once in 10¹² for each of them
    assert len(zlib.compress(b"".join(drawn), 9)) > 0.98 * table.size


def test_seeds_do_not_repeat_where_those_of_32_bits_would():
    """Of 400,000 seeds that follow from 32 bits, 18 pairs are equal on average: none are, once in 10⁸ times."""
    assert len({primitives.fresh_seed() for _ in range(400_000)}) == 400_000


def _one_of_each():
    member = Member("c00", identity("c00"), roster_of(names_of(2)), None)
    drawn = {what: next(iter(make())) for what, make in DRAWN.items()}
    drawn["announced"] = member.announce("b" * 32, 1).transport
    return drawn


def _send_one_of_each(pipe):
    pipe.send(_one_of_each())


@pytest.mark.forks
def test_processes_that_were_forked_from_one_draw_other_secrets():
    fork = multiprocessing.get_context("fork")
    found = [_one_of_each()]  # a generator that is seeded on first use is so before the processes part
    for _ in range(2):
        here, there = fork.Pipe(duplex=False)
        child = fork.Process(target=_send_one_of_each, args=(there,))
        child.start()
        found.append(here.recv())
        child.join()
    for what in found[0]:
        assert len({each[what] for each in found}) == 3, what


def test_what_two_clients_seal_for_each_other_is_not_under_one_keystream():
    """Both directions have one key; with one nonce, a server would learn the difference of the two texts."""
    one, other = (primitives.sealed(KEY, text, b"about") for text in (bytes(64), b"\1" * 64))
    assert one[NONCE] != other[NONCE]
    pads = [np.frombuffer(box[12:76], np.uint8) for box in (one, other)]
    assert (np.bitwise_xor(*pads) != 1).any()
