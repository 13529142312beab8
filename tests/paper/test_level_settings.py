"""The settings of the curves against ε: every client step was tuned with the same effort."""

import csv
from importlib.resources import files

import pytest

from pgfl.paper.level_settings import FILE, Anchor, as_text, between, tuned


def rows():
    return list(csv.DictReader(files("pgfl.paper").joinpath(FILE).read_text("utf-8").splitlines()))


@pytest.mark.parametrize("scene", ["regression", "pairs", "triplets"])
def test_every_client_step_had_as_many_tries_at_every_epsilon(scene):
    effort = {
        step: {(float(row["epsilon"]), row["tries"]) for row in rows() if (row["scene"], row["step"]) == (scene, step)}
        for step in ("paper", "fedavg", "linearised")
    }
    assert effort["paper"] == effort["fedavg"] == effort["linearised"]
    assert {epsilon for epsilon, _ in effort["paper"]} >= {0.25, 1.0, 4.0, 16.0}


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
        (row["scene"], row["step"], anchor, float(row["tuning_error"]), int(row["tries"]))
        for row in rows()
        for anchor in tuned(row["scene"], row["step"])
        if anchor.epsilon == float(row["epsilon"])
    ]
    assert as_text(kept) == files("pgfl.paper").joinpath(FILE).read_text("utf-8")
