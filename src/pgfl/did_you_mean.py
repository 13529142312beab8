"""Words for messages: a suggestion for a name that is not known, and a value as it was given."""

import difflib
from collections.abc import Collection, Iterable, Mapping
from itertools import islice

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
