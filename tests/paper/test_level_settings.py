"""The settings of the curves against ε: every client step was tuned with the same effort."""

import csv
from importlib.resources import files

import pytest

from pgfl.lab.paper.levels import FILE, SCENES, Anchor, as_text, between, tuned


def rows():
    return list(csv.DictReader(files("pgfl.lab.paper").joinpath(FILE).read_text("utf-8").splitlines()))


@pytest.mark.parametrize("scene", ["regression", "pairs", "triplets"])
def test_every_row_had_as_many_tries_at_every_epsilon(scene):
    effort = {}
    for row in rows():
        if row["scene"] == scene:
            effort.setdefault(row["row"], set()).add((float(row["epsilon"]), row["tries"]))
    shared = {"masked", "site"} if scene == "regression" else set()
    assert effort.keys() == {"paper", "fedavg", "local"} | shared
    assert all(tries == effort["paper"] for tries in effort.values())
    assert {epsilon for epsilon, _ in effort["paper"]} >= {0.25, 1.0, 4.0, 16.0}


def test_settings_for_as_strong_local_noise_serve_where_shared_noise_was_not_tuned():
    pairs = next(scene for scene in SCENES if scene.kind == "pairs")
    at_site, local = pairs.trial("site", 1.0, 5), tuned("pairs", "local")
    assert at_site.algorithm.rho == pytest.approx(between(local, 5**0.5).rho)  # one draw of noise, and not one for each
    more = pairs.trial("masked", 1.0, 15)
    assert more.algorithm.rho == pytest.approx(
        between(local, (15 * 13 / 5) ** 0.5).rho
    )  # of 15, 1 is lost and 1 colludes


def test_settings_lie_between_their_neighbours_and_end_with_them():
    low, high = Anchor(1.0, 0.5, 0.99, 100, 0.0), Anchor(4.0, 2.0, 0.9, 400, 0.4, 0.98, 2.0)
    middle = between((low, high), 2.0)
    assert (middle.rho, middle.releases, middle.tau) == (pytest.approx(1.0), 200, pytest.approx(0.2))
    assert middle.zeta == pytest.approx(1.0 - (0.01 * 0.1) ** 0.5)
    assert (middle.tau_decay, middle.kappa) == (pytest.approx(0.99), pytest.approx(2.0**0.5))
    for outside, nearest in ((0.1, low), (99.0, high)):
        assert between((low, high), outside).rho == pytest.approx(nearest.rho)


def test_the_file_is_what_the_search_writes():
    kept = [
        (row["scene"], row["row"], anchor, float(row["tuning_error"]), int(row["tries"]))
        for row in rows()
        for anchor in tuned(row["scene"], row["row"])
        if anchor.epsilon == float(row["epsilon"])
    ]
    assert as_text(kept) == files("pgfl.lab.paper").joinpath(FILE).read_text("utf-8")
