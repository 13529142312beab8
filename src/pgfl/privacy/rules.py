"""What may be asked of privacy: one set of rules, for a config's [privacy] and for the class `Privacy` alike."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from pgfl.suggestions import nearest, shown

LEVELS = ("phi0", "phi1", "epsilon")
BOUNDS = ("x_norm", "y_bound", "w_norm", "update_norm", "weight_cap")
TRUST_LEVELS = ("local", "site", "masked")
TRUST_NUMBERS = ("contributors", "colluders", "dropouts")
MOST_RELEASES = 2**31 - 1
MOST_DELTA = 0.01
"""With probability δ nothing is promised at all; what fails more often than once in a hundred is no guarantee."""


@dataclass(frozen=True)
class _Number:
    """A finite number above `above`, at least `least`, at most `most` and below `below`."""

    above: float | None = None
    least: int | None = None
    most: float | None = None
    below: float | None = None
    whole: bool = False
    may_be_absent: bool = False

    def complaint(self, value: object) -> str | None:
        if value is None and self.may_be_absent:
            return None
        if isinstance(value, bool) or not isinstance(value, Integral if self.whole else Real):
            return "a whole number" if self.whole else "a number"
        number: Any = value
        if not _is_finite(number):
            return "a finite number"
        if self.above is not None and not number > self.above:
            return f"above {self.above}"
        if self.least is not None and not number >= self.least:
            return f"at least {self.least}"
        if self.below is not None and not number < self.below:
            return f"below {self.below}"
        return f"at most {self.most}" if self.most is not None and not number <= self.most else None


@dataclass(frozen=True)
class _Choice:
    """One of a few words."""

    words: tuple[str, ...]
    may_be_absent: bool = False

    def complaint(self, value: object) -> str | None:
        if (value is None and self.may_be_absent) or (isinstance(value, str) and value in self.words):
            return None
        return f"one of {', '.join(self.words)}"


_LEVEL_OR_BOUND = _Number(above=0.0, may_be_absent=True)
RULES: Mapping[str, _Number | _Choice] = {
    **dict.fromkeys((*LEVELS, *BOUNDS), _LEVEL_OR_BOUND),
    "zeta": _Number(above=0.0, most=1.0),
    "delta": _Number(above=0.0, most=MOST_DELTA),
    "max_releases": _Number(least=1, most=MOST_RELEASES, whole=True, may_be_absent=True),
    "nominal_gradient": _Number(above=0.0),
    "index": _Choice(("round", "release")),
    "noise": _Choice(("seeded", "secure"), may_be_absent=True),
    "guarantee": _Choice(("required", "none")),
    "trust": _Choice(TRUST_LEVELS),
    "contributors": _Number(least=1, most=MOST_RELEASES, whole=True),
    "colluders": _Number(least=0, most=MOST_RELEASES, whole=True),
    "dropouts": _Number(least=0, below=1.0),
    "noise_cap": _Number(least=1),
}


def problem(key: str, value: object) -> str | None:
    """What is wrong with one value, as a sentence that names its key; nothing if it may be asked for.

    >>> problem("noise", "secur")
    "`privacy.noise` must be one of seeded, secure; got the text 'secur' (did you mean secure?)."
    >>> problem("delta", 1e-5)
    """
    rule = RULES.get(key)
    complaint = rule.complaint(value) if rule else None
    if rule is None or complaint is None:
        return None
    advice = nearest(value, rule.words) if isinstance(rule, _Choice) else ""
    return f"`privacy.{key}` must be {complaint}; got {shown(value)}{advice}."


def contradiction(values: Mapping[str, object]) -> str | None:
    """What is wrong with values that are right one by one: the noise has exactly one level, and ε is a promise."""
    given = [key for key in LEVELS if values.get(key) is not None]
    if not given:
        return (
            "Privacy is on without a noise level; give `privacy.phi0` (or `phi1`) and `zeta`, "
            "or a target `privacy.epsilon`."
        )
    if len(given) > 1:
        return f"`privacy.{given[0]}` and `privacy.{given[1]}` both set the noise level; keep one of them."
    if values.get("epsilon") is not None and values.get("guarantee") == "none":
        return '`privacy.epsilon` is a promise that guarantee = "none" does not keep; give `phi0` instead.'
    if values.get("trust", "local") != "local" and values.get("guarantee") == "none":
        return (
            f'`privacy.trust` = "{values["trust"]}" is a promise that guarantee = "none" does not keep; leave one out.'
        )
    return None


def off_although_written(values: Mapping[str, object]) -> str | None:
    """That privacy is off although a level or a bound is written, where it is so."""
    written = next((key for key in (*LEVELS, *BOUNDS) if values.get(key) is not None), None)
    if values.get("enabled") or written is None:
        return None
    if written in LEVELS:
        why = f"`privacy.enabled` is false although `privacy.{written}` is written"
    else:
        why = f"`privacy.{written}` is written, but no noise level (`phi0`, `phi1` or `epsilon`)"
    return f"Privacy is off: {why}; models are shared without noise."


def _is_finite(number: Any) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:
        return False
