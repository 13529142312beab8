import gzip
import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pgfl.errors import PgflError
from pgfl.federation import digits
from pgfl.federation.clipping import clip_rows
from pgfl.federation.mnist import mnist_federation

STANDARD_TEST_IMAGES = {1: 1135, 2: 1032, 3: 1010, 6: 958, 7: 1028, 8: 974, 9: 1009}


def images_of(federation, client):
    """Which embedded training images a client has, as bytes that say which pixels are lit."""
    return [row.tobytes() for row in (federation.rows(client)[0] > 0)]


class TestEmbedded:
    def test_all_digits_of_the_figures_are_there(self):
        images = digits.embedded()
        assert {digit: len(rows) for digit, rows in images.test.items()} == STANDARD_TEST_IMAGES
        assert {len(rows) for rows in images.train.values()} == {2000}
        assert {rows.shape[1] for rows in images.train.values()} == {784}

    def test_they_look_like_the_digits_they_are_said_to_be(self):
        images = digits.embedded()
        means = np.stack([rows.mean(axis=0) for rows in images.train.values()])
        hits = [
            (((rows[:, None, :].astype(np.float32) - means) ** 2).sum(axis=2).argmin(axis=1) == index).mean()
            for index, rows in enumerate(rows[:200] for rows in images.test.values())
        ]
        assert np.mean(hits) > 0.75

    def test_damage_is_noticed(self, monkeypatch, tmp_path):
        original = Path(digits.__file__).with_name("digits.xz").read_bytes()
        spoilt = bytearray(original)
        spoilt[len(spoilt) // 2] ^= 1
        for content in (bytes(spoilt), original[:1000], b""):
            (tmp_path / "digits.xz").write_bytes(content)
            monkeypatch.setattr(digits.resources, "files", lambda _: tmp_path)
            with pytest.raises(PgflError, match=r"digits\.xz is missing or damaged; install pgfl again"):
                digits.embedded.__wrapped__()
        (tmp_path / "digits.xz").unlink()
        with pytest.raises(PgflError, match="install pgfl again"):
            digits.embedded.__wrapped__()

    def test_the_page_beside_it_names_source_licence_and_checksum(self):
        page = Path(digits.__file__).with_name("README.md").read_text()
        assert digits.EMBEDDED_SHA256 in page
        assert "CC BY-SA 3.0" in page
        assert "LeCun" in page
        assert Path(digits.__file__).with_name("digits.xz").stat().st_size < 4e6


class TestFederations:
    @pytest.mark.parametrize(
        ("tasks", "clusters", "samples", "in_task"),
        [
            ("pairs", ("1|8", "1|9", "7|8"), range(2, 5), 2),
            ("triplets", ("123|678", "123|689", "123|789"), range(6, 13), 6),
        ],
    )
    def test_the_papers_tasks(self, tasks, clusters, samples, in_task):
        federation = mnist_federation(tasks)
        assert federation.cluster_ids == clusters
        assert federation.server_sizes.tolist() == [15] * 10
        assert np.bincount(federation.client_cluster).tolist() == [50] * 3
        assert set(federation.counts.tolist()) == {in_task * count for count in samples}
        assert np.allclose(np.linalg.norm(federation.features, axis=1), 1.0)
        assert federation.features.min() == 0.0
        assert set(federation.targets.tolist()) == {0.0, 1.0}
        assert federation.graph.connected

    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    def test_no_image_is_long_enough_to_be_clipped(self, dtype):
        features = mnist_federation("pairs", dtype=dtype).features
        assert clip_rows(features, 1.0) is features

    def test_every_client_has_as_many_images_of_every_digit_of_its_task(self):
        known = {(row > 0).tobytes(): digit for digit, rows in digits.embedded().train.items() for row in rows}
        federation = mnist_federation("triplets", servers=4, clients_per_server=6)
        for client in range(federation.size):
            zeros, ones = federation.cluster_ids[federation.client_cluster[client]].split("|")
            seen = [str(known[image]) for image in images_of(federation, client)]
            per_digit = federation.counts[client] // 6
            assert {digit: seen.count(digit) for digit in set(seen)} == dict.fromkeys(zeros + ones, per_digit)
            assert [digit in ones for digit in seen] == federation.rows(client)[1].astype(bool).tolist()

    @pytest.mark.proof
    @pytest.mark.parametrize("run", [0, 1])
    def test_no_image_is_used_twice_in_a_run(self, run):
        federation = mnist_federation("triplets", samples=12, run=run)
        assert len(federation.features) == 150 * 72
        assert len(np.unique(federation.features, axis=0)) == len(federation.features)

    def test_tests_are_the_standard_test_images_of_the_task(self):
        federation = mnist_federation("triplets")
        for cluster, test in federation.tests.items():
            zeros, ones = ([int(digit) for digit in group] for group in cluster.split("|"))
            assert (test.targets == 0).sum() == sum(STANDARD_TEST_IMAGES[digit] for digit in zeros)
            assert (test.targets == 1).sum() == sum(STANDARD_TEST_IMAGES[digit] for digit in ones)
            assert np.allclose(np.linalg.norm(test.features, axis=1), 1.0)
        assert mnist_federation("triplets", run=1).tests["123|678"] is federation.tests["123|678"]

    def test_the_tasks_can_be_learnt(self):
        federation = mnist_federation("pairs", clients_per_server=60)
        for q, cluster in enumerate(federation.cluster_ids):
            rows = np.repeat(federation.client_cluster == q, federation.counts)
            features, targets = federation.features[rows], 2 * federation.targets[rows] - 1
            model = np.linalg.solve(features.T @ features + 10 * np.eye(784), features.T @ targets)
            test = federation.tests[cluster]
            assert ((test.features @ model > 0) == (test.targets == 1)).mean() > 0.9

    def test_parts_make_up_the_whole(self):
        options = {"servers": 5, "clients_per_server": [3, 0, 4, 2, 1], "seed": 3, "dtype": np.float32}
        whole = mnist_federation("pairs", **options)
        for own in ([2, 0], [1, 3], [4]):
            part = mnist_federation("pairs", **options, servers_subset=own)
            for index, name in enumerate(part.client_ids):
                assert np.array_equal(part.rows(index)[0], whole.rows(name)[0])
                assert np.array_equal(part.rows(index)[1], whole.rows(name)[1])
        assert whole.features.dtype == whole.targets.dtype == np.float32

    def test_seed_and_run_matter_and_nothing_else(self):
        first, again, other = (mnist_federation("pairs", seed=1, run=run) for run in (0, 0, 1))
        assert np.array_equal(first.features, again.features)
        assert first.features.shape != other.features.shape or not np.array_equal(first.features, other.features)

    def test_an_intercept_is_a_one_after_the_image(self):
        plain, extended = (mnist_federation("pairs", intercept=intercept) for intercept in (False, True))
        assert np.array_equal(extended.features[:, :-1], plain.features)
        for rows in (extended.features, extended.tests["1|9"].features):
            assert (rows[:, -1] == 1).all()

    def test_tasks_of_ones_own(self):
        federation = mnist_federation([(1, 7), ([3, 2], (9,))], samples=1, servers=4, clients_per_server=2)
        assert federation.cluster_ids == ("1|7", "23|9")
        assert sorted(set(federation.counts.tolist())) == [2, 3]

    @pytest.mark.parametrize(
        ("tasks", "changes", "sentence"),
        [
            ("quads", {}, "Unknown tasks 'quads'"),
            ([], {}, "At least one task"),
            ([(1, 1)], {}, "without a digit in common"),
            ([(1, [])], {}, "two groups of digits"),
            ([(1, 10)], {}, "two groups of digits"),
            ([(1,)], {}, "two groups of digits"),
            ([("a", 2)], {}, "two groups of digits"),
            ([7], {}, "two groups of digits"),
            ([([1, 2], 3), ([2, 1], 3)], {}, "12|3 is given twice"),
            ([(1, 4)], {}, "digit 4 do not come with the package; give the folder"),
            ("pairs", {"samples": (0, 2)}, "at least 1"),
            ("pairs", {"clients_per_server": 300}, "images of the digit 1, but there are 2000; lower"),
            ("pairs", {"dtype": int}, "float32 or float64"),
            ("pairs", {"source": "no-such-folder"}, "has neither train-images"),
        ],
    )
    def test_what_cannot_be_dealt_says_why(self, tasks, changes, sentence):
        with pytest.raises(PgflError, match=sentence.replace("|", r"\|")):
            mnist_federation(tasks, **changes)


@pytest.fixture
def originals(tmp_path, monkeypatch):
    """Four small files in the original format, with the checksums that the package expects set to theirs."""
    rng = np.random.default_rng(0)
    expected = {}
    for part, count in (("train", 300), ("t10k", 100)):
        labels = rng.permutation(np.arange(count) % 10).astype(np.uint8)
        images = rng.integers(1, 256, size=(count, 28, 28), dtype=np.uint8)
        for name, magic, array in (("images-idx3", 2051, images), ("labels-idx1", 2049, labels)):
            header = np.array([magic, *array.shape], dtype=">u4").tobytes()
            content = header + array.tobytes()
            (tmp_path / f"{part}-{name}-ubyte.gz").write_bytes(gzip.compress(content))
            expected[f"{part}-{name}-ubyte"] = hashlib.sha256(content).hexdigest()
    monkeypatch.setattr(digits, "ORIGINALS_SHA256", {name: expected[name] for name in digits.ORIGINALS_SHA256})
    digits._read_originals.cache_clear()
    yield tmp_path
    digits._read_originals.cache_clear()


class TestOriginals:
    def test_gzipped_or_not(self, originals):
        images = digits.read_originals(originals)
        assert {len(rows) for rows in images.train.values()} == {30}
        assert {len(rows) for rows in images.test.values()} == {10}
        packed = originals / "train-images-idx3-ubyte.gz"
        packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()
        digits._read_originals.cache_clear()
        again = digits.read_originals(str(originals))
        assert all(np.array_equal(images.train[digit], again.train[digit]) for digit in range(10))

    def test_all_ten_digits_can_be_used(self, originals):
        federation = mnist_federation([(0, 4), (5, 4)], servers=4, clients_per_server=2, source=originals)
        assert federation.cluster_ids == ("0|4", "5|4")
        assert len(federation.tests["0|4"].targets) == 20

    @pytest.mark.parametrize("name", digits.ORIGINALS_SHA256)
    def test_missing_cut_short_damaged_and_other_files_are_named(self, originals, name):
        packed = originals / f"{name}.gz"
        content = packed.read_bytes()
        other = gzip.compress(gzip.decompress(content)[:-1] + b"\xfe")
        for bad, sentence in [
            (content[: len(content) // 2], "damaged or cut short"),
            (b"not gzip", "damaged or cut short"),
            (content[:20] + b"\xff\xff\xff\xff" + content[24:], "damaged or cut short|checksum differs"),
            (b"", "damaged or cut short|checksum differs"),
            (other, "checksum differs"),
        ]:
            packed.write_bytes(bad)
            with pytest.raises(PgflError, match=sentence) as error:
                digits.read_originals(originals)
            assert name in str(error.value)
        packed.unlink()
        with pytest.raises(PgflError, match=f"has neither {name} nor {name}.gz"):
            digits.read_originals(originals)
        packed.mkdir()
        with pytest.raises(PgflError, match="cannot be read"):
            digits.read_originals(originals)

    def test_the_embedded_file_is_built_from_them(self, originals, tmp_path, monkeypatch):
        target = tmp_path / "digits.xz"
        checksum = digits.build_embedded(originals, target)
        monkeypatch.setattr(digits, "EMBEDDED_SHA256", checksum)
        monkeypatch.setattr(digits.resources, "files", lambda _: tmp_path)
        built, whole = digits.embedded.__wrapped__(), digits.read_originals(originals)
        assert tuple(built.train) == digits.EMBEDDED_DIGITS
        for digit in digits.EMBEDDED_DIGITS:
            assert np.array_equal(built.train[digit], whole.train[digit])
            assert np.array_equal(built.test[digit], whole.test[digit])
        with pytest.raises(PgflError, match="cannot be written"):
            digits.build_embedded(originals, tmp_path)


def test_the_command_ends_with_a_sentence(tmp_path):
    command = [sys.executable, "-m", "pgfl.federation.digits"]
    for arguments, words in (([], "Usage"), ([str(tmp_path), "out.xz"], "put the four MNIST files there")):
        outcome = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
        assert outcome.returncode == 2
        assert words in outcome.stderr
        assert "Traceback" not in outcome.stderr
