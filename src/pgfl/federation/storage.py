"""A federation on disk: plain npy files that can be mapped instead of read, and a page of JSON."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from pgfl.arrays import AnyArray
from pgfl.errors import DataError
from pgfl.federation.encoding import RowEncoding
from pgfl.federation.federation import Federation, TestSet
from pgfl.federation.graphs import Graph

Allocate = Callable[[tuple[int, int], DTypeLike], AnyArray]

_FORMAT = 1
_PAGE = "federation.json"
_PLACES = ("offsets", "client_server", "client_cluster")


def in_memory(generate: Callable[[Allocate], Federation]) -> Federation:
    """Return the federation that `generate` fills in memory."""
    return generate(lambda shape, dtype: np.empty(shape, dtype=dtype))


def build_stored(directory: str | os.PathLike[str], generate: Callable[[Allocate], Federation]) -> Federation:
    """The federation that `generate` fills straight into a mapped file, saved in `directory` and mapped from there.

    The folder appears when it is complete: a failure on the way leaves nothing behind.
    """
    target = Path(directory)
    if target.exists():
        raise DataError(f"{target} already exists; choose a new folder for the federation, or remove it.")
    partial = target.with_name(f".{target.name}.partial-{os.getpid()}")
    try:
        partial.mkdir(parents=True)
        _write(generate(lambda shape, dtype: _allocate(partial / "features.npy", shape, dtype)), partial)
        partial.rename(target)
    except OSError as error:
        raise DataError(f"The federation cannot be saved in {target}: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return open_folder(target)


def save_folder(federation: Federation, directory: str | os.PathLike[str]) -> None:
    """Write a federation to a new folder; see `Federation.save`."""

    def copy(allocate: Allocate) -> Federation:
        features = allocate(federation.features.shape, federation.features.dtype)
        features[:] = federation.features
        return federation.replace(features=features, generated=federation.generated)

    build_stored(directory, copy)


def open_folder(directory: str | os.PathLike[str], *, mmap: bool = True) -> Federation:
    """Open a saved federation; see `Federation.open`."""
    folder = Path(directory)
    try:
        page = json.loads((folder / _PAGE).read_text(encoding="utf-8"))
        if page["format"] != _FORMAT:
            raise DataError(f"{folder} holds a federation of format {page['format']}; this version reads {_FORMAT}.")

        def load(name: str, *, mapped: bool = False) -> AnyArray:
            array: AnyArray = np.load(folder / f"{name}.npy", mmap_mode="r" if mapped else None, allow_pickle=False)
            return array

        return Federation(
            features=load("features", mapped=mmap),
            targets=load("targets"),
            **{name: load(name) for name in _PLACES},
            server_ids=tuple(page["servers"]),
            cluster_ids=tuple(page["clusters"]),
            graph=Graph.from_edges(len(page["servers"]), load("edges")),
            names=None if page["clients"] is None else tuple(page["clients"]),
            truth=load("truth") if page["truth"] else None,
            tests={
                cluster: TestSet(
                    load(f"test-{i}-features"),
                    load(f"test-{i}-targets"),
                    load(f"test-{i}-clients") if cluster in page.get("tests_by_client", []) else None,
                )
                for i, cluster in enumerate(page["tests"])
            }
            or None,
            generated=page.get("generated") is True,
            encoding=RowEncoding.from_json(page["encoding"]) if page.get("encoding") else None,
            weights=load("weights") if page.get("weights") else None,
        )
    except FileNotFoundError as error:
        raise DataError(f"{folder} is not a saved federation: {Path(error.filename).name} is missing.") from error
    except OSError as error:
        raise DataError(f"The federation in {folder} cannot be read: {error.strerror or error}.") from error
    except (ValueError, KeyError, TypeError, EOFError) as error:
        raise DataError(f"The federation in {folder} is damaged ({error}); save it again.") from error


def _write(federation: Federation, folder: Path) -> None:
    if isinstance(federation.features, np.memmap):
        federation.features.flush()
    tests = list((federation.tests or {}).items())
    arrays = {name: getattr(federation, name) for name in ("targets", *_PLACES)} | {"edges": federation.graph.edges}
    if federation.truth is not None:
        arrays["truth"] = federation.truth
    if federation.weights is not None:
        arrays["weights"] = federation.weights
    for i, (_, test) in enumerate(tests):
        arrays |= {f"test-{i}-features": test.features, f"test-{i}-targets": test.targets}
        arrays |= {} if test.clients is None else {f"test-{i}-clients": test.clients}
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array, allow_pickle=False)
    page = {
        "format": _FORMAT,
        "servers": federation.server_ids,
        "clusters": federation.cluster_ids,
        "clients": federation.names,
        "truth": federation.truth is not None,
        "tests": [cluster for cluster, _ in tests],
        "tests_by_client": [cluster for cluster, test in tests if test.clients is not None],
        "generated": federation.generated,
        "weights": federation.weights is not None,
        "encoding": federation.encoding.to_json() if federation.encoding else None,
    }
    (folder / _PAGE).write_text(json.dumps(page, ensure_ascii=False), encoding="utf-8")


def _allocate(path: Path, shape: tuple[int, int], dtype: DTypeLike) -> AnyArray:
    """A mapped array whose room on disk is reserved beforehand, so that a full disk is an error and not a crash."""
    array = np.lib.format.open_memmap(path, mode="w+", dtype=np.dtype(dtype), shape=shape)
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return array
