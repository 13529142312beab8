"""The privacy account of several fits on the same records, as a search over settings or folds makes them."""

from __future__ import annotations

import os
from threading import Lock

from pgfl.errors import BudgetSpent, PrivacyError
from pgfl.privacy.accounting import MARGIN, exact_epsilon, exact_rho


class PrivacyAccount:
    """Adds up what fits on the same records spend: ρ adds up, and ε follows from the sum at `delta`.

    Pass one account to an estimator as `account=`; clones of the estimator share it. A fit is charged what it may spend
    before anything is computed, and a charge is never given back. With `epsilon`, a fit that would pass it is refused.
    Scores on held-out rows, by which a search chooses, are exact functions of these rows and not protected.

    >>> account = PrivacyAccount(epsilon=8.0)
    >>> for _ in range(3):
    ...     account.charge(2.0)
    >>> account.fits, round(account.epsilon, 3)
    (3, 3.722)
    """

    def __init__(self, epsilon: float | None = None, delta: float = 1e-5) -> None:
        self.limit, self.delta = epsilon, delta
        self._most = None if epsilon is None else exact_rho(epsilon, delta) * (1.0 + MARGIN)
        self.fits, self.rho = 0, 0.0
        self._process, self._lock = os.getpid(), Lock()

    @property
    def epsilon(self) -> float:
        """ε at `delta` of all fits together, for every record that was in some of them."""
        return float(exact_epsilon(self.rho, self.delta))

    def charge(self, epsilon: float, delta: float | None = None) -> None:
        """Charge a fit that promises (ε, δ); δ is the account's own unless it is given."""
        if self._process != os.getpid():
            raise PrivacyError(
                "This privacy account is a copy from another process, which cannot add up what is spent; fit with "
                "n_jobs=1 or with the threading backend of joblib."
            )
        rho = exact_rho(epsilon, self.delta if delta is None else delta)
        with self._lock:
            if self._most is not None and self.rho + rho > self._most:
                raise BudgetSpent(
                    f"This fit would carry the account past epsilon = {self.limit:g} ({self.fits} fits have spent "
                    f"{self.epsilon:.3g}); search over fewer settings, or lower the estimator's epsilon."
                )
            self.rho, self.fits = self.rho + rho, self.fits + 1

    def __repr__(self) -> str:
        limit = "" if self.limit is None else f" of {self.limit:g}"
        return f"<PrivacyAccount: {self.fits} fits, ε = {self.epsilon:.4g}{limit} at δ = {self.delta:g}>"

    def __sklearn_clone__(self) -> PrivacyAccount:
        return self

    def __copy__(self) -> PrivacyAccount:
        return self

    def __deepcopy__(self, memo: object) -> PrivacyAccount:
        return self

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_process": None, "_lock": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state, _lock=Lock())
