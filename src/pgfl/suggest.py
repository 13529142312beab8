"""A suggestion for a name that is not known."""

import difflib
from collections.abc import Iterable
from itertools import islice

MOST_COMPARED = 10_000


def nearest(given: object, known: Iterable[str]) -> str:
    """The closest known name in brackets, or nothing.

    >>> nearest("rign", ["ring", "star"])
    ' (did you mean ring?)'
    """
    near = difflib.get_close_matches(given, list(islice(known, MOST_COMPARED)), n=1) if isinstance(given, str) else []
    return f" (did you mean {near[0]}?)" if near else ""
