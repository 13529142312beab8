"""Run under mpiexec: `pgfl` whose ranks wait after the checkpoint of round 40, and say so in a file, to be ended."""

import os
import sys
import time
from pathlib import Path

from pgfl.cli import main
from pgfl.simulate.checkpoint import Checkpoints

if __name__ == "__main__":
    save = Checkpoints.save

    def waiting(checkpoints, simulator):
        save(checkpoints, simulator)
        if simulator.state.round == 40:
            Path(os.environ["PGFL_TEST_WAITING"], f"rank-{simulator.engine.communicator.rank}").touch()
            time.sleep(1000.0)

    Checkpoints.save = waiting
    main(sys.argv[1:])
