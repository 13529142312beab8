"""Row maps on a network: agreed on by hash, named in clients' limits, and the same bits as in the simulator."""

from dataclasses import replace

import pytest

from pgfl.demo import demo_federation, largest_difference
from pgfl.network.agreement import Training
from pgfl.network.client.settings import TrainingLimits
from pgfl.network.local import LocalNetwork
from tests.network.inprocess import train_in_process

MAP = {"kind": "hats", "knots": 4}
PRIVACY = {"enabled": True, "epsilon": 20.0, "delta": 1e-5, "max_releases": 3, "zeta": 0.99, "x_norm": 1.5}


def training(federation, rounds=3, **more):
    settings = {
        "rounds": rounds,
        "dimension": federation.dimension,
        "clusters": tuple(federation.cluster_ids),
        "objective": {"kind": "huber", "lam": 0.01},
        "algorithm": {"kind": "pgfl", "rho": 8.0, "tau": 0.2},
    }
    return Training.model_validate({**settings, **more})


def test_sites_agree_on_a_map_by_hash():
    federation = demo_federation(2, 2, "huber", seed=2)
    plain, mapped, other = (training(federation, map=one) for one in (None, MAP, {"kind": "hats", "knots": 5}))
    assert len({plain.digest, mapped.digest, other.digest}) == 3 and "map" not in plain.text
    assert Training.parse(mapped.text) == mapped and Training.parse(plain.text) == plain
    assert any("map" in line for line in mapped.differences(plain))


def test_a_client_takes_part_with_its_own_map_only():
    federation = demo_federation(2, 2, "huber", seed=2)
    cluster = federation.cluster_ids[0]
    plain, mapped = training(federation), training(federation, map=MAP)
    none, own = TrainingLimits(), TrainingLimits.model_validate({"map": MAP})
    assert none.refused(plain, cluster) is None and own.refused(mapped, cluster) is None
    assert "mapped by Hats(knots=4), but `limits.map` allows no map" in none.refused(mapped, cluster)
    assert "mapped by no map, but `limits.map` allows Hats(knots=4)" in own.refused(plain, cluster)


@pytest.mark.filterwarnings("ignore")
def test_a_network_trains_on_mapped_rows_as_the_simulator_does(tmp_path):
    raw = demo_federation(2, 2, "huber", seed=2)
    mapped = raw.mapped(MAP, bounds=(-1.0, 1.0))
    network = LocalNetwork(
        tmp_path,
        raw,
        training(mapped, map=MAP),
        PRIVACY,
        record_noise=True,
        limits={"map": MAP, "objectives": ["huber"]},
    )
    assert set(train_in_process(network).values()) == {"all rounds are done"}
    assert largest_difference(replace(network, federation=mapped)) <= 1e-10
