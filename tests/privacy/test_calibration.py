"""A simulation in two worlds with one draw of noise: a release tells what its account says, whatever |C_s| is."""

import numpy as np
import pytest

from pgfl import PGFL, ClientData, FedAvg, Federation, Huber, Privacy, train
from pgfl.privacy.noise import SecureNoise, SeededNoise

PHI, KAPPA = 0.02, 0.4
CLIENTS = {"alone": 1, "few": 3, "many": 40}


def federation(label):
    """Servers of all sizes; the last record of each server's first client has the given label."""
    clients = {}
    for server, size in CLIENTS.items():
        for number in range(size):
            rows, labels = 1e-3 * np.eye(3)[[2, 2, 0]], np.zeros(3)
            rows[-1, 0] = 2.0
            labels[-1] = label if number == 0 else 0.5
            clients[f"{server}{number:02d}"] = ClientData(server, "q", rows, labels)
    return Federation.from_clients(clients)


@pytest.mark.parametrize("lam", [0.0, 5.0])
@pytest.mark.parametrize(
    "algorithm",
    [PGFL(rho=0.3), PGFL(rho=0.3, client="gradient"), FedAvg(step_size=0.05, local_steps=3)],
    ids=["pgfl", "linearised", "fedavg"],
)
def test_what_a_simulated_release_tells_is_what_its_account_says(algorithm, lam, monkeypatch):
    received = []
    right = SeededNoise.release

    def listening(self, models, sigma, clients, round):
        received.append((np.array(models), np.array(sigma)))
        return right(self, models, sigma, clients, round)

    monkeypatch.setattr(SeededNoise, "release", listening)
    privacy = Privacy(phi0=PHI, zeta=1.0, x_norm=2.0, noise="seeded")
    for label in (-1e3, 1e3):
        train(federation(label), algorithm, Huber(lam=lam, kappa=KAPPA), rounds=1, privacy=privacy, metrics=(), seed=1)
    (one, sigma), (other, again) = received
    assert (sigma == again).all()
    spent = np.sum((one - other) ** 2, axis=1) / (2.0 * sigma**2)
    assert np.count_nonzero(spent > 1e-9) == len(CLIENTS), "one record of each server changed"
    canaries = spent[spent > 1e-9]
    assert (canaries <= PHI * (1.0 + 1e-12)).all()
    attained = 0.3 if isinstance(algorithm, FedAvg) else 0.9
    assert (canaries > attained * PHI).all()  # FedAvg's regulariser pulls models together


def test_a_simulation_that_asks_for_float_safe_noise_gets_it(monkeypatch):
    made = []
    right = SecureNoise.release
    monkeypatch.setattr(SecureNoise, "release", lambda self, *given: made.append(1) or right(self, *given))
    monkeypatch.setattr(SeededNoise, "release", lambda *_: pytest.fail("seeded noise was drawn"))
    privacy = Privacy(phi0=PHI, zeta=1.0, x_norm=2.0, noise="secure")
    train(federation(1.0), PGFL(rho=0.3), Huber(), rounds=2, privacy=privacy, metrics=())
    assert len(made) == 2
