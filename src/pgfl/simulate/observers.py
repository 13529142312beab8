"""Observers: typed callbacks of a simulation, at its start, after every round and at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pgfl.simulate.simulator import Simulator


class Observer:
    """Base class of everything that watches a training; override what you need.

    Runs that are trained together share a simulator (`simulator.layout.runs`), and each batch of runs starts and ends
    once. Observers are called in the order in which they were given, after pgfl's own measures and checkpoints. What
    they raise ends the training.

    >>> from pgfl import Observer, synthetic_regression, train
    >>> class Rounds(Observer):
    ...     seen = 0
    ...     def on_round(self, simulator):
    ...         self.seen = simulator.state.round
    >>> rounds = Rounds()
    >>> result = train(synthetic_regression(servers=5, clients_per_server=4, seed=1), rounds=5, observers=[rounds])
    >>> rounds.seen
    5
    """

    def on_start(self, simulator: Simulator) -> None:
        """Look at the simulator before its first round."""

    def on_round(self, simulator: Simulator) -> None:
        """Look at the state after a round; `simulator.end(reason)` stops the training."""

    def on_end(self, simulator: Simulator) -> None:
        """Look at the final state; not called if the training was interrupted or failed."""
