"""Processes that kill themselves with SIGKILL at an exact moment of a masked round, for tests of what survives it.

    python -c "from tests.network.fuses import light; light('SURVIVORS', 2, 'send'); …"

`send`: a site is about to send the first such frame. `save`: it is about to save a round. `before` and `after`: a
client has received such a frame, and has not answered it, or has an answer that it has not sent.
"""

from __future__ import annotations

import os
import signal

from pgfl.network.client.client import Participant
from pgfl.network.protocol.streams import ClientStreams
from pgfl.network.protocol.wire import Kind
from pgfl.network.site.store import SiteStore


def light(kind, round, moment):
    """From now on this process dies at that moment."""
    if moment == "save":
        real_save = SiteStore.save_round

        def save(self, saved, *rest, **named):
            _die_if(saved == round)
            return real_save(self, saved, *rest, **named)

        SiteStore.save_round = save
        return
    number, field = Kind[kind], f'"round":{round}'.encode()
    if moment == "send":
        real_send = ClientStreams.send

        def send(self, client, data, *rest, **named):
            _die_if(data[5] == number and (field + b"," in data or field + b"}" in data))
            return real_send(self, client, data, *rest, **named)

        ClientStreams.send = send
        return
    real_handle = Participant._handle

    def handle(self, frame):
        now = frame.kind is number and frame.header.round == round
        _die_if(now and moment == "before")
        reply = real_handle(self, frame)
        _die_if(now)
        return reply

    Participant._handle = handle


def _die_if(now):
    if now:
        os.kill(os.getpid(), signal.SIGKILL)
