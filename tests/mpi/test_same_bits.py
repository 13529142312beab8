"""One, two and three ranks leave the same bits as the numpy engine in one process."""

import pickle
import sys

import numpy as np
import pytest
from rank_cases import CASES, config, write_tables
from rank_jobs import HERE, launch

from pgfl import experiment


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    write_tables(folder)
    return folder


@pytest.fixture(scope="module")
def alone(tables):
    return {name: experiment.run(config(name, tables)) for name in CASES}


@pytest.fixture(scope="module", params=[1, 2, 3])
def on_ranks(request, tables, tmp_path_factory):
    target = tmp_path_factory.mktemp("ranks") / "results.pickle"
    done = launch(request.param, sys.executable, HERE / "train_all_cases.py", tables, target)
    assert done.returncode == 0, done.stderr
    return pickle.loads(target.read_bytes())


def assert_same_bits(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name, strict=True)


@pytest.mark.parametrize("name", CASES)
def test_any_number_of_ranks_leaves_the_same_bits(name, alone, on_ranks):
    one, other = alone[name], on_ranks[name]
    for what in ("client_ids", "server_ids", "cluster_ids", "objectives", "warnings", "noise", "guarantee"):
        assert list(getattr(one, what) or []) == list(getattr(other, what) or []), what
    assert_same_bits(one.history, other.history)
    assert_same_bits(one.clean_history or {}, other.clean_history or {})
    assert len(one.models) == len(other.models)
    for ours, theirs in zip(one.models, other.models, strict=True):
        assert_same_bits(vars(ours.network), vars(theirs.network))
        pieces = [{k: v for k, v in vars(m).items() if k != "network" and v is not None} for m in (ours, theirs)]
        assert_same_bits(*pieces)
    for ours, theirs in zip(one.privacy, other.privacy, strict=True):
        assert_same_bits(ours, theirs)
