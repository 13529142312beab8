"""Run under mpiexec: trains every case on all ranks; the first rank puts the results in a file."""

import pickle
import sys
from pathlib import Path

from rank_cases import CASES, ON_RANKS, config

from pgfl import experiment
from pgfl.simulate.ranks import world


def main(folder: Path, target: Path) -> None:
    ranks = world()
    engines = {name: ON_RANKS[config(name, folder).engine] for name in CASES}
    results = {name: experiment.run_on_ranks(config(name, folder, engine=engines[name]), ranks) for name in CASES}
    if ranks.first:
        target.write_bytes(pickle.dumps(results))


main(*map(Path, sys.argv[1:]))
