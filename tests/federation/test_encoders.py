"""A frozen encoder is a row map: it is known by its hash, looks at one row only, and privacy asks for a declaration."""

import numpy as np
import onnxruntime
import pytest

from pgfl import PGFL, Column, ConfigError, Federation, Huber, Model, Privacy, PrivacyError, Ridge, train
from pgfl.config import load_config, parse, to_toml
from pgfl.federation.encoding import RowEncoding
from pgfl.maps import Encoder, Group, digest, read_maps
from pgfl.maps.encoder import _FILES, _bytes, _network
from tests import encoders
from tests.encoders import SMALL, sha256

COLUMNS = tuple(Group(name, (name,), 1.0, scaled=True) for name in "abcde")
PRIVATE = Privacy(epsilon=4.0, max_releases=10, x_norm=2.0, noise="seeded")


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch, tmp_path):
    """No test finds the files of another one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pgfl.maps.encoder._FILES", {})
    _bytes.cache_clear()
    _network.cache_clear()


def kept(folder, content=SMALL, name="encoder.onnx", **settings):
    (folder / name).write_bytes(content)
    return Encoder(sha256(content), str(folder / name), **settings)


def rows(count=40, seed=3):
    return np.random.default_rng(seed).uniform(-1, 1, (count, 5))


def federation(one, **declared):
    table = {"client": [f"c{n // 10}" for n in range(40)], **dict(zip("abcde", rows().T, strict=True))}
    table["y"] = np.maximum(rows() @ encoders.weights()[:, 0], 0.0)
    columns = {name: Column(bounds=(-1, 1)) for name in "abcde"} | {"y": Column(bounds=(-4, 4))}
    return Federation.read(table, columns=columns, map=one, intercept=True, **declared)


def test_training_prediction_and_a_stored_model_run_the_same_network(tmp_path):
    one = kept(tmp_path)
    made = federation(one)
    assert made.features[:, :3] == pytest.approx(np.maximum(rows() @ encoders.weights(), 0), abs=1e-5)
    result = train(made, PGFL(rho=2.0), Ridge(lam=1e-5), rounds=200)
    model = result.model()
    table = {"client": ["c1"] * 40, **dict(zip("abcde", rows().T, strict=True))}
    model.save(tmp_path / "model.json")
    _bytes.cache_clear(), _FILES.clear()
    assert np.array_equal(Model.load(tmp_path / "model.json").predict(table), model.predict(table))
    assert str(tmp_path) not in (tmp_path / "model.json").read_text("utf-8", "replace")


def test_a_model_is_the_same_wherever_its_encoder_lies(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir(), (tmp_path / "there").mkdir()
    here, there = kept(tmp_path / "here"), kept(tmp_path / "there", name="other.onnx")
    assert here == there and digest((here,)) == digest((there,)) and "here" not in repr(here)
    monkeypatch.setattr("pgfl.maps.encoder._FILES", {})
    bare = read_maps({"kind": "onnx", "sha256": sha256(SMALL)})[0]
    with pytest.raises(ConfigError, match="put the encoder into this folder"):
        bare.outputs(COLUMNS)
    monkeypatch.setenv("PGFL_ENCODERS", str(tmp_path / "there"))
    assert bare.apply(rows(), COLUMNS).shape == (40, 3)


def test_another_file_than_the_one_agreed_on_is_refused(tmp_path):
    one = kept(tmp_path)
    (tmp_path / "encoder.onnx").write_bytes(encoders.network(out=4))
    with pytest.raises(ConfigError, match="it is another file than the one agreed on"):
        one.outputs(COLUMNS)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (encoders.centred_by_the_batch(), "another answer beside other rows"),
        (encoders.batch_normalised(), "in evaluation mode"),
        (encoders.random(), "another answer every time"),
        (encoders.network(batch=4), "takes 4 rows at a time"),
        (encoders.network(width=6), "takes rows of 6 numbers, not 5"),
        (b"no network", "ONNX Runtime cannot load the encoder"),
    ],
)
def test_a_graph_that_is_no_function_of_one_row_is_refused(tmp_path, content, complaint):
    with pytest.raises(ConfigError, match=complaint):
        kept(tmp_path, content).outputs(COLUMNS)


def test_no_row_reaches_another_rows_features_even_unchecked(tmp_path, monkeypatch):
    """Were such a graph not noticed, one row at a time would still keep rows apart."""
    monkeypatch.setattr("pgfl.maps.encoder._alike", lambda found, expected: True)
    one = kept(tmp_path, encoders.centred_by_the_batch())
    scrambled = rows(seed=4)
    scrambled[7] = rows()[7]
    assert np.array_equal(one.apply(scrambled, COLUMNS)[7], one.apply(rows(), COLUMNS)[7])


def test_images_go_in_as_images(tmp_path):
    image = (Group("pixel", tuple(f"pixel-{n}" for n in range(784)), 784.0, shape=(28, 28)),)
    one = kept(tmp_path, encoders.image_network())
    pixels = np.random.default_rng(5).random((3, 784))
    found = one.apply(pixels, image)
    whole = onnxruntime.InferenceSession(encoders.image_network(), providers=["CPUExecutionProvider"])
    expected = whole.run(None, {"rows": pixels.reshape(3, 1, 28, 28).astype(np.float32)})[0]
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_privacy_wants_a_declaration_and_a_length(tmp_path):
    with pytest.raises(PrivacyError, match="may have been trained on these records"):
        train(federation(kept(tmp_path)), PGFL(rho=2.0), Huber(), rounds=2, privacy=PRIVATE)
    declared = federation(kept(tmp_path, public=True))
    unbounded = Privacy(epsilon=4.0, max_releases=10, noise="seeded")
    with pytest.raises(PrivacyError, match=r"does not bound the norm of a row; state `privacy\.x_norm`"):
        train(declared, PGFL(rho=2.0), Huber(), rounds=2, privacy=unbounded)
    result = train(declared, PGFL(rho=2.0), Huber(), rounds=2, privacy=PRIVATE)
    assert 0 < result.spending()["epsilon"]["worst"] <= 4.0


def test_answers_that_are_not_finite_become_zeros(tmp_path):
    nodes = [encoders.node("Log", ["rows"], "log"), encoders.node("MatMul", ["log", "w"], "found")]
    one = kept(tmp_path, encoders.encoder(nodes, [("w", encoders.weights())]))
    found = one.apply(np.array([[0.5] * 5, [-0.5] * 5]), COLUMNS)
    assert np.isfinite(found).all() and not found[1].any() and found[0].any()


def test_a_config_names_the_file_from_its_own_folder(tmp_path):
    content = {"sha256": sha256(SMALL), "file": "encoder.onnx", "kind": "onnx", "public": True}
    lines = ", ".join(f'{key} = "{value}"' if value is not True else f"{key} = true" for key, value in content.items())
    (tmp_path / "own").mkdir()
    kept(tmp_path / "own")
    (tmp_path / "own" / "c.toml").write_text(
        f'[data]\nkind = "table"\ntable = "t.csv"\nmap = {{ {lines} }}\n[algorithm]\nkind = "pgfl"\n'
    )
    config = load_config(tmp_path / "own" / "c.toml")
    assert config.data.map[0].file == str(tmp_path / "own" / "encoder.onnx") and config.data.map[0].public
    assert parse({"data": {"kind": "table", "table": "t.csv", "map": content}}).data.map == config.data.map
    assert "encoder.onnx" in to_toml(config)


def test_a_function_is_a_map_of_a_simulation_only():
    made = federation(lambda row: row @ encoders.weights())
    assert made.features[:, :3] == pytest.approx(rows() @ encoders.weights())
    assert train(made, PGFL(rho=2.0), Ridge(), rounds=2).model().clusters.shape == (1, 4)
    with pytest.raises(ConfigError, match="for a simulation that stores nothing"):
        made.encoding.to_json()
    with pytest.raises(PrivacyError, match="may have been trained on these records"):
        train(made, PGFL(rho=2.0), Huber(), rounds=2, privacy=PRIVATE)
    with pytest.raises(ConfigError, match="must give as many for each"):
        federation(lambda row: row[: 1 + (row[0] > 0)])


def test_an_encoding_with_an_encoder_is_read_back(tmp_path):
    encoding = federation(kept(tmp_path, public=True)).encoding
    again = RowEncoding.from_json(encoding.to_json())
    assert again == encoding and again.maps[0].public and again.feature_names[0] == "encoder-1"
