"""Models and tables of figures as the files of a result folder, whose numbers read back to the same bits."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from pgfl.arrays import AnyArray, AnyFloats
from pgfl.files import make_folder, write_atomically, write_text
from pgfl.results import model_file
from pgfl.results.coefficients import FITS
from pgfl.results.result import Columns, Network, Result, RunModels

HISTORY, MODELS, SIMULATION_ONLY = "history.csv", "models.npz", "simulation_only"
TEXT_COLUMNS = ("client", "cluster", "given", "learns_from")
DENSE_SERVERS = 10_000_000
"""The most numbers that `servers` may hold as S × Q × d; a larger array is stored by the pairs that exist."""


def of_run(name: str, run: int) -> str:
    """Return the name of a file of one run; that of run 0 has no number."""
    stem, _, suffix = name.partition(".")
    return name if run == 0 else f"{stem}-{run}.{suffix}"


def write_models(result: Result, models: RunModels, stream: BinaryIO) -> None:
    """The models of a run as arrays by name; with privacy, those that were released."""
    arrays: dict[str, Any] = {
        "client_ids": np.array(result.client_ids, dtype=np.str_),
        "clients": models.shareable_clients,
        "server_ids": np.array(result.server_ids, dtype=np.str_),
        "cluster_ids": np.array(result.cluster_ids, dtype=np.str_),
        "objectives": np.array(result.objectives, dtype=np.str_),
        "intercept": np.array(result.intercept),
        **({} if result.classes is None else {"classes": np.array(result.classes)}),
        "private": np.array(models.released is not None),
    }
    held = models.present
    pairs = {"pair_server": models.pair_server[held], "pair_cluster": models.pair_cluster[held]}
    shape = (len(result.server_ids), len(result.cluster_ids), result.dimension)
    if shape[0] * shape[1] * shape[2] <= DENSE_SERVERS:
        dense = np.full(shape, np.nan, dtype=models.servers.dtype)
        dense[pairs["pair_server"], pairs["pair_cluster"]] = models.servers[held]
        arrays |= {"servers": dense}
    else:
        arrays |= pairs | {"servers": models.servers[held]}
    if models.network is not None:
        arrays |= vars(models.network)
    np.savez(stream, **arrays)


def save_clean(result: Result, folder: Path) -> None:
    """What a private simulation keeps apart: clean client models and what was measured on them."""
    make_folder(folder)
    if result.clean_history is not None:
        write_columns(folder / HISTORY, result.clean_history)
    ids = np.array(result.client_ids, dtype=np.str_)
    for run, models in enumerate(result.models):
        if models.clients is not None:
            write_atomically(folder / of_run(MODELS, run), partial(np.savez, client_ids=ids, clients=models.clients))


def read_models(folder: Path, run: int) -> RunModels:
    """Return the models of a run of a result folder."""
    arrays, described = read_arrays(folder / of_run(MODELS, run)), folder / of_run(model_file.MODEL_FILE, run)
    servers, private = arrays["servers"], bool(arrays["private"])
    if servers.ndim == 3:
        held = ~np.isnan(servers).all(axis=-1)
        servers, (pair_server, pair_cluster) = servers[held], np.nonzero(held)
    else:
        pair_server, pair_cluster = arrays["pair_server"], arrays["pair_cluster"]
    return RunModels(
        clients=_clean_clients(folder / SIMULATION_ONLY / of_run(MODELS, run)) if private else arrays["clients"],
        released=arrays["clients"] if private else None,
        pair_server=pair_server,
        pair_cluster=pair_cluster,
        servers=servers,
        present=np.ones(len(servers), dtype=bool),
        network=_network(arrays),
        encoding=model_file.row_preparation(described)["encoding"] if described.exists() else None,
    )


def _network(arrays: Mapping[str, AnyArray]) -> Network | None:
    if "edges" not in arrays:
        return None
    return Network(arrays["client_server"], arrays["client_cluster"], arrays["edges"])


def _clean_clients(path: Path) -> AnyFloats | None:
    return read_arrays(path)["clients"] if path.exists() else None


def read_arrays(path: Path) -> dict[str, AnyArray]:
    """Return all arrays of a file."""
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def write_columns(path: Path, columns: Columns) -> None:
    """A CSV file whose numbers read back to the same bits."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(np.asarray(values).tolist() for values in columns.values()), strict=True))
    write_text(path, text.getvalue())


def read_columns(path: Path) -> Columns:
    """Return a CSV file that `write_columns` wrote."""
    with open(path, encoding="utf-8", newline="") as stream:
        header, *rows = csv.reader(stream)
    columns: Any = zip(*rows, strict=True) if rows else ([] for _ in header)
    return {name: _typed(name, values) for name, values in zip(header, columns, strict=True)}


def read_if_present(path: Path) -> Columns | None:
    """Return the same; None if there is no such file."""
    return read_columns(path) if path.exists() else None


def read_fits(path: Path) -> Columns | None:
    """Return what is known about the coefficients besides themselves, from their table; None if there is none."""
    if not path.exists():
        return None
    import polars

    table = polars.read_csv(path, infer_schema=False).select(FITS)
    return {name: table[name].cast(polars.Float64).fill_null(np.nan).to_numpy() for name in FITS}


def _typed(name: str, values: Sequence[str]) -> AnyArray:
    """Truth values, else whole numbers, else numbers, else text; ids are always text."""
    if name not in TEXT_COLUMNS and values and set(values) <= {"True", "False"}:
        return np.array([value == "True" for value in values])
    for kind in () if name in TEXT_COLUMNS else (int, float):
        try:
            return np.array([kind(value) for value in values])
        except ValueError:
            continue
    return np.array(values, dtype=np.str_)
