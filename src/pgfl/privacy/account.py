"""What all clients of a simulation have spent: charges are noted at once, and added up when somebody looks.

A round's charges of a few clients take longer to add to the account than to note. Looking is the only way to the
figures, so nobody sees an account from which a charge is missing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pgfl.array_types import AnyInts, Floats

NOTED = 2**12  # charges that are noted at most; more than that are added up at once


class Account:
    """The releases of every client, and ρ, the sum of what they spent."""

    def __init__(self, releases: NDArray[np.int32], rho: Floats) -> None:
        self._releases, self._rho = releases, rho
        self._clients, self._phi = np.empty(NOTED, dtype=np.int64), np.empty(NOTED)
        self._noted = 0

    @classmethod
    def empty(cls, clients: int) -> Account:
        """Nobody has released anything."""
        return cls(np.zeros(clients, dtype=np.int32), np.zeros(clients))

    @property
    def releases(self) -> NDArray[np.int32]:
        """How often every client has released."""
        self._add_up()
        return self._releases

    @property
    def rho(self) -> Floats:
        """What every client has spent."""
        self._add_up()
        return self._rho

    def charge(self, clients: AnyInts, phi: Floats | float) -> None:
        """Charge each of `clients` for one release that spends φ."""
        start, end = self._noted, self._noted + len(clients)
        if end > NOTED:
            self._add_up()
            start, end = 0, len(clients)
        if end > NOTED:
            self._add(clients, phi)
        else:
            self._clients[start:end], self._phi[start:end], self._noted = clients, phi, end

    def _add_up(self) -> None:
        """Interrupted between its two steps, this counts charges twice; the other way around they would be lost."""
        if self._noted:
            self._add(self._clients[: self._noted], self._phi[: self._noted])
            self._noted = 0

    def _add(self, clients: AnyInts, phi: Floats | float) -> None:
        """Add charges in the order in which they were made, which decides the last bit of a client's sum."""
        np.add.at(self._rho, clients, phi)
        np.add.at(self._releases, clients, np.int32(1))
