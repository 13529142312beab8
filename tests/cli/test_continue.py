"""`pgfl run --continue`: more rounds of a finished run, in a new folder."""

import json
import shutil

import numpy as np
import pytest

from pgfl import Result
from pgfl.config import load_config
from tests.command_line import refused, run

CONFIG = """
rounds = 6
[data]
kind = "table"
table = "clients.csv"
[graph]
kind = "complete"
[objective]
kind = "huber"
[algorithm]
rho = 2.0
participants = 1
"""
PRIVATE = """
[privacy]
epsilon = 2.0
max_releases = 6
index = "release"
x_norm = 1.0
noise = "seeded"
"""


def write_table(path, clients="abcd", rows=8):
    rng = np.random.default_rng(0)
    lines = ["client,server,cluster,y,x1,x2"]
    for number, name in enumerate("abcdef"):
        for _ in range(20):
            x1, x2 = rng.normal(size=2) / 2
            y = x1 + 2 * x2 + 0.1 * rng.normal()
            lines.append(f"{name},server-{number % 2},all,{y},{x1},{x2}")
    kept = [line for name in clients for line in [row for row in lines if row.startswith(f"{name},")][:rows]]
    path.write_text("\n".join([lines[0], *kept]))


@pytest.fixture
def place(tmp_path):
    write_table(tmp_path / "clients.csv")
    (tmp_path / "mine.toml").write_text(CONFIG)
    (tmp_path / "private.toml").write_text(CONFIG + PRIVATE)
    return tmp_path


def ran(*arguments):
    found = run("run", *arguments, "--json")
    assert found.code == 0, found.err
    return json.loads(found.out)


def test_a_continued_run_is_the_longer_run(place):
    ran(place / "mine.toml", "--out", place / "first")
    ran(place / "mine.toml", "--rounds", 10, "--out", place / "whole")
    summary = ran("--continue", place / "first", "--rounds", 4, "--out", place / "second")
    assert summary["rounds"] == 10
    whole, second = Result.load(place / "whole"), Result.load(place / "second")
    np.testing.assert_array_equal(second.models[0].servers, whole.models[0].servers)
    assert (place / "second" / "history.csv").read_text() == (place / "whole" / "history.csv").read_text()
    assert load_config(place / "second" / "config.toml").continues == str((place / "first").resolve())
    third = ran("--continue", place / "second", "--rounds", 1, "--out", place / "third")
    assert third["rounds"] == 11


def test_an_interrupted_continuation_is_resumed_with_its_start(place, monkeypatch):
    from pgfl.simulate.simulator import Simulator

    ran(place / "private.toml", "--set", "privacy.max_releases=20", "--rounds", 4, "--out", place / "first")
    more = ("--continue", place / "first", "--set", "privacy.epsilon=3.0", "--set", "checkpoint_every=1")
    ran(*more, "--rounds", 6, "--out", place / "whole")
    play = Simulator.run_round

    def interrupted(self):
        if self.state.round == 7:
            raise KeyboardInterrupt
        return play(self)

    with monkeypatch.context() as patch:
        patch.setattr(Simulator, "run_round", interrupted)
        stopped = run("run", *more, "--rounds", 6, "--out", place / "second")
    assert stopped.code == 130
    assert "--resume --out" in stopped.err
    ran("--resume", "--out", place / "second")
    for name in ("history.csv", "privacy.csv"):
        assert (place / "second" / name).read_text() == (place / "whole" / name).read_text()


def test_new_clients_and_rows_come_with_the_table_and_accounts_go_on(place):
    ran(place / "private.toml", "--set", "algorithm.participants=all", "--out", place / "first")
    write_table(place / "clients.csv", "abcdef", rows=12)
    more = ("--continue", place / "first", "--set", "privacy.epsilon=3.0", "--rounds", 5)
    summary = ran(*more, "--set", "new_clients=['e']", "--out", place / "second")
    table = Result.load(place / "second").privacy[0]
    assert dict(zip(table["client"].tolist(), table["releases"].tolist(), strict=True)) == {
        **dict.fromkeys("abcdf", 11),
        "e": 5,
    }
    assert summary["inherited"] == ["f"]
    assert load_config(place / "second" / "config.toml").new_clients == ("e",)
    third = ran("--continue", place / "second", "--set", "privacy.epsilon=4.0", "--rounds", 1, "--out", place / "third")
    assert third["inherited"] == ["f"]  # and e, who is not new any more, was not refused
    assert 2.0 < summary["privacy"]["epsilon"]["worst"] <= 3.0 * (1 + 1e-9)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--continue", "first", "--rounds", 3), "has spent its privacy budget"),
        (("--continue", "first", "--set", "privacy.epsilon=1.0"), "promised epsilon = 2"),
        (("--continue", "first", "--set", "privacy.enabled=false"), "was private; keep its [privacy]"),
        (("--continue", "absent"), "holds no finished result"),
        (("--continue", "first", "--resume", "--out", "x"), "give one"),
        (("--continue", "first", "--rounds", 0), "0 is not in the range"),
    ],
)
def test_mistakes_are_one_sentence(place, monkeypatch, arguments, sentence):
    monkeypatch.chdir(place)
    ran("private.toml", "--set", "algorithm.participants=all", "--out", "first")
    assert sentence in refused("run", *arguments)


def test_a_result_without_a_config_is_continued_in_python(place):
    ran(place / "mine.toml", "--out", place / "first")
    (place / "first" / "config.toml").unlink()
    assert "go on with it in Python" in refused("run", "--continue", place / "first")


def test_bounds_that_were_computed_are_kept_for_new_rows(place):
    """The second table reaches further than the first one, from whose rows the bounds were computed."""
    computed = '[data.columns]\nx1 = { bounds = "data" }\nx2 = { bounds = "data" }\ny = { bounds = "data" }\n[graph]'
    (place / "mine.toml").write_text(CONFIG.replace("[graph]", computed))
    ran(place / "mine.toml", "--out", place / "first")
    write_table(place / "clients.csv", "abcdef", rows=20)
    ran("--continue", place / "first", "--rounds", 4, "--out", place / "second")
    first, second = Result.load(place / "first"), Result.load(place / "second")
    assert second.encoding.columns == first.encoding.columns
    assert len(second.client_ids) > len(first.client_ids)


def test_a_float_safe_run_is_continued_in_one_folder_only(place):
    secure = ("--set", "privacy.noise=secure", "--set", "algorithm.participants=all")
    ran(place / "private.toml", *secure, "--out", place / "first")
    more = ("--continue", place / "first", "--set", "privacy.epsilon=4.0", "--rounds", 2)
    ran(*more, "--out", place / "second")
    sentence = refused("run", *more, "--out", place / "third")
    assert f"was already continued in {(place / 'second').resolve()}" in sentence


# ------------------------------------------------------------------------------------------------------------- slips


@pytest.fixture
def spent(place):
    """Two float-safe rounds of six releases that a promise of ε = 2 allows."""
    secure = ("--set", "privacy.noise=secure", "--set", "algorithm.participants=all", "--rounds", 2)
    ran(place / "private.toml", *secure, "--set", "privacy.epsilon=2.0", "--out", place / "first")
    return place


MORE = ("--set", "privacy.epsilon=4.0", "--rounds", 2)


def test_without_the_privacy_file_the_account_goes_on_all_the_same(spent):
    (spent / "first" / "privacy.csv").unlink()
    ran("--continue", spent / "first", *MORE, "--out", spent / "second")
    assert Result.load(spent / "second").privacy[0]["releases"].tolist() == [4] * 4


def test_without_its_state_a_run_does_not_go_on(spent):
    (spent / "first" / "state.npz").unlink()
    assert "keeps no state to go on with" in refused("run", "--continue", spent / "first", *MORE)


def test_a_client_under_another_name_keeps_what_it_has_spent(spent):
    text = (spent / "clients.csv").read_text()
    (spent / "clients.csv").write_text(text.replace("\na,", "\nann,"))
    summary = ran("--continue", spent / "first", *MORE, "--out", spent / "second")
    assert summary["inherited"] == ["ann"]
    assert Result.load(spent / "second").privacy[0]["releases"].tolist() == [4] * 4
    (note,) = (text for text in summary["notes"] if "inherited" in text)
    assert note.endswith("ann.")


def test_moved_rows_are_refused_until_the_owner_states_it(spent):
    lines = (spent / "clients.csv").read_text().splitlines()
    lines[1:8] = [line.replace("a,", "new,", 1) for line in lines[1:8]]
    (spent / "clients.csv").write_text("\n".join(lines))
    more = ("--continue", spent / "first", *MORE)
    assert "Client 'a' had 8 records and has 1: state moved_records = false if" in refused("run", *more)
    assert "were with other clients before (7)" in refused(
        "run", *more, "--set", "new_clients=['new']", "--set", "moved_records=false"
    )
    assert not (spent / "first" / "continued.txt").exists()  # what is refused has spent nothing
    ran(*more, "--set", "moved_records=true", "--out", spent / "second")
    assert Result.load(spent / "second").privacy[0]["releases"].tolist() == [4] * 5
    again = ran("--continue", spent / "second", "--set", "privacy.epsilon=5.0", "--rounds", 1, "--out", spent / "third")
    assert load_config(spent / "third" / "config.toml").moved_records is None
    assert again["privacy"]["releases"]["worst"] == 5


def test_statements_about_records_need_a_run_to_continue(place):
    for change in ("new_clients=['a']", "moved_records=true"):
        assert "give --continue" in refused("run", place / "private.toml", "--set", change, "--out", place / "x")


def test_other_rows_of_a_client_do_not_reset_its_account(spent):
    write_table(spent / "clients.csv", "abcd", rows=15)
    ran("--continue", spent / "first", *MORE, "--out", spent / "second")
    assert Result.load(spent / "second").privacy[0]["releases"].tolist() == [4] * 4


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("privacy.delta=1e-6", "privacy.delta was 1e-05 in the first run"),
        ("privacy.delta=1e-4", "privacy.delta was 1e-05 in the first run"),
        ("privacy.max_releases=1", "privacy.max_releases was 6 in the first run and is 1"),
        ("privacy.max_releases=60", "privacy.max_releases was 6 in the first run and is 60"),
        ("privacy.noise=seeded", "The earlier run drew secure noise, and one promise covers all rounds"),
        ("privacy.guarantee=none", 'guarantee = "none" does not keep'),
        ("privacy.zeta=0.5", "privacy.zeta was"),
        ("privacy.index=round", "privacy.index was release"),
    ],
)
def test_the_promise_of_the_first_run_stays_in_force(spent, change, sentence):
    assert sentence in refused("run", "--continue", spent / "first", "--set", change, "--rounds", 2)
    assert not (spent / "first" / "continued.txt").exists()  # what is refused has spent nothing


def test_a_cap_that_is_stated_with_a_larger_epsilon_counts_all_releases(spent):
    capped = ("--continue", spent / "first", *MORE[:2], "--rounds", 6, "--set")
    assert "has released 2 models already" in refused("run", *capped, "privacy.max_releases=2")
    ran(*capped, "privacy.max_releases=4", "--out", spent / "second")
    table = Result.load(spent / "second").privacy[0]
    assert table["releases"].tolist() == [4] * 4 and table["epsilon"].max() <= 4.0


def test_a_run_with_seeded_noise_does_not_become_float_safe(place):
    ran(place / "private.toml", "--rounds", 2, "--out", place / "first")
    change = ("--set", "privacy.noise=secure", *MORE)
    assert 'go on with noise = "seeded"' in refused("run", "--continue", place / "first", *change)


def test_a_copy_of_a_folder_is_not_continued_beside_it(spent):
    shutil.copytree(spent / "first", spent / "copy")
    ran("--continue", spent / "first", *MORE, "--out", spent / "second")
    beside = ("--continue", spent / "copy", *MORE, "--out", spent / "third")
    assert f"already continued in {(spent / 'second').resolve()}" in refused("run", *beside)
    shutil.rmtree(spent / "first")
    shutil.move(spent / "copy", spent / "first")  # the older state, put back in its place
    (spent / "first" / "continued.txt").unlink()
    assert "already continued in" in refused("run", "--continue", spent / "first", *MORE, "--out", spent / "third")


def test_where_it_cannot_be_noted_that_a_run_goes_on_it_does_not(spent, monkeypatch):
    (spent / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(spent / "file"))
    assert "set XDG_STATE_HOME" in refused("run", "--continue", spent / "first", *MORE, "--out", spent / "second")
