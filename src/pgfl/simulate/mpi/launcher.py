"""What an MPI launcher says about this process, found without importing anything heavy."""

from __future__ import annotations

import os

RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MPI_LOCALRANKID", "PALS_RANKID")
SIZE_VARIABLES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE")


def launched_rank() -> int | None:
    """Return the number that a launcher gave this process; None if it was started without one."""
    return _number(RANK_VARIABLES)


def launched_size() -> int | None:
    """Return the number of processes that the launcher started together, where it is known."""
    return _number(SIZE_VARIABLES)


def _number(names: tuple[str, ...]) -> int | None:
    return next((int(os.environ[name]) for name in names if os.environ.get(name, "").isdecimal()), None)
