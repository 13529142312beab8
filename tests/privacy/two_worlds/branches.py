"""Which branches of a client the sequences must reach, and how they are recognised in a trace.

A trace becomes lines, one for each thing that happened; a branch is a pattern over them. The texts of refusals are
constants of the client, so they are patterns here.
"""

from __future__ import annotations

import re
from collections import Counter

from pgfl.algorithms.accuracy import Refusal
from pgfl.network.protocol.wire import Kind
from tests.privacy.two_worlds.frames import opened

FEWEST = 20
REFUSALS = ("TOO_LONG", "TOO_MANY_STEPS", "UNBOUNDED", "TOO_LITTLE_NOISE", "OLD_ROUND", "LOST_ROUND", "BEYOND")
REQUIRED = {
    "release": r"released$",
    "fast solve": r"fast solve",
    "fallback solve": r"fallback solve",
    "gradient steps": r"said released with fedavg$",
    "linearised steps": r"said released by gradient steps$",
    "replay": r"replayed",
    **{f"refused: {name}": rf"DECLINE {re.escape(Refusal[name])}$" for name in REFUSALS},
    "refused: SPENT": rf"DECLINE final {re.escape(Refusal.SPENT)}$",
    "restart with releases": r"restarted with releases",
    "crash": r"crash",
    "crash with void slot": r"void slot",
    "malformed frame": r"malformed",
    "flood of malformed frames": r"end lost .*keeps sending",
    "first frame malformed": r"end lost .*first frame",
    "stopped by the site": r"end stopped",
    "refused by the site": r"end refused",
    "site disconnected": r"end lost .*peer disconnected",
    "changed training refused": r"exit NetworkError The site has changed the training",
    "changed training accepted": r"owner accepts a change",
    "release after an accepted change": r"released after a change",
    "outside the limits": r"exit NetworkError .* but `limits\.",
    "wrong task": r"exit NetworkError .* but client\.toml says task",
    "no bounded sensitivity": r"exit PrivacyError",
    "wrong dimension": r"exit DataError The site trains models of dimension",
    "unknown cluster": r"exit NetworkError The site put this client in cluster",
    "unreadable training": r"exit NetworkError .*cannot read",
    "ledger from a backup": r"exit LedgerError .*backup",
    **{f"release: {kind}": rf"said released by {kind}$" for kind in ("ridge", "huber", "logistic")},
    **{f"release: {kind}": rf"said released with {kind}$" for kind in ("pgfl", "pgfl-exact", "pgfl-onestep", "fedavg")},
}


def lines(trace):
    """What happened, one line each, with how often."""
    found = Counter({name: count for name, count in trace.counts.items() if count})
    found.update({f"said {name}": count for name, count in trace.said.items()})
    found["void slot"] += trace.voids
    seen, accepted = set(), False
    for place, event in enumerate(trace.events):
        if event[0] == "message":
            kind, header, _ = opened(event[1])
            if kind is Kind.ANSWER:
                found["replayed" if event[1] in seen else "released"] += 1
                found["released after a change"] += accepted and event[1] not in seen
                seen.add(event[1])
            elif kind is Kind.DECLINE:
                found[f"DECLINE {'final ' if header['final'] else ''}{header['reason']}"] += 1
            elif kind is Kind.HELLO and place and header["releases"] and trace.events[place - 1] == ("start",):
                found["restarted with releases"] += 1
        elif event[0] == "owner":
            found[f"owner accepts {event[1]}"] += 1
            accepted = accepted or event[1] == "a change"
        elif event[0] == "end of stream":
            found[f"end {event[1]} {event[2]}"] += 1
        elif event[0] == "exit":
            found[f"exit {event[1]} {event[2]}"] += 1
    found["fast solve"] = found["solve"] - found["fallback solve"]
    return found


def reached(seen):
    """How often each required branch was reached, from the lines of all traces."""
    return {
        name: sum(count for line, count in seen.items() if re.match(pattern, line))
        for name, pattern in REQUIRED.items()
    }
