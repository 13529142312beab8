"""`make bench`: everything that can be measured without installing anything else. Writes RESULTS.md."""

# ruff: noqa: E402 (threads of BLAS are set before NumPy is loaded)
from __future__ import annotations

import os
import sys

for pool in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(pool, "1")

import bounds
import digits
import harness
import mpi_scaling
import privacy
import rounds
import scale
import start_up

CASES: harness.Cases = {
    "start-up": start_up.imports,
    "compiled-start": start_up.compiled_start,
    "bounds": bounds.bounds,
    "paper": rounds.paper_round,
    "batched": rounds.batched_runs,
    "linearised": rounds.linearised_round,
    "softmax": rounds.softmax_round,
    "private": rounds.private_round,
    "trust": rounds.trusting_round,
    "plan": rounds.planned,
    "sweep": rounds.sweep,
    "digits": digits.logistic_round,
    "accounting": privacy.accounting,
    "secure-noise": privacy.secure_noise,
    "million": scale.million,
    "growth": scale.growth,
    "ten-million": scale.ten_million,
    "parquet": scale.parquet,
    "mpi": mpi_scaling.scaling,
}
QUICK = (
    "start-up",
    "compiled-start",
    "bounds",
    "paper",
    "batched",
    "linearised",
    "softmax",
    "private",
    "trust",
    "digits",
    "million",
)
APART = ("ten-million",)  # 13 GB on disk and ten minutes: only when named after --only
REMARKS = [
    "BLAS runs in one thread throughout; rows with the clock “wall” use all cores on both sides.",
    "“solves every client in every round” forms and solves each client's normal equations anew, as a first "
    "version would; “inverts beforehand” multiplies by a stored inverse. Both do the servers' side pair by "
    "pair in Python. With the servers' side vectorised, as the loop was first written, the ratios were about "
    "64 and 11.2 when our own round still took 117 µs.",
    "The sweep was 80 before the batch size was tuned on this same case.",
    "Growth is by the fastest round of each size. With one thread at every size it is that of the memory hierarchy: "
    "10³ clients lie in cache, 10⁶ do not. Threads start to pay off between the two, which makes up for it.",
    "The rows of MPI have no goal: two ranks share two cores that other processes may want as well, and the fastest of "
    "12 rounds is taken in each of five turns. “Ours” is two ranks, “theirs” one.",
    "The numba engine's Huber round is several times shorter than NumPy's; the same normal numbers weigh more in it.",
    "Digits are mostly zeros. NumPy keeps them without; scipy's clients multiply them all, as written.",
]


if __name__ == "__main__":
    sys.exit(harness.main("bench", __doc__, CASES, REMARKS, QUICK, APART))
