"""What every communicator keeps. Under mpiexec this file checks the communicator of all ranks, else `SingleProcess`."""

import tempfile
from pathlib import Path

import numpy as np
import pytest

from pgfl import synthetic_regression
from pgfl.algorithms.algorithms import PGFL
from pgfl.errors import ConfigError
from pgfl.simulate.communicator import SINGLE_PROCESS, Communicator
from pgfl.simulate.layout import lay_out
from pgfl.simulate.mpi.launcher import launched_rank
from pgfl.simulate.neighbourhoods import Network

SHAPE = {"servers": 6, "clients_per_server": 3, "dimension": 4, "graph": "ring", "seed": 2}


def part(communicator: Communicator):
    """The own part of a federation whose servers are dealt out in turn, and the owner of every server."""
    owner = np.arange(6) % communicator.size
    return synthetic_regression(**SHAPE, servers_subset=np.flatnonzero(owner == communicator.rank)), owner


def one_process_is_first_and_knows_the_size(communicator):
    assert 0 <= communicator.rank < communicator.size
    assert communicator.sum([int(communicator.first)]).tolist() == [1]
    assert communicator.sum([1]).tolist() == [communicator.size]
    assert 1 <= communicator.local_size <= communicator.size


def sums_and_maxima_are_over_all(communicator):
    ranks = np.arange(communicator.size)
    np.testing.assert_array_equal(communicator.sum([communicator.rank, 1.5]), [ranks.sum(), 1.5 * len(ranks)])
    np.testing.assert_array_equal(communicator.maximum([communicator.rank, -communicator.rank]), [ranks[-1], 0])


def rows_are_united(communicator):
    united = communicator.unique_rows(np.array([[communicator.rank, 1], [7, 7], [communicator.rank, 1]]))
    assert united.tolist() == [*([rank, 1] for rank in range(communicator.size)), [7, 7]]


def values_come_from_here_or_from_the_first(communicator):
    assert communicator.collective(lambda: communicator.rank) == communicator.rank
    assert communicator.broadcast(lambda: ["of", communicator.rank]) == ["of", 0]


def an_error_of_the_last_is_raised_on_all(communicator):
    def fail_on_the_last():
        if communicator.rank == communicator.size - 1:
            raise ConfigError("The last one fails.")

    with pytest.raises(ConfigError, match=r"^The last one fails\.$"), communicator.abort_on_error():
        communicator.collective(fail_on_the_last)
    with pytest.raises(ConfigError, match=r"^The first one fails\.$"), communicator.abort_on_error():
        communicator.broadcast(lambda: (_ for _ in ()).throw(ConfigError("The first one fails.")))


def rows_are_gathered_in_the_order_of_the_federation(communicator):
    federation, _ = part(communicator)
    whole = synthetic_regression(**SHAPE)
    gathering = communicator.gathering(federation, None)
    numbers = np.array([int(name.rpartition("-")[2]) for name in federation.client_ids])
    found = gathering.clients(numbers)
    pairs = gathering.pairs(federation.client_server, federation.client_cluster, numbers)
    if communicator.first:
        assert list(gathering.client_ids) == list(whole.client_ids)
        assert found.tolist() == sorted(found.tolist()) == list(range(found[0], found[0] + whole.size))
        assert [len(values) for values in pairs] == [whole.size] * 3
        assert sorted(pairs[2].tolist()) == found.tolist()


def the_halo_brings_what_the_owners_published(communicator):
    federation, owner = part(communicator)
    layout = lay_out([federation], 0, True, [owner], communicator)
    assert layout.own_server.sum() == np.count_nonzero(owner == communicator.rank)
    assert communicator.sum([layout.own_server.sum()]).tolist() == [6]
    network, halo = Network(layout, PGFL()), communicator.halo(layout, 4, np.float64)
    server = layout.server_number[layout.pair_server]
    own = layout.own_server[layout.pair_server]
    published = np.where(own[:, None], 1.0 * server[:, None] + np.arange(4.0), np.nan)
    halo.exchange(published, network, own & (server != 3))
    halo.close()
    np.testing.assert_array_equal(published, server[:, None] + np.arange(4.0))
    assert not network.known[own].any()
    assert network.known[~own].tolist() == (server[~own] != 3).tolist()


def checkpoints_are_restored(communicator):
    federation, owner = part(communicator)
    layout = lay_out([federation], 0, True, [owner], communicator)
    folder = Path(communicator.broadcast(lambda: tempfile.mkdtemp()))
    files, checked, restored = communicator.checkpoint_files(folder / "checkpoint"), [], []
    own = layout.own_server[layout.pair_server][:, None]
    arrays = {
        "fingerprint": np.array("mine"),
        "dual": np.arange(layout.clients)[:, None] + 100 * communicator.rank,
        "servers/model": np.where(own, layout.server_number[layout.pair_server][:, None], 0.0),
    }

    def restore():
        return files.restore(layout, dict, lambda path, found: checked.append(path), restored.append)

    assert restore() is False
    for round in (1, 2):
        files.save(layout, round, arrays | {"round": np.array(round)})
    assert restore() is True
    assert restored[0]["round"] == 2 and str(restored[0]["fingerprint"]) == "mine"
    np.testing.assert_array_equal(restored[0]["dual"], arrays["dual"])
    np.testing.assert_array_equal(restored[0]["servers/model"], arrays["servers/model"])
    assert len(checked) == communicator.size


CONTRACT = (
    one_process_is_first_and_knows_the_size,
    sums_and_maxima_are_over_all,
    rows_are_united,
    values_come_from_here_or_from_the_first,
    an_error_of_the_last_is_raised_on_all,
    rows_are_gathered_in_the_order_of_the_federation,
    the_halo_brings_what_the_owners_published,
    checkpoints_are_restored,
)


if __name__ == "__main__":
    communicator = SINGLE_PROCESS
    if launched_rank() is not None:
        from pgfl.simulate.mpi.communicator import world

        communicator = world()
    with communicator.abort_on_error():  # a rule that fails on one rank ends all
        for rule in CONTRACT:
            rule(communicator)
            if communicator.first:
                print(rule.__name__)
