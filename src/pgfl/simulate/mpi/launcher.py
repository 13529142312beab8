"""What an MPI launcher told this process when it started it; nothing heavy is imported to find out."""

from __future__ import annotations

import os

RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MPI_LOCALRANKID", "PALS_RANKID")
SIZE_VARIABLES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE")


def launched_rank() -> int | None:
    """The number that a launcher gave this process; None if none started it."""
    return _number(RANK_VARIABLES)


def launched_size() -> int | None:
    """How many processes the launcher started together, where it says so."""
    return _number(SIZE_VARIABLES)


def _number(names: tuple[str, ...]) -> int | None:
    return next((int(os.environ[name]) for name in names if os.environ.get(name, "").isdecimal()), None)
