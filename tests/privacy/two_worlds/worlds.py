"""One sequence in two worlds: the same hostile site, the same noise, one record that differs.

Noise is coupled: the second world releases what the first one released, which is the clean model of the second world
with other noise. The public history is then the same to the byte, so that everything must be the same to the byte,
except the clean models, which may differ by the Δ that was charged.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pgfl.network.protocol.wire import Kind
from tests.privacy.two_worlds import device
from tests.privacy.two_worlds.frames import opened
from tests.privacy.two_worlds.site import HostileSite
from tests.privacy.two_worlds.tables import hostile_config


class Killed(BaseException):
    """The process is gone, and no line of it runs any more."""


ERRORS = {
    "interrupted": KeyboardInterrupt,
    "failed": RuntimeError,
    "out of memory": MemoryError,
    "arithmetic": FloatingPointError,
    "killed": Killed,
}


@dataclass
class Draw:
    """Noise that was asked for, and the row of the ledger that had been committed for it by then."""

    sigma: float
    clean: Any
    released: Any
    charge: device.Charge | None


@dataclass
class Trace:
    """What one world did, in order; and all that the site receives of it."""

    home: Path
    events: list[tuple[Any, ...]] = field(default_factory=list)
    received: list[bytes] = field(default_factory=list)
    unsent: list[bytes] = field(default_factory=list)
    draws: list[Draw] = field(default_factory=list)
    counts: Counter = field(default_factory=Counter)
    said: Counter = field(default_factory=Counter)
    charges: dict[int, device.Charge] = field(default_factory=dict)
    voids: int = 0
    unpaid: int = 0
    used: set[int] = field(default_factory=set)
    computed: bool = False
    fate: Fate | None = None

    def begin(self, fate, accepts):
        """Another life; before it the owner may accept a changed training."""
        self.fate, self.computed = fate, False
        if accepts:
            self.events.append(("owner", *device.owner_accepts(self.home)))
        self.events.append(("start",))

    def put(self, data):
        """The client's outbox."""
        if data is None:
            return
        if opened(data)[0] is Kind.ANSWER and self.fate.strikes("sending"):
            self.unsent.append(data)
            self.crash()
        self.received.append(data)
        self.events.append(("message", data))

    def computing(self):
        """The client is about to use its data for an answer."""
        if not self.computed:
            self.computed = True
            self.unpaid += self.fresh_charge() is None
            if self.fate.strikes("computing"):
                self.crash()

    def fresh_charge(self):
        """The last row of the ledger, unless it paid for something else."""
        charge = device.last_charge(self.home)
        answered = {number for given in named_releases(self).values() for number in given}
        return None if charge is None or charge.number in self.used | answered else charge

    def crash(self):
        """The fate of this life."""
        self.counts["crash"] += 1
        if self.fate.how == "killed":
            device.copied(self.home, _beside(self.home))
        raise ERRORS[self.fate.how]("a crash")

    def end(self, how, reason):
        self.events.append(("end of stream", how, reason))

    def exit(self, text, kind="returned"):
        self.events.append(("exit", kind, text))


@dataclass
class Fate:
    """Where a life crashes, if it does: n answers pass before it does when one is computed, noised or sent."""

    where: str = "nowhere"
    count: int = 0
    how: str = "failed"

    def strikes(self, where):
        """Whether it is now."""
        self.count -= where == self.where
        return where == self.where and self.count == -1


class Noise:
    """The recorded randomness of a pair of worlds; `script` is what the first world has released."""

    def __init__(self, trace, rng, script):
        self.trace, self.rng, self.script = trace, rng, script

    def draw(self, sigma, clean):
        trace, place = self.trace, len(self.trace.draws)
        noise = sigma * self.rng.standard_normal(len(clean))
        coupled = place < len(self.script) and len(self.script[place]) == len(clean)
        released = self.script[place] if coupled else clean + noise
        charge = trace.fresh_charge()
        trace.used |= {charge.number} if charge else set()
        trace.draws.append(Draw(sigma, clean, released, charge))
        trace.events.append(("draw", trace.draws[-1]))
        trace.computed = False
        if trace.fate.strikes("drawing"):
            trace.crash()
        return released.tolist()


def named_releases(trace):
    """The numbers that each released model was given by its answers, in order; noise can be lost in a long model."""
    numbers = {}
    for data in (*trace.received, *trace.unsent):
        kind, header, values = opened(data)
        if kind is Kind.ANSWER:
            given = numbers.setdefault(values[: len(values) // 2].tobytes(), [])
            if header["release"] not in given:
                given.append(header["release"])
    return numbers


def run_world(home, keys, config, world, make_site, seed, script):
    """The whole sequence in one world."""
    device.write_home(home, keys, config, config.tables[world])
    trace, site = Trace(home), make_site()
    noise = Noise(trace, np.random.default_rng([*seed, 1]), script)
    read, luck = device.read_home(home), np.random.default_rng([*seed, 4, world])
    with device.recorded(noise.draw, trace.computing, lambda: luck.random() < config.unlucky, trace.counts):
        for fate, accepts in site.plan():
            trace.begin(Fate(*fate), accepts)
            _one_life(home, read, site, trace)
    trace.events.append(("remains", device.remains(home)))
    trace.charges, trace.voids = device.charges(home), device.void_slots(home)
    trace.said = site.noted
    return trace


def _one_life(home, read, site, trace):
    try:
        device.live(read, site.streams(trace.received), trace)
    except Exception as error:
        trace.exit(str(error), type(error).__name__)
    except (KeyboardInterrupt, Killed) as error:
        trace.exit(str(error), type(error).__name__)
    if _beside(home).exists():
        shutil.rmtree(home)
        _beside(home).rename(home)


def _beside(home):
    return home.with_name(home.name + "-as-killed")


class Harness:
    """A quick disk for the clients' folders, and keys that all of them share."""

    def __enter__(self):
        quick = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self._folder = tempfile.TemporaryDirectory(prefix="pgfl-worlds-", dir=quick)
        self.folder = Path(self._folder.name)
        self.keys = device.make_keys(self.folder)
        return self

    def __exit__(self, *_):
        self._folder.cleanup()

    def pair(self, config, make_site, seed=(0,)):
        """The traces of both worlds; each lives at the same path, so that not even a path can tell them apart."""
        traces = []
        for world in (0, 1):
            script = [draw.released for draw in traces[0].draws] if traces else []
            home = self.folder / "home"
            traces.append(run_world(home, self.keys, config, world, make_site, seed, script))
            shutil.rmtree(home)
        return traces

    def hostile_pair(self, number):
        """Sequence `number` of the generated ones."""
        config = hostile_config(np.random.default_rng([number, 2]))
        return config, self.pair(config, lambda: HostileSite(np.random.default_rng([number, 3]), config), (number,))
