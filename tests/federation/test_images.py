"""Images: IDX files, NPZ files in the layout of MedMNIST, and folders of PNG files, dealt evenly or by a column."""

import gzip
import struct

import numpy as np
import pytest

from pgfl import DataError, PrivacyError, images_federation
from pgfl.config import parse
from pgfl.federation.mapping import mapped_rows, pixel_encoding
from pgfl.maps import read_maps
from pgfl.privacy.request import Privacy

RNG = np.random.default_rng(5)
TRAIN, TEST = (RNG.integers(0, 256, (count, 28, 28), dtype=np.uint8) for count in (60, 20))
LABELS, TEST_LABELS = np.arange(60) % 3, np.arange(20) % 3
SMALL = {"servers": 2, "clients_per_server": 3, "graph": "line"}


def write_idx(folder, packed=False):
    """As the files of MNIST and Fashion-MNIST are."""
    folder.mkdir()
    for name, values in (
        ("train-images-idx3-ubyte", TRAIN), ("train-labels-idx1-ubyte", LABELS),
        ("t10k-images-idx3-ubyte", TEST), ("t10k-labels-idx1-ubyte", TEST_LABELS),
    ):  # fmt: skip
        head = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
        content = head + values.astype(np.uint8).tobytes()
        (folder / (name + ".gz" * packed)).write_bytes(gzip.compress(content) if packed else content)
    return folder


def write_npz(path, colours=False):
    """As MedMNIST's files are: labels N × 1, a validation part beside, and colours last."""
    grey = {"train": TRAIN, "val": TEST, "test": TEST}
    images = {f"{part}_images": np.stack([x] * 3, axis=-1) if colours else x for part, x in grey.items()}
    labels = {
        f"{part}_labels": y[:, None] for part, y in (("train", LABELS), ("val", TEST_LABELS), ("test", TEST_LABELS))
    }
    np.savez(path, **images, **labels)
    return path


def write_png(folder):
    from PIL import Image

    for part, images, labels in (("train", TRAIN, LABELS), ("test", TEST, TEST_LABELS)):
        for number, (image, label) in enumerate(zip(images, labels, strict=True)):
            place = folder / part / f"class-{label}"
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(place / f"{number:03d}.png")
    return folder


def same(one, other):
    assert np.array_equal(one.features, other.features) and np.array_equal(one.targets, other.targets)
    assert np.array_equal(one.tests["all"].features, other.tests["all"].features)


def test_all_formats_give_the_same_federation(tmp_path):
    idx = images_federation(write_idx(tmp_path / "idx"), **SMALL)
    assert idx.dimension == 288 and idx.size == 6 and idx.counts.tolist() == [10] * 6
    same(images_federation(write_idx(tmp_path / "packed", packed=True), **SMALL), idx)
    same(images_federation(write_npz(tmp_path / "grey.npz"), **SMALL), idx)
    same(images_federation(write_npz(tmp_path / "colours.npz", colours=True), **SMALL), idx)
    expected = mapped_rows(pixel_encoding((28, 28), read_maps("gradients"), False), TEST.reshape(20, -1), np.float64)
    assert np.array_equal(idx.tests["all"].features, expected)
    png = images_federation(write_png(tmp_path / "png"), **SMALL)
    assert png.encoding.target.labels == ("class-0", "class-1", "class-2")
    assert sorted(map(tuple, png.tests["all"].features)) == sorted(map(tuple, expected))


def test_a_column_says_whose_an_image_is(tmp_path):
    groups = {"client": [f"c{n % 4}" for n in range(60)], "server": ["s"] * 60, "cluster": ["q"] * 60}
    federation = images_federation(write_npz(tmp_path / "x.npz"), groups=groups, map=None)
    assert federation.client_ids == ("c0", "c1", "c2", "c3") and federation.cluster_ids == ("q",)
    own = federation.rows("c1")[0]
    assert np.array_equal(own, TRAIN[1::4].reshape(15, -1) / 255.0)
    with pytest.raises(DataError, match="60 training images, but 2 rows"):
        images_federation(tmp_path / "x.npz", groups={"client": ["a", "b"]})


def test_labels_that_were_read_from_folders_are_not_public(tmp_path):
    write_png(tmp_path / "png")
    private = Privacy(epsilon=1.0, delta=1e-5)
    with pytest.raises(PrivacyError, match="labels of column 'label' were read from records"):
        private.completed(images_federation(tmp_path / "png", **SMALL).encoding)
    stated = images_federation(tmp_path / "png", labels=["class-0", "class-1", "class-2"], **SMALL)
    assert private.completed(stated.encoding).x_norm == 1.0


def test_a_config_trains_on_images(tmp_path):
    from pgfl import run

    write_npz(tmp_path / "x.npz")
    config = parse(
        {
            "rounds": 3,
            "data": {"kind": "images", "source": "x.npz", "servers": 2, "clients_per_server": 3, "public": True},
            "graph": {"kind": "line"},
            "objective": {"kind": "softmax", "classes": 3},
            "algorithm": {"client": "gradient", "rho": 1.0},
            "privacy": {"epsilon": 3.0, "noise": "seeded"},
        },
        tmp_path,
    )
    result = run(config)
    assert result.x_norm == 1.0 and result.model().predict(TEST.reshape(20, -1)).shape == (20,)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda f: f / "none", "does not exist"),
        (lambda f: (f / "x.txt").write_text("x") and f / "x.txt", "must be an NPZ file"),
        (lambda f: np.savez(f / "x.npz", a=1) or f / "x.npz", "has no array train_images"),
        (lambda f: (f / "x.npz").write_bytes(b"PK") and f / "x.npz", "cannot be read"),
        (lambda f: f, "has no folders of PNG files"),
        (
            lambda f: np.savez(f / "x.npz", train_images=TRAIN.astype(float), train_labels=LABELS) or f / "x.npz",
            "must be bytes",
        ),
        (
            lambda f: np.savez(f / "x.npz", train_images=TRAIN, train_labels=np.zeros((60, 14), int)) or f / "x.npz",
            "several per image are not supported",
        ),
    ],
)
def test_a_mistake_is_one_sentence(make, complaint, tmp_path):
    with pytest.raises(DataError, match=complaint):
        images_federation(make(tmp_path))
