"""Exported models predict what pgfl predicts."""

import sys

import joblib
import numpy as np
import onnxruntime
import pandas
import pytest

from pgfl import Model
from pgfl.errors import MissingExtra, ResultError
from pgfl.federation.columns import BooleanColumn, CategoryColumn, NumberColumn, TargetColumn
from pgfl.federation.encoding import RowEncoding
from pgfl.results.export import export
from tests.command_line import refused, run
from tests.sample_results import sample_result

COLUMNS = (
    NumberColumn("age", (20.0, 80.0)),
    NumberColumn("dose", (0.0, 5.0), fill=1.0, indicator=True),
    NumberColumn("height"),
    CategoryColumn("sex", ("f", "m")),
    CategoryColumn("town", ("rome", "bonn", "oslo"), other=True, missing=True),
    CategoryColumn("diet", ("meat", "fish"), fill="fish"),
    BooleanColumn("smoker", fill=False, indicator=True),
    BooleanColumn("fit"),
)


def table(count=80, seed=0, gaps=True):
    rng = np.random.default_rng(seed)
    frame = pandas.DataFrame(
        {
            "diet": rng.choice(["meat", "fish"], count).astype(object),
            "age": rng.uniform(10, 90, count),  # some outside the bounds
            "dose": rng.uniform(-1, 6, count),
            "height": rng.normal(1.7, 0.1, count),
            "sex": rng.choice(["f", "m"], count),
            "town": rng.choice(["rome", "bonn", "oslo", "lima", "cairo"], count).astype(object),
            "smoker": rng.integers(0, 2, count).astype(float),
            "fit": rng.integers(0, 2, count).astype(float),
        }
    )
    if gaps:
        for name in ("dose", "smoker", "town", "diet"):
            frame.loc[rng.random(count) < 0.2, name] = np.nan
    return frame


def model(task="regression", columns=COLUMNS, target=None, seed=1, **fields):
    encoding = RowEncoding(columns, target or TargetColumn("y", (0.0, 50.0)))
    classes = fields.get("classes")
    weights = np.random.default_rng(seed).normal(size=(1, encoding.dimension * (classes or 1)))
    kind = {"regression": "ridge", "classification": "logistic", "multiclass": "softmax"}[task]
    return Model(
        ("adults",), (kind,), (task,), weights.astype(fields.get("dtype", "float64")), encoding=encoding, **fields
    )


def onnx_answers(path, frame, made):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    feed = {}
    for column in made.encoding.columns:
        cells = frame[column.name].to_numpy()[:, None]
        text = isinstance(column, CategoryColumn)
        feed[column.name] = np.where(pandas.isna(cells), "", cells).astype(object) if text else cells.astype(float)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, feed), strict=True))


LABELS = {"classification": ("well", "ill"), "multiclass": ("c", "a", "b")}


def variants():
    for task in ("regression", "classification", "multiclass"):
        for labelled in (False, True) if task != "regression" else (False,):
            for clipped in (None, 1.5):
                for dtype in ("float64", "float32"):
                    yield pytest.param(task, labelled, clipped, dtype, id=f"{task}-{labelled}-{clipped}-{dtype}")


def variant(task, labelled, clipped, dtype, columns=COLUMNS):
    target = TargetColumn("y", labels=LABELS[task]) if labelled else None if task == "regression" else TargetColumn("y")
    return model(task, columns, target, classes=3 if task == "multiclass" else None, x_norm=clipped, dtype=dtype)


@pytest.mark.parametrize(("task", "labelled", "clipped", "dtype"), [*variants()])
def test_onnx_predicts_the_same_with_scaling_categories_and_clipping_inside(tmp_path, task, labelled, clipped, dtype):
    made, frame = variant(task, labelled, clipped, dtype), table()
    export(made, tmp_path / "model.onnx", "onnx")
    found = onnx_answers(tmp_path / "model.onnx", frame, made)
    close = {"rtol": 1e-12, "atol": 1e-12} if dtype == "float64" else {"rtol": 1e-5, "atol": 1e-5}
    if task == "regression":
        np.testing.assert_allclose(found["prediction"], made.predict(frame), **close)
        return
    np.testing.assert_allclose(found["probabilities"], made.predict_proba(frame), **close)
    assert found["label"].tolist() == made.predict(frame).tolist()


@pytest.mark.parametrize(("task", "labelled", "clipped", "dtype"), [*variants()])
def test_scikit_learn_predicts_the_same(tmp_path, task, labelled, clipped, dtype):
    columns = COLUMNS if clipped is None else tuple(column for column in COLUMNS if column.name != "town")
    made, frame = variant(task, labelled, clipped, dtype, columns), table()
    export(made, tmp_path / "model.joblib", "sklearn")
    pipeline = joblib.load(tmp_path / "model.joblib")
    used = [column.name for column in columns]
    close = {"rtol": 1e-12, "atol": 1e-12} if dtype == "float64" else {"rtol": 1e-5, "atol": 1e-5}
    if task == "regression":
        np.testing.assert_allclose(pipeline.predict(frame), made.predict(frame[used]), **close)
        return
    classes = [str(label) for label in pipeline.classes_]
    order = [classes.index(label) for label in made.label_names]
    np.testing.assert_allclose(pipeline.predict_proba(frame)[:, order], made.predict_proba(frame[used]), **close)
    assert pipeline.predict(frame).tolist() == made.predict(frame[used]).tolist()


def test_a_pipeline_needs_pgfl_only_where_rows_are_clipped(tmp_path):
    plain = (NumberColumn("age", (20.0, 80.0)), CategoryColumn("sex", ("f", "m")))
    within = model(columns=plain, x_norm=1.8)  # √3 at most, so that nothing is ever clipped
    export(within, tmp_path / "within", "sklearn")
    assert b"pgfl" not in (tmp_path / "within").read_bytes()
    export(model(columns=plain, x_norm=1.7), tmp_path / "clipped", "sklearn")
    assert b"pgfl.results.export_sklearn" in (tmp_path / "clipped").read_bytes()
    with pytest.raises(ResultError, match=r"'town' has a category for unknown texts .* export to ONNX instead"):
        export(model(x_norm=1.0), tmp_path / "refused", "sklearn")
    assert not (tmp_path / "refused").exists()


def test_where_pgfl_refuses_a_row_the_exports_give_no_number(tmp_path):
    made = model()
    export(made, tmp_path / "model.onnx", "onnx")
    export(made, tmp_path / "model.joblib", "sklearn")
    pipeline = joblib.load(tmp_path / "model.joblib")
    for name, cell in (("sex", "x"), ("age", np.nan), ("age", np.inf), ("height", np.nan), ("fit", 2.0), ("sex", "")):
        frame = table(3, gaps=False)
        frame[name] = frame[name].astype(object) if isinstance(cell, str) else frame[name]
        frame.loc[1, name] = cell
        found = onnx_answers(tmp_path / "model.onnx", frame, made)["prediction"]
        assert np.isnan(found).tolist() == [False, True, False], (name, cell)
        if name != "fit":
            with pytest.raises(ValueError, match=r"unknown categories|NaN|infinity"):
                pipeline.predict(frame)


def test_a_model_of_arrays_takes_one_input(tmp_path):
    result = sample_result(intercept=True, x_norm=1.1)
    rows = np.random.default_rng(0).normal(size=(20, 3))
    export(result.model(), tmp_path / "a.onnx", "onnx", cluster="adults")
    session = onnxruntime.InferenceSession(tmp_path / "a.onnx", providers=["CPUExecutionProvider"])
    expected = result.predict(rows, cluster="adults")
    np.testing.assert_allclose(session.run(None, {"features": rows})[0], expected, rtol=1e-12)
    export(result.model(), tmp_path / "a.joblib", "sklearn", cluster="adults")
    np.testing.assert_allclose(joblib.load(tmp_path / "a.joblib").predict(rows), expected, rtol=1e-12)


@pytest.mark.parametrize(("to", "module", "extra"), [("onnx", "onnx", "onnx"), ("sklearn", "sklearn", "sklearn")])
def test_without_the_library_the_extra_is_named(tmp_path, monkeypatch, to, module, extra):
    for name in [name for name in sys.modules if name == module or name.startswith(f"{module}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=rf"pip install 'pgfl\[{extra}\]'"):
        export(model(), tmp_path / "model", to)


def test_the_command_writes_one_file_and_refuses_mistakes_in_one_sentence(tmp_path):
    folder = sample_result().save(tmp_path / "run")
    out = tmp_path / "model.onnx"
    assert "3 clusters" in refused("export", folder, "--to", "onnx", "--out", out)
    assert "no cluster 'adult'" in refused("export", folder, "--to", "onnx", "--out", out, "--cluster", "adult")
    assert "pmml" in refused("export", folder, "--to", "pmml", "--out", out, "--cluster", "adults")
    assert not out.exists()
    ran = run("export", folder / "model.pgfl", "--to", "onnx", "--out", out, "--cluster", "adults")
    assert (ran.code, ran.err) == (0, "")
    assert "already exists" in refused("export", folder, "--to", "sklearn", "--out", out, "--cluster", "adults")
    rows = np.ones((2, 4))
    session = onnxruntime.InferenceSession(out, providers=["CPUExecutionProvider"])
    expected = sample_result().predict(rows, cluster="adults")
    np.testing.assert_allclose(session.run(None, {"features": rows})[0], expected)
