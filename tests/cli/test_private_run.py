"""`pgfl run` with privacy, end to end: what is wrong is refused, and nothing ever runs without its noise."""

import csv
import json

import pytest

from pgfl.results.arrays import SIMULATION_ONLY
from pgfl.results.folder import CHECKPOINT
from tests.command_line import refused, run

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


FEDAVG = ('algorithm.kind="fedavg"', 'algorithm.client="admm"', "algorithm.full_records=1")


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
        ([table(phi0=1.0, delta=0.5)], "`privacy.delta` must be at most 0.01"),
        ([table(phi0=1.0, noise='"secur"')], "(did you mean secure?)"),
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
        ([table(phi0=1.0), *FEDAVG, "algorithm.step_size=9.0"], "too long for a bounded sensitivity"),
        ([table(phi0=1.0, enabled="1")], "`privacy.enabled` must be true or false"),
        ([table(phi0=1.0, enabeld="true")], "did you mean `privacy.enabled`?"),
    ],
)
def test_wrong_privacy_is_one_sentence_and_leaves_no_models(tmp_path, overrides, words):
    assert words in refused(*command(tmp_path / "out", *overrides))
    assert not list(tmp_path.rglob("models*.npz"))
    assert not list(tmp_path.rglob("history*.csv"))


def rows(path):
    with open(path) as stream:
        return list(csv.DictReader(stream))


def test_a_client_whose_budget_is_spent_takes_no_part_and_training_goes_on(tmp_path):
    budget = table(epsilon=2.0, max_releases=2, index='"release"')
    code, out, _ = run(*command(tmp_path / "out", budget, "rounds=60", "algorithm.participants=1"))
    assert code == 0
    reported = json.loads(out)
    assert reported["rounds"] == 60
    assert reported["privacy"]["releases"]["worst"] == 2
    assert reported["privacy"]["epsilon"]["worst"] <= 2.0
    accounts = rows(tmp_path / "out" / "privacy.csv")
    assert {row["releases"] for row in accounts} == {"2"}
    assert sum(int(row["refused"]) for row in accounts) > 0
    assert all(float(row["epsilon"]) == pytest.approx(2.0, rel=1e-6) for row in accounts)


def test_training_ends_when_all_budgets_are_spent(tmp_path):
    budget = table(epsilon=2.0, max_releases=2, index='"release"')
    code, out, _ = run(*command(tmp_path / "out", budget, "rounds=5"))
    assert code == 0
    reported = json.loads(out)
    assert (reported["ended_by"], reported["spent_at"]) == ("budget", [2] * reported["runs"])
    assert {row["refused"] for row in rows(tmp_path / "out" / "privacy.csv")} == {"0"}
    assert [row["round"] for row in rows(tmp_path / "out" / "history.csv")][:6] == [str(n) for n in range(6)]


def test_the_paper_s_ridge_says_that_it_promises_nothing(tmp_path):
    overrides = [table(phi0=1.0, x_norm=None, guarantee='"none"'), 'objective.kind="ridge"']
    code, out, _ = run(*command(tmp_path / "out", *overrides))
    assert code == 0
    reported = json.loads(out)
    assert reported["guarantee"].startswith("no guarantee")
    assert "unbounded gradient" in reported["guarantee"]
    assert reported["privacy"]["epsilon"]["worst"] is None
    assert {row["epsilon"] for row in rows(tmp_path / "out" / "privacy.csv")} == {"inf"}


def test_float_safe_noise_in_a_run_leaves_nothing_clean(tmp_path):
    code, out, _ = run(
        *command(tmp_path / "out", 'privacy.noise="secure"', 'metrics=["nmsd", "objective", "residuals"]')
    )
    assert code == 0
    assert json.loads(out)["noise"] == "secure"
    folder = tmp_path / "out"
    assert not (folder / SIMULATION_ONLY).exists()
    assert not (folder / CHECKPOINT).exists()
    assert not {"objective", "primal_residual"} & set(rows(folder / "history.csv")[0])


def private_table(folder, **privacy):
    """A config on a table of one's own, with test samples."""
    rows = [f"c{k},s{k % 2},q,{(k + n) % 2},{0.1 * k},{0.2 * n}" for k in range(4) for n in range(3)]
    (folder / "clients.csv").write_text("client,server,cluster,y,a,b\n" + "\n".join(rows) + "\n")
    keys = {"epsilon": 2.0, "x_norm": 1.0, **privacy}
    lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    config = folder / "mine.toml"
    config.write_text(
        'rounds = 2\n[data]\nkind = "table"\ntable = "clients.csv"\ntest = "clients.csv"\n'
        '[graph]\nkind = "line"\n[objective]\nkind = "logistic"\n[privacy]\n' + "\n".join(lines) + "\n"
    )
    return config


def shown(folder, *arguments):
    """What a run says: on the terminal, in summary.json and on the page."""
    code, out, err = run("run", *arguments, "--out", folder)
    assert code == 0, err
    summary, page = ((folder / name).read_text("utf-8") for name in ("summary.json", "report.html"))
    return " ".join(out.split()), json.loads(summary), page


def test_a_written_budget_is_kept_and_its_noise_is_float_safe_on_a_table(tmp_path):
    terminal, summary, page = shown(tmp_path / "out", private_table(tmp_path))
    assert (summary["private"], summary["noise"]) == (True, "secure")
    assert "Noise: cryptographically secure, floating-point safe" in terminal
    assert "<dt>Noise</dt><dd>cryptographically secure, floating-point safe</dd>" in page
    assert "Privacy is off" not in terminal
    assert not (tmp_path / "out" / SIMULATION_ONLY).exists()


def test_seeded_noise_on_a_table_must_be_asked_for(tmp_path):
    terminal, summary, _ = shown(tmp_path / "out", private_table(tmp_path, noise="seeded"))
    assert summary["noise"] == "seeded"
    assert "Noise: seeded, for simulations only" in terminal


def test_privacy_that_is_off_although_a_budget_is_written_is_said_everywhere(tmp_path):
    terminal, summary, page = shown(tmp_path / "out", private_table(tmp_path, enabled=False))
    sentence = "Privacy is off: `privacy.enabled` is false although `privacy.epsilon` is written;"
    assert not summary["private"]
    assert sentence in terminal
    assert any(warning.startswith(sentence) for warning in summary["warnings"])
    assert sentence in page


def test_figures_of_the_test_table_are_said_to_be_exact(tmp_path):
    sentence = "Figures of held-out rows are exact functions of those rows, which the guarantee does not protect"
    terminal, summary, page = shown(tmp_path / "out", private_table(tmp_path))
    assert "accuracy" in summary["final"]
    assert sentence in terminal
    assert any(note.startswith(sentence) for note in summary["notes"])
    assert sentence in page
    for name, changes in (("open", ["privacy.enabled=false"]), ("untested", ['metrics=["disagreement"]'])):
        overrides = [part for change in changes for part in ("--set", change)]
        terminal, summary, page = shown(tmp_path / name, private_table(tmp_path), *overrides)
        assert [note for note in summary["notes"] if "held-out rows in the median" not in note] == []
        assert sentence not in terminal + page


def test_seeded_noise_is_labelled(tmp_path):
    code, out, _ = run(*command(tmp_path / "out"))
    assert code == 0
    assert json.loads(out)["noise"] == "seeded"
    assert (tmp_path / "out" / SIMULATION_ONLY / "models.npz").exists()
