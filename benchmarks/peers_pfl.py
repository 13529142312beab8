"""The paper's round on pfl-research's simulated backend, in its NumPy mode, which needs no deep-learning library."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pfl.aggregate.base import Aggregator
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import FederatedAlgorithm
from pfl.common_types import Population
from pfl.context import CentralContext
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import AlgorithmHyperParams, ModelHyperParams
from pfl.metrics import Metrics
from pfl.model.base import Model
from pfl.stats import MappedVectorStatistics

from peers_round import Servers, problem, rounds_on_demand


class SumsByPair(Aggregator):
    """Adds up the clients' contributions by server and cluster: its own aggregator knows one sum for all."""

    def accumulate(self, *, accumulated, user_stats):
        """Add one client's contribution."""
        if accumulated is None:
            return user_stats
        for pair, contribution in user_stats.items():
            accumulated[pair] = accumulated[pair] + contribution if pair in accumulated else contribution
        return accumulated


@dataclass(frozen=True)
class NoParameters(AlgorithmHyperParams, ModelHyperParams):
    """There is nothing to tune from round to round."""


class Round(FederatedAlgorithm):
    """A central iteration is a round; a user's state is its latest model and its dual."""

    def __init__(self, servers: Servers) -> None:
        super().__init__()
        self.servers, self.asked = servers, rounds_on_demand(servers)

    def get_next_central_contexts(self, model, iteration, algorithm_params, model_train_params, model_eval_params=None):
        """All clients, for as many rounds as are asked for."""
        if next(self.asked, "over") == "over":
            return None, model, Metrics()
        self.pulls = self.servers.pulls()
        context = CentralContext(
            iteration, False, self.servers.problem.clients, Population.TRAIN, algorithm_params, model_train_params
        )
        return (context,), model, Metrics()

    def simulate_one_user(self, model, user_dataset, central_context):
        """The client's side."""
        k, servers = user_dataset.user_id, self.servers
        found = servers.client_models[k] = servers.problem.solve(k, self.pulls[k])
        contribution = found - servers.duals[k] / servers.problem.rho
        return MappedVectorStatistics({servers.problem.pair[k]: contribution}), Metrics()

    def process_aggregated_statistics(self, central_context, aggregate_metrics, model, statistics):
        """The servers' side."""
        self.servers.finish(np.array([statistics[pair] for pair in range(len(self.servers.models))]))
        return model, Metrics()


def main() -> None:
    clients = range(problem().clients)
    users = [Dataset([problem().right[k]], user_id=k) for k in clients]
    data = FederatedDataset(users.__getitem__, get_user_sampler("minimize_reuse", clients))
    backend = SimulatedBackend(training_data=data, val_data=data, aggregator=SumsByPair())
    Round(Servers()).run(NoParameters(), backend, Model(), NoParameters(), send_metrics_to_platform=False)


if __name__ == "__main__":
    main()
