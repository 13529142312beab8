"""A simulation put down and taken up again, bit for bit.

One file a batch of runs, replaced as a whole: a kill at any moment leaves the last good one.
"""

from __future__ import annotations

import json
import signal
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from pgfl.atomic_files import make_folder, write_atomically
from pgfl.errors import ResultError
from pgfl.privacy.mechanism import Plan
from pgfl.simulate.engine import Engine
from pgfl.simulate.recorder import Recorder


class Checkpoints:
    """The checkpoints of one experiment; `fingerprint` names everything that determines its result.

    `keep_clean=False` leaves out the clean client models, which no later round depends on, and what was measured on
    them: so it is where noise is float-safe, because then nothing clean may lie on a disk. The fingerprint is written
    as it is, so there it must not be computed from the records either.
    """

    def __init__(self, folder: Path, fingerprint: str, every: int, keep_clean: bool = True) -> None:
        self.folder, self.fingerprint, self.every, self.keep_clean = folder, fingerprint, every, keep_clean
        self.stopping = False

    @contextmanager
    def patient(self) -> Iterator[None]:
        """Within, an interrupt (Ctrl-C) waits for the round to end, whose checkpoint is then due; a second does not."""
        ours = self.every > 0 and threading.current_thread() is threading.main_thread()
        if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            yield
            return

        def stop(number: int, frame: FrameType | None) -> None:
            self.stopping = True
            signal.signal(signal.SIGINT, signal.default_int_handler)

        signal.signal(signal.SIGINT, stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if self.stopping:
            raise KeyboardInterrupt

    def due(self, round: int, last: int) -> bool:
        """Whether a checkpoint is to be written after this round."""
        return self.stopping or (self.every > 0 and (round % self.every == 0 or round == last))

    def save(self, engine: Engine, recorder: Recorder, plan: Plan | None) -> None:
        """Put everything down that the next round depends on."""
        arrays = self._packed(engine, recorder, plan)
        make_folder(self.folder)
        write_atomically(self._path(engine), lambda stream: np.savez(stream, **arrays))

    def _packed(self, engine: Engine, recorder: Recorder, plan: Plan | None) -> dict[str, Any]:
        state = engine.state
        arrays: dict[str, Any] = {
            "fingerprint": np.array(self.fingerprint),
            "round": np.array(state.round),
            "dual": np.asarray(state.dual),
            "previous_servers": np.asarray(engine.previous_servers),
            "known": engine.network.known,
            "shown": np.array(json.dumps(recorder.shown)),
        }
        if self.keep_clean:
            arrays |= {"model": np.asarray(state.model), "clean": np.array(json.dumps(recorder.clean))}
        if state.released is not state.model:
            arrays["released"] = np.asarray(state.released)
        arrays |= {f"servers/{name}": np.asarray(values) for name, values in state.servers.items()}
        return arrays | {f"privacy/{name}": values for name, values in (plan.state() if plan else {}).items()}

    def restore(self, engine: Engine, recorder: Recorder, plan: Plan | None) -> bool:
        """Take up where a checkpoint was left, if there is one."""
        path = self._path(engine)
        if not path.exists():
            return False
        with self._reading(path):
            with np.load(path, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
            self._check(path, arrays)
            self._fill(engine, recorder, plan, arrays)
        return True

    @contextmanager
    def _reading(self, path: Path) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise ResultError(f"The checkpoint {path} is damaged ({error}); remove it to start again.") from error

    def _check(self, path: Path, arrays: Mapping[str, Any]) -> None:
        if str(arrays["fingerprint"]) != self.fingerprint:
            raise ResultError(
                f"{path} belongs to another config or other data; resume with the same ones, or choose another --out."
            )

    def _fill(self, engine: Engine, recorder: Recorder, plan: Plan | None, arrays: Mapping[str, Any]) -> None:
        xp, state = engine.xp, engine.state
        if arrays["dual"].shape != tuple(state.dual.shape):
            raise ValueError("it is for another number of clients")
        state.round, state.dual = int(arrays["round"]), xp.asarray(arrays["dual"])
        state.released = xp.asarray(arrays["released"] if "released" in arrays else arrays["model"])
        state.model = xp.asarray(arrays["model"]) if "released" in arrays and self.keep_clean else state.released
        state.servers = {name: xp.asarray(arrays[f"servers/{name}"]) for name in state.servers}
        engine.previous_servers = xp.asarray(arrays["previous_servers"])
        engine.network.known = arrays["known"]
        recorder.shown = json.loads(str(arrays["shown"]))
        recorder.clean = json.loads(str(arrays["clean"])) if self.keep_clean else []
        if plan is not None:
            plan.restore({name: arrays[f"privacy/{name}"] for name in plan.state()})

    def _path(self, engine: Engine) -> Path:
        first, last = engine.layout.runs[0].number, engine.layout.runs[-1].number
        return self.folder / f"runs-{first}-{last}.npz"
