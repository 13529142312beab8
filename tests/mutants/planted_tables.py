"""Planted bugs in what a person with a table relies on: measures, verdicts, predictions, columns, sentences."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

HELD_OUT = "tests/simulate/test_held_out.py::"
MEASURES = "tests/algorithms/test_measures.py::"
MODEL = "tests/results/test_model.py::"
MONITOR = "tests/simulate/test_monitor.py::"
DROWNED = "tests/simulate/test_drowned.py::"
DECLARED = "tests/federation/test_declared.py::"
RUN = "tests/cli/test_run.py::"
FOUND = "tests/test_found_once.py::"
MISTAKE = "tests/test_python_mistakes.py::test_a_mistake_is_answered_in_one_sentence"
DIVERGES = RUN + "test_a_diverging_run_leaves_its_result_and_fails"

TABLES: tuple[Mutant, ...] = (
    # --- measures ---------------------------------------------------------------------------------------------------
    Mutant(
        "accuracy-of-a-regression",
        "a regression is measured by the sign of its predictions",
        "Any regression with a test table had an accuracy of 100 %; its R² was −59,543.",
        "of_task",
        "task in MEASURES[name].tasks",
        '"classification" in MEASURES[name].tasks',
        (
            HELD_OUT + "test_no_accuracy_of_a_regression_and_no_r2_of_a_classification",
            FOUND + "test_the_files_of_a_run_name_the_measures_of_its_task",
        ),
    ),
    Mutant(
        "measures-of-the-whole-only",
        "the history has no column per cluster",
        "A cluster that is served badly is not seen.",
        "HeldOut._note",
        "1 < len(names) <= CLUSTERS_SHOWN",
        "False",
        (
            HELD_OUT + "test_the_figures_are_means_over_clients_of_their_own_models",
            FOUND + "test_the_files_of_a_run_name_the_measures_of_its_task",
        ),
    ),
    Mutant(
        "best-client-for-the-worst",
        "the worst client is the best one",
        "Fairness over clients looks perfect.",
        "ClientFigures.measured",
        "-1",
        "0",
        (HELD_OUT + "test_clients_are_compared_on_their_own_rows",),
    ),
    Mutant(
        "mean-for-the-median",
        "the median client is the mean over clients",
        "One client that is served very badly moves it.",
        "_median",
        "np.median",
        "np.mean",
        (HELD_OUT + "test_clients_are_compared_on_their_own_rows",),
    ),
    Mutant(
        "baseline-of-zero",
        "the trivial prediction of a regression is 0 instead of the mean",
        "A useless model looks better than the baseline.",
        "_of_mean",
        "np.full((len(targets), 1), targets.mean(dtype=np.float64))",
        "np.zeros((len(targets), 1))",
        (MEASURES + "test_baselines_are_the_mean_the_majority_and_the_shares",),
    ),
    Mutant(
        "useless-without-a-note",
        "models that are no better than the mean or the majority are passed over",
        "ε = 1 with R² −36, and not a word.",
        "useless",
        "not known or any(better)",
        "True",
        (HELD_OUT + "test_a_model_that_is_no_better_than_the_mean_is_not_passed_over",),
    ),
    Mutant(
        "untested-clusters-count",
        "a figure is divided by all clients, also those whose cluster has no held-out rows",
        "A test file that covers one of two clusters halved the accuracy.",
        "HeldOut._note",
        "sum(members[number, q] for q in tested)",
        "members[number].sum()",
        (HELD_OUT + "test_one_tested_cluster_of_two_is_not_diluted",),
    ),
    # --- predictions ------------------------------------------------------------------------------------------------
    Mutant(
        "prediction-unclipped",
        "training clips rows to x_norm and a prediction does not",
        "R² was −2.96 instead of 0.53.",
        "Model._features",
        "rounded if self.x_norm is None else clip_rows(rounded, self.x_norm)",
        "rounded",
        (
            MODEL + "test_clipping_is_part_of_the_model",
            MODEL + "test_a_prediction_sees_the_very_bits_that_training_saw",
        ),
    ),
    Mutant(
        "prediction-in-other-precision",
        "a prediction does not round rows to the training's precision",
        "It is not what training did, bit for bit.",
        "Model._features",
        "features.astype(self.dtype, copy=False)",
        "features",
        (MODEL + "test_a_prediction_sees_the_very_bits_that_training_saw",),
    ),
    Mutant(
        "prediction-without-the-intercept",
        "a prediction forgets the intercept of a table",
        "Federation.read(intercept=True), train, predict failed where the command line worked.",
        "RowEncoding.encode",
        "[*parts, np.ones((len(rows), 1))] if self.intercept else parts",
        "parts",
        (MODEL + "test_from_a_table_with_an_intercept_to_predictions_and_back_from_disk",),
    ),
    Mutant(
        "columns-by-place",
        "the columns of a table to predict are taken in their order, whatever their names",
        "A table with its columns reordered predicts nonsense.",
        "Model._encoded",
        "return self.encoding.encode(rows)",
        "from dataclasses import replace\n"
        "seen = iter([name for name in rows.columns if name in self.columns])\n"
        "moved = tuple(replace(each, name=next(seen)) for each in self.encoding.columns)\n"
        "return replace(self.encoding, columns=moved).encode(rows)",
        (
            MODEL + "test_a_table_in_any_form_and_order_of_columns_predicts_the_same",
            "tests/cli/test_predict.py::test_a_table_with_its_columns_reordered_predicts_the_same",
        ),
    ),
    Mutant(
        "unknown-columns-pass",
        "a table to predict may have columns that the model does not know",
        "A misspelt or renamed column is overlooked.",
        "TableRows.check",
        "name not in known",
        "False",
        (
            MODEL + "test_a_missing_or_unknown_column_is_refused_by_name",
            "tests/federation/test_rows.py::test_missing_and_unknown_columns_are_refused_by_name",
        ),
    ),
    Mutant(
        "feature-names-forgotten",
        "a model numbers its features although their names are known",
        "Coefficients cannot be read.",
        "Model.feature_names",
        "self.encoding is not None",
        "False",
        (FOUND + "test_feature_names_are_kept_from_the_table_to_the_page",),
    ),
    # --- verdicts ---------------------------------------------------------------------------------------------------
    Mutant(
        "divergence-plays-on",
        "a run that diverges is played to its end",
        "The objective was 1e16 and the exit code 0.",
        "Monitor._check_end",
        'simulator.end("diverging")',
        "pass",
        (MONITOR + "test_a_diverging_run_is_stopped_early_and_leaves_a_result",),
    ),
    Mutant(
        "divergence-succeeds",
        "`pgfl run` exits with 0 after a run that diverged",
        "A script goes on with a useless model.",
        "run:run",
        'result.verdict is not None and result.verdict.kind == "diverging"',
        "False",
        (DIVERGES,),
    ),
    Mutant(
        "always-converged",
        "a run has converged wherever it is",
        "The squared relative distance to the optimum was 0.10 to 0.37 on four data sets, without a word.",
        "SETTLED",
        "0.05",
        "1e9",
        (
            MONITOR + "test_converged_is_never_said_far_from_the_limit",
            MONITOR + "test_too_few_rounds_and_too_large_a_rho_are_not_yet",
        ),
    ),
    Mutant(
        "tables-without-automatic-rho",
        "a table is trained with ρ = 5 unless its config says otherwise",
        "The defaults did not converge on four of four data sets.",
        "_with_rho",
        'own and "rho" not in algorithm.model_fields_set',
        "False",
        ("tests/simulate/test_automatic_rho.py::test_tables_choose_by_themselves_and_generated_data_do_not",),
    ),
    Mutant(
        "noise-never-drowns",
        "no verdict says that noise drowns the signal",
        "ε = 1 with R² −36, and not a word.",
        "_drowned",
        "not drowned",
        "True",
        (DROWNED + "test_useless_runs_are_drowned",),
    ),
    Mutant(
        "spent-without-a-word",
        "no verdict says in which round the budget was spent",
        "Rounds without contributions look like training.",
        "verdict:_spent",
        "noise.last_release >= setting.rounds",
        "True",
        (DROWNED + "test_the_round_in_which_the_budget_was_spent_is_named",),
    ),
    Mutant(
        "verdict-not-printed",
        "the terminal does not show the verdict",
        "Nobody opens summary.json.",
        "show_result",
        "result.verdict",
        "None",
        (DIVERGES, RUN + "test_a_table_s_training_stops_when_it_has_converged_unless_it_never_should"),
    ),
    Mutant(
        "verdict-not-in-the-summary",
        "summary.json has no verdict",
        "A program cannot see that a run is useless.",
        "Result.summary",
        "None if self.verdict is None else self.verdict.to_json()",
        "None",
        (DIVERGES,),
    ),
    Mutant(
        "verdict-not-on-the-page",
        "the page has no verdict",
        "Its curves look as good as those of a useful run.",
        "page:page",
        "result.verdict",
        "None",
        (
            DIVERGES,
            "tests/results/test_report.py::test_the_page_begins_with_the_verdict_and_shows_measures_beside_baselines",
        ),
    ),
    Mutant(
        "private-runs-stop-early",
        "a private run may stop once it has converged",
        "The noise is planned for all rounds, and the round of the stop is one more release.",
        "Monitor.__init__",
        "stops and self._alone and simulator.plan is None",
        "stops and self._alone",
        (MONITOR + "test_with_privacy_nothing_stops_early",),
    ),
    Mutant(
        "held-out-rows-look-protected",
        "nothing says that figures of held-out rows are exact",
        "They are clients' records too, and the guarantee does not protect them.",
        "Result.notes",
        "self.private and any(name in self.metrics for name in MEASURES)",
        "False",
        ("tests/cli/test_private_run.py::test_figures_of_the_test_table_are_said_to_be_exact",),
    ),
    # --- columns, and sentences -------------------------------------------------------------------------------------
    Mutant(
        "ignored-columns-train",
        "`ignore` is read and not heeded",
        "A patient_id trains as a feature.",
        "select_columns",
        "(name for name in rest if name not in left_out)",
        "rest",
        (FOUND + "test_a_patient_id_is_left_out_by_ignore_or_features_and_is_warned_about_otherwise",),
    ),
    Mutant(
        "all-columns-train",
        "`features` is read and not heeded",
        "As above.",
        "select_columns",
        "listed if listed is not None else (name for name in rest if name not in left_out)",
        "rest if listed is not None else (name for name in rest if name not in left_out)",
        (
            DECLARED + "test_features_choose_and_order_columns",
            FOUND + "test_a_patient_id_is_left_out_by_ignore_or_features_and_is_warned_about_otherwise",
        ),
    ),
    Mutant(
        "ids-without-a-warning",
        "an id that is left in trains as a feature, and nothing is said",
        "As above.",
        "notices:warnings",
        "id_warning(federation, values=options.privacy is None)",
        "None",
        (DECLARED + "test_features_that_look_like_ids_give_a_warning_which_under_privacy_depends_on_names_only",),
    ),
    Mutant(
        "clients-by-number",
        "an error of a solver names a client by its place",
        "“Client number 18” is nobody whom a person knows.",
        "Layout.client",
        'f"client {run.federation.client_id(int(run.order[place - run.clients.start]))}"',
        'f"client number {place}"',
        (FOUND + "test_a_problem_that_cannot_be_solved_names_its_client",),
    ),
    Mutant(
        "raw-error-for-epsilon",
        "`privacy=4.0` is not looked at before it is used",
        "Python says that a float has no attribute.",
        "check_privacy",
        "privacy is None or isinstance(privacy, Privacy)",
        "True",
        (MISTAKE,),
    ),
    Mutant(
        "raw-error-for-swapped-arguments",
        "an objective in the place of the algorithm is not looked at before it is used",
        "As above.",
        "check_algorithm",
        "algorithm is None or isinstance(algorithm, Algorithm)",
        "True",
        (MISTAKE,),
    ),
    Mutant(
        "a-result-without-a-page",
        "`Result.save` writes no page",
        "`pgfl run` did.",
        "folder:save",
        "write_report(result, folder)",
        "",
        (FOUND + "test_a_saved_result_has_a_page_and_a_picture_as_after_pgfl_run",),
    ),
)
