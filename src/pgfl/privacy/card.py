"""The privacy card: one statement of a guarantee, the same in the terminal, report, notebook, studio and model file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

NOISE = {"seeded": "seeded, for simulations only", "secure": "cryptographically secure, floating-point safe"}
"""Where noise comes from, in words."""

UNITS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
NOT_COVERED = (
    "figures of held-out rows, if there are any",
    "which clients take part and how many records they have",
    "records of one person that are counted as several",
)


@dataclass(frozen=True)
class PrivacyCard:
    """What is promised to the client that spent most: ε with its δ, for whom, against whom, in how many releases.

    `label` is the promise in one line. `epsilon` is infinite where nothing is promised; `budget` is the ε that may be
    spent in all, None if only the schedule limits it. `config` is the digest of the settings.

    >>> card = PrivacyCard("zCDP for one replaced record, against all", 1.0, 1e-5, "one replaced record", "all", "",
    ...                    "nothing", 120, 120, 1.0)
    >>> card.headline
    '(ε = 1, δ = 10⁻⁵) for one replaced record, against all; 120 of 120 releases'
    >>> print(card.meaning)
    Whoever knows all other records and must tell which of two values this one has is right at most 73.1 % of the time;
    a guess is right 50 % of the time.
    """

    label: str
    epsilon: float
    delta: float
    unit: str
    against: str
    assuming: str
    not_covered: str
    releases: int
    most_releases: int | None = None
    budget: float | None = None
    noise: str = "seeded"
    date: str = ""
    version: str = ""
    config: str = ""

    @property
    def guaranteed(self) -> bool:
        """Whether anything is promised."""
        return math.isfinite(self.epsilon)

    @property
    def headline(self) -> str:
        """The statement in one line: ε, δ, the unit, against whom, and how many releases."""
        if not self.guaranteed:
            return f"{self.label[0].upper()}{self.label[1:]}"
        promise = f"(ε = {self.epsilon:.4g}, δ = {power(self.delta)}) for {self.unit}, against {self.against}"
        return f"{promise}{f', {self.assuming}' if self.assuming else ''}; {self._releases}"

    @property
    def _releases(self) -> str:
        most = "" if self.most_releases is None else f" of {self.most_releases}"
        return f"{self.releases}{most} release{'s' if (self.most_releases or self.releases) != 1 else ''}"

    @property
    def meaning(self) -> str:
        """What that means for the person behind a record, in plain words.

        (ε, δ) bounds the rates of a test by TPR ≤ e^ε·FPR + δ, so with equal odds it is right with probability at most
        (e^ε + δ)/(1 + e^ε).
        """
        if not self.guaranteed:
            return "Nothing is promised: what was sent may disclose records."
        right = min(1.0, 1.0 - (1.0 - self.delta) / (1.0 + math.exp(min(self.epsilon, 700.0))))
        return (
            f"Whoever knows all other records and must tell which of two values this one has is right at most "
            f"{100 * right:.3g} % of the time;\na guess is right 50 % of the time."
        )

    @property
    def spent(self) -> float | None:
        """The share of the budget in ε that is spent, None if there is no budget."""
        return None if self.budget is None or not self.guaranteed else min(1.0, self.epsilon / self.budget)

    @property
    def lines(self) -> list[tuple[str, str]]:
        """All statements with their names, in the order of the card."""
        budget = "" if self.spent is None else f"ε = {self.epsilon:.4g} of {self.budget:.4g} ({100 * self.spent:.0f} %)"
        uncovered = "; ".join((self.not_covered, *NOT_COVERED))
        made = ", ".join(filter(None, (self.date, self.version and f"pgfl {self.version}")))
        found = [
            ("Guarantee", self.headline),
            ("Meaning", " ".join(self.meaning.split())),
            ("Budget spent", budget),
            ("Not covered", uncovered if self.guaranteed else ""),
            ("Noise", NOISE.get(self.noise, self.noise)),
            ("Made", made),
            ("Config", self.config),
        ]
        return [(name, value) for name, value in found if value]

    def text(self) -> str:
        """Return the card as plain text, to be pasted into a record of processing."""
        return "\n".join(["Differential privacy", *(f"{name}: {value.rstrip('.')}." for name, value in self.lines)])

    def to_json(self) -> dict[str, Any]:
        """Return the card as JSON holds it; an infinite ε is null."""
        return {**asdict(self), "epsilon": self.epsilon if self.guaranteed else None, "statement": self.headline}

    @classmethod
    def from_json(cls, page: Mapping[str, Any]) -> PrivacyCard:
        """Return the card that `to_json` described."""
        known = {field.name: page[field.name] for field in fields(cls)}
        return cls(**{**known, "epsilon": math.inf if page["epsilon"] is None else page["epsilon"]})


def power(value: float) -> str:
    """Return a small number as people write it.

    >>> power(1e-5), power(2.5e-7), power(0.01)
    ('10⁻⁵', '2.5·10⁻⁷', '0.01')
    """
    if value >= 1e-3 or value <= 0.0:
        return f"{value:g}"
    factor, _, exponent = f"{value:.2e}".partition("e")
    ten = f"10{str(int(exponent)).translate(UNITS)}"
    return ten if float(factor) == 1.0 else f"{float(factor):g}·{ten}"
