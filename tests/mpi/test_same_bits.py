"""One, two and three ranks leave the same bits as the numpy engine in one process."""

import pickle
import sys

import numpy as np
import pytest

from pgfl import experiment
from tests.mpi.rank_cases import CASES, config, write_tables
from tests.mpi.rank_jobs import HERE, launch


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    write_tables(folder)
    return folder


@pytest.fixture(scope="module")
def alone(tables):
    return {name: experiment.run(config(name, tables)) for name in CASES}


def assert_same_bits(one, other, name):
    assert one.keys() == other.keys(), name
    for key in one:
        np.testing.assert_array_equal(one[key], other[key], err_msg=f"{name}: {key}", strict=True)


def assert_same_result(one, other, name):
    shared = ("client_ids", "server_ids", "cluster_ids", "objectives", "warnings", "noise", "guarantee", "ended_by")
    for what in (*shared, "spent_at"):
        assert list(getattr(one, what) or []) == list(getattr(other, what) or []), (name, what)
    assert_same_bits(one.history, other.history, name)
    assert_same_bits(one.clean_history or {}, other.clean_history or {}, name)
    for ours, theirs in zip(one.models, other.models, strict=True):
        assert_same_bits(vars(ours.network), vars(theirs.network), name)
        pieces = [{k: v for k, v in vars(m).items() if k != "network" and v is not None} for m in (ours, theirs)]
        assert_same_bits(*pieces, name)
    for ours, theirs in zip(one.privacy, other.privacy, strict=True):
        assert_same_bits(ours, theirs, name)
    assert one.verdict == other.verdict, name
    assert [each.to_json() for each in one.measures] == [each.to_json() for each in other.measures], name
    for table in ("client_measures", "held_out"):
        assert_same_bits(getattr(one, table) or {}, getattr(other, table) or {}, name)


PROOF = pytest.mark.proof


@pytest.mark.proof
@pytest.mark.parametrize("count", [pytest.param(1, marks=PROOF), 2, pytest.param(3, marks=PROOF)])
def test_any_number_of_ranks_leaves_the_same_bits(count, tables, alone, tmp_path):
    target = tmp_path / "results.pickle"
    done = launch(count, sys.executable, HERE / "train_all_cases.py", tables, target)
    assert done.returncode == 0, done.stderr
    results = pickle.loads(target.read_bytes())
    assert results.keys() == alone.keys()
    for name, result in results.items():
        assert_same_result(alone[name], result, name)
