"""What privacy costs: the account of a million clients, and float-safe noise beside plain OpenDP."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator

import numpy as np

from harness import Row, seconds, take_turns
from pgfl.privacy.budget import Budget
from pgfl.privacy.mechanism import Plan
from pgfl.privacy.noise import SecureNoise

CLIENTS, ROUNDS = 1_000_000, 300


def accounting() -> Iterator[Row]:
    rng = np.random.default_rng(0)
    tracemalloc.start()
    budget = Budget.from_schedule(phi0=1e-4, zeta=0.99, rounds=ROUNDS, delta=1e-5, index="release", max_releases=200)
    plan = Plan(rng.uniform(0.1, 1.0, CLIENTS), budget)
    everyone = np.arange(CLIENTS)
    began = time.process_time()
    for round in range(1, ROUNDS + 1):
        admitted = everyone[plan.admit(everyone, round)]
        plan.sigma(admitted, round)
        plan.spend(admitted, round)
    plan.table(ROUNDS)
    took = time.process_time() - began
    peak = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    yield Row("accounting", "account of 1,000,000 clients over 300 rounds: seconds", "—", "≤ 60 s", took, took, took,
              seconds(took), "—", clock="CPU")  # fmt: skip
    yield Row("account-memory", "memory of that account: MB", "—", "≤ 300 MB", peak, peak, peak, f"{peak:.0f} MB", "—")


def secure_noise() -> Iterator[Row]:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    dimension, sigma = 60, 0.37
    domain = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=dimension)
    plain = dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=sigma, k=-40)
    ours, model = SecureNoise(dimension), np.random.default_rng(0).standard_normal((1, dimension))
    values, scales, clients = model[0].tolist(), np.array([sigma]), np.array([0])
    turns = take_turns(
        lambda: ours.release(model, scales, clients, 1), lambda: plain(values), 40, (5, 5), time.process_time
    )
    milliseconds = np.percentile(turns.ours * 1e3, [50, 25, 75])
    yield Row("secure-ms", "a float-safe release, d = 60: milliseconds", "—", "≤ 3 ms", *milliseconds,
              seconds(np.median(turns.ours)), "—", clock="CPU")  # fmt: skip
    yield Row("secure-guard", "a float-safe release behind its guard", "the plain OpenDP call", "≤ 1.3×",
              *turns.slower(), seconds(np.median(turns.ours)), seconds(np.median(turns.theirs)),
              clock="CPU")  # fmt: skip
