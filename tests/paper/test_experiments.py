"""Experiments: paired, the same on any number of processes, and true to the paper's settings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pgfl.lab.paper.conditions import GUARANTEED, PRINTED, TAU, digits
from pgfl.lab.paper.experiments import FeatureRanks, RegressionData
from pgfl.lab.paper.fig3 import Figure3
from pgfl.lab.paper.fig4 import Figure4
from pgfl.lab.paper.figures import TAU_FIXED
from pgfl.lab.paper.runner import RUNS_TOGETHER, Runner


def test_the_point_of_figure_4_is_figure_3_at_that_round() -> None:
    point = Figure4().trials(_quick(), PRINTED)[TAU]
    curve = Figure3.trials(PRINTED, True)[TAU_FIXED]
    assert replace(point, rounds=curve.rounds) == curve and point.rounds == 200
    short, long = (replace(curve, rounds=rounds).run(0, 2)["nmsd"] for rounds in (12, 20))
    np.testing.assert_array_equal(short, long[:, :13])


def test_the_network_is_section_vs() -> None:
    federation = RegressionData().federation(0, 0)
    assert len(federation.server_ids) == 10 and len(federation.cluster_ids) == 3 and federation.dimension == 60
    assert (federation.server_sizes == 15).all()
    assert federation.counts.min() >= 2 and federation.counts.max() <= 9
    assert federation.graph.connected and federation.graph.degrees.mean() == pytest.approx(3.0)


def test_ranks_of_a_network() -> None:
    found = FeatureRanks(RegressionData()).run(0, 2)
    assert (found["client"] <= 9).all() and (found["client"] <= found["server"]).all()
    assert (found["cluster"] == 60).all()


@pytest.mark.proof
def test_only_a_true_guarantee_has_an_epsilon() -> None:
    assert np.isinf(replace(PRINTED.pgfl(TAU), rounds=3).run(0, 1)["epsilon"]).all()
    assert np.isfinite(replace(GUARANTEED.pgfl(TAU), rounds=3).run(0, 1)["epsilon"]).all()
    assert np.isfinite(replace(digits("pairs", TAU, None, phi0=0.01), rounds=2).run(0, 1)["epsilon"]).all()


def test_fedavg_is_perturbed_too() -> None:
    clean, noisy = (replace(PRINTED.federated_averaging(private=p), rounds=3).run(0, 1)["nmsd"] for p in (False, True))
    assert (clean[:, 2:] != noisy[:, 2:]).all()


@pytest.mark.proof
def test_processes_change_nothing_and_every_run_counts() -> None:
    trial, other = (replace(PRINTED.pgfl(tau), rounds=2) for tau in (0.0, TAU))
    wanted = {trial: RUNS_TOGETHER + 2, other: 2}
    reported: list[float] = []
    alone, together = Runner(wanted, 1, reported.append), Runner(wanted, 2, reported.append)
    with alone, together:
        for one in wanted:
            here, there = alone.measured(one), together.measured(one)
            assert len(here["nmsd"]) == wanted[one]
            for name, values in here.items():
                np.testing.assert_array_equal(values, there[name])
    assert sum(reported) == pytest.approx(2 * alone.cost)


def _quick():
    from pgfl.lab.paper.items import Effort

    return Effort.of(None, True, None)
