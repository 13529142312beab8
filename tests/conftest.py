"""The quick tests, and a clean log and quick pictures for every test."""

import logging
import os
import subprocess
import sys
from base64 import b64decode
from functools import cache
from pathlib import Path

import pytest
from _pytest.doctest import DoctestModule

from tests.hermetic import pytest_sessionfinish, pytest_unconfigure  # noqa: F401 - a new home, and nothing left behind

TESTS = Path(__file__).parent
FRESH = "PGFL_TESTS_FRESH"  # set in the process of a test that forks
PIXEL = b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII=")


QUICK = {
    "contracts/test_graphs.py": (),
    "contracts/test_maps.py": ("test_onnx_runtime_does_the_same",),
    "test_architecture.py": (),
    "config/test_config.py": (
        "test_malformed_settings_end_in_a_sentence_and_good_ones_in_a_config",
        "test_malformed_overrides_end_in_a_sentence",
        "test_malformed_files_end_in_a_sentence",
    ),
    "test_continuous_integration.py": (),
    "algorithms/test_declarations.py": (),
    "algorithms/test_federation.py": ("test_a_cluster_per_client_is_quick",),
    "drawing/test_drawing.py": (),
    "objectives/test_margins.py": ("test_a_solution_is_as_near_as_it_says",),
    "simulate/compiled/test_cache.py": (  # the others compile kernels
        "test_one_process_that_loads_has_the_bits_of_two_that_compile_at_once_and_compiles_nothing",
        "test_bits_of_every_family_depend_neither_on_the_cache_nor_on_other_processes",
        "test_a_kernel_shares_nothing_with_another",
        "test_a_damaged_file_is_compiled_again_and_replaced",
        "test_a_new_install_finds_what_an_older_one_compiled_and_neither_writes_into_itself",
        "test_without_a_folder_to_write_to_kernels_are_compiled_every_time",
    ),
    "simulate/test_memory.py": (
        "test_the_estimate_covers_what_a_run_takes",
        "test_the_estimate_knows_what_kernels_keep_beside_the_rows",
    ),
    "test_packaging.py": (
        "test_make_run_installs_what_a_run_needs_and_no_more",  # of the locked versions alone
        "test_the_run_of_make_run_imports_neither_tables_nor_secure_noise",
    ),
    "test_quick.py": (),
    "test_readme.py": (),
    "results/test_effects.py": (),
    "results/test_verdict.py": (),
    "objectives/test_ridge.py": (),
    "simulate/test_simulator_against_oracle.py": (
        "test_awkward_federations_agree_over_fifty_rounds",
        "test_linearised_steps_agree_over_fifty_rounds",
    ),
    "algorithms/test_streams.py": (),
    "algorithms/test_theorems.py": (
        "test_plain_rule_stops_at_a_fixed_point_that_depends_on_rho",
        "test_linearised_steps_contribute_what_admm_contributes_with_the_gradient_at_the_public_model",
    ),
    "algorithms/test_topology.py": ("test_a_random_graph_has_exactly_the_edges_asked_for_and_is_connected",),
    "simulate/test_simulator.py": ("test_what_several_processes_cannot_do_is_refused",),
    "benchmarks/test_harness.py": ("test_a_case_is_measured_in_a_process_of_its_own",),
    "cli/test_account.py": ("test_json_is_strict_and_mistakes_are_one_sentence_whatever_is_asked",),
    "cli/test_ledger.py": (),
    "cli/test_run.py": (
        "test_without_arguments_the_default_preset_runs_in_a_fresh_folder",
        "test_a_run_leaves_the_whole_folder_and_prints_a_table",
        "test_json_is_all_that_stdout_holds",
        "test_a_closed_pipe_is_no_error",
        "test_a_diverging_run_leaves_its_result_and_fails",
        "test_a_folder_with_a_result_is_refused_before_any_work",
        "test_resume_takes_the_folder_s_config_and_finished_runs_are_shown_again",
        "test_a_table_s_training_stops_when_it_has_converged_unless_it_never_should",
    ),
    "planning/test_modes.py": (),
    "federation/test_store.py": (),
    "federation/test_synthetic.py": (),
    "federation/test_tables.py": ("test_malformed_csv_is_refused_in_one_sentence_or_read_finite",),
    "federation/test_held_out.py": (),
    "flower/test_graph.py": (),
    "network/test_client_data.py": (),
    "network/test_identity.py": (),
    "network/test_rounds.py": (
        "test_any_schedule_ends_and_charges_nobody_twice",
        "test_faults_were_really_there",
        "test_a_mended_partition_grows_together",
    ),
    "network/test_settings.py": (),
    "network/test_site_memory.py": (),
    "network/test_rate_limited_logger.py": (),
    "network/test_store.py": ("test_a_bit_that_changes_on_the_disk_is_noticed_or_harmless",),
    "network/test_wire.py": ("test_any_bytes_are_a_frame_or_malformed", "test_damaged_frames_are_valid_or_malformed"),
    "masking/test_masks_and_noise.py": (),
    "mpi/test_partition.py": ("test_every_part_has_clients_and_no_part_is_overloaded",),
    "mutants/test_planted.py": (
        "test_every_bug_has_its_place_and_those_who_must_notice_exist",
        "test_the_worst_are_caught_by_those_who_must_notice",
        "test_an_attack_that_measures_no_more_than_is_claimed_is_no_catch",
        "test_an_edit_that_no_longer_fits_is_said_so",
        "test_an_edit_that_changes_nothing_survives_and_nothing_stays_of_it",
        "test_what_was_compiled_of_a_bug_is_not_used_afterwards",
        "test_a_test_that_fails_anyway_is_no_catch",
    ),
    "paper/test_judging.py": (),
    "audit/test_audit_deployed.py": (),
    "privacy/test_calibration.py": (),
    "privacy/test_docs.py": ("test_the_named_test_exists",),
    "privacy/test_hostile_messages.py": (),
    "privacy/test_mechanism.py": ("test_accounts_are_those_of_a_loop_that_looks_at_every_client_in_every_round",),
    "privacy/test_noise.py": ("test_a_coordinate_with_other_noise_is_rejected",),
    "privacy/test_rules.py": (),
    "sklearn/test_fits_account.py": (
        "test_a_process_that_was_forked_does_not_charge_a_copy_of_the_account",
        "test_no_record_has_lost_more_in_all_fits_than_the_account_says",
    ),
    "studio/test_play_state.py": (
        "test_the_python_text_trains_the_same",
        "test_what_is_played_is_what_run_gives",
        "test_pictures_are_plain_json_without_markup_from_names",
    ),
    "privacy/test_sensitivity.py": ("test_no_replaced_record_and_no_message_moves_the_solution_further",),
}
"""The files that `make quick` runs, each with those of its tests that are too slow for it."""


LONGEST = (
    "test_site.py",
    "mpi/test_jobs.py",
    "mpi/test_same_bits.py",
    "planning/test_tables.py",
    "audit/test_audit.py",
    "cli/test_end_to_end.py",
    "paper/test_items.py",
    "network/test_network.py",
    "privacy/test_two_worlds.py",
    "audit/test_audit_masked_clients.py",
    "cli/test_continue.py",
    "privacy/test_leaks.py",
)
"""Files that take longest, in this order: they run first, or one process would be left alone with them at the end."""


BROWSER = {"chromium", "context", "page"}
"""Fixtures that need a browser: their tests wait for pages more than they compute, so they are proofs."""


PICTURED = ("results/test_report.py", "cli/test_run.py", "test_found_once.py")
"""Files whose tests draw `curves.png`; a test elsewhere does if it asks for the fixture `curves`."""


def pytest_configure(config):
    config.addinivalue_line("markers", "quick: runs in `make quick`, which covers every room in under a minute")
    config.addinivalue_line("markers", "proof: takes long; runs in `make proofs`, not in `make test`")
    config.addinivalue_line("markers", "forks: runs in a process of its own, because a fork among threads can deadlock")


def pytest_ignore_collect(collection_path, config):
    """For `make quick` other files are not even imported: that alone would take longer."""
    is_test = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    if config.getoption("markexpr") == "quick" and is_test and _name(collection_path) not in QUICK:
        return True
    return None


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path):
    """Look for doctests in the package only: tests have none, and there are many of them."""
    found = yield
    return [part for part in found if not (isinstance(part, DoctestModule) and file_path.is_relative_to(TESTS))]


def pytest_collection_modifyitems(items):
    order = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(_name(item.path), len(order)))
    for item in items:
        if _is_compiled_anew(item) or BROWSER & set(item.fixturenames):
            item.add_marker(pytest.mark.proof)
        slow = getattr(item, "originalname", None) in QUICK.get(_name(item.path), ())
        if _name(item.path) in QUICK and not slow and not item.get_closest_marker("proof"):
            item.add_marker(pytest.mark.quick)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run a test that forks in a new process: other tests of this one may have started threads, as JAX does."""
    if pyfuncitem.get_closest_marker("forks") is None or FRESH in os.environ:
        return None
    command = [sys.executable, "-m", "pytest", "-n0", pyfuncitem.nodeid]
    others = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        command, cwd=pyfuncitem.config.rootpath, env={**others, FRESH: "1"}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.fail(done.stdout + done.stderr, pytrace=False)
    return True


def _is_compiled_anew(item):
    """Whether a case is one that takes seconds to compile: of JAX, or of kernels in single precision."""
    values = item.callspec.params.values() if hasattr(item, "callspec") else ()
    names = {value if isinstance(value, str) else getattr(value, "__name__", None) for value in values}
    in_kernels = (_name(item.path) or "").startswith("simulate/compiled/")
    return "jax" in names or ("float32" in names and in_kernels)


@cache
def _name(path):
    return path.relative_to(TESTS).as_posix() if path.is_relative_to(TESTS) else None


@pytest.fixture(autouse=True)
def no_log_handler_stays():
    """A command that shows its log writes to the standard error of its test, which is closed afterwards."""
    level = logging.root.level
    yield
    for handler in [handler for handler in logging.root.handlers if type(handler) is logging.StreamHandler]:
        logging.root.removeHandler(handler)
    logging.root.setLevel(level)


@pytest.fixture
def curves():
    """Draw `curves.png`, which takes ten times longer than a small training."""


@pytest.fixture(autouse=True)
def blank_curves(request, monkeypatch):
    """Elsewhere it is a picture of one pixel."""
    name = _name(request.path) or ""
    if "curves" not in request.fixturenames and not name.startswith(PICTURED):
        monkeypatch.setattr("pgfl.results.report.curves.draw", lambda result, stream: stream.write(PIXEL))
