"""The client of a device, attacked by the audit's lying server: a release tells what is paid for it, and no more."""

import numpy as np
import pytest

from pgfl.algorithms.roles import Accepted, RoundRequest
from pgfl.config import PrivacySettings
from pgfl.lab.audit.cases import ROUNDS, bounded_ridge, huber, logistic
from pgfl.lab.audit.subjects import PUSH, SERVER_CLIENTS, LyingServer, Mechanism
from pgfl.network.client.accounts import PrivateAccount
from pgfl.network.client.rounds import ClientRounds
from pgfl.network.protocol.messages import Answer
from pgfl.network.protocol.wire import Limits, decode


def deployed(case, world, path):
    """A client as it joins a site, in one of the two worlds; it gives the test its clean and released models."""
    mechanism = Mechanism.shipped(case)
    data = case.privacy.bounded(case.federation(np.array([world])))
    settings = PrivacySettings(
        enabled=True,
        phi1=case.privacy.phi1,
        zeta=case.privacy.zeta,
        max_releases=ROUNDS,
        x_norm=case.privacy.x_norm,
        y_bound=case.privacy.y_bound,
        w_norm=case.privacy.w_norm,
    )
    account = PrivateAccount.open(path, "ann", settings, len(data.targets), data.dimension)
    clean = []
    account.on_draw = lambda number, model, released: clean.append(model.copy())
    return ClientRounds(mechanism.client(*data.rows(0)), account, "f" * 32), account, clean


def play(case, world, path):
    """(clean models, rows of the ledger) of a whole game."""
    rounds, account, clean = deployed(case, world, path)
    server, accepted = LyingServer(case, 1, SERVER_CLIENTS), None
    for number in range(1, ROUNDS + 1):
        frame = decode(
            rounds.answer(RoundRequest(number, SERVER_CLIENTS, server.message()[0], accepted)),
            Limits(3),
            (Answer,),
        )
        model, dual = np.asarray(frame.vectors)[:, None]
        if accepted is not None:
            server.see_dual(dual)
            np.testing.assert_allclose(server.implied[-1], server.released[-1], atol=1e-9, rtol=0)
        server.receive(model)
        accepted = Accepted(number, model[0] + PUSH)
        server.expect_dual(accepted.model[None])
    rows = account.ledger.rows()
    account.close()
    return np.array(clean), rows


@pytest.mark.parametrize("case", [huber(), logistic(), bounded_ridge()], ids=lambda case: case.name)
def test_what_a_release_tells_is_what_the_ledger_says_it_costs(case, tmp_path):
    """ρ of a Gaussian release is ‖w − w'‖²/(2σ²): at most the φ that is written down, and nearly it at the worst."""
    (one, paid), (other, _) = (play(case, world, tmp_path / str(world)) for world in (0, 1))
    assert len(paid) == ROUNDS
    for clean, neighbour, row in zip(one, other, paid, strict=True):
        leaked = np.sum((clean - neighbour) ** 2) / (2 * row.sigma**2)
        assert leaked <= row.phi
        assert leaked > (0.98 if case.attained else 0.7) * row.phi
