"""Checkpoints: a simulation that stops and goes on later has the same bits as one that did not stop."""

from __future__ import annotations

import json
import secrets
import signal
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import numpy as np

from pgfl.arrays import AnyArray
from pgfl.errors import ResultError
from pgfl.files import make_folder, write_atomically
from pgfl.results.state import note_checkpoint, one_process
from pgfl.simulate.communicator import SINGLE_PROCESS, Arrays, Communicator
from pgfl.simulate.observers import Observer

if TYPE_CHECKING:
    from pgfl.simulate.layout import Layout
    from pgfl.simulate.simulator import Simulator


class Checkpoints(Observer):
    """The checkpoints of one experiment; `fingerprint` names everything that determines its result.

    `keep_clean=False` leaves out the clean client models, which no later round depends on, and what was measured on
    them. It is meant for float-safe noise, with which nothing clean may be stored. The fingerprint is stored as it is,
    so in that case it must not depend on the records either.
    """

    def __init__(
        self,
        folder: Path,
        fingerprint: str,
        every: int,
        keep_clean: bool = True,
        communicator: Communicator = SINGLE_PROCESS,
    ) -> None:
        self.fingerprint, self.every, self.keep_clean = fingerprint, every, keep_clean
        self._files, self._communicator = communicator.checkpoint_files(folder), communicator
        self._folder, self._run_ids = folder.resolve(), dict[int, str]()
        self._held, self._holding = ExitStack(), set[str]()
        self._stopping = False

    @contextmanager
    def running(self) -> Iterator[None]:
        """Within, a run is restored and played, by one process if its noise is float-safe, and interrupts wait."""
        with self._held, self.patient():
            yield

    @contextmanager
    def patient(self) -> Iterator[None]:
        """Within, an interrupt (Ctrl-C) waits for the round to end and its checkpoint; a second one does not wait.

        On several processes it does not wait: they are not interrupted in the same round.
        """
        ours = self.every > 0 and self._communicator.size == 1 and threading.current_thread() is threading.main_thread()
        if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            yield
            return

        def stop(number: int, frame: FrameType | None) -> None:
            self._stopping = True
            signal.signal(signal.SIGINT, signal.default_int_handler)

        signal.signal(signal.SIGINT, stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if self._stopping:
            raise KeyboardInterrupt

    def on_round(self, simulator: Simulator) -> None:
        """Save where a checkpoint is due; after an interrupt one is due at once."""
        round, last = simulator.state.round, simulator.options.rounds
        over = round == last or simulator.ended_by is not None
        due = over and simulator.noise == "secure"  # noted and kept, so that no older checkpoint is used after it
        if self._stopping or due or (self.every > 0 and (round % self.every == 0 or over)):
            if simulator.ended_by != "diverging":
                simulator.engine.check_finite()
            self.save(simulator)
            self._note(simulator, stops=self._stopping)
            if self._stopping:
                raise KeyboardInterrupt

    def save(self, simulator: Simulator) -> None:
        """Store everything that the next round depends on."""
        self._files.save(simulator.layout, simulator.state.round, self._packed(simulator))

    def restore(self, simulator: Simulator) -> bool:
        """Go on from the newest checkpoint, if there is one; with float-safe noise in one place only."""
        self._run_id(simulator)  # agreed on before each process reads files of its own
        pack, check, fill = (
            partial(self._packed, simulator),
            partial(self._check, simulator),
            partial(self._fill, simulator),
        )
        restored = self._files.restore(simulator.layout, pack, check, fill)
        if restored:
            self._note(simulator)
        return restored

    def hold(self, simulator: Simulator) -> str:
        """Keep other processes from going on with this run; returns its id."""
        run_id = self._run_id(simulator)
        if run_id not in self._holding:
            self._communicator.broadcast(lambda: self._held.enter_context(one_process(run_id, self._folder)))
            self._holding.add(run_id)
            self._held.callback(self._holding.clear)
        return run_id

    def _note(self, simulator: Simulator, stops: bool = False) -> None:
        """Note from where rounds are released; seeded noise protects nobody, so they may be run again anywhere."""
        if simulator.noise == "secure":
            run_id, round = self.hold(simulator), simulator.state.round
            self._communicator.broadcast(lambda: note_checkpoint(run_id, round, self._folder, stops=stops))

    def _run_id(self, simulator: Simulator) -> str:
        """Return the random id of a batch of runs, which its checkpoints carry from the first one on."""
        first = simulator.layout.runs[0].number
        if first not in self._run_ids:
            self._run_ids[first] = self._communicator.broadcast(lambda: secrets.token_hex(16))
        return self._run_ids[first]

    def _packed(self, simulator: Simulator) -> Arrays:
        engine, state, recorder, plan = simulator.engine, simulator.state, simulator.recorder, simulator.plan
        arrays: Arrays = {
            "fingerprint": np.array(self.fingerprint),
            "run_id": np.array(self._run_id(simulator)),
            "round": np.array(state.round),
            "dual": np.asarray(state.dual),
            "previous_servers": np.asarray(engine.previous_servers),
            "known": engine.network.known,
            "rested": engine.network.rested,
            "spent_at": np.array([-1 if at is None else at for at in simulator.spent_at]),
            "shown": np.array(json.dumps(recorder.shown)),
        }
        if self.keep_clean:
            arrays |= {"model": np.asarray(state.model), "clean": np.array(json.dumps(recorder.clean))}
        if state.released_models is not None:
            arrays["released"] = np.asarray(state.released)
        arrays |= {f"engine/{name}": np.asarray(values) for name, values in engine.extra_state().items()}
        arrays |= {f"monitor/{name}": values for name, values in simulator.monitor.state().items()}
        arrays |= {f"servers/{name}": np.asarray(values) for name, values in state.servers.items()}
        return arrays | {f"privacy/{name}": values for name, values in (plan.state() if plan else {}).items()}

    def _check(self, simulator: Simulator, path: Path, arrays: Mapping[str, AnyArray]) -> None:
        if str(arrays["fingerprint"]) != self.fingerprint:
            raise ResultError(
                f"{path} belongs to another config or other data; resume with the same ones, or choose another --out."
            )
        if simulator.noise == "secure" and "run_id" not in arrays:
            raise ResultError(
                f"{path} was written by an older version, with which a copy of it could be resumed as well; start a "
                "new run."
            )

    def _fill(self, simulator: Simulator, arrays: Arrays) -> None:
        engine, state, recorder, plan = simulator.engine, simulator.state, simulator.recorder, simulator.plan
        xp = engine.xp
        if arrays["dual"].shape != tuple(state.dual.shape):
            raise ValueError("it is for another number of clients")
        if "run_id" in arrays:
            self._run_ids[simulator.layout.runs[0].number] = str(arrays["run_id"])
        state.round, state.dual = int(arrays["round"]), xp.asarray(arrays["dual"])
        state.released = xp.asarray(arrays["released"] if "released" in arrays else arrays["model"])
        state.model = xp.asarray(arrays["model"]) if "released" in arrays and self.keep_clean else state.released
        state.servers = {name: xp.asarray(arrays[f"servers/{name}"]) for name in state.servers}
        extra = {name.removeprefix("engine/"): arrays[name] for name in arrays if name.startswith("engine/")}
        engine.restore(extra)
        engine.previous_servers = xp.asarray(arrays["previous_servers"])
        engine.network.known = arrays["known"]
        engine.network.rested = arrays.get("rested", engine.network.rested)  # older checkpoints have neither
        if "spent_at" in arrays:
            simulator.spent_at = [None if at < 0 else at for at in arrays["spent_at"].tolist()]
        recorder.shown = json.loads(str(arrays["shown"]))
        recorder.clean = json.loads(str(arrays["clean"])) if self.keep_clean else []
        simulator.monitor.restore({name: arrays[f"monitor/{name}"] for name in simulator.monitor.state()}, simulator)
        if plan is not None:
            plan.restore({name: arrays[f"privacy/{name}"] for name in plan.state()})


class BatchFiles:
    """One file for each batch of runs, replaced as a whole: a kill at any moment leaves the last good one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def save(self, layout: Layout, round: int, arrays: Arrays) -> None:
        """Replace the file of the batch."""
        make_folder(self._folder)
        write_atomically(self._path(layout), lambda stream: np.savez(stream, **arrays))  # type: ignore[arg-type]

    def restore(
        self,
        layout: Layout,
        current: Callable[[], Arrays],
        check: Callable[[Path, Mapping[str, AnyArray]], None],
        fill: Callable[[Arrays], None],
    ) -> bool:
        """Hand the batch's file to `fill`, if there is one."""
        path = self._path(layout)
        if not path.exists():
            if any(self._folder.glob("run-*/round-*")):
                raise ResultError(f"{self._folder} was written by several ranks; go on with mpiexec and --engine mpi.")
            return False
        with reading(path):
            with np.load(path, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
            check(path, arrays)
            fill(arrays)
        return True

    def _path(self, layout: Layout) -> Path:
        return self._folder / f"runs-{layout.runs[0].number}-{layout.runs[-1].number}.npz"


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Within, unreadable files are reported as a damaged checkpoint."""
    try:
        yield
    except (OSError, ValueError, KeyError, EOFError, MemoryError, zipfile.BadZipFile) as error:
        raise ResultError(f"The checkpoint {path} is damaged ({error}); remove it to start again.") from error
