"""Handwritten digits of Section V-B: the clients of a cluster classify digits by logistic regression."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from pgfl.arrays import AnyArray, AnyFloats, Ints
from pgfl.errors import ConfigError, DataError
from pgfl.federation.clipping import just_below
from pgfl.federation.digits import PIXELS, SIDE, Images, embedded, read_originals
from pgfl.federation.encoding import RowEncoding
from pgfl.federation.federation import Federation, TestSet
from pgfl.federation.graphs import Graph
from pgfl.federation.mapping import mapped_rows, pixel_encoding
from pgfl.federation.synthetic import POOLS, Layout, float_type, lay_out, offsets_of
from pgfl.maps import MapSource, read_maps
from pgfl.streams import Purpose, stream

Task = tuple[tuple[int, ...], tuple[int, ...]]
"""The digits that are labelled 0, and those that are labelled 1."""

PAIRS: tuple[Task, ...] = (((1,), (8,)), ((1,), (9,)), ((7,), (8,)))
TRIPLETS: tuple[Task, ...] = (((1, 2, 3), (6, 7, 8)), ((1, 2, 3), (7, 8, 9)), ((1, 2, 3), (6, 8, 9)))
SECTION_V_B = {"pairs": (PAIRS, (2, 4)), "triplets": (TRIPLETS, (6, 12))}


def mnist_federation(
    tasks: str | Iterable[tuple[int | Sequence[int], int | Sequence[int]]] = "pairs",
    *,
    samples: int | tuple[int, int] | None = None,
    servers: int = 10,
    clients_per_server: int | Sequence[int] = 15,
    graph: str | Graph = "random",
    average_degree: float = 3.0,
    seed: int = 0,
    run: int = 0,
    source: str | os.PathLike[str] | None = None,
    intercept: bool = False,
    dtype: DTypeLike = np.float64,
    servers_subset: Sequence[int] | None = None,
    map: MapSource = None,
) -> Federation:
    """Return a federation with a cluster for each task; a task is the digits labelled 0 and the digits labelled 1.

    `tasks` is "pairs" ({1|8}, {1|9}, {7|8}), "triplets" ({1,2,3|6,7,8}, {1,2,3|7,8,9}, {1,2,3|6,8,9}) or a list of
    your own. A client has D_k images of *every* digit of its task, with D_k uniform between the ends of `samples` (2
    to 4, for triplets 6 to 12). No image is used twice in a run. Every image is divided by its norm, so ‖x‖ = 1; with
    `intercept` a 1 is put after it. The test set of a cluster is all standard test images of its digits. With a row
    `map`, such as "gradients", the pixels 0 to 255 of an image go through it instead.

    The images are those that come with the package (the first 2,000 training images and all test images of 1, 2, 3,
    6, 7, 8, 9), or all of the four original files in the folder `source`.

    >>> federation = mnist_federation("pairs", seed=1)
    >>> federation.cluster_ids, federation.size, federation.dimension
    (('1|8', '1|9', '7|8'), 150, 784)
    >>> federation.tests["1|8"].features.shape
    (2109, 784)
    """
    clusters = _named_tasks(tasks)
    if samples is None:
        samples = SECTION_V_B[tasks if isinstance(tasks, str) else "pairs"][1]
    held = float_type(dtype)
    folder = None if source is None else Path(source)
    images = _images(folder, clusters)
    layout = lay_out(
        servers,
        clients_per_server,
        len(clusters),
        graph=graph,
        average_degree=average_degree,
        seed=seed,
        run=run,
        servers_subset=servers_subset,
    )
    encoding = pixel_encoding((SIDE, SIDE), read_maps(map), intercept) if map else None
    features, targets, counts = _deal(layout, list(clusters.values()), samples, images, held, intercept, encoding)
    return Federation(
        features=features,
        targets=targets,
        offsets=offsets_of(counts),
        client_server=layout.client_server,
        client_cluster=layout.client_cluster,
        server_ids=layout.server_ids,
        cluster_ids=tuple(clusters),
        graph=layout.graph,
        names=layout.names,
        tests={name: _test_set(folder, task, held, intercept, encoding) for name, task in clusters.items()},
        generated=True,
        encoding=encoding,
    )


def _named_tasks(tasks: str | Iterable[tuple[int | Sequence[int], int | Sequence[int]]]) -> dict[str, Task]:
    """Return the tasks by the names of their clusters, such as 1|8, sorted as text."""
    if isinstance(tasks, str):
        if tasks not in SECTION_V_B:
            raise ConfigError(f"Unknown tasks '{tasks}'; choose pairs or triplets, or list tasks of your own.")
        tasks = SECTION_V_B[tasks][0]
    named: dict[str, Task] = {}
    for task in tasks:
        try:
            zeros, ones = (tuple(sorted(np.atleast_1d(digits).tolist())) for digits in task)
            distinct = len({*zeros, *ones}) == len(zeros) + len(ones) and bool(zeros) and bool(ones)
            valid = distinct and {*zeros, *ones} <= set(range(10))
        except (TypeError, ValueError):
            valid = False
        if not valid:
            raise ConfigError(
                f"A task is two groups of digits without a digit in common, such as ([1, 2], [7]); got {task}."
            )
        name = "|".join("".join(map(str, digits)) for digits in (zeros, ones))
        if name in named:
            raise ConfigError(f"The task {name} is given twice; every cluster needs its own.")
        named[name] = (zeros, ones)
    if not named:
        raise ConfigError("At least one task is needed, such as ([1], [8]).")
    return dict(sorted(named.items()))


def _images(source: Path | None, clusters: dict[str, Task]) -> Images:
    images = embedded() if source is None else read_originals(source)
    for digit in sorted({digit for task in clusters.values() for group in task for digit in group}):
        if digit not in images.train:
            raise DataError(
                f"Images of the digit {digit} do not come with the package; give the folder of the original files."
            )
    return images


def _deal(
    layout: Layout,
    tasks: Sequence[Task],
    samples: int | tuple[int, int],
    images: Images,
    dtype: np.dtype[Any],
    intercept: bool,
    encoding: RowEncoding | None,
) -> tuple[AnyFloats, AnyFloats, Ints]:
    """Features, labels and row counts of the own clients.

    Every digit's images are shuffled once a run and dealt to the clients of all servers in turn, so a part of the
    servers gets what it would get in the whole.
    """
    per_digit = np.concatenate(list(layout.sample_counts(samples, range(len(layout.sizes))).values()))
    digits = [[*zeros, *ones] for zeros, ones in tasks]
    counts = per_digit[layout.clients] * np.array([len(group) for group in digits])[layout.client_cluster]
    features: AnyArray = np.ones((int(counts.sum()), PIXELS + intercept), dtype=np.uint8 if encoding else dtype)
    targets = np.empty(len(features), dtype=dtype)
    hands = {digit: _hands(layout, per_digit, digit, digits, images) for group in digits for digit in group}
    row = 0
    for client, cluster in zip(layout.clients.tolist(), layout.client_cluster.tolist(), strict=True):
        for digit in digits[cluster]:
            order, first = hands[digit]
            rows = slice(row, row + int(per_digit[client]))
            features[rows, :PIXELS] = images.train[digit][order[first[client] : first[client + 1]]]
            targets[rows] = digit in tasks[cluster][1]
            row = rows.stop
    return _finished(features, intercept, encoding, dtype), targets, counts


def _hands(
    layout: Layout, per_digit: Ints, digit: int, digits: Sequence[Sequence[int]], images: Images
) -> tuple[Ints, Ints]:
    """Return a digit's images in the order in which they are dealt, and where every client's hand begins."""
    takes_part = np.array([digit in group for group in digits])[layout.clusters]
    first = offsets_of(np.where(takes_part, per_digit, 0))
    available = len(images.train[digit])
    if first[-1] > available:
        raise DataError(
            f"The clients need {first[-1]} images of the digit {digit}, but there are {available}; lower the "
            "samples or the clients, or give the folder of the original files."
        )
    return stream(layout.seed, layout.run, Purpose.DATA, digit, POOLS).permutation(available), first


@lru_cache(maxsize=16)
def _test_set(
    source: Path | None, task: Task, dtype: np.dtype[Any], intercept: bool, encoding: RowEncoding | None
) -> TestSet:
    """Shared by all runs, and read-only for that."""
    images = embedded() if source is None else read_originals(source)
    sizes = [sum(len(images.test[digit]) for digit in group) for group in task]
    pixels: AnyArray = np.ones((sum(sizes), PIXELS + intercept), dtype=np.uint8 if encoding else dtype)
    np.concatenate([images.test[digit] for group in task for digit in group], out=pixels[:, :PIXELS], casting="safe")
    features = _finished(pixels, intercept, encoding, dtype)
    targets = np.repeat(np.arange(2, dtype=dtype), sizes)
    features.flags.writeable = targets.flags.writeable = False
    return TestSet(features, targets)


def _finished(images: AnyArray, intercept: bool, encoding: RowEncoding | None, dtype: np.dtype[Any]) -> AnyFloats:
    """Return rows of pixels as models see them: mapped, or divided by their norm in place."""
    if encoding is not None:
        return mapped_rows(encoding, images[:, :PIXELS], dtype)
    _normalise(images[:, :PIXELS])
    return images


def _normalise(rows: AnyFloats) -> None:
    """Scale every row to the length 1, in place, so that nothing is left to clip; a row of zeros stays."""
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    rows *= (just_below(1.0, rows) / np.where(norms > 0, norms, 1.0))[:, None]
