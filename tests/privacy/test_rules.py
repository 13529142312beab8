"""The class `Privacy` and the table [privacy] refuse the same and take the same; nothing is lost by a slip."""

import math

import numpy as np
import pytest

from pgfl import PGFL, Federation, Huber, Privacy, synthetic_regression, train
from pgfl.config import parse
from pgfl.errors import ConfigError, PrivacyError
from pgfl.federation.federation import ClientData

BOUNDS = ("x_norm", "y_bound", "w_norm", "update_norm", "weight_cap")
NO_NUMBERS = (True, False, "1", [1.0], {"a": 1})
NOT_POSITIVE = (0, 0.0, -1.0, -1e-300, math.nan, math.inf, -math.inf, 10**400, *NO_NUMBERS)

BAD = {
    "phi0": NOT_POSITIVE,
    "phi1": NOT_POSITIVE,
    "epsilon": NOT_POSITIVE,
    **dict.fromkeys(BOUNDS, NOT_POSITIVE),
    "nominal_gradient": (*NOT_POSITIVE, None),
    "zeta": (*NOT_POSITIVE, 1.0000001, 2, None),
    "delta": (*NOT_POSITIVE, 0.5, 0.0100001, 1, 1.0, 2, None),
    "max_releases": (0, -1, 2**31, 10**400, 1.0, 2.5, math.nan, *NO_NUMBERS),
    "index": ("rounds", "relese", "", "Round", 1, True, None),
    "noise": ("secur", "sedeed", "", "SECURE", "none", 1, True),
    "guarantee": ("yes", "requird", "", "None", True, None),
    "trust": ("nobody", "mask", "", "Site", True, None),
    "contributors": (0, -1, 2**31, 10**400, 1.0, 2.5, math.nan, None, *NO_NUMBERS),
    "colluders": (-1, 2**31, 10**400, 1.0, 2.5, math.nan, None, *NO_NUMBERS),
    "dropouts": (-0.1, 1, 1.0, 2, math.nan, math.inf, None, *NO_NUMBERS),
}
GOOD = {
    **dict.fromkeys(("phi0", "phi1", "epsilon"), (1, 1e-3, 5e-324, 1e300)),
    **dict.fromkeys(BOUNDS, (None, 1, 1e-6, 1e6)),
    "nominal_gradient": (1, 0.5),
    "zeta": (1, 1.0, 0.99, 1e-3),
    "delta": (1e-5, 0.01, 1e-300),
    "max_releases": (None, 1, 80, 2**31 - 1),
    "index": ("round", "release"),
    "noise": (None, "seeded", "secure"),
    "guarantee": ("required", "none"),
    "trust": ("local", "site", "masked"),
    "contributors": (1, 2, 50),
    "colluders": (0, 1, 7),
    "dropouts": (0, 0.0, 0.25, 0.999),
}
LEVELS = ("phi0", "phi1", "epsilon")


def asked(key, value):
    """A table that is right but for, perhaps, one value."""
    level = {} if key in LEVELS else {"phi0": 1e-3}
    return {**level, "x_norm": 1.0, key: value}


def by_config(table):
    algorithm = {"client": "gradient"}
    return parse({"objective": {"kind": "huber"}, "algorithm": algorithm, "privacy": {"update_norm": 1.0, **table}})


def by_class(table):
    return Privacy(**table)


@pytest.mark.parametrize(("make", "error"), [(by_config, ConfigError), (by_class, PrivacyError)])
@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in BAD.items() for value in values])
def test_a_wrong_value_is_refused_by_config_and_class_with_its_name(make, error, key, value):
    with pytest.raises(error) as caught:
        make(asked(key, value))
    assert f"`privacy.{key}` must be" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in BAD.items() for value in values])
def test_the_sentence_is_the_same(key, value):
    sentences = []
    for make in (by_config, by_class):
        with pytest.raises((ConfigError, PrivacyError)) as caught:
            make(asked(key, value))
        sentences.append(str(caught.value))
    assert len(set(sentences)) == 1 or isinstance(value, list)  # which a config reads as a tuple


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in GOOD.items() for value in values])
def test_a_right_value_is_taken_by_config_and_class(key, value):
    table = asked(key, value)
    taken = getattr(by_config(table).privacy, key)
    assert getattr(by_class(table), key) == value
    assert taken == (value or "seeded" if key == "noise" else value)


def test_every_field_has_a_rule_and_both_have_the_same_fields():
    fields = set(Privacy.__dataclass_fields__)
    assert fields == set(BAD) == set(GOOD)
    assert set(type(parse({}).privacy).model_fields) == fields | {"enabled"}


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({}, "without a noise level"),
        ({"phi0": 1e-3, "phi1": 1e-3}, "`privacy.phi0` and `privacy.phi1` both set the noise level"),
        ({"phi1": 1e-3, "epsilon": 1.0}, "`privacy.phi1` and `privacy.epsilon` both set the noise level"),
        ({"epsilon": 1.0, "guarantee": "none"}, "`privacy.epsilon` is a promise that guarantee"),
    ],
)
def test_contradictions_are_refused_by_both(table, words):
    with pytest.raises(PrivacyError, match=words):
        Privacy(**table)
    with pytest.raises(ConfigError, match=words):
        parse({"privacy": {"enabled": True, **table}})


@pytest.mark.parametrize(
    ("key", "typo", "meant"), [("noise", "secur", "secure"), ("index", "relese", "release"), ("index", "rond", "round")]
)
def test_a_slip_of_spelling_is_told_what_was_meant(key, typo, meant):
    with pytest.raises(PrivacyError, match=rf"\(did you mean {meant}\?\)"):
        Privacy(phi0=1e-3, **{key: typo})


def test_numbers_of_numpy_are_numbers():
    assert Privacy(phi0=np.float32(0.5), max_releases=np.int64(3), x_norm=np.float64(1.0)).max_releases == 3
    with pytest.raises(PrivacyError, match=r"privacy\.x_norm"):
        Privacy(phi0=0.5, x_norm=np.True_)


# --- which noise -----------------------------------------------------------------------------------------------------


def own_data(records=4):
    rng = np.random.default_rng(0)
    clients = {
        f"c{k}": ClientData("s", "q", rng.standard_normal((records, 2)), rng.standard_normal(records)) for k in range(3)
    }
    return Federation.from_clients(clients)


def generated():
    return synthetic_regression(servers=2, clients_per_server=2, clusters=1, dimension=2, graph="line")


def noise_of(federation, **settings):
    privacy = Privacy(**{"phi0": 1e-3, "x_norm": 1.0, **settings})
    return train(federation, PGFL(5.0), Huber(), rounds=2, privacy=privacy).noise


def test_data_of_ones_own_gets_float_safe_noise_unless_seeded_noise_is_asked_for(tmp_path):
    assert noise_of(own_data()) == "secure"
    assert noise_of(own_data(), noise="seeded") == "seeded"
    assert noise_of(generated()) == "seeded"
    assert noise_of(generated(), noise="secure") == "secure"
    result = train(own_data(), PGFL(5.0), Huber(), rounds=2, privacy=Privacy(phi0=1e-3, x_norm=1.0))
    assert result.models[0].clients is None
    assert result.clean_history is None


@pytest.mark.parametrize(("make", "noise"), [(own_data, "secure"), (generated, "seeded")])
def test_where_data_comes_from_is_kept_when_it_is_saved_or_parted(tmp_path, make, noise):
    make().save(tmp_path / "saved")
    opened = Federation.open(tmp_path / "saved")
    assert noise_of(opened) == noise_of(opened.part([0])) == noise


def test_generated_data_with_ones_own_records_put_in_is_ones_own():
    made = generated()
    assert noise_of(made.replace(targets=made.targets + 1.0)) == "secure"
    assert noise_of(made.replace(features=made.features + 1.0)) == "secure"
    assert noise_of(made.without_edges()) == "seeded"


# --- δ and the number of records -------------------------------------------------------------------------------------


def test_a_delta_that_is_not_below_one_in_d_is_warned_of():
    def warned(records, **settings):
        privacy = Privacy(**{"phi0": 1e-3, "x_norm": 1.0, "delta": 0.01, **settings})
        reported = train(own_data(records), PGFL(5.0), Huber(), rounds=1, privacy=privacy).warnings
        return any("delta = 0.01 is not below 1/D" in warning for warning in reported)

    assert warned(100)
    assert not warned(99)
    assert not warned(100, delta=1e-5)
    assert not warned(100, guarantee="none")
