"""`pgfl account`: figures, schedules and refusals."""

import json
import warnings

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pgfl.privacy import accounting
from tests.command_line import one_sentence, refused, run

NOTES = [  # ζ, φ(1), n, ρ, the paper's ε, exact ε
    (0.99, 1e-3, 100, 0.1715, 2.982, 2.379),
    (0.99, 1e-3, 300, 1.920, 11.322, 9.749),
    (0.98, 1e-3, 300, 20.96, 52.03, 47.80),
    (0.999, 1e-3, 300, 0.350, 4.363, 3.563),
    (0.99, 1e-5, 100, 0.0017, 0.283, 0.190),
]


def figures(*arguments):
    code, out, err = run("account", *arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


@pytest.mark.parametrize(("zeta", "phi1", "rounds", "rho", "paper", "exact"), NOTES)
def test_known_figures_from_either_parameter(zeta, phi1, rounds, rho, paper, exact):
    first = figures("--phi1", phi1, "--zeta", zeta, "--rounds", rounds, "--delta", 1e-5)
    assert first["phi0"] == pytest.approx(phi1 * zeta)
    assert first["rho"] == pytest.approx(rho, rel=5e-2 if rho < 0.01 else 2e-3)
    assert first["epsilon_paper"] == pytest.approx(paper, abs=6e-3)
    assert first["epsilon"] == pytest.approx(exact, abs=6e-3)
    zeroth = figures("--phi0", repr(phi1 * zeta), "--zeta", zeta, "--rounds", rounds, "--delta", 1e-5)
    assert {key: zeroth[key] for key in ("phi0", "phi1", "rho", "epsilon", "epsilon_paper")} == pytest.approx(
        {key: first[key] for key in ("phi0", "phi1", "rho", "epsilon", "epsilon_paper")}
    )


@pytest.mark.parametrize("zeta", [1.0, 0.99, 0.9])
def test_a_target_gives_a_schedule_that_spends_it_and_no_more(zeta):
    found = figures("--epsilon", 4, "--max-releases", 50, "--zeta", zeta, "--delta", 1e-6)
    back = figures("--phi0", repr(found["phi0"]), "--rounds", 50, "--zeta", zeta, "--delta", 1e-6)
    assert back["epsilon"] <= 4.0
    assert back["epsilon"] == pytest.approx(4.0, rel=1e-8)


def test_a_target_by_round_assumes_the_dearest_rounds():
    arguments = ("--target-epsilon", 4, "--max-releases", 20, "--rounds", 100, "--zeta", 0.95)
    by_round, by_release = (figures(*arguments, "--index", index) for index in ("round", "release"))
    spent = sum(float(accounting.phi(by_round["phi0"], 0.95, n)) for n in range(81, 101))
    assert accounting.exact_epsilon(spent, 1e-5) == pytest.approx(4.0, rel=1e-8)
    assert by_round["phi0"] < by_release["phi0"] / 50


def test_whole_client_figures_are_apart():
    plain = figures("--phi1", 1e-3, "--rounds", 100)
    grouped = figures("--phi1", 1e-3, "--rounds", 100, "--group", 10)
    assert {key: value for key, value in grouped.items() if key != "group"} == plain
    assert grouped["group"]["records"] == 10
    assert grouped["group"]["rho"] == pytest.approx(100 * plain["rho"])
    assert grouped["group"]["epsilon"] > 5 * plain["epsilon"]
    _, out, _ = run("account", "--phi1", 1e-3, "--rounds", 100, "--group", 10)
    assert "For one record" in out
    assert "a weaker promise" in out


def test_people_get_a_table():
    code, out, _ = run("account", "--phi1", 1e-3, "--rounds", 100)
    assert code == 0
    for text in ("2.379", "2.981", "0.171", "ε, exact", "ε, by the paper's formula"):
        assert text in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--phi0", "0", "--rounds", "3"], "phi0 must be a positive number"),
        (["--phi0", "-1e-3", "--rounds", "3"], "phi0 must be a positive number"),
        (["--phi1", "nan", "--rounds", "3"], "phi1 must be a positive number"),
        (["--phi0", "inf", "--rounds", "3"], "phi0 must be a positive number"),
        (["--phi0", "1", "--rounds", "3", "--zeta", "0"], "zeta must be in (0, 1]"),
        (["--phi0", "1", "--rounds", "3", "--zeta", "1.01"], "zeta must be in (0, 1]"),
        (["--phi0", "1", "--rounds", "3", "--delta", "0"], "delta must be between 0 and 1"),
        (["--phi0", "1", "--rounds", "3", "--delta", "1"], "delta must be between 0 and 1"),
        (["--phi0", "1", "--rounds", "0"], "at least 1"),
        (["--phi0", "1", "--rounds", "1" + 400 * "0"], "at most 2147483647"),
        (["--phi0", "1", "--rounds", "5000", "--zeta", "0.5"], "underflows"),
        (["--phi0", "1"], "--rounds is missing"),
        (["--rounds", "3"], "exactly one of --phi0, --phi1 and --epsilon"),
        (["--phi0", "1", "--phi1", "1", "--rounds", "3"], "exactly one of"),
        (["--phi0", "1", "--rounds", "3", "--max-releases", "2"], "go with --epsilon"),
        (["--phi0", "1", "--rounds", "3", "--group", "0"], "A group has at least one record"),
        (["--target-epsilon", "0", "--rounds", "3"], "epsilon must be a positive number"),
        (["--target-epsilon", "1"], "over how many releases"),
        (["--target-epsilon", "1", "--max-releases", "3", "--index", "round"], "needs the number of rounds"),
        (["--target-epsilon", "1", "--max-releases", "0"], "at least 1"),
        (["--target-epsilon", "1e-300", "--delta", "1e-300", "--rounds", "3"], "leaves nothing to spend"),
        (["--target-epsilon", "1", "--rounds", "900", "--zeta", "0.4"], "underflows"),
        (["--target-epsilon", "1", "--rounds", "3", "--index", "year"], "'year' is not one of"),
        (["--phi0", "much", "--rounds", "3"], "Invalid value for '--phi0'"),
    ],
)
def test_wrong_input_is_one_sentence(arguments, words):
    assert words in refused("account", *arguments)


def no_number(name):
    raise AssertionError(f"{name} is not JSON")


def strictly(text):
    """What JSON holds, which NaN and Infinity are not."""
    return json.loads(text, parse_constant=no_number)


@pytest.mark.parametrize("zeros", [200, 308, 309, 400])
def test_a_group_beyond_all_numbers_is_infinite_in_words(zeros):
    group = 10**zeros
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        code, out, err = run("account", "--phi1", 1e-3, "--rounds", 10, "--group", group, "--json")
        assert (code, err) == (0, "")
        reported = strictly(out)
        assert reported["group"] == {"records": group, "rho": None, "epsilon": None}
        assert reported["epsilon"] > 0.0
        assert "An infinite figure" in reported["note"]
        _, out, err = run("account", "--phi1", 1e-3, "--rounds", 10, "--group", group)
    assert "ρ ∞, ε ∞" in out
    assert "An infinite figure" in out
    assert err == ""


def test_large_figures_are_told_while_there_are_numbers_for_them():
    reported = figures("--target-epsilon", 1e308, "--rounds", 1)
    assert reported["epsilon"] == pytest.approx(1e308)
    assert reported["epsilon_paper"] >= reported["rho"] == pytest.approx(1e308)
    tiny = figures("--phi0", 1e-300, "--zeta", 1, "--rounds", 1, "--group", 10**200)
    assert tiny["group"]["rho"] == pytest.approx(1e100)
    assert "note" not in tiny


numbers = st.floats() | st.sampled_from(
    [0.0, 5e-324, 1e-320, 1e-300, 1e-12, 1e-5, 1e-3, 0.5, 0.99, 0.999999999, 1.0, 2.0, 1e10, 1e154, 1e200, 1.7e308]
)
whole = st.integers(-1, 400) | st.sampled_from([10**9, 2**31 - 1, 2**31, 2**63, 10**154, 10**155, 10**308, 10**400])
levels = st.tuples(st.sampled_from(["--phi0", "--phi1", "--target-epsilon"]), numbers)
others = st.fixed_dictionaries(
    {"--rounds": whole},
    optional={
        "--zeta": numbers,
        "--delta": numbers,
        "--max-releases": whole,
        "--index": st.sampled_from(["round", "release"]),
        "--group": whole,
    },
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(levels, others)
@example(("--phi0", 1.7e308), {"--rounds": 1, "--zeta": 1.0})
@example(("--target-epsilon", 1.7e308), {"--rounds": 1, "--group": 2})
@example(("--phi0", 1.0), {"--rounds": 10**400})
@example(("--phi1", 5e-324), {"--rounds": 1, "--zeta": 1.0, "--group": 10**400})
def test_json_is_strict_and_mistakes_are_one_sentence_whatever_is_asked(level, asked):
    arguments = [part for pair in (level, *asked.items()) for part in pair]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        code, out, err = run("account", "--json", *arguments)
    if code == 0:
        assert err == ""
        reported = strictly(out)
        assert reported["epsilon"] is None or reported["epsilon"] >= 0.0
        assert ("note" in reported) == (None in (*reported.values(), *reported.get("group", {}).values()))
    else:
        assert (code, out) == (2, "")
        assert one_sentence(err)
