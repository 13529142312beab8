"""Calls that cannot be understood, answered in one sentence that says how to call instead."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from pgfl.did_you_mean import nearest
from pgfl.errors import UsageError

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)


def explained(example: str, instead: Mapping[str, str] | None = None) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator: a call whose arguments do not fit the signature is answered with `example` instead of a TypeError.

    `instead` says what to do about arguments that people know from elsewhere.

    >>> @explained('bake("bread", minutes=40)')
    ... def bake(what, *, minutes=30): ...
    >>> bake("bread", 40)
    Traceback (most recent call last):
    pgfl.errors.UsageError: bake takes 1 argument by position; name the others, as in bake("bread", minutes=40).
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                signature.bind(*args, **kwargs)
            except TypeError:
                raise UsageError(_complaint(example, signature, args, kwargs, instead or {})) from None
            return function(*args, **kwargs)

        return call

    return decorate


def explained_class(example: str) -> Callable[[C], C]:
    """The same for the making of a dataclass's objects."""

    def decorate(cls: C) -> C:
        cls.__init__ = explained(example)(cls.__init__)  # type: ignore[misc]
        return cls

    return decorate


def _complaint(
    example: str,
    signature: inspect.Signature,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    instead: Mapping[str, str],
) -> str:
    name = example.partition("(")[0]
    parameters = {key: value for key, value in signature.parameters.items() if key != "self"}
    by_name = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
    by_position = [key for key, value in parameters.items() if value.kind not in by_name]
    given = len(args) - ("self" in signature.parameters)
    if unknown := [key for key in kwargs if key not in parameters]:
        if advice := instead.get(unknown[0]):
            return f"{name} has no argument {unknown[0]}; {advice}."
        return f"{name} has no argument {unknown[0]}{nearest(unknown[0], parameters)}; call it as in {example}."
    if given > len(by_position):
        most = f"{len(by_position)} argument{'s' * (len(by_position) != 1)}" if by_position else "no arguments"
        return f"{name} takes {most} by position; name {'the others' if by_position else 'them'}, as in {example}."
    if twice := [key for key in by_position[:given] if key in kwargs]:
        return f"{name} is given {twice[0]} twice; call it as in {example}."
    missing = [
        key
        for key, value in parameters.items()
        if value.default is inspect.Parameter.empty and key not in kwargs and key not in by_position[:given]
    ]
    return f"{name} lacks {' and '.join(missing)}; call it as in {example}."
