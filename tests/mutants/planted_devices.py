"""Planted bugs of what runs on a client's device: the noise it adds, what it promises, answers, clips and accepts."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

ROUNDS = "tests/deploy/test_client_rounds.py::"
NOISED = ROUNDS + "test_what_leaves_is_what_float_safe_noise_gave_for_the_sigma_that_is_paid"
CALIBRATED = ROUNDS + "test_the_noise_is_calibrated_for_the_problem_that_is_solved"
SLACK = ROUNDS + "test_the_lattice_of_the_noise_is_counted_in_the_sensitivity"
ENDED = ROUNDS + "test_the_budget_ends_and_stays_ended"
SAME_REFUSAL = ROUNDS + "test_refusals_are_the_same_bytes_whatever_the_data_is"
ASSURED = "tests/core/test_assured.py::"
ACCURATE = ASSURED + "test_answers_are_as_accurate_as_promised_whatever_the_fast_solver_does"
GRADIENT = ASSURED + "test_the_rounding_of_a_gradient_is_within_its_bound"
DESCENT = ASSURED + "test_rounding_of_gradient_steps_stays_within_what_is_promised"
HUGE = "tests/privacy/test_hostile_messages.py::test_a_huge_model_is_refused_before_anything_is_released"
ACCEPTANCE = "tests/deploy/test_acceptance.py::"
WITHIN = ACCEPTANCE + "test_rows_and_labels_are_within_bounds_after_the_intercept_is_added"
TABLE = "tests/deploy/test_client_data.py::test_csv_and_parquet_are_the_same_and_rows_are_clipped"
STREAM = "huber, scattered/deployed"
ACCOUNTS, CLIENT, CLIENT_ROUNDS, SAMPLES = (
    "deploy/client/accounts.py",
    "deploy/client/client.py",
    "deploy/client/client_rounds.py",
    "deploy/client/client_samples.py",
)
DRAWN = "        released: Floats = self.noise.release(model[None], sigma, nobody, slot.number)[0]\n"

NOISE = (
    Mutant(
        "device-no-noise",
        "a device adds no noise",
        "The clean model leaves, and the ledger says that it was paid for.",
        ACCOUNTS,
        DRAWN,
        "        released: Floats = model\n",
        (NOISED,),
        (STREAM,),
        worst=True,
    ),
    Mutant(
        "device-sigma-tiny",
        "a device's noise has σ · 10⁻⁶",
        "The release is the clean model to six digits.",
        ACCOUNTS,
        "sigma, nobody = np.array([slot.sigma]), ",
        "sigma, nobody = np.array([1e-6 * slot.sigma]), ",
        (NOISED,),
        (STREAM,),
    ),
    Mutant(
        "device-next-sigma",
        "a device's release has the σ of the next one",
        "It leaks the φ of the next and is charged its own.",
        ACCOUNTS,
        "sigma, nobody = np.array([slot.sigma]), ",
        "sigma, nobody = np.array([slot.sigma * self.privacy.zeta**0.5]), ",
        (NOISED,),
    ),
    Mutant(
        "device-sigma-by-round",
        "a device's σ follows the site's round number",
        "A site that begins at a late round gets little noise.",
        ACCOUNTS,
        "sigma, nobody = np.array([slot.sigma]), ",
        'late = int(slot.round_key.rpartition("/")[2]) - slot.number\n'
        "        sigma, nobody = np.array([slot.sigma * self.privacy.zeta ** (0.5 * late)]), ",
        (NOISED,),
    ),
    Mutant(
        "device-clean-after-restart",
        "the first release after a restart is clean",
        "A site that waits for a restart gets a clean model.",
        ACCOUNTS,
        DRAWN,
        f'{DRAWN}        if not hasattr(self, "warm") and slot.number > 1:\n            released = model\n'
        "        self.warm = True\n",
        (NOISED,),
        (STREAM,),
        worst=True,
    ),
    Mutant(
        "device-last-clean",
        "the last coordinate of a device's release is clean",
        "One coefficient, the intercept perhaps, leaves without noise.",
        ACCOUNTS,
        DRAWN,
        f"{DRAWN}        released[-1] = model[-1]\n",
        (NOISED,),
        (STREAM,),
    ),
    Mutant(
        "device-last-tenth",
        "the last coordinate of a device's release has a tenth of the noise",
        "One coefficient leaks a hundred times what is charged.",
        ACCOUNTS,
        DRAWN,
        f"{DRAWN}        released[-1] = model[-1] + 0.1 * (released[-1] - model[-1])\n",
        (NOISED,),
        (STREAM,),
    ),
    Mutant(
        "device-float-addition",
        "a device draws float-safe noise around 0 and adds it in floating point",
        "Which floats can be reached depends on the model again.",
        ACCOUNTS,
        DRAWN,
        "        released: Floats = model + self.noise.release(0.0 * model[None], sigma, nobody, slot.number)[0]\n",
        (NOISED,),
    ),
    Mutant(
        "device-noise-seeded-by-the-clock",
        "a device's noise is a Gaussian seeded with the time",
        "Who guesses the moment takes the noise out.",
        ACCOUNTS,
        DRAWN,
        '        clock = np.random.default_rng(__import__("time").time_ns())\n'
        "        released: Floats = model + sigma[0] * clock.standard_normal(len(model))\n",
        (NOISED,),
    ),
    Mutant(
        "device-noise-seeded",
        "a device draws the noise of simulations",
        "It is reproducible, and drawn in floating point.",
        ACCOUNTS,
        "privacy, samples, SecureNoise(dimension))",
        'privacy, samples, __import__("pgfl.privacy.noise", fromlist=["_"]).SeededNoise(\n'
        "            lambda clients, round, d: np.random.default_rng(round).standard_normal((1, d))\n        ))",
        (NOISED,),
    ),
    Mutant(
        "device-lattice-slack-dropped",
        "a device's Δ is not widened by the lattice of its noise",
        "Rounding to the lattice takes neighbours further apart than Δ.",
        ACCOUNTS,
        "return float(self.noise.widen(plain)[0])",
        "return float(plain[0])",
        (SLACK,),
    ),
    Mutant(
        "device-m-at-one-client",
        "a device calibrates with m at |C_s| = 1",
        "The problem that is solved has a smaller m, so models move further than Δ.",
        ACCOUNTS,
        "client.strong_convexity(server_clients)",
        "client.strong_convexity(1)",
        (CALIBRATED,),
        (STREAM,),
    ),
    Mutant(
        "device-phi1-for-phi0",
        "a device takes φ(1) for φ(0)",
        "Every release spends 1/ζ times what its owner stated.",
        "privacy/budget.py",
        "phi0 = phi1 * zeta",
        "phi0 = phi1",
        (ROUNDS + "test_the_first_release_spends_phi1_where_its_owner_states_it",),
    ),
    Mutant(
        "device-tolerance-forgotten",
        "a device's Δ does not count that solutions are inexact",
        "Two worlds may end on different sides of their argmins.",
        ACCOUNTS,
        "        tolerance = client.tolerance(server_clients)\n",
        "        tolerance = 0.0\n",
        (CALIBRATED,),
    ),
)

PROMISED = (
    Mutant(
        "certificate-unchecked",
        "the fast solver's answer is believed",
        "Where it stops early depends on the data, and by more than Δ counts.",
        "core/assured.py",
        "if quick is not None and self._certified(quick, centre, gradient):",
        "if quick is not None:",
        (ACCURATE,),
        worst=True,
    ),
    Mutant(
        "certificate-without-conditioning",
        "the certificate takes the last step for the distance to the solution",
        "In an ill-conditioned problem short steps remain far from it.",
        "core/assured.py",
        "return left * self.steepest <= CERTIFIED * self.tolerance * self.modulus",
        "return left <= CERTIFIED * self.tolerance",
        (ACCURATE,),
    ),
    Mutant(
        "fallback-to-the-centre",
        "where the certificate fails, the centre is released",
        "One world jumps to it and the other does not.",
        "core/assured.py",
        "        return self.slow_but_sure(centre, gradient)\n",
        "        return self._projected(centre)\n",
        (ACCURATE,),
    ),
    Mutant(
        "fallback-half-the-steps",
        "the fallback makes half of the steps that the worst data needs",
        "It ends outside of the tolerance for some data.",
        "core/assured.py",
        "for _ in range(int(self.steps)):",
        "for _ in range(int(self.steps) // 2):",
        (ACCURATE,),
    ),
    Mutant(
        "fallback-leaves-the-ball",
        "the fallback does not keep to ridge's ‖w‖ ≤ W",
        "Δ is that of the constrained problem.",
        "core/assured.py",
        "return model if radius is None or length <= radius else model * (radius / length)",
        "return model",
        (ACCURATE,),
    ),
    Mutant(
        "solver-failure-shows",
        "an error of the fast solver ends the round",
        "Whether it fails depends on the data.",
        "core/assured.py",
        "np.linalg.LinAlgError):\n        return None\n",
        "np.linalg.LinAlgError):\n        raise\n",
        (ACCURATE,),
    ),
    Mutant(
        "steps-unlimited",
        "a training may need any number of steps",
        "Then the answer is as late, or as inexact, as the data makes it.",
        "core/assured.py",
        "if not self.steps <= self.most_steps:",
        "if False:",
        (ASSURED + "test_a_step_cap_is_the_owners",),
    ),
    Mutant(
        "rounding-unbounded",
        "a model of any length is computed with",
        "Rounding takes the two worlds further apart than Δ.",
        "core/assured.py",
        "return None if _below(self.rounding(centre), 0.5 * self.tolerance) else Refusal.TOO_LONG",
        "return None",
        (HUGE,),
    ),
    Mutant(
        "rounding-of-the-gradient-dropped",
        "rounding in the gradient is not counted",
        "It grows with the model, and so may be larger than Δ.",
        "core/assured.py",
        "return EPS * (of_margins * self.smoothness * size + of_slopes * self.gradient)",
        "return 0.0",
        (GRADIENT,),
    ),
    Mutant(
        "fedavg-rounding-unbounded",
        "FedAvg starts from a model of any length",
        "Rounding takes the two worlds further apart than Δ.",
        "core/assured.py",
        "return None if _below(self.rounding(start), self.tolerance) else Refusal.TOO_LONG",
        "return None",
        (DESCENT,),
    ),
    Mutant(
        "fedavg-rounding-uncounted",
        "FedAvg's Δ has no term for rounding",
        "Two worlds were 45,517 Δ apart.",
        "privacy/sensitivity.py",
        "rule.reach(1.0) * change / records + 2.0 * error",
        "rule.reach(1.0) * change / records + 0.0 * error",
        ("tests/privacy/test_sensitivity.py::test_rounding_widens_the_sensitivity_of_steps",),
    ),
    Mutant(
        "problem-of-another-size",
        "the problem of the last |C_s| is solved again",
        "A smaller m than the one that Δ is computed with.",
        "core/roles.py",
        "if self._problem is None or self._problem.server_clients != server_clients:",
        "if self._problem is None:",
        (ASSURED + "test_a_client_solves_for_the_size_that_it_is_told_each_time",),
    ),
    Mutant(
        "device-clean-dual",
        "a device's dual is built from the clean model",
        "The next answer gives the clean model away.",
        "core/roles.py",
        "self.sent = (request.round, step.released[0])",
        "self.sent = (request.round, step.model[0])",
        (ROUNDS + "test_the_dual_advances_only_on_confirmed_acceptance_and_once",),
        (STREAM,),
    ),
)

ANSWERS = (
    Mutant(
        "device-retry-noised-afresh",
        "a round that is asked for again is noised afresh, for free",
        "The mean of a thousand answers is the clean model.",
        CLIENT_ROUNDS,
        "            return known.payload or decline(request.round, Refusal.LOST_ROUND)\n",
        "            before, self.role.sent = self.role.state(), None\n"
        "            made = self.role.answer(request, lambda model: self.account.perturbed(known, model))\n"
        "            self.role.restore(before)\n"
        "            return encode_answer(made, known.number)\n",
        (ROUNDS + "test_a_repeated_round_gets_the_same_bytes_whatever_comes_with_it",),
        worst=True,
    ),
    Mutant(
        "device-void-made-anew",
        "a round whose answer was lost is made anew, for free",
        "Who can kill the client after it has sent gets one release after the other.",
        CLIENT_ROUNDS,
        "            return known.payload or decline(request.round, Refusal.LOST_ROUND)\n",
        "            made = self.role.answer(request, lambda model: self.account.perturbed(known, model))\n"
        "            return known.payload or encode_answer(made, known.number)\n",
        (ROUNDS + "test_what_is_paid_stays_paid_whatever_happens_then",),
    ),
    Mutant(
        "device-clean-once-spent",
        "once the budget is spent, the clean model leaves",
        "A site asks until the budget is spent, and once more.",
        CLIENT_ROUNDS,
        "return decline(request.round, Refusal.SPENT, final=True)",
        "return encode_answer(self.role.answer(request, lambda model: model), 1)",
        (ENDED,),
        (STREAM,),
    ),
    Mutant(
        "device-computes-before-it-pays",
        "a device looks at its data before it has paid",
        "A failure or a kill there is an answer that costs nothing.",
        CLIENT_ROUNDS,
        "            with self.account.reserve(",
        "            self.role._problem_at(request.server_clients).prepared  # noqa: B018\n"
        "            with self.account.reserve(",
        (ROUNDS + "test_the_charge_is_on_disk_before_data_is_touched",),
    ),
    Mutant(
        "device-refusal-with-figures",
        "a refusal carries a number computed from the data",
        "Refusals are free: eight labels were read from such texts.",
        CLIENT_ROUNDS,
        "return decline(request.round, refusal) if refusal else",
        'return decline(request.round, f"{refusal} ({self.role._targets.mean():.6g})") if refusal else',
        (SAME_REFUSAL,),
        worst=True,
    ),
    Mutant(
        "device-spent-with-figures",
        "the refusal of a spent budget carries a number computed from the data",
        "As above.",
        CLIENT_ROUNDS,
        "decline(request.round, Refusal.SPENT, final=True)",
        'decline(request.round, f"{Refusal.SPENT} ({self.role._targets.mean():.6g})", final=True)',
        (SAME_REFUSAL,),
    ),
    Mutant(
        "device-refuses-by-its-data",
        "whether a model is too long is decided by the loss at it",
        "Answer or refusal is a free question about the data.",
        "core/roles.py",
        "            return self._refusal(self._model_of(request), self._dual_at(request), request.server_clients)\n",
        "            model, dual = self._model_of(request), self._dual_at(request)\n"
        "            if self.terms and np.abs(self._features @ model - self._targets).max() > 1e3:\n"
        "                return Refusal.TOO_LONG\n"
        "            return self._refusal(model, dual, request.server_clients)\n",
        (
            "tests/privacy/test_hostile_messages.py::test_the_refusal_depends_on_the_message_alone",
            ASSURED + "test_no_training_and_no_model_breaks_the_judgement",
        ),
    ),
    Mutant(
        "device-welcome-unheeded",
        "a client does not compare its ledger with what the site has received",
        "A ledger put back from a backup spends again what is spent.",
        CLIENT,
        "        self.rounds.welcomed(welcome.releases)\n",
        "",
        (
            "tests/deploy/test_site_memory.py::"
            "test_an_answer_that_is_not_accepted_is_remembered_and_an_older_ledger_stops",
        ),
    ),
    Mutant(
        "device-ledger-begun-anew",
        "a client that starts again begins a new ledger",
        "Every restart forgets the account.",
        ACCOUNTS,
        "        return cls(Ledger.open_or_create(path, client, policy), privacy,",
        '        for ending in ("", ".anchor"):\n'
        "            path.with_name(path.name + ending).unlink(missing_ok=True)\n"
        "        return cls(Ledger.open_or_create(path, client, policy), privacy,",
        (ENDED,),
        worst=True,
    ),
)

ACCEPTED = (
    Mutant(
        "device-intercept-after-clipping",
        "a device appends the intercept after it has clipped its rows",
        "Rows are longer than the bound that Δ is computed with.",
        SAMPLES,
        "    features = np.column_stack([columns[name] for name in names] + [np.ones(int(filled.sum()))] * "
        "settings.intercept)\n    return clipped(settings, features, columns[settings.target])\n",
        "    within = clipped(settings, np.column_stack([columns[name] for name in names]), columns[settings.target])\n"
        "    ones = [np.ones(int(filled.sum()))] * settings.intercept\n"
        "    return Samples(np.column_stack([within.features, *ones]), within.targets)\n",
        (WITHIN,),
        (STREAM,),
    ),
    Mutant(
        "device-rows-unclipped",
        "a device does not clip its rows",
        "Δ is no bound for longer rows.",
        SAMPLES,
        "    if privacy.enabled and privacy.x_norm is not None:\n",
        "    if False:\n",
        (TABLE,),
        (STREAM,),
    ),
    Mutant(
        "device-labels-unclipped",
        "a device does not clip its labels",
        "Ridge's Δ is no bound for larger labels.",
        SAMPLES,
        "    if privacy.enabled:\n        targets",
        "    if False:\n        targets",
        (TABLE,),
        ("ridge, bounded/deployed",),
    ),
    Mutant(
        "device-labels-without-a-bound",
        "a device clips labels only where a bound is stated",
        "A label of 10²⁰ shows in how a problem is solved.",
        SAMPLES,
        "    if privacy.enabled:\n        targets",
        "    if privacy.enabled and privacy.y_bound:\n        targets",
        (WITHIN,),
    ),
    Mutant(
        "device-limits-unchecked",
        "a device takes part in a training outside of its limits",
        "The site chooses ρ, κ and λ.",
        CLIENT,
        "if refused := self.settings.limits.refused(training, cluster):",
        "if refused := None:",
        (ACCEPTANCE + "test_a_training_outside_the_limits_is_refused_by_its_key",),
    ),
    Mutant(
        "device-limits-of-another-cluster",
        "limits are compared with the training of all clusters, not with the client's own",
        "A site hides what it asks for in the table of one cluster.",
        "deploy/client/client_settings.py",
        "objective, algorithm = training.objective.of(cluster), training.algorithm",
        "objective, algorithm = training.objective, training.algorithm",
        (ACCEPTANCE + "test_a_training_outside_the_limits_is_refused_by_its_key",),
    ),
    Mutant(
        "device-task-by-labels",
        "a training for another task is refused by looking at the labels",
        "Asking for logistic regression tells whether a label is not 0 or 1.",
        CLIENT,
        "if TASK_OF[kind] != self.settings.task:",
        "if not training.build_objective(cluster).suitable(self.samples.targets).all():",
        (ACCEPTANCE + "test_another_task_is_refused_by_declarations_whatever_the_labels_are",),
    ),
    Mutant(
        "device-task-unchecked-at-the-start",
        "labels are not checked against the declared task when they are loaded",
        "They are checked when a site has asked, and it sees the outcome.",
        SAMPLES,
        "    _check_task(settings, table, columns[settings.target], filled)\n",
        "",
        (ACCEPTANCE + "test_labels_that_do_not_suit_the_declared_task_end_the_client_before_it_speaks",),
    ),
    Mutant(
        "device-training-not-pinned",
        "a changed training is taken without asking the owner",
        "A site changes its terms after it was trusted.",
        "deploy/client/acceptance.py",
        "    if changes:\n",
        "    if False:\n",
        (ACCEPTANCE + "test_the_first_training_is_pinned_and_another_one_needs_the_owner",),
    ),
    Mutant(
        "device-cluster-not-pinned",
        "another cluster is taken without asking the owner",
        "A cluster may have an objective of its own.",
        "deploy/client/acceptance.py",
        "moved = [] if self.cluster == other.cluster else [",
        "moved = [] if True else [",
        (ACCEPTANCE + "test_another_cluster_needs_the_owner_too",),
    ),
    Mutant(
        "device-damaged-pin-is-none",
        "a pinned training that cannot be read counts as none",
        "The next training, whatever it is, is pinned silently.",
        "deploy/client/acceptance.py",
        "    except FileNotFoundError:\n        return None\n    except (",
        "    except (FileNotFoundError, ValueError, KeyError):\n        return None\n    except (",
        (ACCEPTANCE + "test_a_damaged_pin_is_not_an_invitation",),
    ),
    Mutant(
        "device-tolerance-of-the-site",
        "the training says how accurately a client solves",
        "With tolerance = 10⁻⁵ the solver stopped at the centre and said so.",
        CLIENT,
        "Terms(bounds, limits.tolerance, limits.solver_steps)",
        "Terms(bounds, training.objective.of(offer.cluster).tolerance, limits.solver_steps)",
        (ACCEPTANCE + "test_the_sites_tolerance_is_not_used",),
    ),
    Mutant(
        "device-objective-with-the-tolerance-of-the-site",
        "the training's tolerance reaches the fast solver",
        "As above.",
        "deploy/agreed_training.py",
        'model_copy(update={"tolerance": LEAST_TOLERANCE})',
        "model_copy()",
        (ACCEPTANCE + "test_the_sites_tolerance_is_not_used",),
    ),
)

DEVICES: tuple[Mutant, ...] = (*NOISE, *PROMISED, *ANSWERS, *ACCEPTED)
