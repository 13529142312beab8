"""Invitations within one process: `Inviter` and `Invitations` without Flower, for tests."""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass, field

POLL_SECONDS = 0.01


@dataclass
class MembershipService:
    """Who is online, by the line of its public key, with the invitations that wait for it."""

    online: dict[str, queue.Queue] = field(default_factory=dict)

    def inviter(self):
        return MemoryInviter(self)

    def invitations(self, key):
        return MemoryInvitations(self, key)


class _Background:
    """A thread that repeats `step` until it is stopped."""

    def begin(self):
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.repeat, daemon=True)
        self.thread.start()

    def repeat(self):
        while not self.over.wait(POLL_SECONDS):
            self.step()

    def stop(self):
        self.over.set()
        self.thread.join(10.0)


@dataclass
class MemoryInviter(_Background):
    service: MembershipService

    async def start(self, admitted, invite):
        self.admitted, self.invite = admitted, invite
        self.begin()

    def step(self):
        for client, key in self.admitted().items():
            waiting = self.service.online.get(key.line)
            invitation = None if waiting is None else self.invite(client)
            if invitation is not None:
                waiting.put(invitation)


@dataclass
class MemoryInvitations(_Background):
    service: MembershipService
    key: object

    def start(self, invited):
        self.invited = invited
        self.waiting = self.service.online[self.key.line] = queue.Queue()
        self.begin()

    def step(self):
        if not self.waiting.empty():
            self.invited(self.waiting.get_nowait())

    def stop(self):
        self.service.online.pop(self.key.line, None)
        super().stop()
