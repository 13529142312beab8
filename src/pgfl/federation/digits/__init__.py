"""Images of handwritten digits: those that come with the package, and the four original MNIST files."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import zlib
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pgfl.errors import DataError

EMBEDDED_DIGITS = (1, 2, 3, 6, 7, 8, 9)
TRAINING_IMAGES_EACH = 2000
SIDE = 28
PIXELS = SIDE * SIDE
EMBEDDED_SHA256 = "837c6df982fda95369516d43f1dd4c4aedbf16d433b3a80994b48303f232cb9b"

ORIGINALS_SHA256 = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
"""Of the files unpacked, so that it does not matter who gzipped them."""


@dataclass(frozen=True, eq=False)
class Images:
    """The training and test images of every digit, one per row of 784 bytes, in the order of the original files."""

    train: dict[int, NDArray[np.uint8]]
    test: dict[int, NDArray[np.uint8]]


@lru_cache(maxsize=1)
def embedded() -> Images:
    """Return the images that come with the package, checked against their checksum.

    >>> images = embedded()
    >>> images.train[8].shape, images.test[8].shape
    ((2000, 784), (974, 784))
    """
    import lzma

    packed = resources.files(__name__) / "digits.xz"
    try:
        content = lzma.decompress(packed.read_bytes())
    except (OSError, lzma.LZMAError, EOFError):
        content = b""
    if hashlib.sha256(content).hexdigest() != EMBEDDED_SHA256:
        raise DataError(f"{packed} is missing or damaged; install pgfl again.")
    file = io.BytesIO(content)
    pictures, digits, for_test = (np.load(file, allow_pickle=False) for _ in range(3))
    return _by_digit(pictures[~for_test], digits[~for_test], pictures[for_test], digits[for_test])


def read_originals(folder: str | os.PathLike[str]) -> Images:
    """All images of the four original MNIST files in a folder, gzipped or not, each checked against its checksum."""
    return _read_originals(Path(folder).resolve())


def build_embedded(originals: str | os.PathLike[str], target: str | os.PathLike[str]) -> str:
    """Write the file that the package carries from the original files; returns the checksum of its content."""
    import lzma

    images = read_originals(originals)
    parts = [(d, images.train[d][:TRAINING_IMAGES_EACH], False) for d in EMBEDDED_DIGITS]
    parts += [(d, images.test[d], True) for d in EMBEDDED_DIGITS]
    lengths = [len(pictures) for _, pictures, _ in parts]
    content = io.BytesIO()
    np.save(content, np.concatenate([pictures for _, pictures, _ in parts]))
    np.save(content, np.repeat(np.array([digit for digit, _, _ in parts], dtype=np.uint8), lengths))
    np.save(content, np.repeat([for_test for _, _, for_test in parts], lengths))
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 0}]
    try:
        Path(target).write_bytes(lzma.compress(content.getvalue(), check=lzma.CHECK_CRC32, filters=filters))
    except OSError as error:
        raise DataError(f"{target} cannot be written: {error.strerror or error}.") from error
    return hashlib.sha256(content.getvalue()).hexdigest()


@lru_cache(maxsize=1)
def _read_originals(folder: Path) -> Images:
    images, labels, test_images, test_labels = (_unpacked(folder, name) for name in ORIGINALS_SHA256)
    return _by_digit(_idx_images(images), _idx_labels(labels), _idx_images(test_images), _idx_labels(test_labels))


def _unpacked(folder: Path, name: str) -> bytes:
    plain, packed = folder / name, folder / f"{name}.gz"
    path = plain if plain.exists() else packed
    try:
        content = path.read_bytes() if path is plain else gzip.decompress(path.read_bytes())
    except FileNotFoundError:
        raise DataError(
            f"{folder} has neither {plain.name} nor {packed.name}; put the four MNIST files there."
        ) from None
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise DataError(f"{path} is damaged or cut short; fetch it again.") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error
    if hashlib.sha256(content).hexdigest() != ORIGINALS_SHA256[name]:
        raise DataError(f"{path} is not the original MNIST file (its checksum differs); fetch it again.")
    return content


def _idx_images(content: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(content, dtype=np.uint8, offset=16).reshape(-1, PIXELS)


def _idx_labels(content: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(content, dtype=np.uint8, offset=8)


def _by_digit(
    train: NDArray[np.uint8], train_digits: NDArray[np.uint8], test: NDArray[np.uint8], test_digits: NDArray[np.uint8]
) -> Images:
    digits = np.unique(train_digits).tolist()
    return Images(
        train={digit: train[train_digits == digit] for digit in digits},
        test={digit: test[test_digits == digit] for digit in digits},
    )
