"""How a site that was invited becomes a neighbour: it shows its certificate and the one-time code, once.

It cannot show its certificate in TLS before it is linked, so it calls like a client, to a site whose certificate it has
pinned, and replies to the challenge with its introduction.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Final

from pgfl.network.protocol import messages
from pgfl.network.protocol.connection import Callee, Connection, Transport
from pgfl.network.protocol.identity import Neighbour, sign_introduction
from pgfl.network.protocol.tls_frames import KEEP_ALIVE, BadConnection
from pgfl.network.protocol.wire import Expected, Limits, Malformed, decode, encode
from pgfl.network.rotation import ActiveCertificate
from pgfl.network.site.store import SiteStore

_SECONDS: Final = 20.0
_FIRST: Expected = (messages.Challenge, messages.Refused)
_THEN: Expected = (messages.Introduced, messages.Refused)
_LIMITS: Final = Limits(dimension=1)
_FACT: Final = "introduction {}"


def remember_invitation(store: SiteStore, neighbour: str, code: str, address: str) -> None:
    """Introduce this site to a neighbour at the next start; `address` is where the neighbour may call it."""
    store.remember(_FACT.format(neighbour), f"{code} {address}")


def pending_invitation(store: SiteStore, neighbour: str) -> tuple[str, str] | None:
    """The code for a neighbour that was not used yet, and this site's address."""
    code, _, address = (store.fact(_FACT.format(neighbour)) or "").partition(" ")
    return (code, address) if code else None


@dataclass
class Introducing:
    """Introduces this site to one neighbour; `run` raises `BadConnection` until that has worked."""

    certificate: ActiveCertificate
    store: SiteStore
    neighbour: Neighbour
    transport: Transport

    async def run(self) -> None:
        """Call the neighbour and show who this is, unless that is done."""
        name = self.neighbour.certificate.name
        pending = pending_invitation(self.store, name)
        if pending is None:
            return
        conversation = _Conversation(partial(self._introduction, *pending))
        callee = Callee(self.neighbour.address, fingerprints={self.neighbour.certificate.fingerprint})
        longest = _LIMITS.frame_bytes
        connection = await self.transport.call(callee, conversation, longest, 4 * longest, KEEP_ALIVE)
        try:
            async with asyncio.timeout(_SECONDS):
                await conversation.done
        except TimeoutError:
            raise BadConnection("it does not reply to the introduction") from None
        finally:
            connection.abort()
        self.store.remember(_FACT.format(name), "")

    def _introduction(self, code: str, address: str, nonce: bytes) -> bytes:
        own, site = self.certificate, self.neighbour.certificate.fingerprint
        header = messages.Introduction(
            invitation=code,
            certificate=own.certificate.pem.decode(),
            address=address,
            signature=sign_introduction(own.key_file, site, nonce, address).hex(),
        )
        return encode(header)


class _Conversation:
    """The neighbour's challenge, this site's introduction, and what the neighbour says to it."""

    def __init__(self, introduction: partial[bytes]) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._introduction, self._expected = introduction, _FIRST

    def on_open(self, connection: Connection) -> None:
        self._connection = connection

    def on_frame(self, frame: bytes) -> None:
        if self.done.done():
            return
        try:
            header = decode(frame, _LIMITS, self._expected).header
        except Malformed as error:
            self.done.set_exception(BadConnection(f"it sent {error}"))
            return
        if isinstance(header, messages.Challenge):
            self._expected = _THEN
            self._connection.send(self._introduction(nonce=bytes.fromhex(header.nonce)))
        elif isinstance(header, messages.Refused):
            self.done.set_exception(BadConnection(f"it refuses: {header.reason}"))
        else:
            self.done.set_result(None)

    def on_close(self, why: str | None) -> None:
        if not self.done.done():
            self.done.set_exception(BadConnection(why or "it was closed here"))
            self.done.exception()  # nobody may wait for it any more
