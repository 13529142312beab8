"""The paper's round with FedJAX's `for_each_client` (compiled): the same mathematics, the server's side in NumPy.

Run inside the peers' environment, with the clients' data as an npz file; writes seconds of every round as JSON.
"""

from __future__ import annotations

import json
import sys
import time

import fedjax
import jax
import jax.numpy as jnp
import numpy as np

FILE, ROUNDS, OUT = sys.argv[1], int(sys.argv[2]), sys.argv[3]
jax.config.update("jax_enable_x64", True)
DATA = dict(np.load(FILE))
RHO, TAU = float(DATA["rho"]), float(DATA["tau"])


def client_init(shared, client):
    return {"right": client["right"] + client["pull"], "model": jnp.zeros_like(client["pull"])}


def client_step(state, batch):
    return state | {"model": batch["inverse"] @ state["right"]}


def client_final(shared, state):
    return state["model"]


def main() -> None:
    solve = fedjax.for_each_client(client_init, client_step, client_final)
    clients, dimension = DATA["right"].shape
    pair, mixing = DATA["server"] * DATA["clusters"] + DATA["cluster"], DATA["mixing"]
    members = np.bincount(pair)
    servers, dual, model = (np.zeros((n, dimension)) for n in (len(members), clients, clients))
    data = [({"inverse": DATA["inverse"][k]}, DATA["right"][k]) for k in range(clients)]
    seconds = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        pulls = dual + RHO * servers[pair]
        work = ((k, [batch], {"right": right, "pull": pulls[k]}) for k, (batch, right) in enumerate(data))
        for k, output in solve(jnp.zeros(()), work):
            model[k] = output
        aggregate = np.zeros_like(servers)
        np.add.at(aggregate, pair, model - dual / RHO)
        mixed = np.einsum("sp,pqd->sqd", mixing, (aggregate / members[:, None]).reshape(len(mixing), -1, dimension))
        others = (mixed.sum(axis=1, keepdims=True) - mixed) / (mixed.shape[1] - 1)
        servers = ((1 - TAU) * mixed + TAU * others).reshape(servers.shape)
        dual += RHO * (servers[pair] - model)
        seconds.append(time.perf_counter() - began)
    with open(OUT, "w") as file:
        json.dump({"seconds": seconds, "models": model.tolist()}, file)


main()
