"""How a client learns where its site's stream is: the site invites it over a membership service.

The service knows which clients are online, and delivers one small message to each that the site wants. `flower/`
implements it on Flower; nothing else in `deploy` knows that Flower is there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from pgfl.deploy.identity import ClientKey


@dataclass(frozen=True)
class Invitation:
    """The address of the site's stream and the token that opens it."""

    address: str
    token: str


Admitted = Callable[[], Mapping[str, ClientKey]]
"""The clients that may be invited now, by name, with their keys."""

Invite = Callable[[str], Invitation | None]
"""The invitation for a client that is online; None if it needs none now."""

Invited = Callable[[Invitation], str]
"""Takes an invitation; returns a one-line summary once another one may be delivered."""


class Inviter(Protocol):
    """A site's end: invites admitted clients when they are online, until it is stopped."""

    async def start(self, admitted: Admitted, invite: Invite) -> None:
        """Begin in the background. Both functions are called from another thread.

        Raises `OSError` if the service cannot listen.
        """
        ...

    def stop(self) -> None:
        """Invite nobody any more, and end what was started."""
        ...


class Invitations(Protocol):
    """A client's end: receives the invitations of its site, one at a time, until it is stopped."""

    def start(self, invited: Invited) -> None:
        """Begin in the background. `invited` is called from another thread."""
        ...

    def stop(self) -> None:
        """Receive no more, and end what was started."""
        ...
