import errno
import json

import numpy as np
import pytest

from pgfl.errors import DataError
from pgfl.federation.federation import ClientData, Federation, TestSet
from pgfl.federation.synthetic import synthetic_regression


@pytest.fixture
def federation():
    return synthetic_regression(servers=4, clients_per_server=3, dimension=5, test_samples=4, dtype=np.float32)


@pytest.mark.parametrize("mmap", [True, False])
def test_what_is_opened_is_what_was_saved(federation, tmp_path, mmap):
    federation.save(tmp_path / "deep" / "saved")
    opened = Federation.open(tmp_path / "deep" / "saved", mmap=mmap)
    assert isinstance(opened.features, np.memmap) is mmap
    for name in ("features", "targets", "offsets", "client_server", "client_cluster", "truth"):
        before, after = getattr(federation, name), getattr(opened, name)
        assert np.array_equal(before, after)
        assert before.dtype == after.dtype
    assert opened.client_ids == federation.client_ids
    assert opened.server_ids == federation.server_ids
    assert opened.cluster_ids == federation.cluster_ids
    assert np.array_equal(opened.graph.edges, federation.graph.edges)
    for cluster, test in federation.tests.items():
        assert np.array_equal(opened.tests[cluster].features, test.features)
        assert np.array_equal(opened.tests[cluster].targets, test.targets)


def test_names_in_any_script_and_no_truth(tmp_path):
    clients = {"zoë/1": ClientData("北", "q\n", [[1.0]], [2.0]), "\x00": ClientData("s", "r", [[1.0]], [2.0])}
    tests = {"r": TestSet(np.ones((1, 1)), np.ones(1))}
    Federation.from_clients(clients, tests=tests).save(tmp_path / "saved")
    opened = Federation.open(tmp_path / "saved")
    assert opened.client_ids == ("\x00", "zoë/1")
    assert opened.server_ids == ("s", "北")
    assert opened.truth is None
    assert list(opened.tests) == ["r"]


def test_mapped_features_cannot_be_written(federation, tmp_path):
    federation.save(tmp_path / "saved")
    with pytest.raises(ValueError, match="read-only"):
        Federation.open(tmp_path / "saved").features[0, 0] = 1.0


def test_a_part_of_a_mapped_federation_is_what_it_is_in_the_whole(federation, tmp_path):
    federation.save(tmp_path / "saved")
    part = Federation.open(tmp_path / "saved").part([1, 3])
    assert part.client_ids == ("client-03", "client-04", "client-05", "client-09", "client-10", "client-11")
    assert all(np.array_equal(part.rows(name)[0], federation.rows(name)[0]) for name in part.client_ids)


def test_nothing_is_overwritten(federation, tmp_path):
    federation.save(tmp_path / "saved")
    before = (tmp_path / "saved" / "features.npy").read_bytes()
    with pytest.raises(DataError, match="already exists"):
        federation.save(tmp_path / "saved")
    assert (tmp_path / "saved" / "features.npy").read_bytes() == before


def test_a_full_disk_leaves_nothing_behind(federation, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full, raising=False)
    with pytest.raises(DataError, match=r"cannot be saved in .*: No space left on device"):
        federation.save(tmp_path / "saved")
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written(federation, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be saved"):
        federation.save(tmp_path / "file" / "saved")


def test_damaged_folders_are_refused_by_name(federation, tmp_path):
    folder = tmp_path / "saved"
    with pytest.raises(DataError, match=r"federation\.json is missing"):
        Federation.open(folder)
    federation.save(folder)
    page = (folder / "federation.json").read_text()
    for broken, sentence in [
        ("{", "is damaged"),
        ("[]", "is damaged"),
        ("{}", "is damaged"),
        (page.replace('"format": 1', '"format": 99'), "format 99"),
        (json.dumps(json.loads(page) | {"servers": ["only"]}), "server"),
    ]:
        (folder / "federation.json").write_text(broken)
        with pytest.raises(Exception, match=sentence) as error:
            Federation.open(folder)
        assert type(error.value).__module__ == "pgfl.errors"
    (folder / "federation.json").write_text(page)
    whole = (folder / "features.npy").read_bytes()
    for content in (b"", b"junk", whole[:90], whole[:-8]):
        (folder / "features.npy").write_bytes(content)
        with pytest.raises(DataError, match="is damaged"):
            Federation.open(folder)
    (folder / "features.npy").unlink()
    with pytest.raises(DataError, match=r"features\.npy is missing"):
        Federation.open(folder)
