"""Run under mpiexec: trains every case on all ranks; the first rank puts the results in a file.

What travels to the first rank does so in small pieces, and is put together in files where a case has a folder.
"""

import pickle
import sys
from pathlib import Path

from pgfl.simulate import experiment
from pgfl.simulate.mpi import communicator as ranks
from tests.mpi.rank_cases import CASES, ON_RANKS, config


def main(folder: Path, target: Path) -> None:
    ranks.CHUNK_BYTES, ranks.IN_MEMORY_BYTES = 500, 1000
    world, results = ranks.world(), {}
    for name in CASES:
        engine = ON_RANKS[config(name, folder).engine]
        out = target.with_name("out") if name == "private" else None
        results[name] = experiment.run_on_ranks(config(name, folder, engine=engine), world, out=out)
    if world.first:
        target.write_bytes(pickle.dumps(results))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
