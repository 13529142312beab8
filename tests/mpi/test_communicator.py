"""One contract for all communicators: one process, and one, two or three MPI ranks."""

import sys

import pytest

from pgfl.simulate.communicator import SINGLE_PROCESS
from tests.mpi.communicator_contract import CONTRACT
from tests.mpi.rank_jobs import HERE, launch


@pytest.mark.parametrize("rule", CONTRACT, ids=lambda rule: rule.__name__)
def test_one_process_keeps_the_contract(rule):
    rule(SINGLE_PROCESS)


@pytest.mark.parametrize("count", [1, 2, pytest.param(3, marks=pytest.mark.proof)])
def test_ranks_keep_the_contract(count):
    done = launch(count, sys.executable, HERE / "communicator_contract.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [rule.__name__ for rule in CONTRACT]
