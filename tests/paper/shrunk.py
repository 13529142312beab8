"""Items carried out small: the same experiments with few rounds and runs, in this process."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from pgfl.lab.paper.affordable import RECORDS
from pgfl.lab.paper.beyond import RICHER
from pgfl.lab.paper.experiments import DigitData, Experiment, FromSeed, Measured, RegressionData, TailAverage, Trial
from pgfl.lab.paper.items import Effort, Item
from pgfl.lab.paper.outcome import Outcome
from pgfl.lab.paper.theorem1 import Convergence
from pgfl.lab.paper.theorem2 import Drift
from pgfl.lab.paper.theorem3 import Audited

EFFORT = Effort(regression=3, digits=2, grid=2, quick=True)
ROUNDS, DIGIT_ROUNDS = 32, 2


def outcome(item: Item) -> Outcome:
    """The outcome of a quick, shortened item; every experiment must have been announced."""
    announced = item.experiments(EFFORT)

    def measured(experiment: Experiment) -> Measured:
        assert experiment in announced, f"{item.name} needs {experiment}, but has not said so"
        return run(shortened(experiment), announced[experiment])

    return item.outcome(EFFORT, measured)


@cache
def run(experiment: Experiment, runs: int) -> Measured:
    """Carried out once for all tests."""
    return experiment.run(0, runs)


def shortened(experiment: Experiment) -> Experiment:
    """The experiment with fewer rounds, or trials."""
    if isinstance(experiment, Trial):
        if isinstance(experiment.data, DigitData):
            few = replace(experiment.data, servers=5, clients_per_server=6)
            return replace(experiment, data=few, rounds=DIGIT_ROUNDS, record_every=DIGIT_ROUNDS)
        if experiment.privacy is not None and experiment.privacy == RICHER.privacy:
            return replace(experiment, data=replace(experiment.data, samples=(4, 8)), rounds=10)
        if isinstance(experiment.data, RegressionData) and experiment.data.samples == RECORDS.samples:
            return replace(experiment, data=replace(experiment.data, samples=(4, 8)), rounds=10)
        return replace(experiment, rounds=ROUNDS)
    if isinstance(experiment, TailAverage | FromSeed):
        return replace(experiment, trial=shortened(experiment.trial))
    if isinstance(experiment, Convergence):
        return replace(experiment, rounds=200, record_every=4)
    if isinstance(experiment, Drift):
        return experiment if len(experiment.rounds) == 1 else replace(experiment, rounds=(1, 10))
    if isinstance(experiment, Audited):
        return replace(experiment, trials=300)
    return experiment
