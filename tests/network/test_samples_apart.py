"""Rows that are read in a process of their own are the same rows, and what is wrong with them is said as well."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest

from pgfl.network.client.samples import load_samples
from pgfl.network.client.settings import load_client
from tests.network.client_folders import client_folder

READ = """
import sys
from pathlib import Path
import numpy as np
from pgfl.network.client.settings import load_client
from pgfl.network.client import samples as samples_apart
{before}
settings = Path(sys.argv[1])
samples = samples_apart.load_samples_apart(load_client(settings))
np.savez(settings.with_name("read.npz"), features=samples.features, targets=samples.targets)
assert "polars" not in sys.modules
"""
KILLED = "import os; samples_apart.load_samples = lambda _: os.kill(os.getpid(), 9)"


def read(settings, before=""):
    command = [sys.executable, "-c", READ.format(before=before), str(settings)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_rows_are_the_same_to_the_last_bit_however_many(tmp_path):
    settings = client_folder(tmp_path, labels=np.random.default_rng(1).normal(size=20_000).tolist())
    done = read(settings)
    assert done.returncode == 0, done.stderr
    here, apart = load_samples(load_client(settings)), np.load(tmp_path / "read.npz")
    np.testing.assert_array_equal(apart["features"], here.features)
    np.testing.assert_array_equal(apart["targets"], here.targets)


@pytest.mark.parametrize(
    ("labels", "before", "words"),
    [(("a", 1.0), "", "DataError: .*data.csv, data row 1"), ((1.0,), KILLED, "cut off .*exit code -9")],
)
def test_what_goes_wrong_there_is_said_here(tmp_path, labels, before, words):
    done = read(client_folder(tmp_path, labels=labels), before)
    assert done.returncode == 1
    assert re.search(words, done.stderr.splitlines()[-1]), done.stderr
