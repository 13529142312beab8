"""The paper's round with FedJAX's compiled `for_each_client`."""

from __future__ import annotations

import fedjax
import jax
import jax.numpy as jnp

from peers_round import Servers, problem, rounds_on_demand

jax.config.update("jax_enable_x64", True)


def client_init(shared, client):
    return {"right": client["right"] + client["pull"], "model": jnp.zeros_like(client["pull"])}


def client_step(state, batch):
    return state | {"model": batch["inverse"] @ state["right"]}


def client_final(shared, state):
    return state["model"]


def main() -> None:
    servers = Servers()
    solve = fedjax.for_each_client(client_init, client_step, client_final)
    batches = [[{"inverse": inverse}] for inverse in problem().inverse]
    for _ in rounds_on_demand(servers):
        pulls = servers.pulls()
        clients = ((k, batch, {"right": problem().right[k], "pull": pulls[k]}) for k, batch in enumerate(batches))
        for k, model in solve(jnp.zeros(()), clients):
            servers.client_models[k] = model
        servers.finish(servers.sums())


if __name__ == "__main__":
    main()
