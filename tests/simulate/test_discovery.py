"""Cluster discovery: hidden clusters are found, one cluster is never split, and what cannot be done is refused."""

import numpy as np
import pytest

from pgfl import PGFL, FedAvg, Federation, Result, Ridge, synthetic_regression, train
from pgfl.config import parse
from pgfl.errors import ConfigError, DataError, UsageError
from pgfl.experiment import run
from pgfl.metrics import adjusted_rand_index

STEPS = PGFL(20.0, client="gradient")


def hidden(seed, clusters=3, **changes):
    shape = {"servers": 4, "clients_per_server": 12, "dimension": 12, "samples": (30, 60), "gamma": 0.5}
    return synthetic_regression(clusters=clusters, seed=seed, observation_noise=0.7, **shape | changes)


def found(federation, **changes):
    return train(federation, STEPS, Ridge(), discover=True, rounds=60, metrics=["nmsd"], **changes)


@pytest.mark.parametrize("seed", range(7101, 7103))
def test_hidden_clusters_are_found(seed):
    federation = hidden(seed)
    result = found(federation)
    assert adjusted_rand_index(result.clusters["cluster"], federation.client_cluster) > 0.95
    assert result.notes[0].startswith("3 clusters found")
    known = train(federation, STEPS, Ridge(), rounds=60, metrics=["nmsd"])
    assert result.curve("nmsd")[0, -1] == pytest.approx(known.curve("nmsd")[0, -1])


@pytest.mark.parametrize("samples", [(2, 9), (30, 60)])
@pytest.mark.parametrize("seed", range(7110, 7114))
def test_one_cluster_is_never_split(seed, samples):
    result = found(hidden(seed, clusters=1, samples=samples))
    assert result.notes[0] == "One model: no difference between clients was visible."
    assert result.cluster_ids == ("all",)


def test_the_result_tells_who_is_where_and_is_kept(tmp_path):
    federation = hidden(7120)
    result = found(federation)
    again = Result.load(result.save(tmp_path / "run"))
    for name, values in result.clusters.items():
        assert (again.clusters[name] == values).all()
    assert again.notes == result.notes
    assert (tmp_path / "run" / "report.html").read_text("utf-8").count("3 clusters found")
    probabilities = np.array([result.clusters[f"p_{name}"] for name in result.cluster_ids])
    assert probabilities.sum(axis=0) == pytest.approx(1.0)
    assert (result.clusters["given"] == [federation.cluster_ids[q] for q in federation.client_cluster]).all()


def test_a_picture_shows_who_belongs_to_whom(tmp_path):
    result = found(hidden(7126))
    result.clusters["client"][0] = "<ann>"
    result.clusters["p_cluster-0"][0], result.clusters["p_cluster-1"][0] = 0.75, 0.25
    result.clusters["p_cluster-2"][0] = 0.0
    page = (result.save(tmp_path / "run") / "report.html").read_text("utf-8")
    assert page.count("Who belongs to whom") == 1
    assert "&lt;ann&gt;: cluster-0 75 %, cluster-1 25 %</title>" in page
    assert "&lt;ann&gt;: cluster-0 75 %" in result._repr_html_()
    one = found(hidden(7127, clusters=1))
    assert "Who belongs to whom" not in (one.save(tmp_path / "one") / "report.html").read_text("utf-8")


def test_a_continued_run_keeps_the_clusters_that_were_found():
    federation = hidden(7121)
    first = found(federation)
    later = found(federation, start=first)
    assert (later.clusters["cluster"] == first.clusters["cluster"]).all()
    assert later.rounds[-1] == 120
    fewer = train(federation, STEPS, Ridge(), rounds=2)
    with pytest.raises(ConfigError, match="found no clusters"):
        found(federation, start=fewer)


def without(federation, gone):
    """The federation without some clients."""
    stay = ~np.isin(np.arange(federation.size), gone)
    rows = np.repeat(stay, federation.counts)
    return federation.replace(
        features=federation.features[rows],
        targets=federation.targets[rows],
        offsets=np.concatenate([[0], np.cumsum(federation.counts[stay])]),
        client_server=federation.client_server[stay],
        client_cluster=federation.client_cluster[stay],
        names=tuple(np.array(federation.client_ids)[stay].tolist()),
        generated=True,
    )


def test_a_new_client_finds_its_place():
    federation = hidden(7128)
    gone = [0, 7, 30]
    first = found(without(federation, gone))
    later = found(federation, start=first)
    assert adjusted_rand_index(later.clusters["cluster"], federation.client_cluster) == 1.0
    assert (later.clusters["probability"][gone] > 0.99).all()
    stay = [name not in np.array(federation.client_ids)[gone] for name in federation.client_ids]
    assert (later.clusters["cluster"][stay] == first.clusters["cluster"]).all()


def test_a_table_without_a_cluster_column_keeps_its_held_out_rows_with_their_clients():
    made = hidden(7122, servers=2, clients_per_server=20, samples=(80, 120), graph="line")
    owner = np.repeat(np.arange(made.size), made.counts)
    table = {f"x{column}": made.features[:, column] for column in range(made.dimension)}
    table |= {
        "y": made.targets,
        "client": [f"c{k:02d}" for k in owner],
        "server": made.client_server[owner].astype(str),
    }
    federation = Federation.read(table, graph="line", test=0.2)
    result = train(federation, STEPS, Ridge(), discover=True, rounds=60)
    assert adjusted_rand_index(result.clusters["cluster"], made.client_cluster) > 0.95
    assert result.curve("r2")[0, -1] > 0.9
    moved = federation.in_clusters(np.arange(federation.size) % 2, ("even", "odd"))
    assert sum(len(test.targets) for test in moved.tests.values()) == len(federation.tests["all"].targets)
    assert all((test.clients % 2 == q).all() for q, test in enumerate(moved.tests.values()))


def test_a_config_asks_for_it_by_one_key():
    data = {"servers": 4, "clients_per_server": 12, "dimension": 12, "samples": [30, 60], "gamma": 0.5}
    algorithm = {"client": "gradient", "rho": 20.0}
    config = {"rounds": 30, "seed": 7123, "data": data, "algorithm": algorithm, "clusters": {"discover": True}}
    assert run(parse(config)).clusters is not None
    assert run(parse(config | {"clusters": {}})).clusters is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"runs": 2}, "one run"),
        ({"objective": {f"cluster-{q}": Ridge() for q in range(3)}}, "one objective"),
        ({"algorithm": FedAvg()}, "one for all"),
        ({"resume": True}, "keeps no checkpoints"),
        ({"discover": 1}, "True or False"),
    ],
)
def test_what_cannot_be_done_is_refused(changes, words):
    with pytest.raises((ConfigError, UsageError), match=words):
        train(hidden(7124), **{"discover": True} | changes)


def test_servers_that_are_not_connected_cannot_compare_their_clients():
    with pytest.raises(DataError, match="not connected"):
        found(hidden(7125).without_edges())


def test_a_table_without_a_cluster_column_has_its_clusters_found_at_the_defaults(tmp_path):
    """Which leave ρ and the number of records to be chosen when training starts."""
    rng = np.random.default_rng(7130)
    school, hours = np.repeat(np.arange(24), 40), rng.uniform(0.0, 10.0, 960)
    score = 3.0 + np.where(school % 2, 2.0, -1.0) * hours + rng.normal(0.0, 1.0, 960)
    lines = [f"s{a},t{a % 3},{b:.2f},{c:.2f}" for a, b, c in zip(school, hours, score, strict=True)]
    (tmp_path / "t.csv").write_text("\n".join(["school,town,hours,score", *lines]))
    data = {"kind": "table", "table": str(tmp_path / "t.csv"), "target": "score", "client": "school", "server": "town"}
    settings = {"data": data | {"intercept": True}, "graph": {"kind": "complete"}, "clusters": {"discover": True}}
    found = run(parse(settings)).clusters
    assert adjusted_rand_index(found["cluster"], [int(name[1:]) % 2 for name in found["client"]]) == 1.0
