"""`pgfl run` with privacy, end to end: what is wrong is refused, and nothing ever runs without its noise."""

import csv
import json

import pytest
from commands import refused, run

from pgfl.folder import CHECKPOINT, SIMULATION_ONLY

SMALL = {
    "rounds": 3,
    "data.servers": 2,
    "data.clients_per_server": 2,
    "data.dimension": 4,
    "data.samples": "[4, 6]",
    "graph.average_degree": 1,
    "algorithm.participants": '"all"',
}


def command(folder, *overrides):
    chosen = [f"{key}={value}" for key, value in SMALL.items()] + list(overrides)
    return ["run", "private-huber", "--json", "--out", folder, *(part for text in chosen for part in ("--set", text))]


def table(**keys):
    """The [privacy] table, whole."""
    shown = {"enabled": "true", "x_norm": 1.0} | keys
    return "privacy={" + ", ".join(f"{key} = {value}" for key, value in shown.items() if value is not None) + "}"


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ([table(phi0=0)], "`privacy.phi0` must be above 0"),
        ([table(phi0=-1.0)], "`privacy.phi0` must be above 0"),
        ([table(phi1=-1.0)], "`privacy.phi1` must be above 0"),
        ([table(phi0="nan")], "`privacy.phi0` must be a finite number"),
        ([table(phi0=1.0, zeta=0.0)], "`privacy.zeta` must be above 0"),
        ([table(phi0=1.0, zeta=1.5)], "`privacy.zeta` must be at most 1"),
        ([table(phi0=1.0, delta=0.0)], "`privacy.delta` must be above 0"),
        ([table(phi0=1.0, delta=1.0)], "`privacy.delta` must be below 1"),
        ([table(phi0=1.0, x_norm=None)], "`privacy.x_norm` is missing"),
        ([table(phi0=1.0, x_norm=0.0)], "`privacy.x_norm` must be above 0"),
        ([table()], "without a noise level"),
        ([table(phi0=1.0, phi1=1.0)], "both set the noise level"),
        ([table(phi0=1.0), 'objective.kind="ridge"'], "`privacy.y_bound` is missing"),
        ([table(phi0=1.0, y_bound=1.0), 'objective.kind="ridge"'], "`privacy.w_norm` is missing"),
        ([table(epsilon=-1.0)], "`privacy.epsilon` must be above 0"),
        ([table(epsilon=1.0, guarantee='"none"')], "a promise that guarantee"),
        ([table(epsilon=1e-300, delta=1e-300)], "leaves nothing to spend"),
        ([table(epsilon=1.0, zeta=1e-200)], "underflows"),
        ([table(phi0=1.0, zeta=1e-4), "rounds=200"], "underflows"),
        ([table(phi0=1.0, max_releases=0)], "`privacy.max_releases` must be at least 1"),
        ([table(phi0=1.0), 'algorithm.kind="fedavg"', "algorithm.step=9.0"], "too long for a bounded sensitivity"),
        ([table(phi0=1.0, enabled="1")], "`privacy.enabled` must be true or false"),
        ([table(phi0=1.0, enabeld="true")], "did you mean `privacy.enabled`?"),
    ],
)
def test_wrong_privacy_is_one_sentence_and_leaves_no_models(capsys, tmp_path, overrides, words):
    assert words in refused(capsys, *command(tmp_path / "out", *overrides))
    assert not list(tmp_path.rglob("models*.npz"))
    assert not list(tmp_path.rglob("history*.csv"))


def rows(path):
    with open(path) as stream:
        return list(csv.DictReader(stream))


def test_a_client_whose_budget_is_spent_takes_no_part_and_training_goes_on(capsys, tmp_path):
    code, out, _ = run(
        capsys, *command(tmp_path / "out", table(epsilon=2.0, max_releases=2, index='"release"'), "rounds=5")
    )
    assert code == 0
    told = json.loads(out)
    assert told["rounds"] == 5
    assert told["privacy"]["releases"]["worst"] == 2
    assert told["privacy"]["epsilon"]["worst"] <= 2.0
    for row in rows(tmp_path / "out" / "privacy.csv"):
        assert (row["releases"], row["refused"]) == ("2", "3")
        assert float(row["epsilon"]) == pytest.approx(2.0, rel=1e-6)


def test_the_paper_s_ridge_says_that_it_promises_nothing(capsys, tmp_path):
    overrides = [table(phi0=1.0, x_norm=None, guarantee='"none"'), 'objective.kind="ridge"']
    code, out, _ = run(capsys, *command(tmp_path / "out", *overrides))
    assert code == 0
    told = json.loads(out)
    assert told["guarantee"].startswith("no guarantee")
    assert "unbounded gradient" in told["guarantee"]
    assert told["privacy"]["epsilon"]["worst"] is None
    assert {row["epsilon"] for row in rows(tmp_path / "out" / "privacy.csv")} == {"inf"}


def test_float_safe_noise_in_a_run_leaves_nothing_clean(capsys, tmp_path):
    code, out, _ = run(
        capsys, *command(tmp_path / "out", 'privacy.noise="secure"', 'metrics=["nmsd", "objective", "residuals"]')
    )
    assert code == 0
    assert json.loads(out)["noise"] == "secure"
    folder = tmp_path / "out"
    assert not (folder / SIMULATION_ONLY).exists()
    assert not (folder / CHECKPOINT).exists()
    assert not {"objective", "primal_residual"} & set(rows(folder / "history.csv")[0])


def test_seeded_noise_is_labelled(capsys, tmp_path):
    code, out, _ = run(capsys, *command(tmp_path / "out"))
    assert code == 0
    assert json.loads(out)["noise"] == "seeded"
    assert (tmp_path / "out" / SIMULATION_ONLY / "models.npz").exists()
