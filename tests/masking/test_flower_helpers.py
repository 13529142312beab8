"""Why masks do not come from Flower 1.41's helpers: 2³² guesses unmask a client, and its last stage gives both shares.

Flower's version is pinned. If one of these tests fails after an upgrade, its helpers have changed: look at them anew.
"""

from types import SimpleNamespace

import numpy as np
from flwr.app import ConfigRecord
from flwr.client.mod.secure_aggregation.secaggplus_mod import _unmask
from flwr.common.secure_aggregation.secaggplus_constants import Key
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen


def masks(key):
    return pseudo_rand_gen(key, 1 << 24, [(50,)])[0]


def test_its_masks_follow_from_32_bits_of_a_key():
    key = bytes(range(32))
    folded = np.bitwise_xor.reduce(np.frombuffer(key, dtype="<u4"))
    guessed = int(folded).to_bytes(4, "little") + bytes(28)
    assert guessed != key
    assert np.array_equal(masks(guessed), masks(key))
    by_seed = np.random.RandomState(int(folded)).randint(0, (1 << 24) - 1, (50,), dtype=np.int64)
    assert np.array_equal(by_seed, masks(key))


def test_it_gives_both_shares_of_a_client_that_is_listed_as_active_and_dead_at_once():
    state = SimpleNamespace(
        nid=1, threshold=2, rd_seed_share_dict={1: b"own", 7: b"seed share"}, sk1_share_dict={7: b"key share"}
    )
    lie = ConfigRecord({Key.ACTIVE_NODE_ID_LIST: [1, 7], Key.DEAD_NODE_ID_LIST: [7]})
    given = _unmask(state, lie)
    both = [share for who, share in zip(given[Key.NODE_ID_LIST], given[Key.SHARE_LIST], strict=True) if who == 7]
    assert both == [b"seed share", b"key share"]
