"""The model file: one self-describing file with everything that a prediction needs.

It is a zip archive of a page, `model.json`, and one NumPy array per entry `NAME.npy`; nothing in it is executed when it
is read. The page names the format and its version, the ids, the encoding of a row, and where the model comes from.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from pgfl.arrays import AnyArray
from pgfl.errors import ResultError
from pgfl.federation.encoding import RowEncoding
from pgfl.files import write_atomically
from pgfl.results.model import Model

MODEL_FILE, PAGE = "model.pgfl", "model.json"
FORMAT, VERSION = "pgfl model", 1
MOST_NUMBERS = 10_000_000
"""Models of clients, or of servers, with more numbers than this are in models.npz only, not in this file as well."""

GROUPS = (("servers", "pair_server", "pair_cluster"), ("clients", "client_cluster"))
ARRAYS = ("clusters", *GROUPS[0], *GROUPS[1])
IDS = ("cluster_ids", "server_ids", "client_ids")
PLAIN = ("intercept", "classes", "x_norm", "dtype", "provenance")
DAMAGE = (
    *(OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, NotImplementedError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error, MemoryError),  # a stranger's file may state any shape
)
_WHENEVER = (1980, 1, 1, 0, 0, 0)  # a fixed time, so that equal models are equal files


def save(model: Model, path: str | os.PathLike[str]) -> None:
    """Write a model to one file; a file that is already there is refused."""
    target = Path(path)
    if target.exists():
        raise ResultError(f"{target} already exists, and nothing was overwritten; choose another file.")
    write_atomically(target, lambda stream: _write(model, stream))


def load(path: str | os.PathLike[str]) -> Model:
    """Read a model file, or the model of a result folder; a folder without a model file is read as a result."""
    place = Path(path)
    if place.is_dir():
        if not (place / MODEL_FILE).exists():
            from pgfl.results.result import Result

            return Result.load(place).model()
        place /= MODEL_FILE
    if not place.exists():
        raise ResultError(f"{place} does not exist; give a result folder or a model file.")
    if not zipfile.is_zipfile(place) and place.suffix != Path(MODEL_FILE).suffix:
        raise ResultError(f"{place} is no model file; give a result folder, or the {MODEL_FILE} in it.")
    with _reading(place):
        return _read(place)


def row_preparation(path: Path) -> dict[str, Any]:
    """What a model file says about rows and tasks, without its arrays: the fields that a `Result` has as well."""
    with _reading(path), zipfile.ZipFile(path) as archive:
        page = _read_page(path, archive)
        return {
            "encoding": _encoding(page),
            "x_norm": page["x_norm"],
            "dtype": page["dtype"],
            "tasks": tuple(page["tasks"]),
        }


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Within, whatever is wrong with a file is one sentence."""
    try:
        yield
    except DAMAGE as error:
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise ResultError(f"The model file {path} is damaged or no model file ({reason}); save it again.") from error


def _write(model: Model, stream: BinaryIO) -> None:
    arrays = {name: getattr(model, name) for name in ARRAYS if getattr(model, name) is not None}
    for names in GROUPS:
        if names[0] in arrays and arrays[names[0]].size > MOST_NUMBERS:
            arrays = {name: values for name, values in arrays.items() if name not in names}
    with zipfile.ZipFile(stream, "w") as archive:
        page = json.dumps(_page(model, arrays), indent=2, ensure_ascii=False, allow_nan=False)
        archive.writestr(zipfile.ZipInfo(PAGE, _WHENEVER), page)
        for name, values in arrays.items():
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, np.ascontiguousarray(values), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy", _WHENEVER), buffer.getvalue())


def _page(model: Model, arrays: dict[str, AnyArray]) -> dict[str, Any]:
    """Return the page of a model: readable by people, and enough to read the arrays."""
    return {
        "format": FORMAT,
        "version": VERSION,
        **{name: list(getattr(model, name)) for name in IDS},
        "client_ids": list(model.client_ids) if "clients" in arrays else [],
        "objectives": list(model.objectives),
        "tasks": list(model.tasks),
        "features": list(model.feature_names),
        "encoding": None if model.encoding is None else model.encoding.to_json(),
        **{name: getattr(model, name) for name in PLAIN},
        "arrays": sorted(arrays),
    }


def _read(path: Path) -> Model:
    with zipfile.ZipFile(path) as archive:
        page = _read_page(path, archive)
        arrays = {name: _array(archive, name) for name in page["arrays"]}
    parts: dict[str, Any] = {
        **{name: tuple(page[name]) for name in (*IDS, "objectives", "tasks")},
        **{name: page[name] for name in PLAIN},
        **{name: values for name, values in arrays.items() if name in ARRAYS},
    }
    model = Model(**parts, encoding=_encoding(page))
    _check(model)
    return model


def _read_page(path: Path, archive: zipfile.ZipFile) -> dict[str, Any]:
    page: dict[str, Any] = json.loads(archive.read(PAGE))
    if page["format"] != FORMAT:
        raise ValueError(f"its format is {page['format']!r}")
    if page["version"] > VERSION:
        raise ResultError(
            f"{path} was written by a newer pgfl (format {page['version']}); install that version to read it."
        )
    return page


def _encoding(page: dict[str, Any]) -> RowEncoding | None:
    return None if page["encoding"] is None else RowEncoding.from_json(page["encoding"])


def _array(archive: zipfile.ZipFile, name: str) -> AnyArray:
    return np.asarray(np.lib.format.read_array(io.BytesIO(archive.read(f"{name}.npy")), allow_pickle=False))


def _check(model: Model) -> None:
    """Refuse a file whose parts do not fit each other."""
    clusters, length = model.clusters.shape
    features = model.encoding.dimension if model.encoding else model.features
    fits = (
        clusters == len(model.cluster_ids) == len(model.objectives) == len(model.tasks)
        and length == features * (model.classes or 1)
        and (model.clients is None or model.clients.shape == (len(model.client_ids), length))
        and (model.servers is None or model.servers.shape == (len(model.pair_server), length))
        and len(model.pair_server) == len(model.pair_cluster)
        and np.dtype(model.dtype).kind == "f"
    )
    if not fits:
        raise ValueError("its parts do not fit each other")
