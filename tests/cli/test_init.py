"""`pgfl init` on real data: the config that it writes runs, and it never overwrites one."""

import importlib.util
import json
import tomllib

import numpy as np
import polars as pl
import pytest

from pgfl.config import load_config
from pgfl.objectives import OBJECTIVES
from tests.command_line import ROOT, refused, run

spec = importlib.util.spec_from_file_location("make_tables", ROOT / "examples" / "tables" / "make_tables.py")
make_tables = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make_tables)

KIND_OF = {"diabetes": "ridge", "breast_cancer": "logistic", "fair": "logistic", "digits": "softmax"}


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    make_tables.write(folder)
    return folder


def written(tables, tmp_path, name, *options):
    """The path of a config that `pgfl init` wrote, and what it printed."""
    out = tmp_path / f"{name}.toml"
    code, printed, err = run(
        "init", tables / f"{name}.csv", "--target", make_tables.TABLES[name][1], "--out", out, *options
    )
    assert (code, err) == (0, "")
    return out, printed


@pytest.mark.proof
@pytest.mark.parametrize("name", [name for name, kind in KIND_OF.items() if kind in OBJECTIVES])
def test_the_config_for_a_real_table_runs_as_it_is(tables, tmp_path, name):
    config, printed = written(tables, tmp_path, name)
    assert printed.endswith(f"Run it with: pgfl run {config}\n")
    settings = tomllib.loads(config.read_text("utf-8"))
    assert settings["objective"]["kind"] == KIND_OF[name]
    assert settings["data"]["test"] == 0.2
    code, out, err = run("run", config, "--out", tmp_path / "result", "--set", "rounds=3", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["rounds"] == 3
    made = load_config(config).federations()(0, None)
    assert len(made.features) + sum(len(test.targets) for test in made.tests.values()) == len(
        pl.read_csv(tables / f"{name}.csv")
    )
    assert np.abs(made.features).max() <= 1.0


def test_digits_are_ten_labels_in_one_cluster(tables, tmp_path):
    out = tmp_path / "digits.toml"
    ran = run("init", tables / "digits.csv", "--target", "digit", "--out", out)
    if "softmax" in OBJECTIVES:
        settings = tomllib.loads(out.read_text("utf-8"))
        assert settings["data"]["columns"]["digit"]["labels"] == [str(digit) for digit in range(10)]
        assert settings["data"]["ignore"] == ["pixel_0_0", "pixel_4_0", "pixel_4_7"]
    else:
        assert "`objective.kind` must be one of" in ran.err


class TestUnderPrivacy:
    BOUNDS = ("age=18:90", "bmi=15:50", "bp=50:150", "s1=80:320", "s2=40:250", "s3=20:100", "s4=2:10", "s5=3:7",
              "s6=50:130", "progression=0:400")  # fmt: skip

    def options(self, bounds):
        return ("--epsilon", "8", "--no-plan", *(part for bound in bounds for part in ("--bounds", bound)))

    def test_with_all_bounds_stated_it_runs_without_x_norm(self, tables, tmp_path):
        config, printed = written(tables, tmp_path, "diabetes", *self.options(self.BOUNDS))
        assert "Run it with" in printed
        code, out, err = run("run", config, "--out", tmp_path / "result", "--set", "rounds=3", "--json")
        assert (code, err) == (0, "")
        assert json.loads(out)["privacy"]["epsilon"]["worst"] <= 8.0
        assert "x_norm" not in config.read_text("utf-8")

    def test_a_trust_level_is_written_and_needs_a_budget(self, tables, tmp_path):
        path, _ = written(tables, tmp_path, "diabetes", *self.options(self.BOUNDS), "--trust", "site")
        assert tomllib.loads(path.read_text("utf-8"))["privacy"]["trust"] == "site"
        code, out, _ = run("run", path, "--json", "--out", tmp_path / "out", "--set", "rounds=5")
        assert (code, json.loads(out)["privacy"]["epsilon"]["worst"] <= 8.0) == (0, True)

    def test_any_trust_can_be_planned(self, tables, tmp_path, monkeypatch):
        monkeypatch.setattr("pgfl.planning.planner.TABLE_SEEDS", (1,))
        monkeypatch.setattr("pgfl.planning.planner.TABLE_JUDGING_SEEDS", (11, 12))
        options = [option for option in self.options(self.BOUNDS) if option != "--no-plan"]
        path, printed = written(tables, tmp_path, "diabetes", *options, "--trust", "masked")
        assert "Planned from public facts alone" in printed
        settings = tomllib.loads(path.read_text("utf-8"))
        assert (settings["privacy"]["trust"], settings["algorithm"]["client"]) == ("masked", "gradient")
        assert settings["privacy"]["max_releases"] == settings["rounds"]

    def test_what_is_not_stated_is_listed_and_left_as_a_comment(self, tables, tmp_path):
        config, printed = written(tables, tmp_path, "diabetes", *self.options(self.BOUNDS[:8]))
        assert "Privacy needs public facts about s6, progression: state them in" in printed
        assert "Run it with" not in printed
        text = config.read_text("utf-8")
        assert "# s6 = { bounds = [LOW, HIGH] }" in text
        assert "Column 's6' has no bounds" in refused("run", config, "--out", tmp_path / "result")
        fewer, _ = written(tables, tmp_path / "fewer", "diabetes", *self.options(self.BOUNDS[:6]))
        assert "Columns 's4', 's5', 's6' have no bounds" in refused("run", fewer, "--out", tmp_path / "result")

    def test_no_figure_of_a_record_is_in_the_config(self, tables, tmp_path):
        """Of two tables with other records the config is the same."""
        first, _ = written(tables, tmp_path, "diabetes", *self.options(self.BOUNDS))
        other = pl.read_csv(tables / "diabetes.csv").with_columns(pl.col("age") + 1.5, pl.col("bmi") * 2)
        other.write_csv(tmp_path / "diabetes.csv")
        second, _ = written(tmp_path, tmp_path / "other", "diabetes", *self.options(self.BOUNDS))
        assert first.read_text("utf-8").splitlines()[5:] != []
        same = [line for line in first.read_text("utf-8").splitlines() if "diabetes.csv" not in line]
        assert same == [line for line in second.read_text("utf-8").splitlines() if "diabetes.csv" not in line]

    def test_categories_and_labels_are_stated_too(self, tables, tmp_path):
        path = tmp_path / "t.csv"
        rows = {"client": ["a", "b"] * 20, "sex": ["f", "m"] * 20, "ok": ["yes", "no"] * 20, "y": ["ill", "well"] * 20}
        pl.DataFrame(rows).write_csv(path)
        code, out, _ = run("init", path, "--epsilon", 4, "--out", tmp_path / "a.toml")
        assert code == 0
        assert "public facts about sex, y" in out
        stated = ("--categories", "sex=f,m", "--labels", "ill,well")
        code, out, err = run("init", path, "--epsilon", 4, *stated, "--out", tmp_path / "b.toml")
        assert (code, err) == (0, "")
        columns = tomllib.loads((tmp_path / "b.toml").read_text("utf-8"))["data"]["columns"]
        assert columns == {
            "sex": {"categories": ["f", "m"], "other": True}, "ok": {"boolean": True}, "y": {"labels": ["ill", "well"]},
        }  # fmt: skip
        assert run("run", tmp_path / "b.toml", "--out", tmp_path / "r", "--set", "rounds=2").code == 0


def test_ids_constants_and_free_text_are_ignored_and_missing_cells_get_an_indicator(tmp_path):
    rows = 40
    pl.DataFrame(
        {
            "patient": [f"p{row % 8}" for row in range(rows)],
            "record_id": range(rows),
            "always": [3] * rows,
            "note": [f"note {row} {row * 7}" for row in range(rows)],
            "bmi": [None if row % 5 == 0 else 20.0 + row / 3 for row in range(rows)],
            "blood type": ["A" if row % 3 else "B" for row in range(rows)],
            "flag": [row % 2 for row in range(rows)],
            "y": [row * 0.5 for row in range(rows)],
        }
    ).write_csv(tmp_path / "t.csv")
    code, _, err = run("init", tmp_path / "t.csv", "--client", "patient", "--out", tmp_path / "deep" / "c.toml")
    assert (code, err) == (0, "")
    settings = tomllib.loads((tmp_path / "deep" / "c.toml").read_text("utf-8"))
    assert settings["data"] == {
        "kind": "table", "table": "../t.csv", "target": "y", "client": "patient", "intercept": True, "test": 0.2,
        "ignore": ["record_id", "always", "note"],
        "columns": {
            "bmi": {"bounds": "data", "missing": "indicator"},
            "blood type": {"categories": ["A", "B"], "other": True},
            "flag": {"boolean": True},
            "y": {"bounds": "data"},
        },
    }  # fmt: skip
    assert settings["graph"] == {"kind": "none"}
    assert run("run", tmp_path / "deep" / "c.toml", "--out", tmp_path / "r", "--set", "rounds=2").code == 0


@pytest.mark.parametrize(("clusters", "tau"), [(["a", "b"], "auto"), (["a", "a"], 0.0)])
def test_several_clusters_learn_from_each_other_as_far_as_they_agree(tmp_path, clusters, tau):
    rows = {"client": ["c", "d"] * 30, "cluster": clusters * 30, "x": np.arange(60) % 7, "y": np.arange(60) % 11}
    pl.DataFrame(rows).write_csv(tmp_path / "table.csv")
    assert run("init", tmp_path / "table.csv", "--out", tmp_path / "own.toml", "--task", "regression").code == 0
    assert tomllib.loads((tmp_path / "own.toml").read_text("utf-8"))["algorithm"]["tau"] == tau
    ran = run("run", tmp_path / "own.toml", "--out", tmp_path / "out", "--set", "rounds=3")
    assert (ran.code, ran.err) == (0, "")


def test_an_existing_file_is_never_overwritten(tables, tmp_path):
    (tmp_path / "mine.toml").write_text("mine")
    assert "already exists" in refused("init", tables / "diabetes.csv", "--out", tmp_path / "mine.toml")
    assert (tmp_path / "mine.toml").read_text() == "mine"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--target", "progress"], "has no column 'progress'"),
        ([], "has no column 'y'; name the column to predict with --target"),
        (["--target", "progression", "--task", "classification"], "has 214 values; use --task regression"),
        (["--target", "progression", "--bounds", "age"], "--bounds takes age=18:90; got 'age'"),
        (["--target", "progression", "--bounds", "age=a:b"], "--bounds takes two numbers"),
        (["--target", "progression", "--bounds", "age=90:18"], "`bounds` must be two numbers, the lower one first"),
        (["--target", "progression", "--bounds", "agee=1:2"], "has no feature 'agee' to declare"),
        (["--target", "progression", "--bounds", "age=1:2", "--bounds", "age=1:2"], "'age' is declared twice"),
        (["--target", "progression", "--epsilon", "-1"], "`privacy.epsilon` must be above 0"),
        (["--target", "progression", "--trust", "site"], "--trust is for a private training"),
        (["--target", "progression", "--no-plan"], "--no-plan is for a private training"),
        (["--target", "progression", "--expect", "0.4"], "--expect is for the plan of a private training"),
        (["--target", "progression", "--client", "patient"], "has no column 'patient'"),
        (["--target", "cluster"], "The target 'cluster' "),
    ],
)
def test_mistakes_are_one_sentence_and_write_nothing(tables, tmp_path, options, words):
    assert words in refused("init", tables / "diabetes.csv", *options, "--out", tmp_path / "c.toml")
    assert not (tmp_path / "c.toml").exists()


def test_a_table_in_the_place_of_a_config_is_recognised(tables):
    path = tables / "diabetes.csv"
    assert f"is a table, not a config; write one for it with `pgfl init {path}`." in refused("run", path)


def test_a_config_with_a_test_share_can_be_cross_validated(tables, tmp_path):
    config, _ = written(tables, tmp_path, "diabetes")
    code, out, err = run("run", config, "--folds", 3, "--set", "rounds=2", "--out", tmp_path / "folds", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["runs"] == 3
    assert load_config(tmp_path / "folds" / "config.toml").data.folds == 3
    tested = [
        sum(len(test.targets) for test in load_config(config, folds=3).federations()(fold, None).tests.values())
        for fold in range(3)
    ]
    assert sum(tested) == 442
    assert "`data.folds` belongs to data of kind table" in refused("run", "private-huber", "--folds", 3)
