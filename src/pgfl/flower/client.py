"""A client's side of a Flower message: bytes in, bytes out, and nothing else leaves.

Flower starts a new process for every message, so everything lasting is in the client's own folder: its ledger knows
what was released, and what was accepted is pinned there. Flower sends the text of an exception to the ServerApp, so
none may leave: whatever goes wrong becomes one of a few constant texts, and the owner's log says what it was.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

from pgfl.errors import ConfigError, LedgerError, NetworkError, PgflError, PrivacyError
from pgfl.flower.letters import REQUEST, WELCOME, Parts
from pgfl.network.agreement import Training
from pgfl.network.client.accounts import Offer
from pgfl.network.client.backup import LOCK
from pgfl.network.client.core import ClientCore
from pgfl.network.client.rounds import decline
from pgfl.network.client.samples import load_samples
from pgfl.network.client.settings import ClientSettings, load_client
from pgfl.network.logs import start_logging
from pgfl.network.processes import exclusive_lock, make_private, private_files
from pgfl.network.protocol.messages import Request, Welcome, read_request
from pgfl.network.protocol.wire import Limits, Malformed, decode

log = logging.getLogger(__name__)
CLIENT, PARTITION = "client", "partition-id"  # keys of a node's own configuration
CLIENTS = "PGFL_FLOWER_CLIENTS"  # the folder of all clients, for Flower's simulation on one machine
_NO_ROUND = 1  # of a request whose round cannot be read


class Trouble(StrEnum):
    """Why a client does not answer, beyond `Refusal`: constant texts, so they reveal nothing about its data."""

    UNREADABLE = "the request cannot be read"
    UNACCEPTED = "this client takes no part in this training now; its owner's log says why"
    ACCOUNT = "the account of this client cannot go on; its owner's log says why"
    FAILED = "this client cannot answer; its owner's log says why"


def settings_file(node_config: Mapping[str, object]) -> Path:
    """Return the client.toml that a node's owner named, never one that a run names.

    `--node-config 'client="/path/client.toml"'` names it on a SuperNode. In Flower's simulation, which numbers its
    nodes, the environment variable PGFL_FLOWER_CLIENTS names a folder with a folder for each client.
    """
    own, folder, number = node_config.get(CLIENT), os.environ.get(CLIENTS), node_config.get(PARTITION)
    if isinstance(own, str):
        return Path(own)
    found = sorted(Path(folder).glob("*/client.toml")) if folder else []
    if isinstance(number, int) and 0 <= number < len(found):
        return found[number]
    raise ConfigError(
        "This node does not know whose client it is; start its SuperNode with --node-config "
        f"'client=\"/path/to/client.toml\"' or, for Flower's simulation, set {CLIENTS} to the folder of all clients "
        f"({len(found)} found)."
    )


def load_local(path: Path) -> ClientSettings:
    """Return a client's settings; Flower's servers are never trusted with anything that is not noised."""
    settings = load_client(path)
    if settings.privacy.trust != "local":
        raise PrivacyError(
            f'{path}: `privacy.trust` is "{settings.privacy.trust}", but inside Flower clients add all of their own '
            'noise; set it to "local".'
        )
    return settings


def start_log(node_config: Mapping[str, object]) -> None:
    """Log as the owner's settings say; what is wrong with them is said when they are used."""
    with suppress(Exception):
        settings = load_client(settings_file(node_config))
        start_logging(settings.log, Path(settings.home))


def introduce(node_config: Mapping[str, object]) -> bytes:
    """Return the client's name, empty if its settings cannot be used."""
    try:
        return load_local(settings_file(node_config)).name.encode()
    except Exception:
        log.exception("this client cannot take part")
        return b""


def answer(node_config: Mapping[str, object], parts: Parts) -> bytes:
    """Return the frame to send: an answer that is noised and charged, the same one again, or a refusal."""
    try:
        return _answer(load_local(settings_file(node_config)), parts.get(WELCOME, b""), parts.get(REQUEST, b""))
    except Malformed as error:
        log.warning("the server sent %s: refused", error)
        return decline(_NO_ROUND, Trouble.UNREADABLE)
    except LedgerError:
        log.exception("nothing more is released")
        return decline(_NO_ROUND, Trouble.ACCOUNT, final=True)
    except PgflError as error:
        log.warning("this client takes no part: %s", error)
        return decline(_NO_ROUND, Trouble.UNACCEPTED)
    except Exception:  # its text must not leave
        log.exception("this client cannot answer")
        return decline(_NO_ROUND, Trouble.FAILED)


def _answer(settings: ClientSettings, welcome: bytes, request: bytes) -> bytes:
    ledger = Path(settings.ledger)
    with private_files(), exclusive_lock(Path(settings.home) / LOCK, f"Client {settings.name}"):
        make_private(*ledger.parent.glob(f"{ledger.name}*"))
        core = ClientCore(settings, load_samples(settings))
        try:
            limits = Limits(core.dimension)
            invited = decode(welcome, limits, (Welcome,)).header
            asked = read_request(decode(request, limits, (Request,)))
            assert isinstance(invited, Welcome)
            if invited.client != settings.name:
                raise NetworkError(f"The server takes this client for {invited.client!r}; ask its operator.")
            offer = Offer(Training.parse(invited.training), invited.cluster)
            return core.take_up(offer, invited.releases).answer(asked)
        finally:
            core.account.close()
