"""Run under mpiexec: `pgfl` with an engine that fails on rank 1 in its third round, while the others wait for it."""

import sys

from pgfl.cli import main
from pgfl.errors import SolverError
from pgfl.simulate.engine import Engine

if __name__ == "__main__":
    play = Engine.run_round

    def failing(engine):
        if engine.state.round == 2 and engine.communicator.rank == 1:
            raise SolverError("The primal problem of client ann was not solved.")
        return play(engine)

    Engine.run_round = failing
    main(sys.argv[1:])
