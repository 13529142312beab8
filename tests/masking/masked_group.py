"""A group of clients and their server in memory, for the tests of masked rounds."""

from functools import cache

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec

from pgfl.masking.collector import CohortGathering, Stage, SumCollector
from pgfl.masking.member import Member
from pgfl.masking.terms import Demands, Roster, RoundTerms, centre_digest, identity_line
from pgfl.privacy import lattice

DIMENSION = 3


@cache
def identity(name):
    """One key per name for all tests: making keys is slow."""
    return ec.derive_private_key(int.from_bytes(name.encode(), "big") + 7, ec.SECP384R1())


def names_of(count):
    return tuple(f"c{number:02d}" for number in range(count))


def roster_of(names):
    return Roster({name: identity_line(identity(name)) for name in names})


class Group:
    """Honest members who have prepared together."""

    def __init__(self, count=5, colluders=1, slots=2, contributors=2, demands=None):
        self.names = names_of(count)
        self.demands = demands or Demands(contributors, colluders)
        self.members = {name: Member(name, identity(name), roster_of(self.names), self.demands) for name in self.names}
        self.batch, self.cohort = self.prepare(slots, colluders)

    def prepare(self, slots, colluders):
        gathering = CohortGathering(frozenset(self.names), colluders, slots)
        for name, member in self.members.items():
            gathering.add_keys(name, member.announce(gathering.batch, slots))
        cohort = gathering.fix_cohort()
        for name, member in self.members.items():
            gathering.add_shares(name, member.share(cohort))
        for name, member in self.members.items():
            assert member.receive(gathering.batch, gathering.delivery(name)) == set()
        assert gathering.ready == set(self.names)
        return gathering.batch, cohort

    def terms(self, round=1, slot=0, **changes):
        fields = {
            "training": "t" * 64,
            "site": "north",
            "cluster": "0",
            "round": round,
            "cohort": self.cohort.digest,
            "holders": len(self.cohort.names),
            "slot": slot,
            "invited": self.names,
            "required": max(self.demands.contributors, self.cohort.threshold),
            "colluders": self.cohort.colluders,
            "sigma": 0.5,
            "bound": 1.0,
            "centre": centre_digest(np.zeros(DIMENSION)),
            "dimension": DIMENSION,
        }
        return RoundTerms(**{**fields, **changes})

    def points(self, seed=0):
        """Contributions that are noised already, as far as the masks are concerned."""
        random = np.random.default_rng(seed)
        return {name: random.integers(-(2**40), 2**40, DIMENSION) for name in self.names}

    def collector(self, terms):
        return SumCollector(self.cohort, terms)

    def play(self, terms, points, before=(), unsigned=(), after=()):
        """One round; clients drop out before contributing, before agreeing, or before revealing."""
        collector = self.collector(terms)
        for name in terms.invited:
            if name not in before:
                assert collector.add_contribution(name, self.members[name].contribute(self.batch, terms, points[name]))
        if collector.close() is not Stage.CONSENTING:
            return collector
        for name in collector.survivors:
            if name not in unsigned:
                assert collector.add_consent(name, self.members[name].consent(terms.round, collector.survivors))
        if collector.close() is not Stage.REVEALING:
            return collector
        for name in collector.survivors:
            if name not in unsigned and name not in after:
                assert collector.add_reveal(name, self.members[name].reveal(terms.round, collector.consents_for(name)))
        collector.close()
        return collector


def exact_sum(points, names):
    return lattice.from_lattice(np.sum([points[name] for name in names], axis=0))
