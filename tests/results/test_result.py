"""Results: questions one asks of them, and the folder they leave."""

import errno
import json
import os

import numpy as np
import pytest

from pgfl import files
from pgfl.config import parse
from pgfl.errors import ResultError
from pgfl.files import write_atomically, write_text
from pgfl.results.folder import begin_folder, check_folder, fresh_folder, is_complete
from pgfl.results.result import Network, Result, RunModels
from tests.sample_results import CLUSTERS, sample_result


def test_models_by_id():
    result = sample_result()
    run = result.models[0]
    np.testing.assert_array_equal(result.client("client-07"), run.clients[7])
    np.testing.assert_array_equal(result.server("server-2", "children"), run.servers[2 * 3 + 1])
    assert np.isnan(result.server("server-0", CLUSTERS[2])).all()
    held = run.present & (run.pair_cluster == 2)
    assert held.sum() == 4
    np.testing.assert_allclose(result.cluster(CLUSTERS[2]), run.servers[held].mean(axis=0))


def test_a_private_client_s_model_is_what_it_released():
    result = sample_result(noise="seeded")
    np.testing.assert_array_equal(result.client("client-03"), result.models[0].released[3])
    assert np.isnan(result.client("client-00")).all()
    with pytest.raises(ResultError, match=r"Client client-00 has no model to predict with"):
        result.predict(np.ones((1, 4)), client="client-00")


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (lambda r: r.client("client-99"), r"no client 'client-99' \(did you mean client-"),
        (lambda r: r.cluster("adult"), r"no cluster 'adult' \(did you mean adults\?\)"),
        (lambda r: r.server("server-9", "adults"), "no server 'server-9'"),
        (lambda r: r.client("client-01", run=3), "no run 3; the runs are 0 to 0"),
        (lambda r: r.curve("nmds"), r"no metric nmds \(did you mean nmsd\?\)"),
        (lambda r: r.predict([[1.0] * 4]), "Name the model that predicts"),
        (lambda r: r.predict([[1.0] * 4], client="client-01", cluster="adults"), "Name the model that predicts"),
        (lambda r: r.predict([[1.0] * 4], server="server-1"), "Name the model that predicts"),
        (lambda r: r.predict([[1.0] * 5], cluster="adults"), "takes 4 features per row; got 5"),
        (lambda r: r.predict([[1.0] * 4], server="server-0", cluster=CLUSTERS[2]), "Server server-0 has no model"),
    ],
)
def test_a_wrong_question_gets_one_sentence(ask, sentence):
    with pytest.raises(ResultError, match=sentence):
        ask(sample_result())


def test_predictions_are_values_or_probabilities_by_the_cluster_s_objective():
    result = sample_result()
    rows = np.random.default_rng(0).normal(size=(6, 4)) * 300
    np.testing.assert_allclose(result.predict(rows, cluster="adults"), rows @ result.cluster("adults"))
    logits = rows @ result.server("server-1", CLUSTERS[2])
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(
            result.predict_proba(rows, server="server-1", cluster=CLUSTERS[2])[:, 1],
            1 / (1 + np.exp(-logits)),
            atol=1e-12,
        )
    client = int(np.flatnonzero(result.models[0].network.client_cluster == 2)[0])
    chances = result.predict_proba(rows, client=f"client-{client:02d}")
    assert ((chances >= 0) & (chances <= 1)).all()
    assert np.ptp(chances) > 0.5


def test_an_intercept_is_added_to_the_features():
    result = sample_result(intercept=True)
    weights = result.cluster("adults")
    np.testing.assert_allclose(result.predict([1.0, 2.0, 3.0], cluster="adults"), weights[:3] @ [1, 2, 3] + weights[3])


def test_history_curves_and_summary():
    result = sample_result(runs=3, rounds=10)
    assert result.rounds.tolist() == list(range(11))
    assert result.curve("nmsd").shape == (3, 11)
    np.testing.assert_array_equal(result.curve("nmsd")[1], result.history["nmsd"][11:22])
    assert set(result.residuals) == {"run", "round", "primal_residual", "dual_residual"}
    assert result.to_polars().columns == list(result.history)
    summary = result.summary()
    assert summary["final"]["nmsd"] == pytest.approx(result.curve("nmsd")[:, -1].mean())
    json.dumps(summary, allow_nan=False)


def test_spending_is_the_worst_and_the_median_client_over_all_runs():
    result = sample_result(runs=2, noise="secure")
    everyone = np.concatenate([table["epsilon"] for table in result.privacy])
    assert result.spending()["epsilon"] == {"worst": everyone.max(), "median": np.median(everyone)}


# ----------------------------------------------------------------------------------------------------------- the folder


@pytest.mark.parametrize("noise", [None, "seeded", "secure"])
def test_a_saved_result_reads_back_to_the_same_bits(tmp_path, noise):
    result = sample_result(runs=2, noise=noise)
    result.save(tmp_path / "out")
    again = Result.load(tmp_path / "out")
    for name, column in result.history.items():
        np.testing.assert_array_equal(again.history[name], column)
    for run in range(2):
        for client in result.client_ids:
            np.testing.assert_array_equal(again.client(client, run), result.client(client, run))
        for server in result.server_ids:
            for cluster in result.cluster_ids:
                np.testing.assert_array_equal(again.server(server, cluster, run), result.server(server, cluster, run))
        np.testing.assert_array_equal(again.models[run].network.edges, result.models[run].network.edges)
    assert again.summary() == result.summary()
    assert again.config == result.config
    for table, kept in zip(result.privacy, again.privacy, strict=True):
        for name in table:
            np.testing.assert_array_equal(kept[name], table[name])
            assert kept[name].dtype.kind == table[name].dtype.kind


def test_the_files_are_those_of_the_contract(tmp_path):
    result = sample_result(runs=2)
    result.save(tmp_path)
    header, first = (tmp_path / "history.csv").read_text("utf-8").splitlines()[:2]
    assert header.split(",")[:3] == ["run", "round", "nmsd"]
    assert first.split(",")[:2] == ["0", "0"]
    for name, run in (("models.npz", 0), ("models-1.npz", 1)):
        with np.load(tmp_path / name, allow_pickle=False) as arrays:
            assert arrays["client_ids"].tolist() == sorted(result.client_ids)
            np.testing.assert_array_equal(arrays["clients"], result.models[run].clients)
            assert arrays["servers"].shape == (5, 3, 4)
            assert np.isnan(arrays["servers"][0, 2]).all()
            assert np.isnan(arrays["servers"]).sum() == 4
            assert arrays["cluster_ids"].tolist() == list(CLUSTERS)
    assert not (tmp_path / "privacy.csv").exists()
    assert not (tmp_path / "simulation_only").exists()


def test_with_privacy_only_released_models_leave_the_simulation_only_folder(tmp_path):
    result = sample_result(noise="seeded")
    result.save(tmp_path)
    with np.load(tmp_path / "models.npz") as arrays:
        np.testing.assert_array_equal(arrays["clients"], result.models[0].released)
    assert len((tmp_path / "privacy.csv").read_text("utf-8").splitlines()) == 1 + len(result.client_ids)
    with np.load(tmp_path / "simulation_only" / "models.npz") as arrays:
        np.testing.assert_array_equal(arrays["clients"], result.models[0].clients)
    assert "nmsd" in (tmp_path / "simulation_only" / "history.csv").read_text("utf-8")
    clean = [value.tobytes() for value in result.models[0].clients]
    for file in tmp_path.iterdir():
        content = file.read_bytes() if file.is_file() else b""
        assert not any(value in content for value in clean), file


def test_with_secure_noise_no_clean_model_is_written_anywhere(tmp_path):
    result = sample_result(noise="secure")
    result.save(tmp_path)
    assert not (tmp_path / "simulation_only").exists()
    assert Result.load(tmp_path).models[0].clients is None
    clean = [value.tobytes() for value in result.models[0].clients]
    assert not any(value in file.read_bytes() for file in tmp_path.iterdir() for value in clean)


def test_many_clusters_are_stored_by_pairs(tmp_path, monkeypatch):
    monkeypatch.setattr("pgfl.results.arrays.DENSE_SERVERS", 59)
    result = sample_result()
    result.save(tmp_path)
    with np.load(tmp_path / "models.npz") as arrays:
        assert arrays["servers"].shape == (14, 4)
        assert arrays["pair_server"].shape == arrays["pair_cluster"].shape == (14,)
    again = Result.load(tmp_path)
    np.testing.assert_array_equal(again.server("server-3", "adults"), result.server("server-3", "adults"))
    assert np.isnan(again.server("server-0", CLUSTERS[2])).all()


def test_a_result_without_a_config_is_saved_too(tmp_path):
    models = RunModels(np.ones((1, 2)), None, np.array([0]), np.array([0]), np.ones((1, 2)), np.array([True]))
    history = {"run": np.array([0]), "round": np.array([0])}
    result = Result(("a",), ("s",), ("q",), ("own",), (models,), history)
    result.save(tmp_path)
    again = Result.load(tmp_path)
    assert again.config is None
    assert again.predict([[1.0, 2.0]], client="a").tolist() == [3.0]


def test_a_folder_with_a_result_is_refused_and_left_as_it_is(tmp_path):
    sample_result().save(tmp_path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(ResultError, match="already holds a result, and nothing was overwritten"):
        sample_result().save(tmp_path)
    with pytest.raises(ResultError, match="already holds a result"):
        check_folder(tmp_path, resume=False)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_an_unfinished_folder_asks_for_resume_and_for_the_same_config(tmp_path):
    begin_folder(tmp_path, parse({"rounds": 40, "name": "sample"}))
    with pytest.raises(ResultError, match="continue it with --resume"):
        check_folder(tmp_path, resume=False)
    check_folder(tmp_path, resume=True)
    begin_folder(tmp_path, parse({"rounds": 40, "threads": 2}))
    with pytest.raises(ResultError, match=r"another config \(algorithm.rho was 5.0 and is 3.0\)"):
        begin_folder(tmp_path, parse({"rounds": 40, "algorithm": {"rho": 3.0}}))
    assert not is_complete(tmp_path)
    with pytest.raises(ResultError, match="holds no finished result"):
        Result.load(tmp_path)
    sample_result().save(tmp_path)
    assert is_complete(tmp_path)


def test_other_files_in_the_folder_are_no_obstacle_but_a_file_in_its_place_is(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    check_folder(tmp_path, resume=False)
    sample_result().save(tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    with pytest.raises(ResultError, match="is a file"):
        check_folder(tmp_path / "notes.txt", resume=False)


@pytest.mark.parametrize("name", ["models.npz", "history.csv", "summary.json", "config.toml"])
def test_a_damaged_result_says_so(tmp_path, name):
    sample_result().save(tmp_path)
    (tmp_path / name).write_bytes(b"\x00garbage,\n1")
    with pytest.raises(ResultError, match="is damaged"):
        Result.load(tmp_path)


def test_fresh_folders_do_not_collide(tmp_path):
    first = fresh_folder(tmp_path, "x")
    first.mkdir()
    second = fresh_folder(tmp_path, "x")
    second.mkdir()
    assert first != second


# --------------------------------------------------------------------------------------------------------- atomic files


def test_a_full_disk_keeps_the_old_file_and_leaves_no_draft(tmp_path):
    target = tmp_path / "checkpoint.npz"
    write_text(target, "good")

    def runs_out(stream):
        stream.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(ResultError, match=r"The disk is full, so .* was not written and what was there before is kept"):
        write_atomically(target, runs_out)
    assert target.read_text() == "good"
    assert os.listdir(tmp_path) == ["checkpoint.npz"]


def test_a_kill_before_the_rename_keeps_the_old_file(tmp_path, monkeypatch):
    target = tmp_path / "checkpoint.npz"
    write_text(target, "good")

    class Killed(BaseException):
        pass

    def kill(*_):
        raise Killed

    monkeypatch.setattr(files.os, "replace", kill)
    with pytest.raises(Killed):
        write_text(target, "new")
    assert target.read_text() == "good"


def test_what_is_written_is_synchronised_before_the_rename(tmp_path, monkeypatch):
    order = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(files.os, "fsync", lambda descriptor: (order.append("fsync"), fsync(descriptor)))
    monkeypatch.setattr(files.os, "replace", lambda *names: (order.append("replace"), replace(*names)))
    write_text(tmp_path / "a", "b")
    assert order == ["fsync", "replace", "fsync"]


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultError, match="cannot be written"):
        files.make_folder(tmp_path / "file" / "inside")
    with pytest.raises(ResultError, match="cannot be written"):
        write_text(tmp_path / "absent" / "x", "y")


def test_a_network_names_who_is_where():
    network = Network(np.array([0]), np.array([0]), np.empty((0, 2), dtype=int))
    assert vars(network).keys() == {"client_server", "client_cluster", "edges"}
