"""Tables with declared columns: features, names, places, and bounds under privacy."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from pgfl import PGFL, Column, Federation, Huber, Privacy, Ridge, train
from pgfl.config import parse
from pgfl.config.fingerprint import fingerprint
from pgfl.errors import ConfigError, DataError, PgflError, PrivacyError
from pgfl.experiment import run
from pgfl.federation.columns import NumberColumn
from pgfl.federation.encoding import PlaceColumns, read_rows

TABLE = {
    "client": ["bob", "ann", "bob", "cid"],
    "server": ["south", "north", "south", "west"],
    "cluster": ["old", "young", "old", "old"],
    "y": [1.0, 2.0, 3.0, 4.0],
    "age": [50, 20, 100, None],
    "sex": ["m", "f", "x", "m"],
    "smoker": ["yes", "no", "TRUE", "0"],
    "note": ["a", "b", "c", "d"],
}
DECLARED = {
    "age": Column(bounds=(20, 80), missing="indicator"),
    "sex": Column(categories=["f", "m"], other=True),
    "smoker": Column(boolean=True),
}


def read(table=TABLE, **options):
    return Federation.read(table, **{"columns": DECLARED, "ignore": ["note"]} | options)


def test_declared_columns_become_features():
    made = read(intercept=True)
    assert made.encoding.feature_names == (
        "age", "age=missing", "sex=f", "sex=m", "sex=other", "smoker", "intercept",
    )  # fmt: skip
    assert made.rows("ann")[0].tolist() == [[-1, 0, 1, 0, 0, 0, 1]]
    assert made.rows("bob")[0].tolist() == [[0, 0, 0, 1, 0, 1, 1], [1, 0, 0, 0, 1, 1, 1]]
    assert made.rows("cid")[0].tolist() == [[0, 1, 0, 1, 0, 0, 1]]
    assert made.encoding.x_norm == 2.0
    assert made.encoding.ignored == ("note",)
    assert made.encoding.places == PlaceColumns()


def test_a_table_without_declarations_is_taken_as_it_is_now_with_names():
    plain = {name: TABLE[name] for name in ("client", "server", "cluster", "y")} | {
        "b": [1, 2, 3, 4],
        "a": [5, 6, 7, 8],
    }
    made = Federation.read(plain)
    assert made.encoding.columns == (NumberColumn("b"), NumberColumn("a"))
    assert made.features.tolist() == [[2, 6], [1, 5], [3, 7], [4, 8]]
    assert made.encoding.x_norm is None
    assert made.encoding.unbounded == ("b", "a")


def test_frames_and_files_give_the_same_federation(tmp_path):
    pl.DataFrame(TABLE).write_csv(tmp_path / "clients.csv")
    pl.DataFrame(TABLE).write_parquet(tmp_path / "clients.parquet")
    sources = [
        tmp_path / "clients.csv", str(tmp_path / "clients.parquet"), pl.DataFrame(TABLE), pd.DataFrame(TABLE),
        pa.table(TABLE),
    ]  # fmt: skip
    expected = read()
    for source in sources:
        made = read(source)
        assert np.array_equal(made.features, expected.features)
        assert np.array_equal(made.targets, expected.targets)
        assert (made.client_ids, made.encoding) == (expected.client_ids, expected.encoding)


def test_features_choose_and_order_columns():
    made = Federation.read(TABLE, columns={"smoker": Column(boolean=True), "sex": Column(categories="data")},
                           features=["smoker", "sex"])  # fmt: skip
    assert made.encoding.feature_names == ("smoker", "sex=f", "sex=m", "sex=x", "sex=other")
    assert made.encoding.ignored == ("age", "note")
    assert made.encoding.read_from_records == ("sex",)


def test_bounds_and_categories_of_the_data_come_from_training_rows_only():
    rows = 40
    table = {
        "client": ["a"] * rows,
        "y": list(range(rows)),
        "x": list(range(rows)),
        "c": [f"c{i}" for i in range(rows)],
    }
    columns = {"x": Column(bounds="data"), "c": Column(categories="data"), "y": Column(bounds="data")}
    made = Federation.read(table, columns=columns, test=0.5)
    trained = sorted(round(float(value)) for value in made.encoding.target.decode(made.targets))
    assert len(trained) == 20
    assert made.encoding.columns[0].bounds == (trained[0], trained[-1])
    assert made.encoding.columns[1].categories == tuple(sorted(f"c{i}" for i in trained))
    tested = made.tests["all"].features
    assert (tested[:, -1] == 1).all()
    assert (made.features[:, -1] == 0).all()


def test_a_constant_column_of_the_data_is_zero():
    made = Federation.read({"client": ["a", "b"], "y": [1, 2], "x": [7, 7]}, columns={"x": {"bounds": "data"}})
    assert made.features.tolist() == [[0.0], [0.0]]


def test_a_feature_that_is_true_or_false_is_a_number_in_every_encoding():
    made = read(features=["sex"], columns={"sex": Column(categories="data")}, ignore=[])
    assert made.features.dtype == np.float64
    encoded = made.encoding.encode(read_rows(TABLE))
    assert encoded.dtype == np.float64
    assert encoded.tolist() == [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0]]


def test_labels_as_text_are_numbered_from_zero():
    table = TABLE | {"y": ["ill", "healthy", "ill", "healthy"]}
    made = read(table, columns=DECLARED | {"y": Column(labels=["healthy", "ill"])})
    assert made.targets.tolist() == [0, 1, 1, 0]
    computed = read(table, columns=DECLARED | {"y": Column(labels="data")})
    assert computed.encoding.target.labels == ("healthy", "ill")
    with pytest.raises(DataError, match=r"data row 1: column 'y' holds text \('ill', 'healthy'\).*y = \{ labels = \["):
        read(table)
    with pytest.raises(DataError, match=r"data row 1: column 'y' holds 'ill'; its labels are sick, well"):
        read(table, columns=DECLARED | {"y": Column(labels=["sick", "well"])})


@pytest.mark.parametrize("cells", [["1.0", "2.0", "2", "1"], [1, 2, 2, 1], [1.0, 2.0, 2.0, 1.0]])
@pytest.mark.parametrize("words", [["1", "2"], [1, 2.0], ["1.0", "2.0"], "data"])
def test_whole_numbers_are_labels_and_categories_however_they_are_written(cells, words):
    table = {"client": ["a"] * 4, "y": cells, "x": cells}
    columns = {"y": Column(labels=words), "x": Column(categories=words, other=False)}
    made = Federation.read(table, columns=columns)
    assert made.targets.tolist() == [0, 1, 1, 0]
    assert made.features.tolist() == [[1, 0], [0, 1], [0, 1], [1, 0]]


def test_target_bounds_scale_targets():
    made = read(columns=DECLARED | {"y": Column(bounds=(0, 4))})
    assert made.targets.tolist() == [0.0, -0.5, 0.5, 1.0]
    assert made.encoding.target.decode(made.targets).tolist() == [2.0, 1.0, 3.0, 4.0]


class TestPlaces:
    def test_places_may_have_other_names(self):
        renamed = {
            {"client": "patient", "server": "hospital", "cluster": "ward"}.get(k, k): v for k, v in TABLE.items()
        }
        made = read(renamed, client="patient", server="hospital", cluster="ward")
        assert np.array_equal(made.features, read().features)
        assert made.encoding.places == PlaceColumns("patient", "hospital", "ward")
        assert made.server_ids == ("north", "south", "west")

    def test_a_table_without_servers_or_clusters_has_one_of_each(self):
        plain = {name: cells for name, cells in TABLE.items() if name not in ("server", "cluster")}
        made = read(plain, graph="complete")
        assert (made.server_ids, made.cluster_ids, made.size) == (("all",), ("all",), 3)
        assert made.encoding.places == PlaceColumns("client", None, None)

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"server": "hospital"}, "The table has no column 'hospital'; it has client, server"),
            ({"server": "cluster"}, "Column 'cluster' cannot be both server and cluster"),
            ({"client": 3}, "`client` is the name of a column; got 3"),
            ({"target": "client"}, "The target column cannot be 'client'"),
            ({"target": 5}, "The target is the name of a column; got 5"),
            ({"features": "age"}, "`features` must be a list of column names; got the text 'age'"),
            ({"features": ["agee"]}, r"no column 'agee', which `features` names \(did you mean age\?\)"),
            ({"features": ["age", "age"], "columns": {}}, "`features` names 'age' twice"),
            ({"features": ["y"], "columns": {}}, "`features` names 'y', which is the target"),
            ({"ignore": ["server"]}, "`ignore` names 'server', which is not a feature"),
            ({"ignore": ["age"]}, "`ignore` names 'age', which is declared or listed"),
            ({"ignore": ["nots"]}, r"no column 'nots', which `ignore` names \(did you mean note\?\)"),
            ({"columns": {"aeg": Column(bounds=(0, 1))}}, r"no column 'aeg', which `columns` names \(did you mean age"),
            ({"columns": {"client": Column(categories="data")}}, "`columns` declares 'client', which names where"),
            ({"features": ["sex", "smoker"], "ignore": []}, "`columns` declares 'age', which `features` does not list"),
            ({"columns": {"age": {"bound": (1, 2)}}}, r"Unknown key `columns.age.bound` \(did you mean bounds\?\)"),
            ({"columns": [Column(bounds=(0, 1))]}, "`columns` must map names of columns to declarations"),
            ({"columns": {"age": (18, 90)}}, r"`columns.age` must be a table"),
            ({"columns": DECLARED | {"y": Column(boolean=True)}}, "The target 'y' takes bounds or labels"),
            ({"columns": DECLARED | {"y": Column(missing=0)}}, "The target 'y' cannot be missing"),
            ({"columns": DECLARED | {"age": Column(labels=["a", "b"])}}, "Column 'age' has labels, which belong"),
            ({"columns": DECLARED | {"age": Column(bounds=(0, 9))}}, "data row 4: column 'age' is empty; fill it"),
            ({"columns": DECLARED | {"sex": Column(categories=["f", "m"])}}, "row 3: column 'sex' holds 'x', which is"),
            ({"columns": DECLARED | {"sex": Column(boolean=True)}}, "data row 1: column 'sex' holds 'm'; a boolean"),
            ({"ignore": []}, r"column 'note' holds text \('a', 'b', 'c', …\).*note = \{ categories = .*`ignore`"),
            ({"features": [], "columns": {}}, "`features` leaves no column as a feature"),
            ({"ignore": ["age", "sex", "smoker", "note"], "columns": {}}, "`ignore` leaves no column as a feature"),
            ({"test": 1.5}, "`test` must be a share between 0 and 1, or a table; got 1.5"),
            ({"test": 1}, "`test` must be a share between 0 and 1, or a table; got 1"),
            ({"test": True}, "`test` must be a share"),
            ({"test": 0.2, "folds": 3}, "`test` and `folds` both hold rows out"),
            ({"folds": 1}, "at least 2 folds"),
            ({"folds": 2.5}, "`folds` and `fold` must be whole numbers"),
        ],
    )  # fmt: skip
    def test_mistakes_are_one_sentence(self, options, words):
        with pytest.raises(PgflError, match=words) as error:
            read(**options)
        assert "\n" not in str(error.value)
        assert str(error.value).endswith(".")

    def test_two_features_of_one_name_are_refused(self):
        with pytest.raises(DataError, match="Two features would be called 'intercept'"):
            Federation.read({"client": ["a"], "y": [1], "intercept": [1]}, intercept=True)


PRIVACY = Privacy(epsilon=4.0, max_releases=3, noise="seeded")
BOUNDED = DECLARED | {"y": Column(bounds=(0, 4))}


def test_bounds_follow_from_the_declarations_unless_stated():
    made = read(columns=BOUNDED, intercept=True)
    completed = PRIVACY.completed(made.encoding)
    assert (completed.x_norm, completed.y_bound) == (2.0, 1.0)
    stated = Privacy(epsilon=4.0, x_norm=0.5, y_bound=0.2).completed(made.encoding)
    assert (stated.x_norm, stated.y_bound) == (0.5, 0.2)
    assert np.linalg.norm(stated.bounded(made).features, axis=1).max() <= 0.5
    assert PRIVACY.completed(None) is PRIVACY


def test_training_uses_them():
    made = read(columns=BOUNDED, intercept=True)
    options = {"rounds": 3, "seed": 1}
    implied = train(made, PGFL(), Huber(), privacy=PRIVACY, **options)
    stated = Privacy(epsilon=4.0, max_releases=3, noise="seeded", x_norm=2.0, y_bound=1.0)
    assert np.array_equal(
        implied.cluster("old"), train(made, PGFL(), Huber(), privacy=stated, **options).cluster("old")
    )


def test_an_unbounded_column_is_refused_by_name():
    made = read(columns=DECLARED | {"age": Column(missing=0)})
    with pytest.raises(PrivacyError, match=r"Column 'age' has no bounds.*`privacy.x_norm`"):
        train(made, PGFL(), Huber(), rounds=1, privacy=PRIVACY)


def test_what_was_read_from_records_is_refused_even_with_x_norm():
    made = read(columns=DECLARED | {"age": Column(bounds="data", missing="indicator")})
    with pytest.raises(PrivacyError, match="column 'age' were read from records"):
        train(made, PGFL(), Huber(), rounds=1, privacy=Privacy(epsilon=4.0, x_norm=1.0))
    train(made, PGFL(), Ridge(), rounds=1)


class TestConfigs:
    @pytest.fixture
    def settings(self, tmp_path):
        pl.DataFrame(TABLE).write_csv(tmp_path / "clients.csv")
        columns = {name: column.stated() for name, column in DECLARED.items()}
        data = {"kind": "table", "table": str(tmp_path / "clients.csv"), "columns": columns, "ignore": ["note"]}
        return {"rounds": 3, "data": data}

    def test_a_config_reads_what_python_reads(self, settings):
        made = parse(settings).federations()(0, None)
        assert np.array_equal(made.features, read().features)
        assert made.encoding == read().encoding

    def test_the_memory_estimate_counts_encoded_features(self, settings):
        settings["data"]["intercept"] = True
        assert parse(settings).data.expected_extent() == (3, 4, 7, 6)
        settings["data"]["columns"]["sex"] = {"categories": "data"}
        assert parse(settings).data.expected_extent().dimension == parse(settings).federations()(0, None).dimension == 8

    def test_the_fingerprint_follows_declarations_and_names(self, settings):
        first = fingerprint(parse(settings), of_records=False)
        settings["data"]["columns"]["age"]["bounds"] = [20, 81]
        assert fingerprint(parse(settings), of_records=False) != first
        settings["data"] |= {"client": "client", "test": 0.25}
        assert fingerprint(parse(settings)) != first

    def test_a_private_run_needs_no_x_norm_where_all_columns_are_bounded(self, settings):
        settings |= {"objective": {"kind": "huber"}, "privacy": {"epsilon": 4.0, "noise": "seeded"}}
        assert run(parse(settings)).guarantee
        settings["data"]["columns"]["age"] = {"missing": 0}
        with pytest.raises(PrivacyError, match="Column 'age' has no bounds"):
            run(parse(settings))

    def test_folds_are_runs(self, settings):
        settings["data"] |= {"folds": 2}
        result = run(parse(settings))
        assert len(result.models) == 2


def test_a_stored_federation_remembers_what_was_read_from_records(tmp_path):
    read(columns=DECLARED | {"y": Column(bounds="data")}, store=tmp_path / "stored")
    with pytest.raises(PrivacyError, match="column 'y' were read from records"):
        train(Federation.open(tmp_path / "stored"), PGFL(), Huber(), rounds=1, privacy=PRIVACY)


def test_features_that_look_like_ids_give_a_warning_which_under_privacy_depends_on_names_only():
    rows = 40
    table = {"client": ["a", "b"] * 20, "y": np.zeros(rows), "x": np.linspace(0, 1, rows), "serial": np.arange(rows)}
    warning = "Column 'serial' looks like an id but is a feature; leave it out with `ignore`."
    private = {"privacy": Privacy(phi0=1.0, x_norm=1.0, noise="seeded"), "objective": Huber()}
    assert warning in train(Federation.read(table), rounds=1).warnings
    assert warning not in train(Federation.read(table), rounds=1, **private).warnings
    assert warning not in train(Federation.read(table, ignore=["serial"]), rounds=1).warnings
    assert warning not in train(Federation.read(table, columns={"serial": {"bounds": [0, 40]}}), rounds=1).warnings
    named = table | {"patient_id": [1, 2] * 20}
    both = "Columns 'serial', 'patient_id' look like ids but are features; leave them out with `ignore`."
    assert both in train(Federation.read(named), rounds=1).warnings
    assert any("'patient_id' looks" in text for text in train(Federation.read(named), rounds=1, **private).warnings)


def test_a_stored_federation_keeps_its_encoding_and_test_clients(tmp_path):
    rows = {"client": ["a"] * 5 + ["b"] * 5, "y": range(10), "x": range(10)}
    made = Federation.read(rows, columns={"x": {"bounds": [0, 9]}}, test=0.4, store=tmp_path / "stored")
    again = Federation.open(tmp_path / "stored")
    assert again.encoding == made.encoding
    assert again.tests["all"].clients.tolist() == [0, 0, 1, 1]
    with pytest.raises(ConfigError):
        Column(bounds=(2, 1))
