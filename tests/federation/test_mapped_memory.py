"""Mapped rows stay in single precision: training holds no copy of them in double."""

import tracemalloc

import numpy as np
import pytest

from pgfl import PGFL, ClientData, Federation, Privacy, Softmax, train
from pgfl.federation.mapping import mapped_rows, pixel_encoding
from pgfl.maps import Gradients

ROWS = 800
FINE = pixel_encoding((28, 28), (Gradients(4),), False)


def images():
    return np.random.default_rng(4).integers(0, 256, (ROWS, 784), dtype=np.uint8)


def peak_of(work):
    """What is allocated at most beyond what is there before, and what the work returns."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        found = work()
        return tracemalloc.get_traced_memory()[1] - before, found
    finally:
        tracemalloc.stop()


@pytest.mark.proof
@pytest.mark.parametrize("engine", ["numpy"])
def test_training_on_mapped_images_needs_no_copy_in_double(engine):
    pixels = images()
    features = mapped_rows(FINE, pixels, np.float32)
    assert features.dtype == np.float32 and features.shape == (ROWS, 1152)
    labels = np.random.default_rng(5).integers(0, 10, ROWS).astype(np.float32)
    parts = np.split(np.arange(ROWS), 8)
    clients = {f"c{n}": ClientData("s", "all", features[own], labels[own]) for n, own in enumerate(parts)}
    made = Federation.from_clients(clients).replace(features=features, targets=labels, generated=True)
    privacy = Privacy(epsilon=3.0, max_releases=3, x_norm=1.0, noise="seeded")

    def trained():
        return train(
            made, PGFL(rho=0.3, client="gradient"), Softmax(classes=10), rounds=3, privacy=privacy, dtype=np.float32,
            engine=engine, metrics=(),
        )  # fmt: skip

    taken, _ = peak_of(trained)
    assert made.features.dtype == np.float32
    assert taken < 1.5 * made.features.nbytes  # a copy in double would take twice
