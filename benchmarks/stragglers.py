"""What slow clients cost, in accuracy and in rounds per minute: `python benchmarks/stragglers.py`.

Three of ten clients are ten times slower than the others. A site that waits for everyone is as slow as they are; one
that closes its rounds adaptively (the defaults of `timing.patience` and `quorum`) counts their answers when they come.
Rounds per minute are those of the site's own state machine on a clock of its own, accuracy is that of the simulator
with the delays that this clock shows. Everyone spends the same ε: slow clients plan for fewer releases.
`--network` also plays it in real time, in one process. Takes some minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import math
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from pgfl import PGFL, Huber, Privacy, synthetic_regression, train
from pgfl.algorithms.roles import Answer, Server
from pgfl.algorithms.schedules import Delays
from pgfl.arrays import Floats
from pgfl.demo import demo_federation, demo_training
from pgfl.federation.federation import Federation
from pgfl.network.local import LocalNetwork
from pgfl.network.memory import MemoryTransport, participant
from pgfl.network.site.effects import Ask, Completed, Effect, Quorum, Timing
from pgfl.network.site.role import SiteRole
from pgfl.network.site.rounds import SiteRounds
from pgfl.network.site.settings import load_site
from pgfl.network.site.site import Site

SLOW, TIMES, SECONDS = 0.3, 10.0, 1.0  # the share of slow clients, how much slower, and an answer of the others
CLIENTS, PLAYED = 20, 200
WAITING = 1e9  # times the usual time of an answer: a round closes once all are there
SEED, RUNS = 93_000, 40  # of federations that nothing was tuned on
ROUNDS = 208  # slow clients answer in eighths of them
EPSILONS: tuple[float | None, ...] = (None, 5.0, 1.0)
NEVER = 10**6  # rounds late


def on_a_clock(patience: float, rounds: int = PLAYED) -> tuple[float, Counter[int]]:
    """Rounds per minute of one site whose clients take SECONDS, or TIMES as long; and the ages of late answers."""
    names = [f"c{number:02}" for number in range(CLIENTS)]
    slow = set(names[: round(SLOW * CLIENTS)])
    role = SiteRole(Server(PGFL(client="gradient"), 1), dict.fromkeys(names, "q"))
    machine = SiteRounds(
        role, rounds, set(), set(names), Timing(answers=math.inf, pace=0.0, patience=patience), Quorum()
    )
    events: list[tuple[float, int, Callable[[float], list[Effect]]]] = []
    number, now, ages = count(), 0.0, Counter[int]()

    def carry_out(effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Ask):
                client, asked = effect.client, effect.request.round
                after = SECONDS * (TIMES if client in slow else 1.0)
                heapq.heappush(events, (now + after, next(number), lambda at, c=client, n=asked: answer(c, n, at)))
            elif isinstance(effect, Completed):
                ages.update(effect.round - role.accepted[client] for client in effect.accepted if client in slow)
        if machine.deadline is not None and math.isfinite(machine.deadline):
            heapq.heappush(events, (max(now, machine.deadline), next(number), machine.tick))

    def answer(client: str, asked: int, at: float) -> list[Effect]:
        return machine.on_answer(client, asked, Answer(asked, np.zeros(1), np.zeros(1)), at)

    carry_out(machine.start(0.0))
    for client in names:
        carry_out(machine.on_client_connected(client, 0.0))
    while machine.round < rounds:
        now, _, event = heapq.heappop(events)
        carry_out(event(now))
    return 60.0 * rounds / now, ages


def federation_of(run: int) -> Federation:
    """One of the federations that accuracy is judged on."""
    return synthetic_regression(
        servers=5, clients_per_server=CLIENTS, clusters=2, dimension=10, samples=(20, 40), graph="ring", x_norm=1.0,
        seed=SEED + run,
    )  # fmt: skip


def final_db(epsilon: float | None, delays: Delays | None) -> Floats:
    """How far the servers' models are from the truth after the last round: the NMSD of every run, in dB."""
    privacy = None if epsilon is None else Privacy(epsilon=epsilon, x_norm=1.0)
    options: dict[str, Any] = {"rounds": ROUNDS, "runs": RUNS, "seed": SEED, "record_every": ROUNDS}
    algorithm = PGFL(rho="auto", tau=0.1, client="gradient")
    result = train(federation_of, algorithm, Huber(lam=0.001), privacy=privacy, delays=delays, **options)
    found = []
    for run, models in enumerate(result.models):
        truth = np.asarray(federation_of(run).truth)[models.pair_cluster]
        found.append(np.mean(np.sum((models.servers - truth) ** 2, axis=1) / np.sum(truth**2, axis=1)))
    return 10.0 * np.log10(np.array(found))


def prices(late: int) -> Iterator[tuple[str, float, tuple[float, float], tuple[float, float]]]:
    """For every ε: the synchronous NMSD, and the mean differences (with 95 % intervals) if late answers do or do not
    count.
    """
    for epsilon in EPSILONS:
        together = final_db(epsilon, None)
        counted, lost = (final_db(epsilon, Delays(SLOW, rounds)) - together for rounds in (late, NEVER))
        yield "no noise" if epsilon is None else f"{epsilon:g}", float(together.mean()), _mean(counted), _mean(lost)


def _mean(differences: Floats) -> tuple[float, float]:
    """The mean, and half the width of its 95 % interval (Student's t with 39 degrees of freedom)."""
    return float(differences.mean()), float(2.023 * differences.std(ddof=1) / len(differences) ** 0.5)


def in_real_time(patience: float, rounds: int, seconds: float) -> float:
    """Rounds per minute of a site and its clients in this process, whose answers take this long or TIMES as long."""
    with tempfile.TemporaryDirectory(prefix="pgfl-stragglers-") as folder:
        federation = demo_federation(1, 10, "huber", seed=SEED)
        network = LocalNetwork(
            Path(folder), federation, demo_training(federation, "huber", rounds), {"enabled": False},
            {"patience": patience, "answers": 60.0},
        )  # fmt: skip
        network.prepare()
        transport = MemoryTransport()
        site = Site(load_site(network.home(federation.server_ids[0]) / "site.toml"), transport)
        clients = [participant(network, name, transport) for name in federation.client_ids]
        for number, client in enumerate(clients):
            takes = seconds * (TIMES if number < SLOW * len(clients) else 1.0)
            client.stream.handle = _slowed(client.stream.handle, takes)

        async def all_together() -> None:
            ending = asyncio.gather(*(client.join() for client in clients))
            await site.run()
            await ending

        asyncio.run(all_together())
        history = network.history(federation.server_ids[0])
        return 60.0 * (len(history) - 1) / (history[-1]["finished"] - history[0]["finished"])


def _slowed(handle: Callable[[Any], bytes | None], seconds: float) -> Callable[[Any], bytes | None]:
    def slowly(frame: Any) -> bytes | None:
        time.sleep(seconds)
        return handle(frame)

    return slowly


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", action="store_true", help="also in real time")
    options = parser.parse_args()
    (waiting, _), (adaptive, ages) = on_a_clock(WAITING), on_a_clock(Timing().patience)
    late = ages.most_common(1)[0][0]
    print(f"rounds per minute: {waiting:.1f} waiting for everyone, {adaptive:.1f} adaptive: {adaptive / waiting:.1f}×")
    print(f"late answers count after {min(ages)} to {max(ages)} rounds, mostly {late}\n")
    print("| ε | waiting for everyone | late answers count | late answers are lost |\n|---|---|---|---|")
    for epsilon, together, counted, lost in prices(late):
        cells = (f"{mean:+.2f} ± {half:.2f} dB" for mean, half in (counted, lost))
        print(f"| {epsilon} | {together:.2f} dB | {' | '.join(cells)} |", flush=True)
    if options.network:
        slow, quick = in_real_time(WAITING, 12, 0.2), in_real_time(Timing().patience, 60, 0.2)
        print(f"\nin real time: {slow:.1f} and {quick:.1f} rounds per minute: {quick / slow:.1f}×")


if __name__ == "__main__":
    main()
