"""An observer that follows the server models, from which the verdict on a run is made.

Models are averaged over windows that grow with the rounds: an average does not mind who happened to take part. Only
their sizes and distances are kept, at about a dozen rounds per hundred, so that watching costs next to nothing.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

from pgfl import metrics
from pgfl.arrays import AnyArray, AnyFloats
from pgfl.results.verdict import STOPS, Noise, Setting, Verdict, Window, is_diverging, judge_run, remaining
from pgfl.simulate.observers import Observer
from pgfl.simulate.problems import objective_of
from pgfl.simulate.totals import Totals

if TYPE_CHECKING:
    from pgfl.privacy.mechanism import Plan
    from pgfl.simulate.simulator import Simulator


GROWS = 1.25  # how much later each window ends than the one before
NOISE_EVERY = 16  # rounds of which one is looked at: noise changes slowly
LATE_ROUNDS = 30  # of whose noise the final models still hold most
LONG_ENOUGH = 0.5  # of the window before: the length at which a window that is cut short counts


class Monitor(Observer):
    """Follows all runs of a simulator; ends it when a single run diverges or, if `stops`, has converged."""

    def __init__(self, simulator: Simulator, stops: bool = False) -> None:
        self._layout = simulator.layout
        self._totals = Totals(simulator.layout, simulator.communicator)
        self._alone = len(simulator.layout.runs) == 1 and simulator.options.runs == 1
        self._stops = stops and self._alone and simulator.plan is None
        shape = np.shape(simulator.state.server_models)
        self._sum: AnyFloats = np.zeros(shape)
        self._before: AnyFloats = np.zeros(shape)
        self._length, self._next = 0, 1
        self._watched = 0  # rounds; a continued run has more
        self.windows: list[list[Window]] = [[] for _ in simulator.layout.runs]
        self._noise: list[AnyFloats] = []  # (pairs, 2): variance and pull of every `NOISE_EVERY`-th round
        self._last_release = np.zeros(len(simulator.layout.runs), dtype=np.int64)

    def on_round(self, simulator: Simulator) -> None:
        """Add the round to its window; look closer where one ends."""
        round = simulator.state.round
        self._sum += np.asarray(simulator.state.server_models)
        self._length += 1
        self._watched += 1
        if simulator.plan is not None:
            self._note_noise(simulator, simulator.plan, round)
        if self._watched >= self._next:
            self._close(simulator)
            self._next = max(self._watched + 1, int(GROWS * self._watched))
            self._check_end(simulator)

    def verdicts(self, simulator: Simulator) -> list[Verdict]:
        """Return the verdict on every run; none if no round was watched."""
        if not self._watched:
            return []
        if self._length and self._length >= LONG_ENOUGH * self.windows[0][-1].length:
            self._close(simulator)
        pull, apart, noise = self._pull(simulator), self._disagreement(simulator), self._of_noise(simulator)
        return [
            judge_run(
                windows, self._setting(simulator, number, float(pull[number]), float(apart[number])), noise[number]
            )
            for number, windows in enumerate(self.windows)
        ]

    def state(self) -> dict[str, AnyArray]:
        """Return what a checkpoint must hold; arrays with one row per pair begin with `pairs_`."""
        kept = {
            "length": self._length,
            "next": self._next,
            "watched": self._watched,
            "windows": [[vars(window) for window in run] for run in self.windows],
            "last_release": self._last_release.tolist(),
        }
        noise = np.stack(self._noise, axis=1) if self._noise else np.zeros((len(self._sum), 0, 2))
        figures = np.array(json.dumps(kept))
        return {"pairs_sum": self._sum, "pairs_before": self._before, "pairs_noise": noise, "figures": figures}

    def restore(self, state: dict[str, AnyArray], simulator: Simulator) -> None:
        """Go on from `state()`; a run that had ended ends again."""
        self._sum, self._before = np.array(state["pairs_sum"]), np.array(state["pairs_before"])
        self._noise = list(np.moveaxis(state["pairs_noise"], 1, 0))
        kept = json.loads(str(state["figures"]))
        self._length, self._next, self._watched = kept["length"], kept["next"], kept["watched"]
        self.windows = [[Window(**window) for window in run] for run in kept["windows"]]
        self._last_release = np.array(kept["last_release"], dtype=np.int64)
        if self.windows[0] and self._length == 0:
            self._check_end(simulator)

    def _check_end(self, simulator: Simulator) -> None:
        if not self._alone:
            return
        (windows,) = self.windows
        if np.isfinite([windows[-1].size_now, windows[-1].step]).all() and is_diverging(windows):
            simulator.end("diverging")
        elif self._stops and remaining(windows).total <= STOPS:
            simulator.end("converged")

    def _close(self, simulator: Simulator) -> None:
        """End a window: keep its sizes, and start the next one."""
        now, before = np.asarray(simulator.state.server_models), np.asarray(simulator.engine.previous_servers)
        mean = self._sum / self._length
        rows = (mean, now, mean - self._before, now - before, now - mean)
        squares = np.empty((len(mean), len(rows)))
        with np.errstate(over="ignore", invalid="ignore"):
            for column, each in enumerate(rows):
                np.einsum("ij,ij->i", each, each, out=squares[:, column])
            sizes = np.sqrt(self._totals.over_pairs(squares))
        for run, numbers in zip(self.windows, sizes.tolist(), strict=True):
            run.append(Window(self._watched, self._length, *numbers))
        self._before, self._sum, self._length = mean, np.zeros_like(self._sum), 0

    def _pull(self, simulator: Simulator) -> AnyFloats:
        """Return the size of the scaled duals relative to the models that the clients received, for each run."""
        state = simulator.state
        if not simulator.algorithm.client_rule.has_dual:
            return np.zeros(len(self.windows))
        dual, received = (
            np.asarray(simulator.engine.dual_sizes()),
            metrics.squared_norm(np.asarray(state.server_models)),
        )
        pulled = self._totals.over_clients(dual)
        size = self._totals.over_clients(received[self._layout.client_pair])
        return np.asarray(np.sqrt(np.divide(pulled, size, out=np.zeros(len(size)), where=size > 0)))

    def _disagreement(self, simulator: Simulator) -> AnyFloats:
        """Return how far the servers' models of a cluster are apart, relative to their size, for each run."""
        known, models = simulator.engine.network.known, np.asarray(simulator.state.server_models)
        held = self._totals.pairs_by_cluster(known)
        means = metrics.mean_per_group(self._totals.over_pairs_by_cluster(models), held[..., None])
        nearest = np.concatenate(
            [means[number, self._layout.pair_cluster[run.pairs]] for number, run in enumerate(self._layout.runs)]
        )
        with np.errstate(over="ignore", invalid="ignore"):
            apart = self._totals.over_pairs(metrics.squared_distance(models, nearest) * known)
            size = self._totals.over_pairs(metrics.squared_norm(nearest) * known)
            return np.asarray(np.sqrt(np.divide(apart, size, out=np.zeros(len(size)), where=size > 0)))

    def _note_noise(self, simulator: Simulator, plan: Plan, round: int) -> None:
        """Who could still release; now and then also the variance of the noise and how far data could pull."""
        active, layout = simulator.engine.participants, self._layout
        if len(layout.runs) == 1:
            self._last_release[0] = round if len(active) else self._last_release[0]
        else:
            cuts = np.searchsorted(active, [run.clients.start for run in layout.runs] + [layout.clients])
            self._last_release[np.diff(cuts) > 0] = round
        if self._watched % NOISE_EVERY != 1:
            return
        sensitivity, pair = plan.sensitivity[active], layout.client_pair[active]
        index = plan.releases[active] if plan.budget.index == "release" else round
        share = 1.0 / np.maximum(np.bincount(pair, minlength=layout.pairs), 1)[pair]
        variance = plan.variance_of_means(active, plan.budget.sigma(sensitivity, index), share)
        pull = share * 0.5 * sensitivity * layout.counts[active]
        self._noise.append(np.stack([np.bincount(pair, values, layout.pairs) for values in (variance, pull)], axis=1))

    def _of_noise(self, simulator: Simulator) -> list[Noise | None]:
        """Return the noise of every run: that of the mean of each cluster's models, in all of them."""
        if simulator.plan is None:
            return [None] * len(self.windows)
        length = int(np.shape(self._sum)[-1])
        last = np.asarray(simulator.communicator.maximum(self._last_release), dtype=np.int64)
        begun = simulator.state.round - self._watched
        models = self._totals.pairs_by_cluster(np.ones(self._layout.pairs, dtype=bool))
        by_cluster = [self._totals.over_pairs_by_cluster(sample) for sample in self._noise]
        variance = np.array([sample[..., 0] / np.maximum(models, 1) for sample in by_cluster]).sum(axis=2)
        pull = np.array([sample[..., 1] ** 2 / np.maximum(models, 1) for sample in by_cluster]).sum(axis=2)
        found: list[Noise | None] = []
        for run, end in enumerate(last.tolist()):
            each = _every_round(variance[:, run], end - begun)
            late = float(each[-LATE_ROUNDS:].mean()) / int(models[run].sum()) if len(each) else 0.0
            reach = float(np.sum(_every_round(np.sqrt(pull[:, run]), end - begun)))
            found.append(Noise((length * each).tolist(), reach, end, self._in_predictions(simulator, run, late)))
        return found

    def _in_predictions(self, simulator: Simulator, run: int, variance: float) -> float:
        """Return the standard deviation of a prediction that noise of this variance, fresh in every round, causes.

        Along a direction of curvature h a round of reach r keeps J = 1/(1 + rh) of older noise, so a prediction has
        the variance Σ h/(1 − J²) ≈ Σ (1/2r + 3h/4) times that of the noise, and Σ h ≤ x_norm².
        """
        privacy, rule = simulator.options.privacy, simulator.algorithm.client_rule
        reach = float(rule.reach(simulator.algorithm.rho))
        x_norm = privacy.x_norm if privacy and privacy.x_norm else 0.0
        dimension = self._layout.runs[run].federation.dimension
        return float(np.sqrt(variance * (dimension / (2.0 * reach) + 0.75 * x_norm**2)))

    def _setting(self, simulator: Simulator, number: int, pull: float, disagreement: float) -> Setting:
        algorithm, names = simulator.algorithm, self._layout.runs[number].federation.cluster_ids
        tasks = {objective_of(simulator.objectives, name).task for name in names}
        return Setting(
            played=simulator.state.round,
            rounds=simulator.options.rounds,
            rho=algorithm.rho if algorithm.client_rule.has_rho else None,
            task="regression" if "regression" in tasks else "classification",
            target_scale=self._target_scale(simulator, number),
            pull=pull,
            exact=algorithm.server_rule.exact,
            disagreement=disagreement,
            linearised=algorithm.client_rule.linearised,
        )

    def _target_scale(self, simulator: Simulator, number: int) -> float:
        """About the standard deviation of targets: half of their public bound or, without one, Huber's κ."""
        federation, privacy = self._layout.runs[number].federation, simulator.options.privacy
        declared = federation.encoding.target.y_bound if federation.encoding else None
        bounds = [bound for bound in (declared, privacy.y_bound if privacy else None) if bound is not None]
        if bounds:
            return 0.5 * min(bounds)
        scales = [objective_of(simulator.objectives, name).residual_scale for name in federation.cluster_ids]
        return min((scale for scale in scales if scale is not None), default=np.inf)


def _every_round(samples: AnyFloats, last: int) -> AnyFloats:
    """Return one number for every round up to the last, from samples of every `NOISE_EVERY`-th."""
    return np.repeat(samples, NOISE_EVERY)[: max(last, 0)]
