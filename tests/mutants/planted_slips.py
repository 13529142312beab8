"""Planted bugs by which privacy is lost through a slip, or through what lies on a disk."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

RULES = "tests/privacy/test_rules.py::"
WRONG = RULES + "test_a_wrong_value_is_refused_by_config_and_class_with_its_name"
OWN = RULES + "test_data_of_ones_own_gets_float_safe_noise_unless_seeded_noise_is_asked_for"
RUN = "tests/cli/test_private_run.py::"
DECLARED = "tests/federation/test_declared.py::"
DECLARATIONS = "tests/algorithms/test_declarations.py::"
LEAKS = "tests/privacy/test_leaks.py::"

SLIPS: tuple[Mutant, ...] = (
    Mutant(
        "lattice-limit-lowered",
        "float-safe noise may have σ of one lattice unit",
        "There ε is 4.430 and the account says 4.377.",
        "LEAST_UNITS",
        "1000",
        "1",
        (
            "tests/privacy/test_noise.py::test_the_discrete_noise_is_as_private_as_is_stated_from_a_thousand_lattice_units_on",
        ),
    ),
    Mutant(
        "lattice-limit-unchecked",
        "float-safe noise is drawn with any σ",
        "As above.",
        "SecureNoise.check",
        "(scale < self.least_sigma).any()",
        "False",
        (
            "tests/privacy/test_noise.py::test_a_device_can_refuse_before_it_charges",
            "tests/network/test_client_rounds.py::test_noise_finer_than_the_lattice_is_refused_before_it_is_charged",
        ),
    ),
    Mutant(
        "checkpoint-with-a-digest",
        "a checkpoint of a float-safe run holds a digest of the table",
        "Who knows all records but one confirms a guess at it.",
        "_checkpoints",
        "fingerprint(config, of_records=keep_clean)",
        "fingerprint(config)",
        ("tests/privacy/test_leaks.py::test_a_checkpoint_confirms_no_guess_at_a_label",),
    ),
    Mutant(
        "class-without-rules",
        "`Privacy` takes what a config refuses",
        'noise="secur" draws seeded noise and prints the guarantee.',
        "Privacy.__post_init__",
        "wrong or (wrong := [found] if (found := rules.contradiction(asked)) else [])",
        "False",
        (WRONG,),
    ),
    Mutant(
        "delta-of-a-half",
        "δ may be 0.5",
        "Then half of all clients are promised nothing.",
        "MOST_DELTA",
        "0.01",
        "0.5",
        (WRONG,),
    ),
    Mutant(
        "no-releases-at-most",
        "max_releases may be 0",
        "It meant all rounds.",
        "RULES",
        "_Number(least=1, most=MOST_RELEASES, whole=True, may_be_absent=True)",
        "_Number(least=0, most=MOST_RELEASES, whole=True, may_be_absent=True)",
        (WRONG,),
    ),
    Mutant(
        "budget-off-by-default",
        "a [privacy] table with a budget is off unless it says `enabled = true`",
        "Models are shared without noise, and nothing is said.",
        "PrivacySettings._on_where_a_level_is_stated",
        '{"enabled": True, **values}',
        "values",
        ("tests/network/test_settings.py::test_a_stated_budget_is_on_unless_the_owner_switches_it_off",),
    ),
    Mutant(
        "off-without-a-word",
        "privacy that is off although a budget is written is not mentioned",
        "The owner believes that it is on.",
        "off_although_written",
        'values.get("enabled") or written is None',
        "True",
        (
            RUN + "test_privacy_that_is_off_although_a_budget_is_written_is_said_everywhere",
            "tests/network/test_settings.py::test_a_client_that_joins_without_its_written_budget_is_told",
        ),
    ),
    Mutant(
        "own-data-seeded",
        "training from Python on data of one's own draws seeded noise",
        "Who knows the seed takes the noise out.",
        "Privacy.noise_for",
        '"seeded" if federation.generated else "secure"',
        '"seeded"',
        (OWN,),
    ),
    Mutant(
        "own-table-seeded",
        "a run on a table of one's own draws seeded noise",
        "As above.",
        "_with_noise",
        '"secure" if _own_records(about) else "seeded"',
        '"seeded"',
        (RUN + "test_a_written_budget_is_kept_and_its_noise_is_float_safe_on_a_table",),
    ),
    Mutant(
        "own-records-counted-as-generated",
        "generated data with one's own records put in still counts as generated",
        "It gets seeded noise.",
        "Federation.replace",
        'own = {"generated": False} if {"features", "targets", "weights"} & set(changes) else {}',
        "own: dict[str, object] = {}",
        (RULES + "test_generated_data_with_ones_own_records_put_in_is_ones_own",),
    ),
    Mutant(
        "simulator-labels-without-a-bound",
        "a simulation clips labels only where a bound is stated",
        "A label of 10²⁰ shows in how a problem is solved.",
        "Privacy.label_bound",
        'LABEL_BOUND if self.y_bound is None and self.guarantee == "required" else self.y_bound',
        "self.y_bound",
        (
            "tests/privacy/test_sensitivity.py::test_labels_are_clipped_where_no_bound_is_stated_but_a_guarantee_is_given",
        ),
    ),
    Mutant(
        "bounds-read-from-records",
        "a federation whose bounds were read from records is trained privately",
        "Every scaled row then depends on the largest record of all clients.",
        "Privacy.completed",
        "encoding.read_from_records",
        "False",
        (DECLARED + "test_what_was_read_from_records_is_refused_even_with_x_norm",),
    ),
    Mutant(
        "data-bounds-in-a-private-config",
        'a private config may declare bounds = "data"',
        "As above.",
        "Config._public_declarations",
        "column.from_data",
        "False",
        (DECLARATIONS + "test_what_would_be_read_from_records_is_refused_by_name",),
    ),
    Mutant(
        "private-folds",
        "cross-validation is private as if every record were trained on once",
        "With five folds every record is trained on four times, and the account counts one.",
        "Config._folds_are_runs",
        "folds is not None and self.privacy.enabled",
        "False",
        (DECLARATIONS + "test_folds_are_runs",),
    ),
    Mutant(
        "private-runs-counted-once",
        "several float-safe runs on one table are accounted as one",
        "Three runs spend three times what each result says.",
        "Config._folds_are_runs",
        "own and self.runs > 1",
        "False",
        (DECLARATIONS + "test_several_private_runs_on_the_same_records_are_refused",),
    ),
    Mutant(
        "final-measures-of-clean-models",
        "the final figures of held-out rows are those of clean client models",
        "Whoever knows the held-out rows learns about the clean models.",
        "Recorder.client_figures",
        "self.own_models if self.engine.privacy is None else self.received_models",
        "self.own_models",
        (LEAKS + "test_files_for_others_are_a_function_of_the_releases",),
    ),
    Mutant(
        "history-of-clean-models",
        "the history that is shown measures clean client models on held-out rows",
        "As above, in every round.",
        "Recorder.record",
        "self.received_models",
        "self.own_models",
        (LEAKS + "test_files_for_others_are_a_function_of_the_releases",),
    ),
    Mutant(
        "clients-named-under-privacy",
        "every client's own figure on its held-out rows is written, with its name",
        "They are exact functions of a few records of a person who is named.",
        "_ResultBuilder._measure",
        "None if simulator.plan else self.client_ids",
        "self.client_ids",
        ("tests/simulate/test_held_out.py::test_with_privacy_the_models_that_clients_receive_are_measured",),
    ),
)
