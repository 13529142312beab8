"""How much work is done in Python itself, whatever the machine: a loop over clients would show."""

import sys


def python_calls(work, *arguments):
    """How many functions are called from Python when `work` is done a second time; at first modules are imported."""
    work(*arguments)
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work(*arguments)
    finally:
        sys.setprofile(None)
    return calls
