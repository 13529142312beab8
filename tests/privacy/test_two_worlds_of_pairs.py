"""Two worlds, one transcript, for noise that the clients of a pair share.

Both worlds differ in one record. What the first released is handed out in the second one too, which the Gaussian
mechanism allows; then everything that can be seen must be equal to the byte. Only clean sums may differ, by the Δ that
was charged for.
"""

import hashlib
import math
from pathlib import Path

import numpy as np
import pytest

from pgfl import PGFL, ClientData, Federation, Huber, Privacy
from pgfl.algorithms.schedules import Adaptive
from pgfl.privacy import lattice
from pgfl.privacy.trust import LatticePairNoise
from pgfl.simulate import draws as calibration
from pgfl.simulate import training
from pgfl.simulate.training import train

KAPPA, RHO, ROUNDS = 1.0, 0.7, 4
LEARNED = Adaptive(0.2)


class Recorded:
    """Records what a source released, and from which sums."""

    def __init__(self, source):
        self.source, self.released, self.sums, self.sigma = source, [], [], []

    def check(self, sigma):
        self.source.check(sigma)

    def release(self, models, means, starts, sigma, pairs, round):
        self.sums.append(np.add.reduceat(lattice.to_lattice(models), starts, axis=0))
        self.sigma.append(sigma.copy())
        self.released.append(self.source.release(models, means, starts, sigma, pairs, round))
        return self.released[-1]


class Repeated(Recorded):
    """Releases what another world released."""

    def __init__(self, source, other):
        super().__init__(source)
        self.other = other

    def release(self, models, means, starts, sigma, pairs, round):
        self.sums.append(np.add.reduceat(lattice.to_lattice(models), starts, axis=0))
        self.sigma.append(sigma.copy())
        return self.other.released[len(self.sums) - 1]


def world(seed, record=None, size=7):
    rng = np.random.default_rng(seed)
    clients = {}
    for k in range(size):
        rows = rng.standard_normal((int(rng.integers(2, 6)), 3))
        labels = rng.standard_normal(len(rows)) * 5
        if k == 2 and record is not None:
            rows[0], labels[0] = record
        clients[f"c{k}"] = ClientData("ab"[k % 2], "pq"[k // 4], rows, labels)
    return Federation.from_clients(clients, edges=[("a", "b")])


def played(monkeypatch, folder, federation, asked, source, tau):
    """A run whose pairs' noise goes through `source`."""
    made = []

    def of_pairs(*given):
        private = original(*given)
        made.append(source(private.pair_noise))
        return calibration.Calibration(private.plan, pair_noise=made[0])

    original = calibration._calibrate_pairs
    with monkeypatch.context() as patched:
        patched.setattr(calibration, "_calibrate_pairs", of_pairs)
        patched.setattr(training.time, "perf_counter", lambda: 0.0)
        result = train(
            federation, PGFL(rho=RHO, tau=tau, client="gradient"), Huber(kappa=KAPPA), rounds=ROUNDS, privacy=asked
        )
        result.save(folder)
    return result, made[0]


@pytest.mark.parametrize("trust", ["site", "masked"])
@pytest.mark.parametrize(("seed", "tau"), [(0, 0.2), (1, 0.2), (2, 0.2), (4, LEARNED)])
def test_one_record_changes_nothing_outside_but_sums_and_those_by_delta_at_most(
    monkeypatch, tmp_path, trust, seed, tau
):
    """Weights between clusters that are learned compare halves of the servers, never of clients.

    They are taken as they are, so that something is always learned: `tau = "auto"` asks first whether they go downhill.
    """
    rng = np.random.default_rng(100 + seed)
    far = (rng.standard_normal(3) * 10.0 ** rng.integers(-2, 4), 10.0 ** rng.integers(-1, 5))
    asked = Privacy(
        epsilon=3.0, max_releases=ROUNDS, index="release", zeta=0.8, x_norm=1.0, noise="secure", trust=trust
    )
    size = 8 if tau is LEARNED else 7  # with seven, a cluster has no client in one of the halves
    one, first = played(monkeypatch, tmp_path / "one", world(seed, size=size), asked, Recorded, tau)
    two, second = played(
        monkeypatch, tmp_path / "two", world(seed, far, size), asked, lambda source: Repeated(source, first), tau
    )
    assert tau is not LEARNED or one.weights["weight"][1] > 0.0, "the test is blind where nothing is learned"
    assert isinstance(first.source, LatticePairNoise)
    assert digests(tmp_path / "one") == digests(tmp_path / "two")
    assert one.warnings == two.warnings
    counts = world(seed, size=size).counts
    delta = lattice.widened(4 * KAPPA / (counts[2] * RHO) + 2e-9, 3)
    spent = 0.0
    for mine, theirs, sigma in zip(first.sums, second.sums, first.sigma, strict=True):
        apart = np.linalg.norm(lattice.from_lattice(mine - theirs), axis=1)
        assert np.count_nonzero(apart) <= 1
        assert apart.max() <= delta
        spent += float((apart.max() / sigma[apart.argmax()]) ** 2) / 2
    assert 0 < spent <= one.privacy[0]["rho"][2] * (1 + 1e-9)
    for mine, theirs in zip(first.sigma, second.sigma, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert math.isfinite(one.privacy[0]["epsilon"].max())


def digests(folder: Path):
    """Of every file that holds more than pictures; a page embeds pictures, which are the same as well."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
