"""`map = "auto"`: chosen by held-out rows without privacy, and from public facts with it."""

import numpy as np
import pytest

from pgfl import PGFL, Column, ConfigError, Federation, Huber, Privacy, PrivacyError, train
from pgfl.config import parse, warnings
from pgfl.experiment import with_chosen_map
from pgfl.federation.map_choice import choose_map
from pgfl.maps import Curves, Gradients, Products
from pgfl.planning import map_plan
from pgfl.planning.facts import facts_of
from pgfl.planning.map_plan import choose_planned_map, with_planned_map
from pgfl.planning.planner import is_open
from pgfl.planning.twin import twin

COLUMNS = {name: Column(bounds=(-1, 1)) for name in ("a", "b")} | {"y": Column(bounds=(-3, 3))}


def table(shape, rows=400, seed=5):
    """A target of two columns, with some noise."""
    rng = np.random.default_rng(seed)
    a, b = rng.uniform(-1, 1, (2, rows))
    return {
        "client": [f"c{n % 8}" for n in range(rows)],
        "a": a,
        "b": b,
        "y": shape(a, b) + 0.1 * rng.normal(size=rows),
    }


def read(shape, **options):
    return Federation.read(table(shape), columns=COLUMNS, intercept=True, **options)


SHAPES = {
    "straight": (lambda a, b: a + b, set()),
    "bent": (lambda a, b: np.abs(a) + b, {Curves}),
    "together": (lambda a, b: 2 * a * b, {Products}),
}


@pytest.mark.parametrize("name", SHAPES)
def test_held_out_rows_choose_what_the_target_asks_for(name):
    shape, wanted = SHAPES[name]
    chosen = choose_map(read(shape))
    assert wanted <= {type(one) for one in chosen.maps} and ("%" in chosen.reason)
    if name == "straight":
        assert not chosen.maps


def test_labels_choose_as_well():
    made = read(lambda a, b: np.abs(a) - 0.5)
    labels = made.replace(targets=(made.targets > 0).astype(float))
    assert any(isinstance(one, Curves) for one in choose_map(labels, labels=True).maps)


def test_a_federation_that_was_read_with_auto_is_refused_by_privacy():
    made = read(SHAPES["bent"][0], map="auto")
    assert isinstance(made.encoding.maps[0], Curves)
    with pytest.raises(PrivacyError, match="chosen by looking at records"):
        train(
            made,
            PGFL(client="gradient"),
            Huber(),
            rounds=2,
            privacy=Privacy(epsilon=1.0, max_releases=2, noise="seeded"),
        )


def config(tmp_path, shape=SHAPES["bent"][0], epsilon=None, trust="local", **data):
    rows = table(shape)
    lines = [",".join(rows), *(",".join(str(cell) for cell in row) for row in zip(*rows.values(), strict=True))]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    columns = {name: {"bounds": list(own.bounds)} for name, own in COLUMNS.items()}
    settings = {
        "data": {"kind": "table", "table": "t.csv", "columns": columns, "intercept": True, "map": "auto"} | data
    }
    if epsilon is not None:
        settings["privacy"] = {"epsilon": epsilon, "trust": trust}
        settings |= {"algorithm": {"client": "gradient"}, "objective": {"kind": "huber"}}
    return parse(settings, tmp_path)


def test_a_config_without_privacy_gets_the_map_of_its_records(tmp_path):
    found, reason = with_chosen_map(config(tmp_path))
    assert isinstance(found.data.chosen_map[0], Curves) and "straight lines" in reason
    assert with_chosen_map(found) == (found, "")


def test_a_private_config_is_left_to_the_plan(tmp_path):
    private = config(tmp_path, epsilon=2.0)
    assert is_open(private)
    with pytest.raises(ConfigError, match="is chosen by a plan where privacy is on"):
        with_chosen_map(private)


@pytest.mark.parametrize(
    ("kept", "records", "kinds"),
    [(0.2, 50, ()), (0.8, 50, (Curves,)), (0.99, 5, (Curves,)), (0.99, 5000, (Curves, Products))],
)
def test_noise_and_records_decide_a_private_map(monkeypatch, tmp_path, kept, records, kinds):
    """More must be left by noise, and more records be there, for every further feature; the reason says so."""
    monkeypatch.setattr(map_plan, "kept_by_straight_lines", lambda facts: kept)
    plain = config(tmp_path, epsilon=2.0)
    facts = facts_of(plain).with_more_records(records // 5)
    maps, reason = choose_planned_map(facts, plain.data.public_encoding())
    assert tuple(type(one) for one in maps) == kinds and f"{100 * kept:.0f} %" in reason


@pytest.mark.proof
def test_no_record_is_read_for_a_private_map(monkeypatch, tmp_path):
    """The same columns, places and ε give the same map whatever the cells say."""
    found = []
    for shape in ("straight", "together"):
        (tmp_path / shape).mkdir()
        found.append(with_planned_map(config(tmp_path / shape, SHAPES[shape][0], epsilon=50.0, trust="site")))
    assert found[0][0].data.chosen_map == found[1][0].data.chosen_map and found[0][1] == found[1][1]
    assert found[0][1].key == "data.map"


def test_less_noise_takes_smaller_cells_of_images(tmp_path):
    from pgfl.federation.mapping import pixel_encoding

    encoding = pixel_encoding((28, 28), (), False)
    facts = facts_of(config(tmp_path, epsilon=1.0))
    cells = [choose_planned_map(facts.__class__(**{**vars(facts), "epsilon": e}), encoding)[0][0] for e in (1.0, 100.0)]
    assert cells == [Gradients(7), Gradients(4)]


def test_columns_without_bounds_cannot_bend(tmp_path):
    plain = config(tmp_path, epsilon=2.0)
    facts = facts_of(plain)
    maps, reason = choose_planned_map(facts.__class__(**{**vars(facts), "rows": None}), plain.data.public_encoding())
    assert not maps and "public bounds" in reason


def test_a_plan_imagines_rows_as_the_map_makes_them(tmp_path):
    """Made-up rows have the features of real ones, and their norm stays below what is declared."""
    mapped = config(tmp_path, epsilon=2.0, map=["curves", "products"])
    facts, encoding = facts_of(mapped), mapped.data.public_encoding()
    features = twin(facts, 3).features
    assert facts.columns == facts.rows.columns == encoding.dimension == features.shape[1]
    assert facts.x_norm == pytest.approx(encoding.x_norm) and facts.rows.longest == pytest.approx(encoding.x_norm)
    assert np.linalg.norm(features, axis=1).max() <= facts.x_norm * (1 + 1e-12)
    assert facts.typical_length == pytest.approx(np.sqrt(np.mean(np.sum(features**2, axis=1))), rel=0.3)


@pytest.mark.parametrize(("rho", "said"), [(0.5, True), (4.0, False)])
def test_steps_that_may_overshoot_are_warned_of(tmp_path, rho, said):
    """Huber's loss bends by at most 2B², and mapped rows of length B may all point in one direction."""
    open_config = config(tmp_path, epsilon=2.0, map="curves")
    algorithm = open_config.algorithm.model_copy(update={"rho": rho})
    warned = [one for one in warnings(open_config.model_copy(update={"algorithm": algorithm})) if "overshoot" in one]
    assert bool(warned) == said
