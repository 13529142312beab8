"""A client is light: no JAX, no simulator, no Flower but its messages, and little memory."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pgfl.deploy
from tests.deploy.client_folders import client_folder

HEAVY = ("flwr", "grpc", "jax", "polars", "pgfl.simulate", "matplotlib", "ray", "scipy.stats")
MEASURE = f"""
import sys
print(sum(int(line.split()[1]) for line in open("/proc/self/smaps_rollup") if line.startswith("Anonymous:")) // 1024)
print(*(name for name in {HEAVY} if name in sys.modules))
"""  # memory of its own: what is mapped from files depends on what other processes do
CLIENT = """
import sys
from pathlib import Path
import pgfl.deploy.client.client
from pgfl.deploy.client.client_settings import load_client
from pgfl.deploy.client.samples_apart import load_samples_apart
from pgfl.deploy.flower import fleet_node, flower_client
assert load_samples_apart(load_client(Path(sys.argv[1]))).features.shape == (2, 2)
from pgfl.privacy.noise import SecureNoise
SecureNoise(60)
fleet_node.messages("fleet"), fleet_node.messages("heartbeat")
"""


def measured(code, settings):
    command = [sys.executable, "-c", code + MEASURE, str(settings)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    megabytes, *modules = run.stdout.split()
    return int(megabytes), modules


def test_a_client_takes_less_than_65_mb_and_nothing_of_flower_but_its_messages(tmp_path):
    megabytes, modules = measured(CLIENT, client_folder(tmp_path))
    assert megabytes < 65
    assert modules == []


def test_flowers_messages_are_the_same_whether_the_package_around_them_is_imported_or_not():
    code = (
        "import sys; from pgfl.deploy.flower.fleet_node import messages; light = messages('fleet')\n"
        "assert 'flwr' not in sys.modules\n"
        "from flwr.proto.fleet_pb2 import ActivateNodeRequest; assert ActivateNodeRequest is light.ActivateNodeRequest"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_only_the_room_of_flower_knows_flower():
    code = (
        "import sys, pgfl.deploy.client.client, pgfl.deploy.site.site, pgfl.deploy.local\n"
        "print([name for name in sys.modules if name.startswith(('flwr', 'pgfl.deploy.flower'))])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
    for path in Path(pgfl.deploy.__file__).parent.rglob("*.py"):
        if path.parent.name != "flower":
            assert not re.search(r"import flwr|from flwr|deploy\.flower", path.read_text("utf-8")), path


def test_importing_pgfl_imports_nothing_of_the_network():
    code = "import sys, pgfl; print([m for m in ('grpc', 'flwr', 'cryptography', 'pgfl.deploy') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
