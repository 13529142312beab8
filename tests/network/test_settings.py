"""`site.toml` and `client.toml`: one sentence a mistake, and one hash a training configuration."""

from __future__ import annotations

import pytest

from pgfl.errors import ConfigError, NetworkError
from pgfl.network.agreement import Training
from pgfl.network.client.settings import load_client
from pgfl.network.settings import toml_of
from pgfl.network.site.settings import load_site
from tests.command_line import run

SITE = {"name": "north", "training": {"rounds": 3, "dimension": 2, "clusters": ["b", "a"]}}
CLIENT = {
    "name": "ann",
    "data": "ann.csv",
    "site": {"address": "north:9094", "fingerprint": "ab" * 32},
    "privacy": {"enabled": True, "epsilon": 2.0, "max_releases": 10, "x_norm": 1.0},
}


def written(tmp_path, table):
    path = tmp_path / "x.toml"
    path.write_text(toml_of(table))
    return path


def test_paths_are_relative_to_the_file(tmp_path):
    assert load_site(written(tmp_path, SITE)).home == str(tmp_path)
    client = load_client(written(tmp_path, CLIENT))
    assert client.data == str(tmp_path / "ann.csv")


def test_the_hash_is_of_the_meaning_and_survives_the_wire(tmp_path):
    training = load_site(written(tmp_path, SITE)).training
    assert Training.parse(training.text).digest == training.digest
    swapped = {**SITE, "training": {**SITE["training"], "clusters": ["a", "b"]}}
    assert load_site(written(tmp_path, swapped)).training.digest == training.digest
    other = {**SITE, "training": {**SITE["training"], "algorithm": {"rho": 4.0}}}
    assert load_site(written(tmp_path, other)).training.digest != training.digest


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"training": {**SITE["training"], "round": 3}}, "training.rounds"),
        ({"training": {**SITE["training"], "clusters": ["a", "a"]}}, "twice"),
        ({"training": {**SITE["training"], "algorithm": {"kind": "pgfl-exact"}}}, "most_clients"),
        ({"training": {**SITE["training"], "mixing": "clients"}}, "most_clients"),
        ({"listen": {"port": 99999}}, "listen.port"),
        ({"listn": {"port": 1}}, "listen"),
        ({"listen": {"flower": 9092, "clients": 9093}}, r"`listen.flower`, `listen.clients` .* write `port`"),
        ({"listen": {"public": "north"}}, r"`listen.public` .* write `port`"),
    ],
)
def test_a_wrong_site_file_is_one_sentence(tmp_path, change, words):
    with pytest.raises(ConfigError, match=words):
        load_site(written(tmp_path, {**SITE, **change}))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"x_norm": None}, "x_norm"),
        ({"max_releases": None}, "budget that ends"),
        ({"guarantee": "none", "epsilon": None, "phi0": 1.0}, "guarantee"),
        ({"update_norm": 1.0}, "update_norm"),
        ({"epsilom": 1.0}, "epsilon"),
    ],
)
def test_a_wrong_client_file_is_one_sentence(tmp_path, change, words):
    with pytest.raises(ConfigError, match=words):
        load_client(written(tmp_path, {**CLIENT, "privacy": {**CLIENT["privacy"], **change}}))


@pytest.mark.parametrize(
    ("site", "words"),
    [
        ({"superlink": "north:9092", "certificate": "site.crt"}, r"older pgfl; write `address` .* and `fingerprint`"),
        ({"address": "north:9094", "certificate": "site.crt"}, "`fingerprint`"),
        ({"address": "north", "fingerprint": "ab" * 32}, "site.address"),
        ({"address": "north:1", "fingerprint": "AB" * 32}, "site.fingerprint"),
    ],
)
def test_a_wrong_or_old_address_is_one_sentence(tmp_path, site, words):
    with pytest.raises(ConfigError, match=words) as refused:
        load_client(written(tmp_path, {**CLIENT, "site": site}))
    assert str(refused.value).count("\n") == 0


def test_a_stated_budget_is_on_unless_the_owner_switches_it_off(tmp_path):
    stated = {key: value for key, value in CLIENT["privacy"].items() if key != "enabled"}
    assert load_client(written(tmp_path, {**CLIENT, "privacy": stated})).privacy.enabled
    assert not load_client(written(tmp_path, {**CLIENT, "privacy": {**stated, "enabled": False}})).privacy.enabled
    with pytest.raises(ConfigError, match="x_norm"):
        load_client(written(tmp_path, {**CLIENT, "privacy": {**stated, "x_norm": None}}))


def test_a_client_that_joins_without_its_written_budget_is_told(tmp_path):
    path = written(tmp_path, {**CLIENT, "privacy": {**CLIENT["privacy"], "enabled": False}})
    code, out, _ = run("client", "join", path)
    assert code == 2  # there is no data yet
    assert "Privacy is off: `privacy.enabled` is false although `privacy.epsilon` is written" in out
    assert "Privacy is off" not in run("client", "join", written(tmp_path, CLIENT)).out


def test_a_bound_that_would_change_the_labels_of_a_classification_is_refused_whatever_they_are(tmp_path):
    def client(**privacy):
        return written(tmp_path, {**CLIENT, "task": "classification", "privacy": {**CLIENT["privacy"], **privacy}})

    with pytest.raises(ConfigError, match=r"y_bound.*below 1"):
        load_client(client(y_bound=0.5))
    for harmless in (None, 1.0, 10.0):
        load_client(client(y_bound=harmless))


@pytest.mark.parametrize(
    ("limits", "words"),
    [({"rho": [10, 1]}, "descends"), ({"rho": [1]}, "limits.rho"), ({"rhos": [1, 2]}, "did you mean `limits.rho`")],
)
def test_wrong_limits_are_one_sentence(tmp_path, limits, words):
    with pytest.raises(ConfigError, match=words):
        load_client(written(tmp_path, {**CLIENT, "limits": limits}))
    assert load_client(written(tmp_path, {**CLIENT, "limits": {"rho": [1, 10]}})).limits.rho == (1.0, 10.0)


def test_files_that_are_none(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        load_site(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("= 3")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_site(tmp_path / "bad.toml")


@pytest.mark.parametrize("text", ["", "{}", "[" * 3000, '{"rounds": "many"}', "null"])
def test_a_training_that_cannot_be_read_is_one_error(text):
    with pytest.raises(NetworkError):
        Training.parse(text)
