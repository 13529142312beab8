"""Many sequences: what they found, and which branches they reached."""

from __future__ import annotations

from collections import Counter

from tests.privacy.two_worlds.branches import FEWEST, REQUIRED, lines, reached
from tests.privacy.two_worlds.comparing import findings

EXAMPLES = 3


class Survey:
    """Findings and branches of the sequences so far."""

    def __init__(self):
        self.sequences, self.seen = 0, Counter()
        self.found = Counter()  # kind → sequences
        self.examples = {}

    def add(self, number, first, second):
        """Judge one pair of traces."""
        self.sequences += 1
        self.seen.update(lines(first))
        of_sequence = findings(first, second)
        self.found.update({finding.kind for finding in of_sequence})
        for finding in of_sequence:
            known = self.examples.setdefault(finding.kind, {}).get(number)
            if known is None or finding.size > known.size:
                self.examples[finding.kind][number] = finding

    @property
    def missing(self):
        """Branches that were reached too rarely to say that they were tried."""
        return {name: count for name, count in reached(self.seen).items() if count < FEWEST}

    @property
    def text(self):
        """For people."""
        rows = [f"{self.sequences} sequences in two worlds each; branches reached:"]
        rows += [f"  {count:7d}  {name}" for name, count in reached(self.seen).items()]
        rows += [f"{len(REQUIRED) - len(self.missing)} of {len(REQUIRED)} branches at least {FEWEST} times"]
        rows += ["broken promises, in sequences:" if self.found else "no broken promise"]
        for kind, count in self.found.most_common():
            rows.append(f"  {count:7d}  {kind}")
            worst = sorted(self.examples[kind].items(), key=lambda example: -example[1].size)[:EXAMPLES]
            rows += [f"             sequence {number}: {finding.detail}" for number, finding in worst]
        return "\n".join(rows)
