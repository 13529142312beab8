"""All that the harness knows about the insides of a client; if the client is rewritten, this file is adapted.

The network is replaced by an iterator of frames, the secure noise and the signatures by recorded ones. Whatever lies
between is the client as it is deployed: its folder, its settings, its table, its ledger, its stream.
"""

from __future__ import annotations

import importlib
import json
import shutil
import sqlite3
import warnings
from contextlib import ExitStack, closing, contextmanager
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from pgfl.algorithms.accuracy import MOST_STEPS, Refusal, Terms
from pgfl.algorithms.roles import Client, RoundRequest
from pgfl.config.schema import objective_section
from pgfl.errors import NetworkError
from pgfl.network.agreement import Training
from pgfl.network.client import accounts as acceptance
from pgfl.network.client.client import Participant
from pgfl.network.client.samples import load_samples
from pgfl.network.client.settings import load_client
from pgfl.network.protocol import identity
from pgfl.network.protocol import streams as round_streams
from pgfl.network.protocol.streams import Ended
from pgfl.objectives import Bounds
from pgfl.privacy import noise

TOLERANCE_IS_SENT = "tolerance" in objective_section().model_fields
LONGEST_LOCAL_STEPS = 200  # a client without a cap would work on more for minutes
COUNTED = {  # branch → "module:Class.method", called once each time the branch is reached
    "solve": "pgfl.algorithms.accuracy:PrimalPromise.solve",
    "fallback solve": "pgfl.algorithms.accuracy:PrimalPromise.slow_but_sure",
}
# where data meets a request
COMPUTED = ("pgfl.algorithms.roles:_OneClient.solve", "pgfl.algorithms.roles:_OneClient.gradient")
FAST = "pgfl.algorithms.roles:_OneClient._fast"
NOT_COMPARED = {"data.csv", "ledger.db", "ledger.db-wal", "ledger.db-shm"}  # of the ledger, every row is compared


class Charge(NamedTuple):
    """A row of the ledger, as far as a release must agree with it."""

    number: int
    sensitivity: float
    sigma: float


def make_keys(folder):
    """The identity that both worlds share."""
    identity.create_client(folder, "ann")
    identity.create_site(folder / "site", "north", [])
    return {
        "client.key": (folder / "client.key").read_bytes(),
        "site.crt": (folder / "site" / "site.crt").read_bytes(),
    }


def write_home(home, keys, config, table):
    """A client's folder: its keys, its client.toml and its table."""
    home.mkdir()
    for name, content in keys.items():
        (home / name).write_bytes(content)
    bounds = {name: getattr(config, name) for name in ("x_norm", "y_bound", "w_norm")}
    privacy = {
        "phi0": config.phi0, "zeta": config.zeta, "delta": 1e-5, "max_releases": config.max_releases,
        **{name: bound for name, bound in bounds.items() if bound is not None},
    }  # fmt: skip
    lines = ['name = "ann"', 'data = "data.csv"', f"intercept = {str(config.intercept).lower()}"]
    pinned = identity.SiteCertificate.parse(keys["site.crt"]).fingerprint
    lines += [f'task = "{config.task}"', "[site]", 'address = "localhost:1"', f'fingerprint = "{pinned}"']
    lines += ["[privacy]", "enabled = true", *(f"{key} = {value!r}" for key, value in privacy.items())]
    lines += ["[limits]", *(f"{key} = {value!r}" for key, value in config.limits.items())]
    (home / "client.toml").write_text("\n".join(lines) + "\n")
    header = ",".join([f"x{column}" for column in range(table.features.shape[1])] + ["y"])
    rows = np.column_stack([table.features, table.targets]).tolist()
    (home / "data.csv").write_text("\n".join([header, *(",".join(map(repr, row)) for row in rows)]) + "\n")


def owner_accepts(home):
    """The owner takes what the site offered last, if anything; what they learn of it."""
    try:
        offer, changes = acceptance.accept(home)
    except NetworkError as error:
        return "nothing", str(error)
    return "a change", offer.text, changes


def read_home(home):
    """The client's settings and table, as they are read at each start; reading them again would say the same."""
    settings = load_client(home / "client.toml")
    return settings, load_samples(settings)


def live(read, streams, trace):
    """One process of the client, from its start to its end; everything it says goes into the trace."""
    participant = Participant(*read)
    site = identity.SiteCertificate.read(participant.home / "site.crt")

    async def run(address):
        for frames in streams:
            ended = participant.stream.converse(frames, site, trace.put)
            trace.end(ended.how, ended.reason)
            if ended.how == "stopped":
                return ended
        return Ended("stopped", "no more streams")

    participant.stream.run = run
    try:
        trace.exit(participant.take_part())
    finally:
        trace.counts["malformed"] += participant.stream.refused["malformed"]


@contextmanager
def tampered(change):
    """A client whose every reply goes through `change(reply, participant)`: for leaks that are planted on purpose."""
    real = Participant._handle
    with mock.patch.object(Participant, "_handle", lambda self, frame: change(real(self, frame), self)):
        yield


def draw_noise(participant):
    """Noise that nobody has paid for."""
    participant.account.noise.release(np.zeros((1, participant.dimension)), [1.0], np.zeros(1, dtype=int), 1)


@contextmanager
def recorded(draw, computing, fails, counts):
    """Noise is what `draw(sigma, model)` says, a challenge is signed once and for all, and branches are counted.

    `computing()` is called before anything is computed from the data. The fast solver fails where `fails()`: what
    makes it fail is a matter of the data, and of the libraries beneath it.
    """
    real = noise._maker

    def maker(dimension):
        return lambda sigma: _Recorded(sigma, draw, lambda: real(dimension)(sigma))

    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(mock.patch.object(noise, "_maker", maker))
        stack.enter_context(mock.patch.object(round_streams, "sign_challenge", _signed))
        for branch, place in COUNTED.items():
            stack.enter_context(_before(place, lambda branch=branch: counts.update({branch: 1})))
        stack.enter_context(_before(FAST, lambda: _fail_if(fails())))
        for place in COMPUTED:
            stack.enter_context(_before(place, computing))
        yield


class _Recorded:
    """OpenDP's measurement, with its randomness taken out."""

    def __init__(self, sigma, draw, real):
        self.sigma, self.draw, self.real = sigma, draw, real

    def __call__(self, model):
        return self.draw(self.sigma, np.array(model))

    def map(self, sensitivity):
        return self.real().map(sensitivity)


_real_signature = identity.sign_challenge
_signatures: dict[tuple[Any, ...], bytes] = {}


def _signed(key, site, nonce):
    place = (site, nonce, key.private_numbers().private_value)
    if place not in _signatures:
        _signatures[place] = _real_signature(key, site, nonce)
    return _signatures[place]


def _fail_if(now):
    if now:
        raise np.linalg.LinAlgError("a failure on purpose")


@contextmanager
def _before(place, notice):
    module, _, path = place.partition(":")
    owner = importlib.import_module(module)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    real = getattr(owner, name)

    def noticed(*arguments, **named):
        notice()
        return real(*arguments, **named)

    with mock.patch.object(owner, name, noticed):
        yield


# what a site can work out ---------------------------------------------------------------------------------------------


def longest_model(config, training, server_clients, longest=1e9):
    """The length from which on a model is refused as too long, to the last digit; None if there is none such.

    A site may ask the client's own code: the owner's settings and the number of records are public.
    """
    offered = Training.parse(json.dumps(training))
    bounds, steps = Bounds(config.x_norm, config.y_bound, config.w_norm), config.limits.get("solver_steps", MOST_STEPS)
    terms = Terms(bounds, config.limits.get("tolerance"), steps)
    rows = np.zeros((config.records, config.dimension))
    client = Client(
        offered.build_objective("a", config.w_norm), offered.build_algorithm(), rows, rows[:, 0], terms=terms
    )
    along = np.eye(1, config.dimension)[0]

    def answered(length):
        return client.refusal(RoundRequest(1, server_clients, length * along)) is None

    if not answered(0.0) or client.refusal(RoundRequest(1, server_clients, longest * along)) is not Refusal.TOO_LONG:
        return None
    return _last(answered, longest)


def _last(holds, most):
    """The largest number below `most` for which it holds, by bisection of their bits."""
    low, high = 0, int(np.float64(most).view(np.int64))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(float(np.int64(middle).view(np.float64))) else (low, middle)
    return float(np.int64(low).view(np.float64))


# the ledger -----------------------------------------------------------------------------------------------------------


def last_charge(home):
    """What is committed last, as another process sees it now."""
    with closing(sqlite3.connect(f"{(home / 'ledger.db').as_uri()}?mode=ro", uri=True)) as database:
        row = database.execute("SELECT number, sensitivity, sigma FROM releases ORDER BY number DESC").fetchone()
    return None if row is None else Charge(*row)


def charges(home):
    """Every committed row, by its number."""
    with closing(sqlite3.connect(home / "ledger.db")) as database:
        rows = database.execute("SELECT number, sensitivity, sigma FROM releases").fetchall()
    return {row[0]: Charge(*row) for row in rows}


def void_slots(home):
    """How many rows were charged and never carried an answer."""
    with closing(sqlite3.connect(home / "ledger.db")) as database:
        return database.execute("SELECT count(*) FROM releases WHERE payload IS NULL").fetchone()[0]


def remains(home):
    """All that a client leaves behind, except its table: every row of its ledger, every byte of its other files."""
    left = {path.name: path.read_bytes() for path in home.iterdir() if path.name not in NOT_COMPARED}
    if (home / "ledger.db").exists():
        with closing(sqlite3.connect(home / "ledger.db")) as database:
            names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            for name in sorted(names):
                left[f"ledger: {name}"] = database.execute(f"SELECT * FROM {name} ORDER BY rowid").fetchall()
    return left


def copied(home, to):
    """The folder as a power cut would leave it at this moment."""
    shutil.copytree(home, to)
