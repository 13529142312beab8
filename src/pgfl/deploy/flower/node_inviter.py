"""The part of a site that lives in its SuperLink's process: it registers nodes and sends them invitations.

Both processes would have to import all of Flower if the site spoke to its SuperLink over HTTP. So a thread beside the
SuperLink uses Flower's state directly, and talks with the site over a pair of sockets, in lines of JSON:

    SuperLink → site    {"online": [client, …]}
    site → SuperLink    {"admitted": {client: key, …}, "invitations": {client: [address, token], …}}
"""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from pgfl.deploy.flower.join_message import write_invitation
from pgfl.deploy.identity import ClientKey
from pgfl.deploy.invitations import Invitation

if TYPE_CHECKING:
    from flwr.server.superlink.linkstate import LinkState

log = logging.getLogger(__name__)
_POLL_SECONDS, _LONGEST_POLL_SECONDS = 0.2, 1.0
_SLOWER = 1.05  # from one look to the next, while nothing happens
_JOIN_SECONDS = 600.0  # then an invitation is no good any more; nobody answers it
_RUN = "pgfl-membership"


class NodeInviter:
    """One run of Flower's, whose messages are invitations. No task of it is ever given out, so nothing is executed."""

    def __init__(self, state: LinkState, channel: socket.socket) -> None:
        self._state, self._channel = state, channel
        self._run = _begin_run(state)
        self._clients: dict[bytes, str] = {}  # by the form in which Flower knows their keys
        self._registered: set[bytes] = set()

    def serve(self) -> None:
        """Until the site is gone, and then the SuperLink goes too: its next life needs the port."""
        with self._channel.makefile("rw", encoding="utf-8") as lines:
            pause, before = _POLL_SECONDS, dict[str, int]()
            try:
                while True:
                    online = self._online()
                    lines.write(json.dumps({"online": sorted(online)}) + "\n")
                    lines.flush()
                    said = lines.readline()
                    if not said:
                        break
                    reply = json.loads(said)
                    self._register(reply["admitted"])
                    for client, (address, token) in reply["invitations"].items():
                        self._send(online[client], Invitation(address, token))
                    quiet = online == before and not reply["invitations"]
                    pause = min(_SLOWER * pause, _LONGEST_POLL_SECONDS) if quiet else _POLL_SECONDS
                    before = online
                    time.sleep(pause)
            except OSError:
                pass
            except Exception:
                log.exception("invitations cannot be sent")
                os._exit(1)
        os._exit(0)

    def _online(self) -> dict[str, int]:
        nodes = self._state.get_node_info(node_ids=list(self._state.get_nodes(self._run)))
        return {self._clients[node.public_key]: node.node_id for node in nodes if node.public_key in self._clients}

    def _register(self, admitted: Mapping[str, str]) -> None:
        from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL, NOOP_ACCOUNT_NAME, NOOP_FLWR_AID

        self._clients = {_flowers_form(line): client for client, line in admitted.items()}
        for form in self._clients.keys() - self._registered:
            if self._state.get_node_id_by_public_key(form) is None:
                self._state.create_node(
                    NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, form, HEARTBEAT_DEFAULT_INTERVAL, name=self._clients[form]
                )
            self._registered.add(form)

    def _send(self, node: int, invitation: Invitation) -> None:
        from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree

        message = write_invitation(invitation, node, _JOIN_SECONDS)
        message.metadata.__dict__["_message_id"] = message.object_id
        session = self._state.start_session(self._run)
        stored, missing = self._state.store_message_and_object_tree(message, get_object_tree(message), session)
        if not stored:
            raise RuntimeError("Flower does not take an invitation; its run has ended")
        objects = get_all_nested_objects(message)
        for name in missing:
            self._state.store_object(self._run, session, name, objects[name].deflate())


def _begin_run(state: LinkState) -> int:
    """A run without code. Runs of earlier lives are ended, and with them what they had not delivered."""
    from flwr.common.constant import NOOP_FLWR_AID, SUPERLINK_NODE_ID, Status
    from flwr.supercore.constant import NOOP_FEDERATION_ID, TaskType
    from flwr.supercore.task_identity import TaskIdentity

    for run in state.get_run_info(statuses=[Status.PENDING, Status.STARTING, Status.RUNNING]):
        state.stop_run(run.run_id)
    number: int = state.create_run(_RUN, "", "", {}, NOOP_FEDERATION_ID, None, NOOP_FLWR_AID, TaskType.SERVER_APP)
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = number, number, SUPERLINK_NODE_ID
    return number


@cache
def _flowers_form(line: str) -> bytes:
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes

    form: bytes = public_key_to_bytes(ClientKey(line).public)
    return form
