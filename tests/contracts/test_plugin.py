"""Another package registers one of every seam and is trained privately: in the simulator, and on devices."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1] / "plugin"
REPOSITORY = HERE.parent.parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The example package, installed in a folder of its own."""
    place = tmp_path_factory.mktemp("plugin")
    source, target = place / "source", place / "target"
    shutil.copytree(HERE / "pgfl_example", source / "pgfl_example")
    shutil.copy(HERE / "pyproject.toml", source)
    install = ["install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "pip", *install, "--target", target, source], check=True, cwd=place)
    return target


def trained(installed, what, folder):
    """Run one of the trainings in a process that sees the package; returns what it wrote to stderr."""
    paths = [str(installed), str(REPOSITORY / "src"), str(REPOSITORY)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.plugin.trained", what, str(folder)],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.proof
@pytest.mark.parametrize("what", ["simulated", "on_devices"])
def test_a_package_with_one_of_every_seam_is_trained_privately(installed, what, tmp_path):
    trained(installed, what, tmp_path)
