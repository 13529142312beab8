"""Whom a running site lets in by an invitation: one-time codes of clients and sites, and how often one may guess."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from pgfl.network.protocol import messages
from pgfl.network.protocol.identity import ADDRESS, ClientKey, SiteCertificate, proves_introduction
from pgfl.network.protocol.streams import AuthenticationFailed
from pgfl.network.site.state import SiteState
from pgfl.network.site.store import InvitationRefused, UnknownCode

log = logging.getLogger(__name__)
_MOST_ADDRESSES: Final = 4096


class GuessLimit:
    """How many wrong codes one address may try; after that its codes are not looked at for a while.

    It is for each address alone: a limit on all of them would let strangers lock out who was invited.
    """

    def __init__(self, most: int = 5, seconds: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._seconds, self._clock = most, seconds, clock
        self._wrong: dict[str, deque[float]] = {}

    def allows(self, host: str) -> bool:
        """Whether a code from this address is looked at."""
        wrong = self._wrong.get(host, deque())
        while wrong and wrong[0] <= self._clock() - self._seconds:
            wrong.popleft()
        return len(wrong) < self._most

    def count(self, host: str) -> None:
        """Remember a wrong code."""
        self._wrong.setdefault(host, deque(maxlen=self._most)).append(self._clock())
        while len(self._wrong) > _MOST_ADDRESSES:
            del self._wrong[next(iter(self._wrong))]


class Admission:
    """Uses invitations up, for those who prove to have the key that comes in."""

    def __init__(self, state: SiteState, on_change: Callable[[], None], guesses: GuessLimit | None = None) -> None:
        """`on_change` is called after somebody was let in."""
        self._state, self._store, self._on_change = state, state.store, on_change
        self._guesses = guesses or GuessLimit()

    def admit(self, code: str, key: ClientKey, host: str) -> None:
        """Admit the client with this code, whose signature was verified. Raise `AuthenticationFailed`."""
        self._redeem(host, lambda: self._admitted(code, key))

    def introduce(self, header: messages.Introduction, nonce: bytes, host: str) -> None:
        """Link the site with this code. Raise `AuthenticationFailed`."""
        self._redeem(host, lambda: self._linked(header, nonce))

    def _redeem(self, host: str, redeem: Callable[[], None]) -> None:
        if not self._guesses.allows(host):
            raise AuthenticationFailed("too many wrong invitation codes came from its address; it must wait a minute")
        try:
            redeem()
        except InvitationRefused as error:
            if isinstance(error, UnknownCode):
                self._guesses.count(host)
            raise AuthenticationFailed(str(error)) from error
        self._on_change()

    def _admitted(self, code: str, key: ClientKey) -> None:
        name = self._store.redeem_client(code, key)
        log.info("client %s has used its invitation (key with fingerprint %s…)", name, key.fingerprint[:16])

    def _linked(self, header: messages.Introduction, nonce: bytes) -> None:
        try:
            neighbour = SiteCertificate.parse(header.certificate.encode())
        except ValueError as error:
            raise AuthenticationFailed("the certificate of its introduction cannot be read") from error
        if header.address and not ADDRESS.fullmatch(header.address):
            raise AuthenticationFailed("the address of its introduction is not host:port")
        signature, own = bytes.fromhex(header.signature), self._state.certificate.fingerprint
        if not proves_introduction(neighbour, signature, own, nonce, header.address):
            raise AuthenticationFailed(f"the signature of site {neighbour.name} is wrong")
        known = self._store.neighbours().get(neighbour.name)
        if known is not None and known.certificate == neighbour:
            return  # it did not hear that it was linked
        self._store.redeem_site(header.invitation, neighbour, header.address)
        log.info("site %s has used its invitation (fingerprint %s…)", neighbour.name, neighbour.fingerprint[:16])
