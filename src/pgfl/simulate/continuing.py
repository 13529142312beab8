"""Going on with a finished run: more rounds, new clients and new rows, and an account that is never reset.

Clients, servers and clusters are recognised by their ids. Round numbers go on, so that no random stream is used twice.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pgfl.arrays import AnyArray, AnyFloats, Ints
from pgfl.errors import ConfigError, PrivacyError, ResultError
from pgfl.privacy.carried import Holders, Moved, Statement, carried_accounts
from pgfl.results.result import Columns, Result
from pgfl.results.state import (
    ACCOUNT,
    IN_MEMORY,
    MOST_NUMBERS,
    MOST_SERVER_NUMBERS,
    Owner,
    TrainingState,
    claim,
    claim_in_memory,
    nothing_to_go_on_with,
)

if TYPE_CHECKING:
    from pgfl.federation.encoding import RowEncoding
    from pgfl.privacy.mechanism import Plan
    from pgfl.privacy.request import Privacy
    from pgfl.results.state import RecordDigests
    from pgfl.simulate.checkpoint import Checkpoints
    from pgfl.simulate.layout import RunLayout
    from pgfl.simulate.options import TrainingOptions
    from pgfl.simulate.simulator import Simulator


WITHOUT_DUALS = "The earlier run kept no duals, so training restarts from its servers' models."


class Continuation:
    """An earlier result as the start of a training."""

    def __init__(self, start: Result, folder: Path | None = None, stated: Statement | None = None) -> None:
        self.start, self._owner, self._claimed = start, str(folder.resolve()) if folder else IN_MEMORY, False
        self._stated = stated or Statement()
        self._moved: Moved | None = None
        if len(start.states) != len(start.models):
            raise nothing_to_go_on_with(start.folder)
        self.round, self.rho, self.step_size = start.states[0].round, start.rho, start.step_size

    def options(self, options: TrainingOptions) -> TrainingOptions:
        """Return the options with the privacy of the earlier run, whose budget stays in force."""
        if options.runs != len(self.start.states):
            raise ConfigError(f"The earlier result has {len(self.start.states)} runs; go on with as many.")
        if options.rounds <= self.round:
            raise ConfigError(f"The earlier run ended at round {self.round}; go on to a later one.")
        return replace(options, privacy=self._privacy(options.privacy, options.rounds))

    def compare(self, digests: RecordDigests | None) -> RecordDigests | None:
        """Compare the records of this training with those of the earlier ones; returns the digests of all of them."""
        before = self.start.digests
        if before is None or digests is None:  # what a part of the history says would pass for all of it
            return None
        shown = before.shown_since(digests)
        if shown and self._stated.moved_records is not False:
            raise PrivacyError(
                f"Records that were trained on before are held out, or the other way around ({shown}), and figures of "
                "held-out rows are exact; keep the rows and the seed, give a table of other rows or none as data.test, "
                "or state moved_records = false if they are others that are equal by chance."
            )
        self._moved = before.moved_to(digests)
        return before.joined(digests)

    def apply(self, simulator: Simulator) -> list[str]:
        """Put a simulator where the earlier run ended, before its first round; return warnings."""
        if simulator.communicator.size > 1:
            raise ConfigError("A continued run uses one process; start pgfl without a launcher.")
        self._check_noise(simulator)
        self._check_streams(simulator)
        warnings = [self._fill(simulator, run) for run in simulator.layout.runs]
        simulator.state.round = self.round
        if simulator.plan is not None:
            self._restore_accounts(simulator, simulator.plan)
        return sorted({warning for found in warnings for warning in found})

    def claim(self, simulator: Simulator, checkpoints: Checkpoints | None, resumed: bool) -> None:
        """Refuse a second continuation of the same accounts; seeded noise protects nobody, so it may have many.

        Whoever goes on in the same folder, and has not `resumed` from a checkpoint there, may begin again as long as
        nothing was kept.
        """
        if simulator.noise != "secure" or self._claimed:
            return
        self._claimed = True
        if self.start.folder is not None:
            if self._owner == IN_MEMORY or checkpoints is None:
                owner = Owner(f"{IN_MEMORY} ({time.time_ns()})")
            else:
                owner = Owner(self._owner, checkpoints.hold(simulator), resumed)
            claim(self.start.folder, owner)
        else:
            claim_in_memory(self.start.states[0], Owner(f"{IN_MEMORY} ({time.time_ns()})"))
        self.start.continued = True

    def joined(self, result: Result) -> Result:
        """Return the result with the history of the earlier run before its own."""
        result.history = _joined(self.start.history, result.history)
        if result.clean_history is not None and self.start.clean_history is not None:
            result.clean_history = _joined(self.start.clean_history, result.clean_history)
        return result

    def _privacy(self, asked: Privacy | None, rounds: int) -> Privacy | None:
        first = self.start.states[0]
        if first.privacy is None or first.budget is None:
            if asked is not None:
                raise PrivacyError(
                    "The earlier run released models without noise, which no later noise undoes; start a new run."
                )
            return None
        from pgfl.privacy.budget import Budget
        from pgfl.privacy.carried import Spent, continued
        from pgfl.privacy.request import Privacy

        accounts = [state.accounts or {} for state in self.start.states]
        most = {name: max(float(account[name].max()) for account in accounts) for name in ("rho", "releases")}
        spent = Spent(Privacy(**first.privacy), Budget(**first.budget), self.round, most["rho"], int(most["releases"]))
        return continued(spent, asked, rounds)

    def _check_noise(self, simulator: Simulator) -> None:
        """Refuse another source of noise: what was drawn from a seed stays open to whoever knows the seed."""
        if self.start.noise is not None and simulator.noise != self.start.noise:
            raise PrivacyError(
                f"The earlier run drew {self.start.noise} noise, and one promise covers all rounds; go on with "
                f'noise = "{self.start.noise}", or start a new run.'
            )

    def _check_streams(self, simulator: Simulator) -> None:
        """Refuse seeded noise from streams that were drawn from: how streams are cut depends on `participants`."""
        options = simulator.options
        for seed, participants, _ in self.start.states[0].played:
            if simulator.noise == "seeded" and seed == options.seed and participants != options.participants:
                raise PrivacyError(
                    f"With other participants ({options.participants} instead of {participants}), seed {seed} would "
                    "draw noise that is already used; give another seed."
                )

    def _fill(self, simulator: Simulator, run: RunLayout) -> list[str]:
        """Return the models and duals of one run, for the clients and servers that it shares with the earlier one."""
        engine, state, earlier = simulator.engine, simulator.state, self.start.states[run.number]
        models = self.start.of_run(run.number)
        _check_encoding(models.encoding or self.start.encoding, run.federation.encoding)
        if models.servers.shape[1] != state.server_models.shape[1]:
            raise ResultError(
                f"The earlier models have {models.servers.shape[1]} numbers, and these data need "
                f"{state.server_models.shape[1]}; go on with the same columns."
            )
        if earlier.algorithm != simulator.algorithm.kind:
            raise ConfigError(f"The earlier run used the algorithm {earlier.algorithm}; go on with the same one.")
        here, there = self._shared_clients(run)
        place = run.clients.start + here
        xp = engine.xp
        for name, rows in (("model", models.clients), ("released", models.released), ("dual", earlier.duals)):
            if rows is not None:
                filled = np.array(getattr(state, name))
                filled[place] = np.nan_to_num(rows[there])
                setattr(state, name, xp.asarray(filled))
        if models.released is None:
            state.released = state.model
        elif models.clients is None:
            state.model = state.released
        self._fill_servers(simulator, run)
        return [WITHOUT_DUALS] if earlier.duals is None and simulator.algorithm.client_rule.has_dual else []

    def _shared_clients(self, run: RunLayout) -> tuple[Ints, Ints]:
        """Return the places in this run of clients that were in the earlier one, and their places there."""
        before = {name: number for number, name in enumerate(self.start.client_ids)}
        names = [run.federation.client_id(client) for client in run.order.tolist()]
        here = np.array([place for place, name in enumerate(names) if name in before], dtype=np.int64)
        return here, np.array([before[names[place]] for place in here], dtype=np.int64)

    def _fill_servers(self, simulator: Simulator, run: RunLayout) -> None:
        engine, state, earlier = simulator.engine, simulator.state, self.start.states[run.number]
        names = _pair_names(simulator, run)
        before = {pair: number for number, pair in enumerate(earlier.pairs)}
        here = np.array([place for place, pair in enumerate(names) if pair in before], dtype=np.int64)
        there = np.array([before[names[place]] for place in here], dtype=np.int64)
        if earlier.servers is None or earlier.known is None:
            raise nothing_to_go_on_with(self.start.folder)
        left = set(np.flatnonzero(earlier.known).tolist()) - set(there.tolist())
        if left and len(state.servers) > 1:
            server, cluster = earlier.pairs[min(left)]
            raise ConfigError(
                f"Cluster {cluster} has left server {server}, and {earlier.algorithm} cannot go on without it; start a "
                "new run."
            )
        place = run.pairs.start + here
        for name in state.servers:
            filled = np.array(state.servers[name])
            filled[place] = earlier.servers[name][there]
            state.servers[name] = engine.xp.asarray(filled)
        known = engine.network.known.copy()
        known[place] = earlier.known[there]
        engine.network.known = known
        engine.previous_servers = state.server_models

    def _restore_accounts(self, simulator: Simulator, plan: Plan) -> None:
        """Restore what every client has spent before anything is released."""
        restored = plan.state()
        for run in simulator.layout.runs:
            federation, accounts = run.federation, self.start.states[run.number].accounts or {}
            now = Holders(federation.client_ids, federation.counts, self._moved)
            carried = carried_accounts(accounts, self.start.client_ids, now, self._stated)
            for name in ACCOUNT:
                restored[name][run.clients] = carried[name][run.order]
            plan.inherited[run.clients] = carried["inherited"][run.order]
        plan.restore(restored)
        everyone = np.arange(len(plan.releases))
        if not np.any(plan.budget.affordable(plan.rho, plan.releases, self.round + 1, everyone)):
            raise PrivacyError(
                "Every client has spent its privacy budget, so nobody could contribute to another round; state a "
                "larger privacy.epsilon to go on, and the total will be reported; clients whose records are all new "
                "have a budget of their own if new_clients lists them."
            )


def _check_encoding(before: RowEncoding | None, now: RowEncoding | None) -> None:
    """Refuse rows that become other features than those of the earlier run."""
    if before is None or now is None:
        return
    earlier = {column.name: column for column in before.columns}
    for column in now.columns:
        if column != earlier.pop(column.name, None):
            raise _encoded_otherwise(column.name)
    if before.maps != now.maps:
        raise ConfigError(
            f"Rows are mapped by {_kinds(now)}, in the earlier run by {_kinds(before)}, so its models would not fit; "
            "state the earlier run's `data.map`."
        )
    if earlier or before.feature_names != now.feature_names:
        raise _encoded_otherwise(next(iter(earlier), "intercept"))
    if before.target != now.target:
        raise _encoded_otherwise(now.target.name)


def _kinds(encoding: RowEncoding) -> str:
    return " and ".join(one.kind for one in encoding.maps) or "no map"


def _encoded_otherwise(name: str) -> ConfigError:
    return ConfigError(
        f"Column '{name}' is not encoded as in the earlier run, so its models would not fit; declare columns as the "
        "earlier result has them (its `declared_columns`)."
    )


def state_of(simulator: Simulator, run: RunLayout, earlier: Continuation | None) -> TrainingState | None:
    """Return the state of a run that has ended; None on several processes, which do not keep one."""
    if simulator.communicator.size > 1:
        return None
    state, options, plan = simulator.state, simulator.options, simulator.plan
    before = None if earlier is None else earlier.start.states[run.number]
    small = len(state.servers) * state.server_models.size <= MOST_SERVER_NUMBERS
    described: dict[str, object] = {}
    if plan is not None and options.privacy is not None:
        from pgfl.privacy.carried import to_json

        described = {**to_json(options.privacy, plan.budget), "accounts": _accounts(run, plan, before)}
    return TrainingState(
        round=state.round,
        algorithm=simulator.algorithm.kind,
        played=(*(before.played if before else ()), (options.seed, options.participants, state.round)),
        duals=np.array(state.dual[run.clients])[run.position] if state.duals.size <= MOST_NUMBERS else None,
        pairs=tuple(_pair_names(simulator, run)) if small else (),
        known=simulator.network.known[run.pairs].copy() if small else None,
        servers={name: np.array(values[run.pairs]) for name, values in state.servers.items()} if small else None,
        **described,  # type: ignore[arg-type]
    )


def _pair_names(simulator: Simulator, run: RunLayout) -> list[tuple[str, str]]:
    """Server and cluster of every pair of a run; where a server has one model for all, the cluster has no name."""
    layout, federation = simulator.layout, run.federation
    servers = layout.server_number[layout.pair_server[run.pairs]].tolist()
    clusters = layout.pair_cluster[run.pairs].tolist()
    named = federation.cluster_ids if simulator.algorithm.server_rule.personalised else ("",)
    return [(federation.server_ids[server], named[cluster]) for server, cluster in zip(servers, clusters, strict=True)]


def _accounts(run: RunLayout, plan: Plan, before: TrainingState | None) -> dict[str, AnyArray]:
    """Return what everyone has spent who ever released something, in this run or before it."""
    spent = {name: values[run.clients][run.position] for name, values in plan.state().items()}
    spent["inherited"] = plan.inherited[run.clients][run.position]
    table = {"client": np.array(run.federation.client_ids, dtype=np.str_), "records": run.federation.counts, **spent}
    if before is None or before.accounts is None:
        return table
    gone = ~np.isin(before.accounts["client"], table["client"])
    earlier = {"records": np.full(len(gone), 0), "inherited": np.zeros(len(gone), dtype=bool), **before.accounts}
    return {name: np.concatenate([values, earlier[name][gone]]) for name, values in table.items()}


def _joined(before: Columns, after: Columns) -> Columns:
    """Return two histories, run by run; a metric that only one of them has is NaN in the other."""
    names = [*before, *(name for name in after if name not in before)]
    columns = {name: np.concatenate([_or_nan(part, name) for part in (before, after)]) for name in names}
    order = np.lexsort((columns["round"], columns["run"]))
    return {name: values[order] for name, values in columns.items()}


def _or_nan(columns: Columns, name: str) -> AnyFloats:
    return columns[name] if name in columns else np.full(len(columns["run"]), np.nan)
