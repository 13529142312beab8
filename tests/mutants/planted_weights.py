"""Planted bugs in the weights of records: their cap, and its part in the sensitivity."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

FURTHEST = "test_no_replaced_record_and_no_message_moves_the_solution_further"
SEARCH = f"tests/privacy/test_sensitivity.py::{FURTHEST}[weights, huber]"
CAPPED = "tests/simulate/test_weights.py::test_no_weight_above_the_cap_counts"
GROWS = "tests/simulate/test_weights.py::test_a_cap_only_ever_grows"
DEVICES = "tests/network/test_weighted_records.py::test_{}"
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
    Mutant(
        "device-weights-not-capped",
        "a device does not clip weights to the training's cap",
        "A single record of a huge weight moves an answer as far as it likes.",
        "Samples.targets_for",
        "clip_weights(weights, cap)",
        "weights",
        (
            DEVICES.format("weights_are_clipped_to_the_training_s_cap"),
            DEVICES.format("no_replaced_record_whatever_its_weight_moves_an_answer_further_than_is_charged"),
        ),
    ),
    Mutant(
        "device-delta-without-cap",
        "the loss of a network's training forgets the largest weight",
        "The noise of devices and trusted sites is too weak by the cap.",
        "Training.build_objective",
        "weighted(objective, self.largest_weight)",
        "weighted(objective, 1.0)",
        (
            DEVICES.format("the_noise_of_a_device_and_of_a_trusted_site_grows_with_the_cap"),
            DEVICES.format("no_replaced_record_whatever_its_weight_moves_an_answer_further_than_is_charged"),
        ),
    ),
    Mutant(
        "device-weight-limit-ignored",
        "a device takes part whatever weights a training allows",
        "A site makes records count as much as it likes, and the owner's noise drowns the rest.",
        "TrainingLimits.refused",
        "training.largest_weight or 1.0",
        "1.0",
        (DEVICES.format("a_client_takes_part_up_to_its_own_limit_and_by_default_with_records_that_count_alike"),),
    ),
)
