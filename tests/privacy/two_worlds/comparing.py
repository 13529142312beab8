"""What tells two worlds apart, and what a single one must not do."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pgfl.algorithms.accuracy import Refusal
from pgfl.network.protocol.wire import Kind
from tests.privacy.two_worlds.frames import opened
from tests.privacy.two_worlds.worlds import named_releases

SLACK = 1e-12
CONSTANTS = set(Refusal) - {Refusal.UNSOLVED}  # a client with privacy solves all that it accepts
DELTA = "models differ by more than the Δ that was charged"
UNPAID = "noise was drawn before its charge was committed"
USED_UNPAID = "data was used before its charge was committed"
GIVEN_BACK = "noise was drawn and no charge remains"
OTHER_NOISE = "noise of another size than was charged"
NO_NOISE = "a model left that is no release"
EXTRA = "one world says or does something that the other does not"
ANSWERED = "an answer in one world, a refusal in the other"
TEXT = "a refusal whose text is none of the constants"
REFUSAL = "refusals that differ in their text"
MESSAGE = "other messages that differ"
LEFT = "ledgers or files that differ"


@dataclass(frozen=True)
class Finding:
    """A way in which a sequence breaks the promise."""

    kind: str
    detail: str
    size: float = 0.0


def findings(first, second):
    """Every way in which these two traces break the promise; what follows the first difference is not judged."""
    return [*_alone(first), *_alone(second), *_between(first, second)]


def _alone(trace):
    released = {draw.released.tobytes() for draw in trace.draws}
    rows = _rows_of_draws(trace)
    if trace.unpaid:
        yield Finding(USED_UNPAID, f"{trace.unpaid} times")
    for draw, row in zip(trace.draws, rows, strict=True):
        if draw.charge is None:
            yield Finding(UNPAID, f"sigma {draw.sigma:g}")
        if row is None:
            yield Finding(GIVEN_BACK, f"sigma {draw.sigma:g}")
        elif row.sigma != draw.sigma:
            yield Finding(OTHER_NOISE, f"sigma {draw.sigma:g} instead of {row.sigma:g}")
    for data in trace.received:
        kind, header, numbers = opened(data)
        if kind is Kind.DECLINE and header["reason"] not in CONSTANTS:
            yield Finding(TEXT, header["reason"])
        if kind is Kind.ANSWER and numbers[: len(numbers) // 2].tobytes() not in released:
            yield Finding(NO_NOISE, f"{numbers}")


def _rows_of_draws(trace):
    """The row of the final ledger that paid for each draw: the one it was drawn for, or the one its answer names."""
    named, rows = named_releases(trace), []
    for draw in trace.draws:
        given = named.get(draw.released.tobytes())
        answered = given.pop(0) if given else None
        rows.append(trace.charges.get(answered if draw.charge is None else draw.charge.number))
    return rows


def _between(first, second):
    rows = iter(_rows_of_draws(first))
    for one, other in zip(first.events, second.events, strict=False):
        if one[0] == other[0] == "draw":
            row = next(rows)
            apart = math.hypot(*(one[1].clean - other[1].clean))
            if row is not None and not apart <= row.sensitivity * (1.0 + SLACK):
                ratio = apart / row.sensitivity
                yield Finding(DELTA, f"{ratio:.12g} Δ, Δ = {row.sensitivity:.3g}", ratio)
            if one[1].sigma != other[1].sigma:
                yield Finding(OTHER_NOISE, f"sigma {one[1].sigma:g} and {other[1].sigma:g}")
                return
        elif one != other:
            yield _difference(one, other)
            return
    if len(first.events) != len(second.events):
        yield Finding(EXTRA, f"{len(first.events)} and {len(second.events)} events")


def _difference(one, other):
    if one[0] != other[0]:
        kinds = {_what(one), _what(other)}
        return Finding(ANSWERED if kinds == {"draw", "DECLINE"} else EXTRA, f"{_told(one)} | {_told(other)}")
    if one[0] == "remains":
        names = sorted(name for name in one[1].keys() | other[1].keys() if one[1].get(name) != other[1].get(name))
        return Finding(LEFT, ", ".join(names))
    if one[0] == "message":
        kinds = {_what(one), _what(other)}
        kind = ANSWERED if kinds == {"ANSWER", "DECLINE"} else REFUSAL if kinds == {"DECLINE"} else MESSAGE
        return Finding(kind, f"{_told(one)} | {_told(other)}")
    return Finding(f"{one[0]}: differs", f"{_told(one)} | {_told(other)}")


def _what(event):
    return opened(event[1])[0].name if event[0] == "message" else event[0]


def _told(event):
    if event[0] == "message":
        kind, header, numbers = opened(event[1])
        return f"{kind.name} {header} {numbers.tolist()}"[:300]
    return "noise is drawn" if event[0] == "draw" else " ".join(map(str, event))[:300]
