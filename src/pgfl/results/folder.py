"""The result folder and its file formats.

    config.toml      the resolved config, written when the run begins
    history.csv      run, round (from 0, the start), then one column per metric, in linear units
    models.npz       models of run 0; models-RUN.npz those of the others
    model.pgfl       the model of run 0 with everything that a prediction needs, in one file; model-RUN.pgfl the others
    clients.csv      every client's own held-out measures in run 0, without privacy
    held_out.csv     predicted and observed targets of held-out rows in run 0; with privacy only means of many rows
    state.npz        what further rounds start from (duals, accounts); state-RUN.npz that of the other runs
    privacy.csv      one row per client of run 0, where privacy is on; privacy-RUN.csv those of the others
    summary.json     the figures at the end; written last, so a folder that has it is complete
    curves.png       the curves
    report.html      a page that shows everything
    live.json        until the run ends: the history so far, for those who watch it
    checkpoint/      until the run ends; in simulation_only/ where it holds clean client models
    simulation_only/ with privacy on and seeded noise: clean client models and what was measured on them

With privacy on, everything outside `simulation_only` is a function of what the clients released.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import shutil
import zipfile
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, Self, TypeVar

import numpy as np

from pgfl.array_types import AnyArray, AnyFloats
from pgfl.atomic_files import make_folder, remove_drafts, write_atomically, write_text
from pgfl.errors import ConfigError, Interrupted, ResultError
from pgfl.results import model_file
from pgfl.results.continued_once import IN_MEMORY, claim
from pgfl.results.measured import Measured
from pgfl.results.report import write as write_report
from pgfl.results.result import Columns, Network, Result, RunModels
from pgfl.results.training_state import STATE, TrainingState
from pgfl.results.verdict import Verdict

if TYPE_CHECKING:
    from pgfl.config import Config

CONFIG, HISTORY, MODELS, PRIVACY, SUMMARY = "config.toml", "history.csv", "models.npz", "privacy.csv", "summary.json"
CLIENTS, HELD_OUT = "clients.csv", "held_out.csv"
LIVE = "live.json"
TEXT_COLUMNS = ("client", "cluster")
SIMULATION_ONLY, CHECKPOINT = "simulation_only", "checkpoint"
DENSE_SERVERS = 10_000_000
"""The most numbers that `servers` may hold as S × Q × d; a larger array is stored by the pairs that exist."""
T = TypeVar("T")


class Processes(Protocol):
    """The processes of a run, of which the first one writes."""

    @property
    def first(self) -> bool:
        """Whether this is the process that writes."""
        ...

    def from_first(self, work: Callable[[], T]) -> T:
        """The value of `work` on the first process, on every process."""
        ...


class RunFolder:
    """The folder of a run that is going on: begun, then saved.

    If the run fails before its first checkpoint, the folder is abandoned, so that the run can simply be tried again.
    `command` is how messages spell the command that goes on with an interrupted run.
    """

    def __init__(self, path: Path, config: Config, processes: Processes, command: str = "pgfl run") -> None:
        self.path, self._config, self._processes, self._command = path, config, processes, command

    def __enter__(self) -> Self:
        """Make the folder and write the config to it; a folder begun with another config is refused."""
        self._processes.from_first(lambda: begin_folder(self.path, self._config))
        return self

    def save(self, result: Result) -> None:
        """Write the result, which is whole on the first process."""
        self._processes.from_first(lambda: result.save(self.path))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Abandon the folder after an error; an interrupt becomes a message that says how to go on."""
        if error is not None and self._processes.first:
            abandon_folder(self.path)
        if isinstance(error, KeyboardInterrupt):
            kept = any(place.exists() for place in checkpoint_folders(self.path))
            then = f"go on with `{self._command} --resume --out {self.path}`" if kept else "nothing was kept"
            raise Interrupted(f"Interrupted; {then}.") from None


def is_complete(folder: Path) -> bool:
    """Whether the folder holds a result that was written to its end."""
    return (folder / SUMMARY).is_file()


def check_folder(folder: Path, *, resume: bool) -> None:
    """Refuse a folder that is taken; nothing is written. With `resume`, a run that was begun there may go on."""
    if folder.exists() and not folder.is_dir():
        raise ResultError(f"{folder} is a file; choose a folder for the result.")
    if resume:
        return
    if is_complete(folder):
        raise ResultError(_taken(folder))
    begun = [folder / name for name in (CONFIG, HISTORY, MODELS)]
    if any(path.exists() for path in (*begun, *checkpoint_folders(folder))):
        raise ResultError(f"{folder} holds a run that has not ended; continue it with --resume or choose another.")


def begin_folder(folder: Path, config: Config | None) -> None:
    """Make the folder and write the config to it; a folder begun with another config is refused."""
    make_folder(folder)
    remove_drafts(folder)
    if config is None:
        return
    from pgfl.config import to_toml
    from pgfl.data.fingerprint import fingerprint

    begun = _read_config(folder)
    if begun is None:
        write_text(folder / CONFIG, to_toml(config))
    elif fingerprint(begun) != fingerprint(config):
        raise ResultError(
            f"{folder} was begun with another config ({_difference(begun, config)}); use that one, or another folder."
        )


def abandon_folder(folder: Path) -> None:
    """Undo `begin_folder` where a run ended before its first checkpoint."""
    left = [folder / HISTORY, folder / MODELS, *checkpoint_folders(folder)]
    if not folder.is_dir() or any(path.exists() for path in left):
        return
    remove_drafts(folder)
    for name in (CONFIG, LIVE):
        (folder / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # a folder that holds something else stays
        folder.rmdir()


def fresh_folder(parent: Path, name: str) -> Path:
    """A folder name under `parent` that is not taken yet: NAME-DATE-TIME."""
    stem = f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
    candidates = (parent / (stem if number == 1 else f"{stem}-{number}") for number in range(1, 1_000_000))
    return next(candidate for candidate in candidates if not candidate.exists())


def save(result: Result, folder: Path) -> Path:
    """Write a result; the summary comes last. A folder that already holds a result is refused."""
    check_folder(folder, resume=True)
    if is_complete(folder):
        raise ResultError(_taken(folder))
    begin_folder(folder, result.config)
    _write_columns(folder / HISTORY, result.history)
    for run, models in enumerate(result.models):
        write_atomically(folder / _of_run(MODELS, run), partial(_write_models, result, models))
        described = folder / _of_run(model_file.MODEL_FILE, run)
        described.unlink(missing_ok=True)
        result.model(run).save(described)
    for run, state in enumerate(result.states):
        state.save(folder / _of_run(STATE, run))
    if result.continued:
        claim(folder, IN_MEMORY)
    for run, table in enumerate(result.privacy):
        _write_columns(folder / _of_run(PRIVACY, run), table)
    for name, columns in ((CLIENTS, result.client_measures), (HELD_OUT, result.held_out)):
        if columns is not None:
            _write_columns(folder / name, columns)
    if result.private and result.noise == "seeded":
        _save_clean(result, folder / SIMULATION_ONLY)
    write_report(result, folder)
    write_text(folder / SUMMARY, json.dumps(result.summary(), indent=2, ensure_ascii=False) + "\n")
    (folder / LIVE).unlink(missing_ok=True)
    for place in checkpoint_folders(folder):
        shutil.rmtree(place, ignore_errors=True)
    return folder


def checkpoint_folders(folder: Path) -> tuple[Path, Path]:
    """The folders of checkpoints; those with clean client models of a private simulation are kept apart."""
    return folder / CHECKPOINT, folder / SIMULATION_ONLY / CHECKPOINT


def checkpoint_folder(folder: Path, config: Config) -> Path:
    """The folder of a run's checkpoints."""
    public, clean = checkpoint_folders(folder)
    return clean if config.privacy.enabled and config.privacy.noise == "seeded" else public


def load(folder: Path) -> Result:
    """Read a result folder again."""
    if not is_complete(folder):
        raise ResultError(f"{folder} holds no finished result; give the folder of a run that has ended.")
    try:
        return _load(folder)
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, ConfigError) as error:
        raise ResultError(f"The result in {folder} is damaged: {' '.join(str(error).split())}.") from error


def _load(folder: Path) -> Result:
    summary = json.loads((folder / SUMMARY).read_text("utf-8"))
    runs, clean = range(summary["runs"]), folder / SIMULATION_ONLY
    first = _read_arrays(folder / MODELS)
    tables = [folder / _of_run(PRIVACY, run) for run in runs]
    states = [folder / _of_run(STATE, run) for run in runs]
    described = folder / model_file.MODEL_FILE
    rows = model_file.row_preparation(described) if described.exists() else {}
    return Result(
        client_ids=first["client_ids"].tolist(),
        server_ids=first["server_ids"].tolist(),
        cluster_ids=first["cluster_ids"].tolist(),
        objectives=first["objectives"].tolist(),
        models=[_read_models(folder, run) for run in runs],
        history=_read_columns(folder / HISTORY),
        config=_read_config(folder),
        intercept=bool(first["intercept"]),
        **rows,
        classes=int(first["classes"]) if "classes" in first else None,
        rho=summary.get("rho"),
        engine=summary.get("engine"),
        clean_history=_read_if_present(clean / HISTORY),
        privacy=[_read_columns(table) for table in tables if table.exists()],
        noise=summary["noise"],
        guarantee=summary["guarantee"],
        ended_by=summary.get("ended_by"),
        spent_at=summary.get("spent_at", ()),
        warnings=summary["warnings"],
        states=[TrainingState.load(state) for state in states if state.exists()],
        seconds=summary["seconds"],
        verdict=Verdict.from_json(summary["verdict"]) if summary.get("verdict") else None,
        measures=[Measured.from_json(name, table) for name, table in summary.get("measures", {}).items()],
        client_measures=_read_if_present(folder / CLIENTS),
        held_out=_read_if_present(folder / HELD_OUT),
        folder=folder,
    )


def _taken(folder: Path) -> str:
    return f"{folder} already holds a result, and nothing was overwritten; choose another folder or remove that one."


def _of_run(name: str, run: int) -> str:
    stem, _, suffix = name.partition(".")
    return name if run == 0 else f"{stem}-{run}.{suffix}"


def _read_config(folder: Path) -> Config | None:
    if not (folder / CONFIG).exists():
        return None
    from pgfl.config import load as load_config

    return load_config(folder / CONFIG)


def _difference(first: Config, second: Config) -> str:
    """The first key whose value differs."""
    one, other = _flat(first.model_dump()), _flat(second.model_dump())
    keys = [key for key in {**one, **other} if one.get(key) != other.get(key) and key != "name"]
    return f"{keys[0]} was {one.get(keys[0])} and is {other.get(keys[0])}" if keys else "its data files have changed"


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat


# -------------------------------------------------------------------------------------------------------------- models


def _write_models(result: Result, models: RunModels, stream: BinaryIO) -> None:
    arrays: dict[str, Any] = {
        "client_ids": np.array(result.client_ids, dtype=np.str_),
        "clients": models.handed_out,
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


def _save_clean(result: Result, folder: Path) -> None:
    make_folder(folder)
    if result.clean_history is not None:
        _write_columns(folder / HISTORY, result.clean_history)
    ids = np.array(result.client_ids, dtype=np.str_)
    for run, models in enumerate(result.models):
        if models.clients is not None:
            write_atomically(folder / _of_run(MODELS, run), partial(np.savez, client_ids=ids, clients=models.clients))


def _read_models(folder: Path, run: int) -> RunModels:
    arrays, described = _read_arrays(folder / _of_run(MODELS, run)), folder / _of_run(model_file.MODEL_FILE, run)
    servers, private = arrays["servers"], bool(arrays["private"])
    if servers.ndim == 3:
        held = ~np.isnan(servers).all(axis=-1)
        servers, (pair_server, pair_cluster) = servers[held], np.nonzero(held)
    else:
        pair_server, pair_cluster = arrays["pair_server"], arrays["pair_cluster"]
    return RunModels(
        clients=_clean_clients(folder / SIMULATION_ONLY / _of_run(MODELS, run)) if private else arrays["clients"],
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
    return _read_arrays(path)["clients"] if path.exists() else None


def _read_arrays(path: Path) -> dict[str, AnyArray]:
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


# -------------------------------------------------------------------------------------------------------------- tables


def _write_columns(path: Path, columns: Columns) -> None:
    """A CSV file whose numbers read back to the same bits."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(np.asarray(values).tolist() for values in columns.values()), strict=True))
    write_text(path, text.getvalue())


def _read_columns(path: Path) -> Columns:
    with open(path, encoding="utf-8", newline="") as stream:
        header, *rows = csv.reader(stream)
    columns: Any = zip(*rows, strict=True) if rows else ([] for _ in header)
    return {name: _typed(name, values) for name, values in zip(header, columns, strict=True)}


def _read_if_present(path: Path) -> Columns | None:
    return _read_columns(path) if path.exists() else None


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
