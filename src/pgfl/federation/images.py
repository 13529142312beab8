"""Federations of images: IDX files as those of MNIST, NPZ files as those of MedMNIST, and folders of PNG files."""

from __future__ import annotations

import gzip
import os
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pgfl.arrays import AnyArray, Ints
from pgfl.errors import DataError
from pgfl.federation.columns import TargetColumn
from pgfl.federation.federation import Federation, TestSet, own_servers
from pgfl.federation.frames import TableSource, open_table
from pgfl.federation.graphs import GraphSource, server_graph
from pgfl.federation.mapping import mapped_rows, pixel_encoding
from pgfl.federation.places import Places, place_columns, read_places
from pgfl.federation.synthetic import float_type, lay_out, offsets_of
from pgfl.maps import MapSource, read_maps
from pgfl.streams import Purpose, stream
from pgfl.suggestions import quoted

Pixels = NDArray[np.uint8]
IDX = {"train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")}
IDX["test"] = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
ONE_CLUSTER = "all"
_POOL = 3  # of the stream that shuffles images


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Grey images (N × height × width bytes) with the number of each one's label; `names` are the labels, if known."""

    images: Pixels
    labels: Ints
    test_images: Pixels | None
    test_labels: Ints | None
    names: tuple[str, ...] | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """(height, width)."""
        return self.images.shape[1], self.images.shape[2]


def images_federation(
    source: str | os.PathLike[str],
    *,
    servers: int = 10,
    clients_per_server: int = 15,
    groups: TableSource | None = None,
    labels: Sequence[str] | None = None,
    map: MapSource = "gradients",
    intercept: bool = False,
    graph: GraphSource = "random",
    average_degree: float = 3.0,
    seed: int = 0,
    run: int = 0,
    dtype: DTypeLike = np.float64,
    servers_subset: Sequence[int] | None = None,
    generated: bool = False,
) -> Federation:
    """Read images as a federation; their labels are the targets, and test images are test sets.

    `source` is a folder with the four IDX files of MNIST, Fashion-MNIST or others of their names (gzipped or not), an
    NPZ file with the arrays of MedMNIST, or a folder of PNG files, one folder per label, in `train` and `test` if there
    are test images. `labels` names these folders in the order of their numbers. Colours become grey.

    Training images are shuffled and dealt evenly to the clients, or given to those that the column `client` of the
    table `groups` names, one row per training image in the order of the file (of the paths as text, for PNG); it may
    have the columns `server` and `cluster`. Images go through the row `map`. `generated` says that they are public.
    """
    found = read_images(source, labels)
    held, maps = float_type(dtype), read_maps(map)
    encoding = pixel_encoding(found.shape, maps, intercept)
    inferred = found.names is not None and labels is None
    encoding = replace(
        encoding,
        target=TargetColumn("label", labels=found.names),
        read_from_records=("label",) if inferred else (),
    )
    everyone = place_images(len(found.labels), groups, servers, clients_per_server, seed, run)
    own = everyone
    if servers_subset is not None:
        own = everyone.at(np.isin(np.arange(len(everyone.servers)), own_servers(servers_subset, len(everyone.servers))))
    pixels = found.images.reshape(len(found.images), -1)
    tests = None
    if found.test_images is not None and found.test_labels is not None:
        seen = mapped_rows(encoding, found.test_images.reshape(len(found.test_images), -1), held)
        test = TestSet(seen, found.test_labels.astype(held))
        tests = dict.fromkeys(everyone.clusters, test)
    return Federation(
        features=mapped_rows(encoding, pixels, held, order=own.rows),
        targets=found.labels[own.rows].astype(held),
        offsets=own.offsets,
        client_server=own.client_server,
        client_cluster=own.client_cluster,
        server_ids=everyone.servers,
        cluster_ids=everyone.clusters,
        graph=server_graph(graph, everyone.servers, average_degree, seed, run),
        names=own.clients,
        tests=tests,
        generated=generated,
        encoding=encoding,
    )


def place_images(
    count: int, groups: TableSource | None, servers: int, clients_per_server: int, seed: int, run: int
) -> Places:
    """Return whose the training images are."""
    if groups is not None:
        table = open_table(groups)
        if table.size != count:
            raise DataError(
                f"There are {count} training images, but {table.size} rows in {table.label}; give one each."
            )
        return read_places(table, place_columns(table, None, None, None))
    layout = lay_out(servers, clients_per_server, 1, graph="none", seed=seed, run=run)
    clients = int(layout.sizes.sum())
    if clients > count:
        raise DataError(f"There are {count} training images for {clients} clients; lower the clients.")
    names = tuple(f"client-{number:0{len(str(clients - 1))}d}" for number in range(clients))
    order = stream(seed, run, Purpose.DATA, 0, _POOL).permutation(count)
    sizes = np.full(clients, count // clients) + (np.arange(clients) < count % clients)
    nobody = np.zeros(clients, dtype=np.int64)
    return Places(
        names,
        layout.server_ids,
        (ONE_CLUSTER,),
        layout.client_server,
        nobody,
        order.astype(np.int64),
        offsets_of(sizes),
    )


def read_images(source: str | os.PathLike[str], labels: Sequence[str] | None = None) -> ImageSet:
    """Read images and their labels from IDX files, an NPZ file or folders of PNG files."""
    return _read(Path(source).resolve(), None if labels is None else tuple(labels))


@lru_cache(maxsize=1)
def _read(path: Path, labels: tuple[str, ...] | None) -> ImageSet:
    if not path.exists():
        raise DataError(f"{path} does not exist; give a folder of IDX or PNG files, or an NPZ file.")
    if path.is_file():
        if path.suffix.lower() != ".npz":
            raise DataError(f"{path} must be an NPZ file, or a folder of IDX or PNG files.")
        return _read_npz(path, labels)
    if any((path / f"{IDX['train'][0]}{ending}").exists() for ending in ("", ".gz")):
        return _read_idx(path, labels)
    return _read_png(path, labels)


def _read_npz(path: Path, names: tuple[str, ...] | None) -> ImageSet:
    """Return the images of MedMNIST's layout: train_images, train_labels, test_images, test_labels; val is left out."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            parts = {name: arrays[name] for name in arrays.files if name.startswith(("train_", "test_"))}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path} cannot be read ({error}); fetch it again.") from None
    for name in ("train_images", "train_labels"):
        if name not in parts:
            raise DataError(f"{path} has no array {name}; an NPZ file has train_images and train_labels, and test_….")
    test = "test_images" in parts and "test_labels" in parts
    return _checked(
        path,
        ImageSet(
            _grey(path, parts["train_images"]),
            _numbers(path, parts["train_labels"]),
            _grey(path, parts["test_images"]) if test else None,
            _numbers(path, parts["test_labels"]) if test else None,
            names,
        ),
    )


def _read_idx(folder: Path, names: tuple[str, ...] | None) -> ImageSet:
    train = [_idx(folder, name) for name in IDX["train"]]
    has_test = any((folder / f"{IDX['test'][0]}{ending}").exists() for ending in ("", ".gz"))
    test = [_idx(folder, name) for name in IDX["test"]] if has_test else [None, None]
    numbers = [None if part is None else part.astype(np.int64) for part in (train[1], test[1])]
    assert train[0] is not None and numbers[0] is not None
    return _checked(folder, ImageSet(train[0], numbers[0], test[0], numbers[1], names))


def _idx(folder: Path, name: str) -> Pixels:
    plain, packed = folder / name, folder / f"{name}.gz"
    path = plain if plain.exists() else packed
    try:
        content = path.read_bytes() if path is plain else gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} is missing or damaged ({error}); fetch it again.") from None
    dimensions = content[3] if len(content) > 3 and content[:3] == b"\x00\x00\x08" else 0
    shape = np.frombuffer(content, dtype=">u4", count=dimensions, offset=4).tolist() if dimensions else []
    start = 4 + 4 * dimensions
    if not shape or len(content) - start != int(np.prod(shape)):
        raise DataError(f"{path} is no IDX file of bytes, or cut short; fetch it again.")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def _read_png(folder: Path, names: tuple[str, ...] | None) -> ImageSet:
    train = folder / "train" if (folder / "train").is_dir() else folder
    test = folder / "test" if train is not folder and (folder / "test").is_dir() else None
    known = names or tuple(sorted(part.name for part in train.iterdir() if part.is_dir()))
    if len(known) < 2:
        raise DataError(
            f"{train} has no folders of PNG files, one for each of two or more labels; give another folder."
        )
    images, labels = _png_of(train, known)
    test_images, test_labels = (None, None) if test is None else _png_of(test, known)
    return _checked(folder, ImageSet(images, labels, test_images, test_labels, known))


def _png_of(folder: Path, names: tuple[str, ...]) -> tuple[Pixels, Ints]:
    from matplotlib.image import imread

    images, labels = [], []
    for part in sorted(part for part in folder.iterdir() if part.is_dir()):
        if part.name not in names:
            raise DataError(f"{part} is the folder of no label; `labels` are {', '.join(names)}.")
    for path in sorted(folder.glob("*/*.png")):
        try:
            pixels = np.asarray(imread(path, format="png"))
        except (OSError, ValueError, SyntaxError) as error:
            raise DataError(f"{path} cannot be read as PNG ({error}); repair or remove it.") from None
        scaled = pixels if pixels.dtype == np.uint8 else np.rint(255.0 * pixels).astype(np.uint8)
        images.append(_grey(path, scaled[None])[0])
        labels.append(names.index(path.parent.name))
        if images[-1].shape != images[0].shape:
            raise DataError(
                f"{path} has {images[-1].shape} pixels, the first image {images[0].shape}; make them equal."
            )
    if not images:
        raise DataError(f"{folder} holds no PNG files in the folders of its labels.")
    return np.stack(images), np.array(labels, dtype=np.int64)


def _grey(path: Path, images: AnyArray) -> Pixels:
    """Return N × height × width bytes; the mean of colours, without an alpha channel."""
    if images.dtype != np.uint8 or images.ndim not in (3, 4):
        raise DataError(f"The images of {path} must be bytes, N × height × width or with colours; got {images.dtype}.")
    if images.ndim == 4:
        colours = images[..., :3] if images.shape[-1] > 2 else images[..., :1]
        images = np.rint(colours.mean(axis=-1)).astype(np.uint8)
    return np.ascontiguousarray(images)


def _numbers(path: Path, labels: AnyArray) -> Ints:
    flat = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if flat.ndim != 1 or flat.dtype.kind not in "iu":
        raise DataError(
            f"The labels of {path} must be one whole number per image; several per image are not supported."
        )
    return flat.astype(np.int64)


def _checked(path: Path, found: ImageSet) -> ImageSet:
    for images, labels in ((found.images, found.labels), (found.test_images, found.test_labels)):
        if images is None or labels is None:
            continue
        if len(images) != len(labels) or not len(images) or images.shape[1:] != found.images.shape[1:]:
            raise DataError(f"The images and labels of {path} do not fit each other; fetch them again.")
        if labels.min() < 0 or (found.names is not None and labels.max() >= len(found.names)):
            raise DataError(f"A label of {path} has no name; `labels` are {quoted(', '.join(found.names or ()))}.")
    return found
