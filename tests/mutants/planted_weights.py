"""Planted bugs in the weights of records: their cap, and its part in the sensitivity."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

FURTHEST = "test_no_replaced_record_and_no_message_moves_the_solution_further"
SEARCH = f"tests/privacy/test_sensitivity.py::{FURTHEST}[weights, huber]"
CAPPED = "tests/simulate/test_weights.py::test_no_weight_above_the_cap_counts"
GROWS = "tests/simulate/test_weights.py::test_a_cap_only_ever_grows"
DIRECT = "tests/simulate/test_weights.py::test_the_noise_grows_with_the_cap"

WEIGHTS: tuple[Mutant, ...] = (
    Mutant(
        "weights-not-capped",
        "weights are not clipped to their cap",
        "A single record of a huge weight moves a release as far as it likes.",
        "Privacy.bounded",
        "clip_weights(weights.astype(precision, copy=False), self.weight_cap)",
        "weights.astype(precision, copy=False)",
        (CAPPED,),
    ),
    Mutant(
        "weights-delta-without-cap",
        "the change of a weighted gradient has no cap",
        "The noise is too weak by the cap.",
        "_Weighted.gradient_change",
        "self.cap * max(change, bound)",
        "max(change, bound)",
        (DIRECT, SEARCH),
    ),
    Mutant(
        "weights-smoothness-without-cap",
        "the smoothness of a weighted loss has no cap",
        "FedAvg's steps are longer than its sensitivity allows.",
        "_Weighted.smoothness",
        "self.cap * smoothness",
        "smoothness",
        ("tests/simulate/test_weights.py::test_steps_that_weights_make_too_long_are_refused",),
    ),
    Mutant(
        "weights-smaller-cap-kept",
        "a loss that was made for a smaller cap keeps it",
        "The noise is calibrated for lighter records than are allowed.",
        "weighted",
        "max(cap, objective.cap)",
        "objective.cap",
        (GROWS,),
    ),
)
