"""The parameter ρ of an algorithm: a number, or "auto" until training has chosen one."""

from __future__ import annotations

from typing import Final, Literal

from pgfl.errors import ConfigError

AUTO: Final = "auto"
DEFAULT: Final = 5.0


class Rho:
    """The field `rho` of an algorithm: "auto" or a number can be stated, and code that runs rounds reads a number.

    `train` chooses the number before anything reads it, from the curvature of the data or, under privacy, from public
    facts. Until then the field is the text "auto" (see `is_automatic`).
    """

    def __get__(self, instance: object | None, owner: type) -> float:
        return DEFAULT if instance is None else vars(instance)["rho"]

    def __set__(self, instance: object, value: float | Literal["auto"]) -> None:
        if isinstance(value, str) and value != AUTO:
            raise ConfigError(f'algorithm.rho must be a number above 0 or "auto"; got {value!r}.')
        vars(instance)["rho"] = value


def is_automatic(algorithm: object) -> bool:
    """Whether ρ has yet to be chosen."""
    return bool(vars(algorithm).get("rho") == AUTO)


def check_chosen(algorithm: object) -> None:
    """Raise `ConfigError` if ρ has yet to be chosen."""
    if is_automatic(algorithm):
        raise ConfigError('algorithm.rho = "auto" is replaced by a number when training starts; give a number here.')


def stated_rho(algorithm: object) -> float | None:
    """ρ of an algorithm that has this parameter; None for the others."""
    check_chosen(algorithm)
    rho = vars(algorithm).get("rho")
    return None if rho is None else float(rho)
