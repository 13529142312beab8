"""Measurements kept in a folder, one file each, so that long work can be interrupted."""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

from pgfl.atomic_files import make_folder, write_atomically
from pgfl.paper.experiments import Experiment, Measured


@dataclass(frozen=True)
class Kept:
    """A folder of measurements, named after the experiment, its seed and runs, and the version of pgfl.

    A file holds whatever was measured under that name: use another folder after a change to the code.
    """

    folder: Path

    def read(self, experiment: Experiment, seed: int, runs: int) -> Measured | None:
        """What was kept, or None; a file that cannot be read counts as none."""
        try:
            with np.load(self._path(experiment, seed, runs), allow_pickle=False) as file:
                return {name: file[name] for name in file.files}
        except (OSError, ValueError, EOFError, zipfile.BadZipFile):
            return None

    def write(self, experiment: Experiment, seed: int, runs: int, found: Measured) -> None:
        """Keep it; the file appears when it is complete."""
        make_folder(self.folder)
        write_atomically(self._path(experiment, seed, runs), lambda stream: np.savez(stream, **found))  # type: ignore[arg-type]

    def _path(self, experiment: Experiment, seed: int, runs: int) -> Path:
        name = f"{version('pgfl')} {experiment!r} {seed} {runs}"
        return self.folder / f"{hashlib.blake2b(name.encode(), digest_size=16).hexdigest()}.npz"
