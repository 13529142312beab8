"""Planted bugs where the clients of a pair share their noise: who is counted, how much noise, what is charged."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

TRUST = "tests/privacy/test_trust.py::"
HONEST = TRUST + "test_those_who_are_sure_to_be_honest_are_never_more_than_can_be_counted_on"
DISTANCE = TRUST + "test_the_distance_from_a_gaussian_bounds_the_true_one"
ROUNDED = TRUST + "test_rounding_to_the_lattice_takes_neighbours_apart_by_no_more_than_is_counted"
DUAL = TRUST + "test_a_dual_is_refused_in_python_and_in_a_config"
LEVELS = "tests/simulate/test_trust_levels.py::"
LOOPS = LEVELS + "test_noise_and_charges_are_those_of_plain_loops"
LATTICE = LEVELS + "test_float_safe_sums_are_exact_on_the_lattice_and_have_the_noise_that_is_stated"
SHARED = "tests/privacy/test_mechanism.py::test_where_noise_is_shared_pairs_sit_out_and_end_as_in_a_loop"
SITTING = LEVELS + "test_pairs_with_too_few_contributors_sit_out_and_nobody_is_charged"
CLEAN = LEVELS + "test_no_clean_model_and_no_clean_mean_is_left_outside_simulation_only"
KEPT = LEVELS + "test_a_continuation_keeps_its_trust"
WORLDS = (
    "tests/privacy/test_two_worlds_of_pairs.py::"
    "test_one_record_changes_nothing_outside_but_sums_and_those_by_delta_at_most"
)

OF_TRUST: tuple[Mutant, ...] = (
    Mutant(
        "trust-colluders-counted-as-honest",
        "colluders count as sources of noise",
        "They know their own shares and subtract them; what is left is less than was paid for.",
        "Trust.honest",
        "self.required(invited) - self.colluders",
        "self.required(invited)",
        (HONEST,),
    ),
    Mutant(
        "trust-dropouts-forgotten",
        "shares are made as if nobody dropped out",
        "With the shares of those who did, noise is missing from the sum.",
        "Trust.required",
        "invited - lost",
        "invited",
        (TRUST + "test_dropouts_leave_fewer_honest_shares_to_count_on",),
    ),
    Mutant(
        "trust-least-sigma-of-a-pair",
        "a pair has the least σ that one of its contributors asks for",
        "The others' records are hidden by too little noise.",
        "SharedNoise.sigma",
        "largest = np.zeros(self._pairs)\nnp.maximum.at(largest, pair, asked)",
        "largest = np.full(self._pairs, np.inf)\nnp.minimum.at(largest, pair, asked)",
        (LOOPS,),
    ),
    Mutant(
        "trust-charged-for-the-mean",
        "a contributor is charged for an average Δ",
        "Those with fewer records spend more than their account says.",
        "SharedNoise.charges",
        "charge(sensitivity, sigma, self.slack)",
        "charge(np.full(len(sensitivity), sensitivity.mean()), sigma, 0.0)",
        (LOOPS,),
    ),
    Mutant(
        "trust-nothing-charged",
        "pairs release, and nobody is charged",
        "The account stays empty.",
        "Plan._charge",
        "self.shared.charges(clients, self.sensitivity[clients], sigma)",
        "0.0 * self.shared.charges(clients, self.sensitivity[clients], sigma)",
        (LOOPS, WORLDS),
    ),
    Mutant(
        "trust-noise-divided-by-the-square",
        "the noise of a mean is divided by n²",
        "A sum's noise is divided by n, as the sum is.",
        "SeededPairNoise.deviations",
        "sigma * np.sqrt(self._excess_of(counts)) / counts",
        "sigma * np.sqrt(self._excess_of(counts)) / counts**2",
        (LOOPS,),
    ),
    Mutant(
        "trust-share-of-all-contributors",
        "every contributor adds σ²/n, not σ²/h",
        "The shares of colluders do not hide anything.",
        "masked_contributions",
        "math.sqrt(trust.honest(len(points)))",
        "len(points)",
        (LATTICE,),
    ),
    Mutant(
        "trust-aggregate-before-noise",
        "what a pair's clients contributed is published before it has noise",
        "Nothing is hidden at all.",
        "Engine.release_means",
        "self.xp.asarray(noised)",
        "self.xp.asarray(clean)",
        (LOOPS, CLEAN),
    ),
    Mutant(
        "trust-released-is-the-model",
        "the clean model of a client is handed out as its release",
        "It is in models.npz, for everyone.",
        "Engine.release_means",
        "pick(released, part.pair - part.block.pairs.start)",
        "models",
        (CLEAN, LOOPS),
    ),
    Mutant(
        "trust-small-pairs-take-part",
        "a pair takes part however few its contributors are, once an account can meet a limit",
        "The sum of one is that client's own model.",
        "Plan.admit",
        "admitted[admitted] = self.shared.able(clients[admitted])",
        "pass",
        (SHARED,),
    ),
    Mutant(
        "trust-small-pairs-take-part-while-all-can-pay",
        "a pair takes part however few its contributors are, as long as no account meets a limit",
        "The sum of one is that client's own model.",
        "Plan.charged",
        "clients = clients[self.shared.able(clients)]",
        "pass",
        (SHARED, SITTING),
    ),
    Mutant(
        "trust-lattice-slack-forgotten",
        "float-safe sums are calibrated to Δ without the lattice's rounding",
        "Two neighbours may be further apart than that.",
        "to_lattice",
        "np.rint(scaled).astype(np.int64)",
        "np.floor(scaled / 1024).astype(np.int64) * 1024",
        (ROUNDED,),
    ),
    Mutant(
        "trust-dual-allowed",
        "clients with a dual may share noise",
        "The dual keeps a model that nobody released.",
        "Trust.check",
        "self.aggregates and algorithm.client_rule.has_dual",
        "False",
        (DUAL,),
    ),
    Mutant(
        "trust-changed-by-a-continuation",
        "a continuation may have another trust",
        "One account would state two promises.",
        "privacy.carried:KEPT",
        '("phi0", "phi1", "zeta", "delta", "index", "guarantee", "trust", "colluders")',
        '("phi0", "phi1", "zeta", "delta", "index", "guarantee")',
        (KEPT,),
    ),
    Mutant(
        "trust-distance-forgotten",
        "a sum of discrete Gaussians counts as one",
        "On a coarse lattice it is further away than rounding.",
        "distance_from_gaussian",
        "10.0 * math.fsum(math.exp(-2.0 * (math.pi * share_units) ** 2 * k / (k + 1)) for k in range(1, honest))",
        "0.0 * math.fsum(math.exp(-2.0 * (math.pi * share_units) ** 2 * k / (k + 1)) for k in range(1, honest))",
        (DISTANCE,),
    ),
)
