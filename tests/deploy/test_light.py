"""A client is light: no JAX, no simulator, and little memory beyond what Flower itself takes."""

from __future__ import annotations

import subprocess
import sys

MEASURE = """
import sys
print(sum(int(line.split()[1]) for line in open("/proc/self/smaps_rollup") if line.startswith("Rss:")) // 1024)
print(*(name for name in ("jax", "pgfl.simulate", "matplotlib", "ray", "scipy.stats") if name in sys.modules))
"""
FLOWER = "import flwr.supernode.runtime.run_clientapp\n"
CLIENT = "import pgfl.deploy.client.client\nfrom pgfl.privacy.noise import SecureNoise\nSecureNoise(60)\n"


def measured(code):
    run = subprocess.run([sys.executable, "-c", code + MEASURE], capture_output=True, text=True, check=True)
    megabytes, *modules = run.stdout.split()
    return int(megabytes), modules


def test_a_client_takes_less_than_100_mb_beyond_flowers_own():
    alone, _ = measured(FLOWER)
    together, modules = measured(FLOWER + CLIENT)
    assert together - alone < 100
    assert modules == []


def test_importing_pgfl_imports_nothing_of_the_network():
    code = "import sys, pgfl; print([m for m in ('grpc', 'flwr', 'cryptography', 'pgfl.deploy') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
