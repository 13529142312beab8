"""Run under mpiexec: trains every case on all ranks; the first rank puts the results in a file.

What travels to the first rank does so in small pieces, and is put together in files where a case has a folder.
"""

import pickle
import sys
from pathlib import Path

from pgfl import experiment
from pgfl.simulate.mpi import communicator as mpi_communicator
from tests.mpi.rank_cases import CASES, config


def main(folder: Path, target: Path) -> None:
    mpi_communicator.CHUNK_BYTES, mpi_communicator.IN_MEMORY_BYTES = 500, 1000
    world, results = mpi_communicator.world(), {}
    for name in CASES:
        out = target.with_name("out") if name == "private" else None
        if out and world.first:
            out.mkdir()
        results[name] = experiment.run(config(name, folder), out=out, communicator=world)
    if world.first:
        target.write_bytes(pickle.dumps(results))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
