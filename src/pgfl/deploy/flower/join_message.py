"""The Flower message that carries an invitation. All of it is in the metadata, so a client fetches nothing else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pgfl.deploy.invitations import Invitation

if TYPE_CHECKING:
    from flwr.app import Message

JOIN = "train.pgfl_join"
_LONGEST_ADDRESS, _LONGEST_TOKEN = 300, 128


def write_invitation(invitation: Invitation, node: int, seconds: float) -> Message:
    """The message to a node, good for so many seconds."""
    from flwr.app import Message, RecordDict

    text = json.dumps([invitation.address, invitation.token])
    return Message(RecordDict(), node, JOIN, ttl=seconds, group_id=text)


def read_invitation(kind: str, text: str) -> Invitation | None:
    """The invitation in a message of this type and group; None if it is anything else."""
    if kind != JOIN or len(text) > 2 * (_LONGEST_ADDRESS + _LONGEST_TOKEN):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    match found:
        case [str(address), str(token)] if 0 < len(address) <= _LONGEST_ADDRESS and 0 < len(token) <= _LONGEST_TOKEN:
            return Invitation(address, token)
    return None
