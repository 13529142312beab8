"""A client is light: no JAX, no simulator, and little memory."""

from __future__ import annotations

import subprocess
import sys

from tests.network.client_folders import client_folder

HEAVY = ("jax", "polars", "pgfl.simulate", "matplotlib", "ray", "scipy.stats")
MEASURE = f"""
import sys
print(sum(int(line.split()[1]) for line in open("/proc/self/smaps_rollup") if line.startswith("Anonymous:")) // 1024)
print(*(name for name in {HEAVY} if name in sys.modules))
"""  # memory of its own: what is mapped from files depends on what other processes do
CLIENT = """
import sys
from pathlib import Path
import pgfl.network.client.client
from pgfl.network.client.settings import load_client
from pgfl.network.client.samples import load_samples_apart
assert load_samples_apart(load_client(Path(sys.argv[1]))).features.shape == (2, 2)
from pgfl.privacy.noise import SecureNoise
SecureNoise(60)
"""


def measured(code, settings):
    command = [sys.executable, "-c", code + MEASURE, str(settings)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    megabytes, *modules = run.stdout.split()
    return int(megabytes), modules


def test_a_client_takes_less_than_60_mb(tmp_path):
    megabytes, modules = measured(CLIENT, client_folder(tmp_path))
    assert megabytes < 60
    assert modules == []


def test_importing_pgfl_imports_nothing_of_the_network():
    code = "import sys, pgfl; print([m for m in ('asyncio', 'cryptography', 'pgfl.network') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
