"""A masked round beside a plain one: one site and its clients over real TLS streams.

CPU time is measured with everyone in this process, so it is that of the site and all of its clients together. Wall time
is measured with the clients in processes of their own, one per core: a client's Python must not wait for another's.
Preparation and the recovery of drop-outs are measured apart, in memory.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec

from harness import Row, quartiles, seconds
from pgfl.federation.graphs import empty
from pgfl.federation.synthetic import synthetic_regression
from pgfl.masking.collector import CohortGathering, SumCollector
from pgfl.masking.member import Member
from pgfl.masking.terms import Demands, Roster, RoundTerms, identity_line
from pgfl.network.agreement import Training
from pgfl.network.client.client import Participant
from pgfl.network.client.samples import load_samples
from pgfl.network.client.settings import load_client
from pgfl.network.local import LocalNetwork
from pgfl.network.site.masked_pairs import slots_for
from pgfl.network.site.settings import load_site
from pgfl.network.site.site import Site

DIMENSION, SITE, WARM_UP = 60, "server-0", 2
SIZES = (5, 20, 50)


def masked_round(clients: int) -> Iterator[Row]:
    """The rounds of one site with so many clients in one cluster, masked and plain."""
    rounds = WARM_UP + min(16, slots_for(clients) * 3 // 4 - WARM_UP)  # before the next cohort is prepared
    plain, masked = (trained(clients, trust, rounds)[0] for trust in ("local", "masked"))
    plain_wall, masked_wall = (trained(clients, trust, rounds, apart=True)[1] for trust in ("local", "masked"))
    yield Row(
        f"masked-{clients}", f"CPU of a masked round with {clients} clients", "a plain round", "≤ 4×",
        *quartiles(np.array(masked) / statistics.median(plain)), seconds(statistics.median(masked)),
        seconds(statistics.median(plain)), clock="CPU",
    )  # fmt: skip
    yield Row(
        f"masked-wall-{clients}", f"a masked round with {clients} clients, seconds",
        "a plain round", "≤ 0.1 s" if clients == 20 else "—", *quartiles(np.array(masked_wall)),
        seconds(statistics.median(masked_wall)), seconds(statistics.median(plain_wall)), clock="wall",
    )  # fmt: skip
    yield from _apart(clients)


def trained(clients: int, trust: str, rounds: int, apart: bool = False) -> tuple[list[float], list[float]]:
    """CPU and wall seconds of every round after the first few; with `apart` clients have processes of their own."""
    with tempfile.TemporaryDirectory() as folder:
        network = _network(Path(folder), clients, trust, rounds)
        network.prepare()
        homes = [str(network.home(client)) for client in network.federation.client_ids]
        cores = os.cpu_count() or 1 if apart else 1
        begin = multiprocessing.get_context("spawn").Process if apart else threading.Thread
        groups = [begin(target=take_part, args=(homes[k::cores],), daemon=True) for k in range(cores)]
        moments: list[tuple[float, float]] = []

        async def train() -> None:
            site = Site(load_site(network.home(SITE) / "site.toml"))
            save = site._save

            def saved(done: object) -> None:
                save(done)  # type: ignore[arg-type]
                moments.append((time.process_time(), time.perf_counter()))

            site._save = saved  # type: ignore[method-assign]
            for group in groups:
                group.start()
            await site.run()

        asyncio.run(train())
        for group in groups:
            group.join(20)
    steps = np.diff(np.array(moments[WARM_UP - 1 :]), axis=0)
    return steps[:, 0].tolist(), steps[:, 1].tolist()


def _network(folder: Path, clients: int, trust: str, rounds: int) -> LocalNetwork:
    federation = synthetic_regression(
        servers=1, clients_per_server=clients, clusters=1, dimension=DIMENSION, samples=(20, 20), graph=empty(1)
    )
    training = Training.model_validate(
        {
            "rounds": rounds,
            "dimension": DIMENSION,
            "clusters": ("cluster-0",),
            "objective": {"kind": "huber"},
            "algorithm": {"kind": "pgfl", "client": "gradient", "rho": 20.0},
            "privacy": {"trust": trust},
        }
    )
    policy = {"enabled": True, "phi0": 1e-4, "zeta": 1.0, "max_releases": 1000, "x_norm": 8.0, "trust": trust}
    return LocalNetwork(folder, federation, training, policy, {"start": 600.0, "answers": 600.0})


def take_part(homes: list[str]) -> None:
    """Some clients, each in a thread, until the training is over."""
    joining = []
    for home in homes:
        settings = load_client(Path(home) / "client.toml")
        joining.append(Participant(settings, load_samples(settings)))
    threads = [threading.Thread(target=each.take_part, daemon=True) for each in joining]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# In memory ------------------------------------------------------------------------------------------------------------


def _apart(clients: int) -> Iterator[Row]:
    """What a client prepares ahead for each round, and what the site does to recover drop-outs."""
    keys = {f"c{number:03d}": ec.generate_private_key(ec.SECP384R1()) for number in range(clients)}
    roster = Roster({name: identity_line(key) for name, key in keys.items()})
    members = {name: Member(name, key, roster, Demands(2, 1)) for name, key in keys.items()}
    gathering = CohortGathering(frozenset(members), 1, 4)
    began = time.process_time()
    for name, member in members.items():
        gathering.add_keys(name, member.announce(gathering.batch, gathering.slots))
    cohort = gathering.fix_cohort()
    for name, member in members.items():
        gathering.add_shares(name, member.share(cohort))
    for name, member in members.items():
        member.receive(gathering.batch, gathering.delivery(name))
    prepared = (time.process_time() - began) / clients / gathering.slots
    yield Row(
        f"masked-preparation-{clients}", f"a client prepares one round among {clients}", "—", "—",
        *[prepared] * 3, seconds(prepared), "—", clock="CPU",
    )  # fmt: skip
    lost = max(1, clients // 10)
    for kind, when in (("before", "before contributing"), ("after", "after contributing")):
        took = _recovered(members, cohort.batch, lost if kind == "before" else 0, lost if kind == "after" else 0)
        yield Row(
            f"masked-{kind}-{clients}", f"a site opens a sum of {clients} clients of whom {lost} dropped out {when}",
            "—", "—", *[took] * 3, seconds(took), "—", clock="CPU",
        )  # fmt: skip


def _recovered(members: dict[str, Member], batch: str, before: int, after: int) -> float:
    names = tuple(sorted(members))
    cohort = members[names[0]].prepared(batch)
    assert cohort is not None
    slot = members[names[0]]._batches[batch].next_slot
    terms = RoundTerms(
        "t", "s", "q", slot + 1, cohort.digest, len(names), slot, names, cohort.threshold, 1, 0.5, 1.0, "c", DIMENSION
    )
    collector, zero = SumCollector(cohort, terms), np.zeros(DIMENSION, dtype=np.int64)
    for number, name in enumerate(names):
        masked = members[name].contribute(batch, terms, zero)
        if number >= before:
            collector.add_contribution(name, masked)
    collector.close()
    for name in collector.survivors:
        collector.add_consent(name, members[name].consent(terms.round, collector.survivors))
    collector.close()
    for name in collector.survivors[after:]:
        collector.add_reveal(name, members[name].reveal(terms.round, collector.consents_for(name)))
    began = time.process_time()
    collector.close()
    took = time.process_time() - began
    assert collector.total is not None, collector.why
    return took
