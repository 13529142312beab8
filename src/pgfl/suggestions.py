"""Help in messages: the nearest known name, a value as it was given, and how a call is meant."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import wraps
from itertools import islice
from typing import Any, ParamSpec, TypeVar

from pgfl.errors import UsageError

MOST_COMPARED = 10_000
MOST_LISTED = 8


def nearest(given: object, known: Iterable[str]) -> str:
    """The closest known name in brackets, whatever its case, or nothing.

    >>> nearest("rign", ["ring", "star"]), nearest("Y", ["x", "y"])
    (' (did you mean ring?)', ' (did you mean y?)')
    """
    if not isinstance(given, str):
        return ""
    spelt = {name.casefold(): name for name in reversed(list(islice(known, MOST_COMPARED)))}
    near = difflib.get_close_matches(given.casefold(), spelt, n=1)
    return f" (did you mean {spelt[near[0]]}?)" if near else ""


def unknown_name(kind: str, given: str, known: Collection[str]) -> str:
    """The sentence about a client, server or cluster that is not there: which one was meant, or which there are.

    >>> unknown_name("cluster", "adult", ["adults", "children"])
    "There is no cluster 'adult' (did you mean adults?)."
    >>> unknown_name("cluster", "x", ["adults", "children"])
    "There is no cluster 'x'; the clusters are adults, children."
    """
    if meant := nearest(given, known):
        return f"There is no {kind} {quoted(given)}{meant}."
    listed = ", ".join(quoted(name)[1:-1] for name in islice(known, MOST_LISTED)) + ", …" * (len(known) > MOST_LISTED)
    there = f"the {kind}s are {listed}" if len(known) > 1 else f"the only one is {listed}"
    return f"There is no {kind} {quoted(given)}; {there}."


def kind_of(value: object) -> str:
    """What sort of thing a value is, for messages.

    >>> kind_of([1.0]), kind_of("ridge"), kind_of(4.0), kind_of(int)
    ('a list', "the text 'ridge'", '4.0', 'the class int')
    """
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if value is None or isinstance(value, str | int | float):
        return shown(value)
    name = {"ndarray": "array"}.get(type(value).__name__, type(value).__name__)
    return f"{'an' if name[0] in 'aeiouAEIO' else 'a'} {name}"


def shown(value: object) -> str:
    """A value as shown in a message, shortened if it is long."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, tuple):
        return f"a list of {len(value)}"
    try:
        text = f"the text {value!r}" if isinstance(value, str) else repr(value)
    except ValueError:
        return "a number of too many digits"
    return text if len(text) <= 60 else text[:57] + "…"


def quoted(cell: object) -> str:
    """A cell as a message shows it: on one line, and not all of a long one.

    >>> quoted("a\\nb"), quoted("x" * 100)
    ("'a\\\\nb'", "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…'")
    """
    text = str(cell)
    return repr(text if len(text) <= 40 else f"{text[:32]}…")


P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)


def friendly_signature(
    example: str, instead: Mapping[str, str] | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator: a call whose arguments do not fit the signature is answered with `example` instead of a TypeError.

    `instead` says what to do about arguments that people know from elsewhere.

    >>> @friendly_signature('bake("bread", minutes=40)')
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


def friendly_constructor(example: str) -> Callable[[C], C]:
    """The same for the making of a dataclass's objects."""

    def decorate(cls: C) -> C:
        cls.__init__ = friendly_signature(example)(cls.__init__)  # type: ignore[misc]
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
    parameters = {key: value for key, value in signature.parameters.items() if key not in ("self", "cls")}
    by_name = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
    by_position = [key for key, value in parameters.items() if value.kind not in by_name]
    given = len(args) - (len(signature.parameters) - len(parameters))
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
