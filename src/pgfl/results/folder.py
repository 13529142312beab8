"""The result folder and its file formats.

    config.toml      the resolved config, written when the run begins
    history.csv      run, round (from 0, the start), then one column per metric, in linear units
    models.npz       models of run 0; models-RUN.npz those of the others
    model.pgfl       the model of run 0 with everything that a prediction needs, in one file; model-RUN.pgfl the others
    coefficients.csv coefficients by name in the table's units, with standard errors and 95 % intervals, of run 0
    clients.csv      every client's own held-out measures in run 0, without privacy
    held_out.csv     predicted and observed targets of held-out rows in run 0; with privacy only means of many rows
    weights.csv      who learned from whom, where that was learned: run, cluster, learns_from, weight
    clusters.csv     where clusters were found: client, given, cluster, probability, and p_… of every cluster
    state.npz        what further rounds start from (duals, accounts); state-RUN.npz that of the other runs
    privacy.csv      one row per client of run 0, where privacy is on; privacy-RUN.csv those of the others
    summary.json     the figures at the end; written last, so a folder that has it is complete
    curves.png       the curves
    model_card.md    data, measures per cluster, privacy and intended use, as model hubs read them
    report.html      a page that shows everything
    live.json        until the run ends: the history so far, for those who watch it
    checkpoint/      until the run ends; in simulation_only/ where it holds clean client models
    simulation_only/ with privacy on and seeded noise: clean client models and what was measured on them

With privacy on, everything outside `simulation_only` is a function of what the clients released.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import zipfile
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from pgfl.errors import ConfigError, Interrupted, ResultError
from pgfl.files import make_folder, remove_drafts, write_atomically, write_text
from pgfl.privacy.card import PrivacyCard
from pgfl.results import model_file
from pgfl.results.alternatives import Alternatives
from pgfl.results.arrays import (
    HISTORY,
    MODELS,
    SIMULATION_ONLY,
    of_run,
    read_arrays,
    read_columns,
    read_fits,
    read_if_present,
    read_models,
    save_clean,
    write_columns,
    write_models,
)
from pgfl.results.calibration import Calibration
from pgfl.results.measures import Measured
from pgfl.results.model_card import model_card
from pgfl.results.report import write as write_report
from pgfl.results.result import Result
from pgfl.results.state import STATE, RecordDigests, TrainingState, note_continued
from pgfl.results.verdict import Verdict

if TYPE_CHECKING:
    from pgfl.config import Config


CONFIG, PRIVACY, SUMMARY = "config.toml", "privacy.csv", "summary.json"
CLIENTS, HELD_OUT, WEIGHTS, CLUSTERS = "clients.csv", "held_out.csv", "weights.csv", "clusters.csv"
COEFFICIENTS, MODEL_CARD = "coefficients.csv", "model_card.md"
LIVE = "live.json"
CHECKPOINT = "checkpoint"
T = TypeVar("T")


class Processes(Protocol):
    """The processes of a run, of which the first one writes."""

    @property
    def first(self) -> bool:
        """Whether this is the process that writes."""
        ...

    def broadcast(self, work: Callable[[], T]) -> T:
        """Return the value of `work` on the first process, on every process."""
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
        self._processes.broadcast(lambda: begin_folder(self.path, self._config))
        return self

    def save(self, result: Result) -> None:
        """Write the result, which is whole on the first process."""
        self._processes.broadcast(lambda: result.save(self.path))

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
    """Return whether the folder holds a result that was written to its end."""
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
    from pgfl.config.fingerprint import fingerprint

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
    """Return a folder name under `parent` that is not taken yet: NAME-DATE-TIME."""
    stem = f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
    candidates = (parent / (stem if number == 1 else f"{stem}-{number}") for number in range(1, 1_000_000))
    return next(candidate for candidate in candidates if not candidate.exists())


def save(result: Result, folder: Path) -> Path:
    """Write a result; the summary comes last. A folder that already holds a result is refused."""
    check_folder(folder, resume=True)
    if is_complete(folder):
        raise ResultError(_taken(folder))
    begin_folder(folder, result.config)
    write_columns(folder / HISTORY, result.history)
    for run, models in enumerate(result.models):
        write_atomically(folder / of_run(MODELS, run), partial(write_models, result, models))
        described = folder / of_run(model_file.MODEL_FILE, run)
        described.unlink(missing_ok=True)
        result.model(run).save(described)
    for run, state in enumerate(result.states):
        state.save(folder / of_run(STATE, run))
    if result.digests is not None and result.states:
        result.digests.save(folder / STATE)
    if result.continued:
        note_continued(folder)
    for run, table in enumerate(result.privacy):
        write_columns(folder / of_run(PRIVACY, run), table)
    tables = {CLIENTS: result.client_measures, HELD_OUT: result.held_out, WEIGHTS: result.weights}
    for name, columns in (tables | {CLUSTERS: result.clusters}).items():
        if columns is not None:
            write_columns(folder / name, columns)
    if result.fits is not None:
        write_text(folder / COEFFICIENTS, result.coefficients().write_csv())
    if result.private and result.noise == "seeded":
        save_clean(result, folder / SIMULATION_ONLY)
    write_text(folder / MODEL_CARD, model_card(result))
    write_report(result, folder)
    write_text(folder / SUMMARY, json.dumps(result.summary(), indent=2, ensure_ascii=False) + "\n")
    (folder / LIVE).unlink(missing_ok=True)
    for place in checkpoint_folders(folder):
        shutil.rmtree(place, ignore_errors=True)
    return folder


def checkpoint_folders(folder: Path) -> tuple[Path, Path]:
    """Return the folders of checkpoints; those with clean client models of a private simulation are kept apart."""
    return folder / CHECKPOINT, folder / SIMULATION_ONLY / CHECKPOINT


def checkpoint_folder(folder: Path, config: Config) -> Path:
    """Return the folder of a run's checkpoints."""
    public, clean = checkpoint_folders(folder)
    return clean if config.privacy.enabled and config.privacy.noise == "seeded" else public


def load(folder: Path) -> Result:
    """Read a result folder again."""
    if not is_complete(folder):
        raise ResultError(f"{folder} holds no finished result; give the folder of a run that has ended.")
    try:
        return _load(folder)
    except (OSError, ValueError, KeyError, TypeError, EOFError, MemoryError, zipfile.BadZipFile, ConfigError) as error:
        raise ResultError(f"The result in {folder} is damaged: {' '.join(str(error).split())}.") from error


def _load(folder: Path) -> Result:
    summary = json.loads((folder / SUMMARY).read_text("utf-8"))
    runs, clean = range(summary["runs"]), folder / SIMULATION_ONLY
    first = read_arrays(folder / MODELS)
    tables = [folder / of_run(PRIVACY, run) for run in runs]
    states = [folder / of_run(STATE, run) for run in runs]
    described = folder / model_file.MODEL_FILE
    rows = model_file.row_preparation(described) if described.exists() else {}
    return Result(
        client_ids=first["client_ids"].tolist(),
        server_ids=first["server_ids"].tolist(),
        cluster_ids=first["cluster_ids"].tolist(),
        objectives=first["objectives"].tolist(),
        models=[read_models(folder, run) for run in runs],
        history=read_columns(folder / HISTORY),
        config=_read_config(folder),
        intercept=bool(first["intercept"]),
        **rows,
        classes=int(first["classes"]) if "classes" in first else None,
        rho=summary.get("rho"),
        step_size=summary.get("step_size"),
        engine=summary.get("engine"),
        clean_history=read_if_present(clean / HISTORY),
        privacy=[read_columns(table) for table in tables if table.exists()],
        noise=summary["noise"],
        terms=PrivacyCard.from_json(card) if (card := summary.get("privacy_card")) else None,
        ended_by=summary.get("ended_by"),
        spent_at=summary.get("spent_at", ()),
        warnings=summary["warnings"],
        states=[TrainingState.load(state) for state in states if state.exists()],
        seconds=summary["seconds"],
        verdict=Verdict.from_json(summary["verdict"]) if summary.get("verdict") else None,
        measures=[Measured.from_json(name, table) for name, table in summary.get("measures", {}).items()],
        client_measures=read_if_present(folder / CLIENTS),
        held_out=read_if_present(folder / HELD_OUT),
        weights=read_if_present(folder / WEIGHTS),
        clusters=read_if_present(folder / CLUSTERS),
        fits=read_fits(folder / COEFFICIENTS),
        alternatives=Alternatives.from_json(page) if (page := summary.get("alternatives")) else None,
        calibration=Calibration.from_json(page) if (page := summary.get("calibration")) else None,
        fits_note=summary.get("coefficients") or "",
        folder=folder,
        digests=RecordDigests.load(folder / STATE) if summary["noise"] == "secure" and states[0].exists() else None,
    )


def _taken(folder: Path) -> str:
    return f"{folder} already holds a result, and nothing was overwritten; choose another folder or remove that one."


def _read_config(folder: Path) -> Config | None:
    if not (folder / CONFIG).exists():
        return None
    from pgfl.config import load_config

    return load_config(folder / CONFIG)


def _difference(first: Config, second: Config) -> str:
    """Return the first key whose value differs."""
    one, other = _flat(first.model_dump()), _flat(second.model_dump())
    keys = [key for key in {**one, **other} if one.get(key) != other.get(key) and key != "name"]
    return f"{keys[0]} was {one.get(keys[0])} and is {other.get(keys[0])}" if keys else "its data files have changed"


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat
