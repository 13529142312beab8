"""Run under mpiexec: `pgfl` with an engine that fails on rank 1 in its third round, while the others wait for it."""

import sys

from pgfl.cli import main
from pgfl.errors import SolverError
from pgfl.simulate.mpi.rank_training import RankEngine

if __name__ == "__main__":
    play = RankEngine.play

    def failing(engine):
        if engine.state.round == 2 and engine.layout.rank == 1:
            raise SolverError("The primal problem of client number 5 was not solved.")
        return play(engine)

    RankEngine.play = failing
    main(sys.argv[1:])
