"""A round at the paper's shape: 10 servers, 150 clients, 3 clusters, d = 60, D_k 2–9."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

from fused_loop import FusedLoop
from harness import Row, seconds, take_turns
from pgfl import PGFL, ClientData, Federation, Huber, Privacy, Ridge, Softmax, synthetic_regression, train
from pgfl.simulate.compiled.engine import CompiledEngine
from pgfl.simulate.options import Performance, TrainingOptions
from pgfl.simulate.simulator import Simulator
from plain_loops import PlainLoop

RHO, TAU, LAM = 5.0, 0.4, 0.01
PAPER = PGFL(RHO, TAU)


def federation(run: int = 0, **changes) -> Federation:
    shape = {"servers": 10, "clients_per_server": 15, "clusters": 3, "dimension": 60, "samples": (2, 9)}
    return synthetic_regression(**(shape | changes), seed=1, run=run)


def engine(federations: list[Federation], objective=None, *, library="numpy", participants="all", privacy=None,
           dtype=np.float64, threads=1, rounds=10_000, algorithm=PAPER) -> Simulator:  # fmt: skip
    """A simulator as `train` would build it, for rounds to be played by hand."""
    options = TrainingOptions(
        rounds, participants, privacy, dtype=dtype, performance=Performance(threads=threads, engine=library)
    )
    return Simulator(federations, algorithm, objective or Ridge(LAM), options)


def paper_round() -> Iterator[Row]:
    data = federation()
    ours, solving, factored = engine([data]), PlainLoop(data, RHO, TAU, LAM), PlainLoop(data, RHO, TAU, LAM).factor()
    for _ in range(5):
        ours.run_round(), solving.run_round(), factored.run_round()
    order = ours.layout.runs[0].order
    for loop in (solving, factored):
        assert np.abs(np.array(loop.model)[order] - ours.state.model).max() < 1e-10
    for name, loop, goal, often in (("solving", solving, "≥ 80×", 3), ("factored", factored, "≥ 12×", 15)):
        turns = take_turns(ours.run_round, loop.run_round, 25, (150, often), time.process_time)
        told = "solves every client in every round" if name == "solving" else "inverts beforehand"
        yield Row(f"paper-{name}", "the paper's round, NumPy alone", f"a plain NumPy loop that {told}", goal,
                  *turns.faster(), seconds(np.median(turns.ours)), seconds(np.median(turns.theirs)),
                  clock="CPU")  # fmt: skip


def batched_runs() -> Iterator[Row]:
    import numba

    numba.set_num_threads(1)
    data = [federation(run) for run in range(20)]
    began = time.perf_counter()
    ours = engine(data, library="numba")
    ours.run_round()
    start_up = time.perf_counter() - began
    limit = FusedLoop(data, RHO, TAU, LAM)
    limit.run_round()
    for _ in range(4):
        ours.run_round(), limit.run_round()
    assert np.abs(limit.model - ours.state.model).max() < 1e-10
    turns = take_turns(ours.run_round, limit.run_round, 25, (20, 20), time.process_time)
    yield Row("batched", "20 Monte Carlo runs batched, numba engine", "the round fused by hand with Numba", "≤ 0.6×",
              *turns.slower(), seconds(np.median(turns.ours)), seconds(np.median(turns.theirs)),
              f"{start_up:.1f} s with compilation or its cache", "CPU")  # fmt: skip


def linearised_round() -> Iterator[Row]:
    """A round of gradient steps beside a round of solved Huber problems, both compiled."""
    for name, what, samples in (("paper", "2–9", (2, 9)), ("rich", "50–100", (50, 100))):
        data = federation(samples=samples, x_norm=1.0)
        ours, theirs = (
            engine([data], Huber(LAM), library="numba", algorithm=PGFL(0.5, TAU, client=client))
            for client in ("gradient", "admm")
        )
        for _ in range(4):
            ours.run_round(), theirs.run_round()
        turns = take_turns(ours.run_round, theirs.run_round, 25, (20, 4), time.process_time)
        yield Row(f"linearised-{name}", f"a round of linearised Huber steps, D_k {what}, numba engine",
                  "the round of solved Huber problems, numba engine", "≥ 3×", *turns.faster(),
                  seconds(np.median(turns.ours)), seconds(np.median(turns.theirs)), clock="CPU")  # fmt: skip


def softmax_round() -> Iterator[Row]:
    """A round of linearised softmax steps, ten classes of images' features, beside its products by BLAS alone."""
    clients, rows, features, classes, reach = 150, 40, 1152, 10, 0.5
    rng = np.random.default_rng(0)
    images = rng.uniform(0.0, 1.0, (clients, rows, features)).astype(np.float32)
    images /= np.linalg.norm(images, axis=2, keepdims=True)
    labels = rng.integers(classes, size=(clients, rows))
    named = {f"{k:03d}": ClientData(f"s{k // 15}", "all", images[k], labels[k]) for k in range(clients)}
    data = Federation.from_clients(named, [(f"s{s}", f"s{(s + 1) % 10}") for s in range(10)])
    ours = engine([data], Softmax(classes=classes, lam=LAM), library="numba", dtype=np.float32,
                  algorithm=PGFL(1.0 / reach, TAU, client="gradient"))  # fmt: skip
    models = np.zeros((clients, features, classes), np.float32)
    wanted = np.eye(classes, dtype=np.float32)[labels]

    def products() -> None:
        chances = np.exp(images @ models)
        chances /= chances.sum(axis=2, keepdims=True)
        np.subtract(models, reach / rows * (images.transpose(0, 2, 1) @ (chances - wanted)))

    for _ in range(3):
        ours.run_round(), products()
    turns = take_turns(ours.run_round, products, 15, (4, 4), time.process_time)
    yield Row("softmax", "a round of linearised softmax steps, 10 classes, d = 1,152, D_k 40, float32, numba engine",
              "its products alone, by BLAS", "≤ 1.5×", *turns.slower(), seconds(np.median(turns.ours)),
              seconds(np.median(turns.theirs)), clock="CPU")  # fmt: skip


def private_round() -> Iterator[Row]:
    data = federation(x_norm=1.0)
    privacy = Privacy(x_norm=1.0, phi0=1e-4, zeta=0.9999)
    for library, name in (("numpy", ""), ("numba", "-numba")):
        private = engine([data], Huber(LAM), library=library, privacy=privacy, participants=3)
        plain = engine([data], Huber(LAM), library=library, participants=3)
        for _ in range(70):
            private.run_round(), plain.run_round()
        turns = take_turns(private.run_round, plain.run_round, 30, (64, 64), time.process_time)
        yield Row(f"private{name}", f"a private Huber round, 3 of 15 clients, {library}",
                  "the same round without privacy", "≤ 1.3×", *turns.slower(), seconds(np.median(turns.ours)),
                  seconds(np.median(turns.theirs)), clock="CPU")  # fmt: skip
        turns = take_turns(_release_of(private), private.run_round, 30, (64, 64), time.process_time)
        yield Row(f"noise{name}", f"its seeded noise, {library}: per cent", "the whole private round", "≤ 15 %",
                  *(100 * value for value in turns.slower()), seconds(np.median(turns.ours)),
                  seconds(np.median(turns.theirs)), clock="CPU")  # fmt: skip


def _release_of(private: Simulator) -> Callable[[], object]:
    """What releases the models of a round: drawing, checking and adding; compiled, what servers average is in it."""
    engine, later = private.engine, iter(range(1, 10**9))
    flat, sigma = engine.taking_part, np.ones(len(engine.taking_part))
    (part,) = engine._parts(flat, sigma)
    models, means = engine.state.model[flat], np.empty_like(engine.state.server_models)
    if isinstance(engine, CompiledEngine):
        return lambda: engine._release_simulated(part, next(later), means)
    return lambda: engine.noise.release(models, sigma, flat, next(later))


def trusting_round() -> Iterator[Row]:
    """Rounds in which the clients of a pair share their noise, beside rounds in which everyone adds its own."""
    data = federation(samples=(50, 100), x_norm=1.0)
    algorithm = PGFL(0.5, TAU, client="gradient")
    local, *others = (
        engine([data], Huber(LAM), library="numba", algorithm=algorithm,
               privacy=Privacy(x_norm=1.0, phi0=1e-5, zeta=0.9999, trust=trust))
        for trust in ("local", "masked", "site")
    )  # fmt: skip
    for trust, other in zip(("masked", "site"), others, strict=True):
        for _ in range(70):
            other.run_round(), local.run_round()
        turns = take_turns(other.run_round, local.run_round, 25, (20, 20), time.process_time)
        yield Row(f"trust-{trust}", f"a simulated private round, trust = {trust}, D_k 50–100, numba engine",
                  "the same round with trust = local", "≤ 1.1×", *turns.slower(), seconds(np.median(turns.ours)),
                  seconds(np.median(turns.theirs)), clock="CPU")  # fmt: skip


def planned() -> Iterator[Row]:
    """A plan for the paper's shape, as `pgfl plan private-huber` makes it; the kernels are compiled before."""
    from pgfl import plan
    from pgfl.config import load_config

    config = load_config("private-huber")
    plan(config)
    began = time.perf_counter()
    plan(config)
    took = time.perf_counter() - began
    yield Row("plan", "`pgfl plan private-huber`: seconds", "—", "≤ 60 s", took, took, took, seconds(took), "—",
              clock="wall")  # fmt: skip


def sweep(values: int = 20, runs: int = 100, rounds: int = 200) -> Iterator[Row]:
    data = [federation(run) for run in range(runs)]
    engine(data[:2], library="numba").run_round()
    loop = PlainLoop(data[0], RHO, TAU, LAM)
    loop.run_round()
    whole, part = [], []
    for tau in np.linspace(0.0, 0.6, values):
        began = time.process_time()
        train(lambda run: data[run], PGFL(RHO, float(tau)), Ridge(LAM), rounds=rounds, runs=runs, record_every=rounds,
              metrics=("nmsd",), engine="numba", threads=1)  # fmt: skip
        whole.append(time.process_time() - began)
        began = time.process_time()
        for _ in range(10):
            loop.run_round()
        part.append((time.process_time() - began) / 10)
    ours = np.array(whole)
    theirs = np.array(part) * runs * rounds
    low, middle, high = np.percentile(theirs / ours, [25, 50, 75])
    yield Row("sweep", f"sweep of {values} values of τ × {runs} runs × {rounds} rounds, numba engine, all included",
              "the plain loop that solves, extrapolated from 10 rounds a value", "≥ 100×", middle, low, high,
              seconds(ours.sum()), seconds(theirs.sum()), clock="CPU")  # fmt: skip
