"""All randomness of masked rounds on a tape: one world writes it, the other one reads it.

Masked contributions of the second world are those of the first, as other noise would have made them. Then all that a
device sends and keeps must be equal to the byte.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

from pgfl.masking import preparation, primitives
from pgfl.masking import terms as rosters
from pgfl.privacy import lattice
from pgfl.privacy.noise import SecureNoise

_verifies = cache(rosters._verifies)


class Diverged(Exception):
    """The second world draws something that the first did not."""


@dataclass
class Draw:
    """Noise: the clean points, the deviation of the noise, and what came of it."""

    clean: Any
    sigma: float
    noised: Any


@dataclass
class Tape:
    """What was drawn, in order; read back if there is a first world."""

    first: Tape | None = None
    drawn: list[tuple[str, Any]] = field(default_factory=list)
    draws: list[Draw] = field(default_factory=list)

    def __call__(self, what, draw):
        if self.first is None:
            value = draw()
        else:
            place = len(self.drawn)
            if place >= len(self.first.drawn) or self.first.drawn[place][0] != what:
                raise Diverged(what)
            value = self.first.drawn[place][1]
        self.drawn.append((what, value))
        return value

    def noise(self, draw, points, sigma):
        noised = self(f"noise {sigma!r}", lambda: draw(points, sigma))
        self.draws.append(Draw(np.array(points), sigma, noised))
        return noised

    def sigma_of(self, noised):
        """The deviation of the noise that made these points."""
        return next(draw.sigma for draw in reversed(self.draws) if np.array_equal(draw.noised, noised))


@contextmanager
def coupled(tape):
    """Draw from this tape; identity signatures, which are slow, are verified once each."""
    bytes_of, split, with_noise = primitives.secrets.token_bytes, primitives.split, lattice.with_noise
    signature, alone = preparation.identity_signature, SecureNoise.release

    def keys(kind):
        return SimpleNamespace(generate=lambda: tape("key", kind.generate))

    with ExitStack() as stack:
        for owner, name, value in (
            (primitives, "secrets", SimpleNamespace(token_bytes=lambda size: tape("bytes", lambda: bytes_of(size)))),
            (primitives, "split", lambda *given: tape("shares", lambda: split(*given))),
            (preparation, "X25519PrivateKey", keys(preparation.X25519PrivateKey)),
            (preparation, "identity_signature", lambda *given: tape("signature", lambda: signature(*given))),
            (lattice, "with_noise", lambda points, sigma: tape.noise(with_noise, points, sigma)),
            (SecureNoise, "release", lambda self, *given: tape("noise alone", lambda: alone(self, *given))),
            (rosters, "_verifies", _verifies),
        ):
            stack.enter_context(mock.patch.object(owner, name, value))
        yield
