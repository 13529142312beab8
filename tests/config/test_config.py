"""Configs: every key, every mistake as one sentence, and nothing but ConfigError from malformed ones."""

import dataclasses
import inspect
import re
import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgfl.algorithms.algorithms import PGFL, ExactMixing, FedAvg, OneStep
from pgfl.algorithms.client_rules import LinearisedStep, ProximalStep
from pgfl.cli.account import account
from pgfl.config import Config, Decay, load_config, parse, presets, to_toml, warnings
from pgfl.config.fingerprint import fingerprint
from pgfl.config.schema import (
    DATA,
    AlgorithmSettings,
    GraphSettings,
    MnistData,
    PrivacySettings,
    SyntheticData,
    objective_section,
)
from pgfl.errors import ConfigError
from pgfl.federation.mnist import mnist_federation
from pgfl.federation.synthetic import synthetic_regression
from pgfl.objectives import Huber, Logistic, Ridge
from pgfl.privacy.request import Privacy
from pgfl.simulate.options import Performance, TrainingOptions
from pgfl.simulate.training import train

CONTRACT = """
rounds = 300
seed = 0
runs = 1

[data]
kind = "table"
table = "clients.csv"
target = "y"
[graph]
kind = "edges"
edges = "edges.csv"
servers = []
mixing = "uniform"
[objective]
kind = "ridge"
lam = 0.01
[algorithm]
kind = "pgfl"
rho = 5.0
tau = 0.4
participants = "all"
[privacy]
enabled = false
phi0 = 1e-3
zeta = 0.99
index = "round"
x_norm = 1.0
noise = "seeded"
guarantee = "required"
"""


def refusal(document, overrides=()) -> str:
    """The sentence with which a config is refused."""
    with pytest.raises(ConfigError) as caught:
        load_config(document, overrides)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.endswith((".", "?"))
    return sentence


@pytest.fixture
def config_file(tmp_path):
    def write(text: str):
        path = tmp_path / "mine.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_the_contract_s_example_loads_with_paths_relative_to_the_config(config_file, tmp_path):
    config = load_config(config_file(CONTRACT))
    assert config.name == "mine"
    assert config.data.table == str(tmp_path / "clients.csv")
    assert config.graph.edges == str(tmp_path / "edges.csv")
    assert (config.algorithm.rho, config.algorithm.tau, config.algorithm.participants) == (5.0, 0.4, "all")
    assert not config.privacy.enabled
    (off,) = warnings(config)
    assert off.startswith("Privacy is off: `privacy.enabled` is false although `privacy.phi0` is written;")


def test_absolute_and_home_paths_stay(config_file, monkeypatch):
    monkeypatch.setenv("HOME", "/users/ann")
    path = config_file('[data]\nkind = "table"\ntable = "/data/c.csv"\ntest = "~/t.csv"\n')
    data = load_config(path).data
    assert (data.table, data.test) == ("/data/c.csv", "/users/ann/t.csv")


@pytest.mark.parametrize("name", presets())
def test_every_preset_loads_says_what_it_is_and_survives_being_written_down(name):
    config = load_config(name)
    assert config.name == name
    assert len(presets()[name]) > 20
    again = parse(tomllib.loads(to_toml(config)))
    assert again == config
    assert warnings(again) == warnings(config)
    assert fingerprint(again) == fingerprint(config)


def test_presets_that_model_real_use_have_privacy_on_and_a_guarantee():
    for name in presets():
        if name.startswith("private"):
            privacy = load_config(name).privacy
            assert privacy.enabled
            assert privacy.guarantee == "required"


def test_overrides_are_toml_values_or_plain_text():
    config = load_config(
        "paper-fig1",
        ["rounds=7", "algorithm.tau={start=0.4, decay=0.98}", "graph.kind=ring", "data.samples=[1, 3]",
         'objective.clusters."a b".lam=0.5', "algorithm.participants = 2"],
        seed=9,
    )  # fmt: skip
    assert (config.rounds, config.seed, config.graph.kind, config.data.samples) == (7, 9, "ring", (1, 3))
    assert config.algorithm.tau == Decay(start=0.4, decay=0.98)
    assert config.objective.of("a b").lam == 0.5
    assert config.objective.of("another").lam == 0.01
    assert config.algorithm.participants == 2


MISTAKES = [
    ("roundss=3", "Unknown key `roundss`; did you mean `rounds`?"),
    ("rho=3", "Unknown key `rho`; did you mean `algorithm.rho`?"),
    ("algorithm.roh=3", "Unknown key `algorithm.roh`; did you mean `algorithm.rho`?"),
    ("objective.clusters.a.lamb=3", "did you mean `objective.clusters.a.lam`?"),
    ("data.clients=c.csv", "Unknown key `data.clients`; it is called `data.table` now."),
    ("run.rounds=9", "Unknown key `run.rounds`; did you mean `rounds`?"),
    ("data.table=c.csv", "`data.table` belongs to data of kind table, but `data.kind` is synthetic-regression."),
    ("rounds='many'", "`rounds` must be a whole number; got the text 'many'."),
    ("rounds=2.5", "`rounds` must be a whole number; got 2.5."),
    ("rounds=true", "`rounds` must be a whole number; got true."),
    ("rounds=0", "`rounds` must be at least 1; got 0."),
    ("seed=-1", "`seed` must be at least 0; got -1."),
    ("graph.kind=rign", "(did you mean ring?)"),
    ("data.kind=tabel", "(did you mean table?)"),
    ("data=3", "`data` must be a table; got 3."),
    ("algorithm=[]", "`algorithm` must be a table; got a list of 0."),
    ("data.samples=[3]", "`data.samples` is too short a list."),
    ("data.samples=[3, 4, 5]", "`data.samples` must be a list of 2; got a list of 3."),
    ("data.samples=[4, 3]", "`data.samples` must be [least, most], but [4, 3] descends."),
    ("algorithm.tau=1.0", "`algorithm.tau` must be below 1.0; got 1.0."),
    ("algorithm.tau=-0.1", "`algorithm.tau` must be at least 0.0; got -0.1."),
    ("algorithm.tau={start=1.0, decay=0.9}", "`algorithm.tau.start` must be below 1.0; got 1.0."),
    ("algorithm.tau={start=0.4}", "`algorithm.tau.decay` is missing; it has no default."),
    ("algorithm.rho=0", "`algorithm.rho` must be above 0.0; got 0."),
    ("algorithm.rho=nan", "`algorithm.rho` must be a finite number; got nan."),
    ("algorithm.rho=inf", "`algorithm.rho` must be a finite number; got inf."),
    ("algorithm.participants=0", "`algorithm.participants` must be at least 1; got 0."),
    ("algorithm.participants=most", '`algorithm.participants` must be a whole number or "all"; got the text \'most\'.'),
    ("graph.kind=edges", "`graph.edges` is missing"),
    ("privacy.phi0=0", "`privacy.phi0` must be above 0.0; got 0."),
    ("privacy.zeta=1.01", "`privacy.zeta` must be at most 1.0; got 1.01."),
    ("privacy.zeta=0", "`privacy.zeta` must be above 0.0; got 0."),
    ("privacy.delta=0.5", "`privacy.delta` must be at most 0.01; got 0.5."),
    ("privacy.delta=0", "`privacy.delta` must be above 0.0; got 0."),
    ("privacy.enabled=true", "Privacy is on without a noise level"),
    ("privacy={enabled=true, phi0=1e-3, epsilon=1}", "`privacy.phi0` and `privacy.epsilon` both set the noise"),
    ("privacy={enabled=true, phi0=1e-3, phi1=1e-3}", "`privacy.phi0` and `privacy.phi1` both set the noise"),
    ("privacy={enabled=true, phi0=1e-3}", "`privacy.x_norm` is missing"),
    ("privacy={enabled=true, phi0=1e-3, x_norm=1}", "`privacy.y_bound` is missing; ridge has a guarantee only with"),
    ('privacy={enabled=true, epsilon=1, guarantee="none"}', "`privacy.epsilon` is a promise"),
    ("=3", "--set takes key=value"),
    ("rounds", "--set takes key=value"),
    ("rounds.x=1", "`rounds` is a value here, not a table"),
    ("foo=1", "the keys at the top are name, rounds, seed"),
]  # fmt: skip


@pytest.mark.parametrize(("override", "expected"), MISTAKES)
def test_a_mistake_is_one_sentence_that_names_the_key(override, expected):
    assert expected in refusal("paper-fig1", [override])


def test_tasks_of_digits_are_named_or_listed():
    def tasks(value):
        return load_config("private-logistic-mnist", [f"data.tasks={value}"]).data.tasks

    assert tasks("triplets") == "triplets"
    assert tasks("[[[1], [7]], [[2, 3], [8]]]") == (((1,), (7,)), ((2, 3), (8,)))
    assert "must be at most 9; got 11" in refusal("private-logistic-mnist", ["data.tasks=[[[1], [11]]]"])
    assert "must be one of pairs, triplets" in refusal("private-logistic-mnist", ["data.tasks=quads"])


def test_files_that_cannot_be_read(tmp_path, config_file):
    assert "does not exist" in refusal(tmp_path / "absent.toml")
    assert "is a folder" in refusal(tmp_path)
    assert "(did you mean paper-fig1?)" in refusal("paper-fg1")
    assert "is not valid TOML" in refusal(config_file("rounds = "))
    assert "is not valid TOML" in refusal(config_file("rounds = 1\nrounds = 2"))
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    assert "UTF-8" in refusal(binary)
    assert "NUL" in refusal("a\0b")
    assert "NUL" in refusal(config_file('[data]\nkind = "table"\ntable = "a\\u0000b"'))


def test_unset_graphs_follow_the_data():
    assert parse({"data": {"kind": "table", "table": "c.csv"}}).graph.kind == "none"
    assert parse({"data": {"kind": "table", "table": "c.csv"}, "graph": {"edges": "e.csv"}}).graph.kind == "edges"
    assert parse({}).graph.kind == "random"
    for servers, degree in ((1, 0.0), (2, 1.0), (3, 2.0), (4, 3.0), (10, 3.0)):
        assert parse({"data": {"servers": servers}}).graph.average_degree == degree


def test_a_target_without_a_count_of_releases_covers_every_round():
    config = parse({"rounds": 40, "privacy": {"enabled": True, "epsilon": 1.0, "x_norm": 1.0},
                    "objective": {"kind": "huber"}})  # fmt: skip
    assert config.privacy.max_releases == 40


TABLE = {"data": {"kind": "table", "table": "c.csv"}, "objective": {"kind": "huber"}}


@pytest.mark.parametrize("level", [{"phi0": 1e-3}, {"phi1": 1e-3}, {"epsilon": 1.0}])
def test_a_stated_schedule_or_target_is_on_unless_it_is_switched_off(level):
    def privacy(**more):
        return parse({**TABLE, "privacy": {"x_norm": 1.0, **level, **more}})

    assert privacy().privacy.enabled
    assert warnings(privacy()) == []
    off = privacy(enabled=False)
    assert not off.privacy.enabled
    assert f"although `privacy.{next(iter(level))}` is written" in " ".join(warnings(off))
    for config in (privacy(), off):
        again = parse(tomllib.loads(to_toml(config)))
        assert again == config
        assert warnings(again) == warnings(config)
    if "epsilon" in level:
        assert privacy().privacy.max_releases == 300


def test_bounds_without_a_noise_level_are_no_privacy_and_that_is_said():
    config = parse({"privacy": {"x_norm": 1.0}})
    assert not config.privacy.enabled
    (reported,) = warnings(config)
    assert reported.startswith("Privacy is off: `privacy.x_norm` is written, but no noise level")


def test_a_table_gets_float_safe_noise_and_generated_data_seeded_noise_unless_one_is_asked_for():
    on = {"objective": {"kind": "huber"}, "privacy": {"epsilon": 1.0, "x_norm": 1.0}}
    assert parse({**TABLE, **on}).privacy.noise == "secure"
    assert parse(TABLE).privacy.noise == "secure"
    assert parse(on).privacy.noise == parse({}).privacy.noise == Config().privacy.noise == "seeded"
    assert parse({"data": {"kind": "mnist"}, **on}).privacy.noise == "seeded"
    for noise in ("seeded", "secure"):
        asked = {"privacy": {**on["privacy"], "noise": noise}}
        assert parse({**TABLE, **asked}).privacy.noise == noise
        assert parse({**on, **asked}).privacy.noise == noise


def test_keys_that_do_nothing_are_pointed_out():
    def reported(*overrides):
        return " ".join(warnings(load_config("paper-fig1", overrides)))

    assert reported() == ""
    assert "`algorithm.step_size` has no effect" in reported("algorithm.step_size=0.1")
    assert "`graph.average_degree` has no effect" in reported("graph.kind=ring")
    assert "`objective.kappa` has no effect" in reported("objective.kappa=2.0")
    assert reported("objective.kappa=2.0", "objective.clusters.a.kind=huber") == ""


def test_the_fingerprint_covers_what_decides_the_result_and_nothing_else(tmp_path):
    base = fingerprint(load_config("paper-fig2"))
    for same in (
        "engine=jax",
        "threads=2",
        "checkpoint_every=7",
        "name=other",
        "algorithm.step_size=0.3",
        "privacy.zeta=0.9",
    ):
        assert fingerprint(load_config("paper-fig2", [same])) == base, same
    for other in ("seed=1", "rounds=299", "algorithm.rho=5.1", "data.gamma=0.2", "graph.mixing=metropolis", "runs=2"):
        assert fingerprint(load_config("paper-fig2", [other])) != base, other
    table = tmp_path / "c.csv"
    table.write_text("client,server,cluster,y,x\n")
    settings = {"data": {"kind": "table", "table": str(table)}}
    before = fingerprint(parse(settings))
    moved = table.rename(tmp_path / "moved.csv")
    assert fingerprint(parse({"data": {"kind": "table", "table": str(moved)}})) == before
    moved.write_text("client,server,cluster,y,z\n")
    assert fingerprint(parse({"data": {"kind": "table", "table": str(moved)}})) != before


# ---------------------------------------------------------------------------------------------------------- defaults


def fields_of(kind):
    return {field.name: field.default for field in dataclasses.fields(kind) if field.init}


def parameters_of(function, *names):
    stated = {name: each.default for name, each in inspect.signature(function).parameters.items()}
    return {name: stated[name] for name in names or stated if stated[name] is not inspect.Parameter.empty}


OPTIONS = ("rounds", "runs", "record_every", "metrics", "engine", "threads")


@pytest.mark.parametrize(
    ("section", "stated", "fewest"),
    [
        (PrivacySettings, fields_of(Privacy), 14),
        *((objective_section(), fields_of(kind), 2) for kind in (Ridge, Logistic)),
        (objective_section(), fields_of(Huber), 3),
        *((AlgorithmSettings, fields_of(kind), 2) for kind in (PGFL, ExactMixing, OneStep, FedAvg)),
        *((GraphSettings, fields_of(kind), 1) for kind in (PGFL, OneStep, FedAvg)),
        (SyntheticData, parameters_of(synthetic_regression), 10),
        (GraphSettings, parameters_of(synthetic_regression, "average_degree"), 1),
        (MnistData, parameters_of(mnist_federation), 5),
        (GraphSettings, parameters_of(mnist_federation, "average_degree"), 1),
        (PrivacySettings, parameters_of(account, "zeta", "delta"), 2),
        (Config, parameters_of(train, *OPTIONS), 6),
        (Config, parameters_of(TrainingOptions, *OPTIONS[:4]), 4),
        (Config, parameters_of(Performance, *OPTIONS[4:]), 2),
        *((AlgorithmSettings, parameters_of(each, "participants", "delays"), 2) for each in (train, TrainingOptions)),
    ],
)
def test_config_and_python_have_the_same_defaults(section, stated, fewest):
    shared = (section.model_fields.keys() & stated.keys()) - {"kind", "seed"}
    assert len(shared) >= fewest
    assert {name: section.model_fields[name].default for name in shared} == {name: stated[name] for name in shared}


# ------------------------------------------------------------------------------------------------- malformed configs

SECTIONS = {
    "": Config, "graph": GraphSettings, "objective": objective_section(), "algorithm": AlgorithmSettings,
    "privacy": PrivacySettings, "data": DATA[next(iter(DATA))],
}  # fmt: skip
KEYS = sorted({*SECTIONS, "clusters", *(name for section in SECTIONS.values() for name in section.model_fields)})
WORDS = ["all", "table", "mnist", "ridge", "huber", "random", "edges", "fedavg", "secure", "none", "", "ü\n", "<x>"]
scalars = st.one_of(
    st.booleans(), st.integers(), st.floats(), st.sampled_from(WORDS), st.text(max_size=6), st.datetimes(), st.none(),
    st.integers(-(10**400), 10**400),
)  # fmt: skip
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
)
documents = st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), values, max_size=6)
nested = st.fixed_dictionaries(
    {}, optional={name: st.dictionaries(st.sampled_from(KEYS), values, max_size=4) for name in SECTIONS if name}
)


def outcome(make) -> Config | str:
    """A config, or the sentence with which it is refused; any other exception fails the test."""
    try:
        return make()
    except ConfigError as error:
        return str(error)


@pytest.mark.proof
@settings(max_examples=150, deadline=None)
@given(documents | nested)
def test_malformed_settings_end_in_a_sentence_and_good_ones_in_a_config(document):
    config = outcome(lambda: parse(document))
    if isinstance(config, str):
        assert re.fullmatch(r"[^\n]+[.?]", config)
    else:
        assert parse(tomllib.loads(to_toml(config))) == config
        assert len(fingerprint(config)) == 32
        assert isinstance(warnings(config), list)


keys_and_values = st.builds("{}={}".format, st.sampled_from(KEYS), st.text(max_size=12))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(max_size=30) | keys_and_values, max_size=3))
def test_malformed_overrides_end_in_a_sentence(overrides):
    assert outcome(lambda: load_config("private-huber", overrides))


@settings(max_examples=200, deadline=None)
@given(text=st.binary(max_size=60) | st.text(alphabet='[]{}=."\n#ab1', max_size=60).map(str.encode))
def test_malformed_files_end_in_a_sentence(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "malformed.toml"
    path.write_bytes(text)
    assert outcome(lambda: load_config(path))


def test_the_client_s_step_is_chosen_for_the_pgfl_algorithms_alone():
    for kind in ("pgfl", "pgfl-exact", "pgfl-onestep"):
        chosen = load_config("private-huber", [f"algorithm.kind={kind}"])
        algorithm = chosen.algorithm.build("uniform")
        assert isinstance(algorithm.client_rule, LinearisedStep)
        assert algorithm.rho == chosen.algorithm.rho
    assert isinstance(load_config("paper-fig2").algorithm.build("uniform").client_rule, ProximalStep)
    assert "fedavg has its own steps" in refusal("private-huber", ["algorithm.kind=fedavg"])
    assert "`algorithm.client`" in refusal("private-huber", ["algorithm.client=gradients"])
    with pytest.raises(ConfigError, match="did you mean gradient"):
        PGFL(client="gradients")
