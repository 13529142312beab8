"""Planted bugs in the linearised client step: its sensitivity, its projection, its noise and its promise."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

SEARCH = "tests/privacy/test_sensitivity.py::test_no_replaced_record_and_no_message_moves_the_solution_further"
WIDENED = "tests/privacy/test_sensitivity.py::test_rounding_widens_the_sensitivity_of_steps"
ORACLE = (
    "tests/simulate/test_simulator_against_oracle.py::"
    "test_linearised_steps_agree_in_every_shape_with_scheduling_and_noise"
)
HOSTILE = (
    "tests/privacy/test_hostile_messages.py::"
    "test_a_linearised_step_of_ridge_starts_inside_the_ball_whatever_the_model_is"
)
LONG = "tests/privacy/test_hostile_messages.py::test_a_huge_model_is_refused_by_a_linearised_step"
PROMISED = "tests/algorithms/test_assured.py::test_rounding_of_a_linearised_step_stays_within_what_is_promised"
WEIGHTED = "tests/simulate/test_simulator_against_oracle.py::test_counting_records_agrees_with_weighted_losses"
POOLED = "tests/simulate/test_full_records.py::test_counting_records_solves_the_pooled_problem"
OVERSHOOT = "tests/simulate/test_automatic_rho.py::test_gradient_steps_under_privacy_never_overshoot_what_bounds_allow"
BY_RECORDS = "tests/simulate/test_full_records.py::test_engines_and_devices_take_the_same_steps"
RECORDED = (
    "tests/simulate/compiled/test_engine.py::"
    "test_linearised_steps_agree_in_every_shape_with_scheduling_noise_and_threads"
)
IN_REGISTERS = "tests/simulate/compiled/test_gradients.py::test_steps_in_registers_are_plain_ones"
OF_RIDGE = "ridge, bounded, linearised"

LINEARISED: tuple[Mutant, ...] = (
    Mutant(
        "linearised-without-rho",
        "the Δ of a linearised step forgets its length 1/ρ",
        "With ρ below 1 a release moves further than its noise hides.",
        "LinearisedStep.sensitivity",
        "change * eq.linearised_reach(self.rho)",
        "change",
        (SEARCH,),
    ),
    Mutant(
        "linearised-m-for-rho",
        "the Δ of a linearised step has m = ρ + 2λ/|C_s| in the place of ρ",
        "The regulariser does not shorten the step; with a large λ the noise is far too small.",
        "LinearisedStep.sensitivity",
        "eq.linearised_reach(self.rho)",
        "eq.primal_reach(np.asarray(modulus))",
        (SEARCH,),
        ("huber, scattered, linearised/deployed",),
    ),
    Mutant(
        "linearised-rounding-uncounted",
        "the Δ of a linearised step has no term for rounding",
        "Two worlds may end further apart than Δ.",
        "LinearisedStep.sensitivity",
        "2.0 * error",
        "0.0 * error",
        (WIDENED,),
    ),
    Mutant(
        "linearised-few-records-in-full",
        "a client with few records takes a whole step, with the noise of a shortened one",
        "Its records move the release further than Δ.",
        "ClientRule.rho_of",
        "self.rho if self.full_records == 1 else eq.rho_by_records(self.rho, records, self.full_records)",
        "self.rho",
        (SEARCH, BY_RECORDS),
    ),
    Mutant(
        "linearised-few-records-in-full-compiled",
        "the compiled step of a client with few records is a whole one",
        "As above, in the compiled engine alone.",
        "_reach",
        "full_reach * rows / max(rows, full_records)",
        "full_reach",
        (BY_RECORDS,),
    ),
    Mutant(
        "few-records-in-full-fedavg",
        "federated averaging takes whole steps for a client with few records, with the noise of shortened ones",
        "Its records move the release further than Δ.",
        "GradientSteps.step_of",
        "self.step_size / self.rho_of(records) if self.full_records > 1 else self.step_size",
        "self.step_size",
        (SEARCH, WEIGHTED),
    ),
    Mutant(
        "few-records-held-loosely",
        "NumPy's primal problems have ρ for a client with few records, with the noise for a larger ρ_k",
        "Its records move the release further than Δ.",
        "array_blocks",
        "rule.rho_of(setup.layout.counts)",
        "rule.rho",
        (WEIGHTED,),
    ),
    Mutant(
        "few-records-wrong-centre",
        "the centre of the primal problem of a client with few records is that of ρ",
        "Its model is pulled towards zero.",
        "ProximalStep.centre",
        "self.rho_of(records)",
        "self.rho",
        (WEIGHTED,),
    ),
    Mutant(
        "few-records-held-loosely-compiled",
        "compiled primal problems have ρ for a client with few records",
        "As above, in the compiled engine alone.",
        "kind:CompiledKind.prepare",
        "rule.rho_of(setup.layout.counts)",
        "rule.rho",
        (POOLED,),
    ),
    Mutant(
        "records-of-any-client",
        'count = "records" takes the fewest records of a client for the most',
        "Large clients count no more than small ones.",
        "with_count",
        "federation.counts.max(initial=1)",
        "federation.counts.min()",
        (POOLED,),
    ),
    Mutant(
        "automatic-rho-overshoots",
        "ρ is chosen as if rows pointed in all directions alike",
        "ε = 8 ended at R² −1.5, worse than ε = 4.",
        "rho:_public",
        "bend * weight * privacy.x_norm**2 + ridge",
        "bend * weight * variance + ridge",
        (OVERSHOOT,),
    ),
    Mutant(
        "linearised-unprojected",
        "a linearised step takes its gradient at the server's model, however long it is",
        "The gradient of ridge grows with the model, which the server chooses: Δ is no bound.",
        "LinearisedStep.step",
        "problem.projected(server_model)",
        "server_model",
        (HOSTILE,),
        (f"{OF_RIDGE}/simulator", f"{OF_RIDGE}/device"),
    ),
    Mutant(
        "linearised-unprojected-on-devices",
        "a device does not project the model",
        "As above, on a device alone.",
        "_OneClient.projected",
        "np.asarray(eq.project(w, self.objective.domain))",
        "w",
        (HOSTILE,),
        (f"{OF_RIDGE}/device",),
    ),
    Mutant(
        "linearised-unprojected-in-simulations",
        "a simulation does not project the model",
        "As above, in a simulation alone.",
        "BlockProblem.projected",
        "eq.project(w, buckets[0].objective.domain)",
        "w",
        (),
        (f"{OF_RIDGE}/simulator",),
    ),
    Mutant(
        "linearised-noise-before-the-gradient",
        "noise is added to the model before the gradient step and not after it",
        "The step contracts the noise: where ρ is the curvature of a record, nothing is left of it.",
        "LinearisedStep.step",
        "centre = problem.projected(server_model)",
        "centre = release(problem.projected(server_model))\nrelease = lambda model: model",
        (ORACLE,),
    ),
    Mutant(
        "linearised-rounding-unbounded",
        "a linearised step starts from a model of any length",
        "Rounding takes the two worlds further apart than Δ.",
        "LinearisedPromise.refusal",
        "start <= LARGEST and _below(self.rounding(start), self.tolerance)",
        "start <= LARGEST",
        (LONG, PROMISED),
    ),
    Mutant(
        "linearised-ridge-compiled",
        "the compiled kernels take norm-constrained ridge for plain ridge",
        "They know no projection.",
        "_settings",
        "compiled_form(objective) if objective.domain is None else None",
        "compiled_form(objective)",
        ("tests/simulate/compiled/test_engine.py::test_what_the_kernels_do_not_know_is_computed_all_the_same",),
    ),
    Mutant(
        "linearised-regulariser-forgotten",
        "the compiled linearised step has no regulariser",
        "The model that is released is not that of the equations.",
        "simulate.compiled.gradients:_kept",
        "1.0 - reach * problems.ridge_penalty[k]",
        "1.0",
        ("tests/simulate/compiled/test_engine.py::test_linearised_steps_agree_with_plain_loops",),
    ),
    Mutant(
        "linearised-gradients-not-averaged",
        "the compiled linearised step adds the gradients of a client's records up instead of averaging them",
        "One record moves the step D_k times as far as Δ says.",
        "_move",
        "-reach / problems.counts[k]",
        "-reach",
        (IN_REGISTERS,),
    ),
    Mutant(
        "linearised-numbers-repeated",
        "the compiled step in registers counts the numbers twice that two registers share",
        "The gradient is taken at another margin than the model's.",
        "gradient_phase_in_registers",
        "zero_repeats(new, dimension)",
        "new",
        (IN_REGISTERS,),
    ),
    Mutant(
        "linearised-clean-sum",
        "the compiled linearised step adds clean models to the sum of released ones",
        "The servers' models are not functions of the releases.",
        "CompiledEngine.client_phase",
        "compiled.sum_contributions(part.flat, bounds, state.released, state.dual, means)",
        "compiled.sum_contributions(part.flat, bounds, state.model, state.dual, means)",
        (RECORDED,),
    ),
    Mutant(
        "several-steps-without-convexity",
        "FedAvg takes several steps on a loss that is not convex and counts them as if they could not spread",
        "Two worlds drift apart faster than the sum of the steps.",
        "GradientSteps.sensitivity",
        "not objective.convex and self.local_steps > 1",
        "False",
        ("tests/privacy/test_sensitivity.py::test_several_steps_on_a_loss_that_is_not_convex_are_refused",),
    ),
)
