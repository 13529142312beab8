"""What was wrong once for a person with a table, from end to end; docs/mutants.md plants each of these bugs again."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest

from pgfl import PGFL, Federation, Huber, Logistic, Model, Privacy, Result, Ridge, TestSet, train
from pgfl.errors import SolverError
from tests.command_line import run

ROOT = Path(__file__).parents[1]


def patients(rows=240):
    """Two wards of six patients each; `y` is a number far from zero, `ill` a label."""
    rng = np.random.default_rng(5)
    client = np.arange(rows) % 12
    age, dose = rng.uniform(20, 80, rows), rng.uniform(0, 5, rows)
    value = 100.0 + age + np.where(client < 6, 10.0, -10.0) * dose + rng.normal(size=rows)
    return {
        "client": [f"patient-{number:02d}" for number in client],
        "server": [f"ward-{number % 3}" for number in client],
        "cluster": np.where(client < 6, "adults", "children").tolist(),
        "patient_id": np.arange(1000, 1000 + rows),
        "age": age,
        "dose": dose,
        "y": value,
        "ill": np.where(value > 150.0, "yes", "no").tolist(),
    }


def written(folder, target, other):
    table = {name: cells for name, cells in patients().items() if name != other}
    with open(folder / "patients.csv", "w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(table)
        writer.writerows(zip(*table.values(), strict=True))
    init = run("init", folder / "patients.csv", "--target", target, "--out", folder / "first.toml")
    assert init.code == 0, init.err
    return folder / "first.toml"


@pytest.mark.parametrize(
    ("target", "other", "names"),
    [("y", "ill", ["r2", "mae", "rmse"]), ("ill", "y", ["accuracy", "auc", "log_loss"])],
)
def test_the_files_of_a_run_name_the_measures_of_its_task(tmp_path, target, other, names):
    ran = run("run", written(tmp_path, target, other), "--out", tmp_path / "out")
    assert ran.code == 0, ran.err
    with open(tmp_path / "out" / "history.csv", encoding="utf-8", newline="") as stream:
        *_, last = csv.DictReader(stream)
    found = json.loads((tmp_path / "out" / "summary.json").read_text("utf-8"))["measures"]
    assert list(found) == names
    for name in names:
        measure = found[name]
        assert float(last[name]) == pytest.approx(measure["whole"]["value"])
        assert {f"{name}_adults", f"{name}_children"} <= set(last)
        figures = [measure["whole"], *measure["clusters"].values(), *measure["clients"].values()]
        assert list(measure["clusters"]) == ["adults", "children"] and list(measure["clients"]) == ["worst", "median"]
        assert all({"value", "baseline"} <= set(figure) for figure in figures)
    assert not {"r2", "accuracy"} - set(names) & set(last)
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert ("accuracy" in ran.out, "R²" in ran.out) == (target == "ill", target == "y")
    assert "baseline" in ran.out and "baseline" in page.lower()


def test_feature_names_are_kept_from_the_table_to_the_page(tmp_path):
    federation = Federation.read(patients(), features=["dose", "age"], intercept=True, graph="line")
    result = train(federation, PGFL(rho=50.0), Ridge(), rounds=3)
    names = ("dose", "age", "intercept")
    assert federation.encoding.feature_names == result.feature_names == result.model().feature_names == names
    result.save(tmp_path / "out")
    assert Model.load(tmp_path / "out").feature_names == Result.load(tmp_path / "out").feature_names == names
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert all(re.search(rf">\s*{name}\s*<", page) for name in names)


def test_a_patient_id_is_left_out_by_ignore_or_features_and_is_warned_about_otherwise():
    table = {name: cells for name, cells in patients().items() if name != "ill"}
    for kept in (Federation.read(table, ignore=["patient_id"]), Federation.read(table, features=["age", "dose"])):
        assert kept.encoding.feature_names == ("age", "dose") and kept.dimension == 2
        assert kept.encoding.ignored == ("patient_id",)
    left_in = train(Federation.read(table, graph="line"), PGFL(rho=1e6), Ridge(), rounds=1)
    assert any("'patient_id' looks like an id" in warning for warning in left_in.warnings)


@pytest.mark.parametrize("engine", ["numpy", "numba"])
def test_a_problem_that_cannot_be_solved_names_its_client(engine):
    federation = Federation.read(patients(), features=["age", "dose"], graph="line")
    with pytest.raises(SolverError, match=r"problem of client patient-\d\d was solved only to"):
        train(federation, PGFL(), Ridge(tolerance=1e-18), rounds=3, engine=engine)


def test_a_saved_result_has_a_page_and_a_picture_as_after_pgfl_run(tmp_path):
    federation = Federation.read(patients(), features=["age", "dose"], graph="line", test=0.2)
    train(federation, PGFL(rho=50.0), Ridge(), rounds=3).save(tmp_path / "out")
    assert "<h2>" in (tmp_path / "out" / "report.html").read_text("utf-8")
    assert (tmp_path / "out" / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_lists_are_taken_where_arrays_are_and_frames_where_files_are():
    import pandas

    rows = TestSet([[40.0, 1.0], [50.0, 2.0]], [1.0, 0.0])
    assert rows.features.shape == (2, 2) and rows.targets.tolist() == [1.0, 0.0]
    table = patients()
    options = {"features": ["age", "dose"], "graph": "line", "columns": {"ill": {"labels": ["no", "yes"]}}}
    made, same = (Federation.read(each, target="ill", **options) for each in (table, pandas.DataFrame(table)))
    np.testing.assert_array_equal(made.features, same.features)
    assert train(same, PGFL(rho=1e3), Logistic(), rounds=2).cluster_ids == ("adults", "children")


def test_exact_figures_of_clean_models_stay_in_the_simulation_only_folder(tmp_path):
    declared = {"age": {"bounds": [20, 80]}, "dose": {"bounds": [0, 5]}, "y": {"bounds": [0, 300]}}
    federation = Federation.read(patients(), features=["age", "dose"], columns=declared, graph="line", test=0.2)
    wanted = ["r2", "objective", "distance", "disagreement"]
    for noise in ("seeded", "secure"):
        privacy = Privacy(epsilon=4.0, max_releases=5, noise=noise)
        result = train(federation, PGFL(rho=1.0), Huber(), rounds=5, privacy=privacy, metrics=wanted)
        folder = result.save(tmp_path / noise)
        shown = (folder / "history.csv").read_text("utf-8").splitlines()[0].split(",")
        assert not {"objective", "distance"} & set(shown) and {"r2", "disagreement"} <= set(shown)
        clean = folder / "simulation_only" / "history.csv"
        assert clean.exists() == (noise == "seeded")
        assert not clean.exists() or {"objective", "distance"} <= set(
            clean.read_text("utf-8").splitlines()[0].split(",")
        )
        assert any("held-out rows are exact" in note for note in result.notes)


def test_the_readme_says_where_the_command_is_and_names_intercept_test_and_distance():
    text = (ROOT / "README.md").read_text("utf-8")
    assert "make install" in text and ".venv/bin/activate" in text
    for name in ("intercept", "test", "distance"):
        assert re.search(rf"`[^`\n]*\b{name}\b[^`\n]*`", text), name
    assert "alpha" in (ROOT / "docs" / "tables.md").read_text("utf-8")
