"""What a site and its colluders can work out of masked vectors, with every share and seed that they ever saw.

A masked vector is its contribution plus masks. Each mask stands in one vector (a client's own) or, with opposite signs,
in two (in common). So the sums that can be opened are those over sets of vectors whose masks are all known or cancel.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pgfl.errors import PgflError
from pgfl.masking import primitives
from pgfl.masking.preparation import pairwise_key


@dataclass
class Contribution:
    """A masked vector that left an honest client, and what the tests know about it."""

    client: str
    terms: Any
    batch: str
    cohort: Any
    masked: Any
    noised: Any
    share_sigma: float
    masks: dict[bytes, int]  # the key of every mask in it, and the mask's sign


@dataclass
class Knowledge:
    """Everything that the site and its colluders have."""

    contributions: list[Contribution] = field(default_factory=list)
    key_seeds: set[bytes] = field(default_factory=set)
    self_seeds: set[bytes] = field(default_factory=set)
    _shares: dict[Any, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    _needed: dict[Any, int] = field(default_factory=dict)

    def share(self, kind, owner, cohort, slot, holder, share):
        """A share of a seed of `owner`, who shared it out in this cohort."""
        if holder in cohort.names:
            place = kind, owner, cohort.digest, slot
            self._shares[place][cohort.place(holder)], self._needed[place] = share, cohort.threshold

    def opened(self):
        """All sums that can be opened, as lists of contributions; raises `Repeated` if a mask is used twice."""
        self._combine()
        known = self._known_masks()
        uses = defaultdict(list)
        for place, each in enumerate(self.contributions):
            for key, sign in each.masks.items():
                if key not in known:
                    uses[key].append((place, sign))
        for used in uses.values():
            if len(used) > 2 or (len(used) == 2 and sum(sign for _, sign in used) != 0):
                raise Repeated([self.contributions[place].client for place, _ in used])
        groups = _together(len(self.contributions), uses)
        return [self._checked([self.contributions[place] for place in group], known) for group in groups]

    def _combine(self):
        for place, shares in self._shares.items():
            if len(shares) >= self._needed[place]:
                seed = primitives.combined(list(shares.items())[: self._needed[place]])
                (self.self_seeds if place[0] == "self" else self.key_seeds).add(seed)

    def _known_masks(self):
        known = {primitives.self_mask_key(seed) for seed in self.self_seeds}
        pairs = [primitives.mask_key_pair(seed) for seed in self.key_seeds]
        by_public = {pair.public_key().public_bytes_raw(): pair for pair in pairs}
        for each in self.contributions:
            keys = {name: each.cohort.by_name[name].masks[each.terms.slot] for name in each.terms.invited}
            for name in keys.keys() - {each.client}:
                for own, other in ((name, each.client), (each.client, name)):
                    if keys[own] in by_public:
                        try:
                            pairwise = pairwise_key(each.cohort, each.terms.slot, by_public[keys[own]], own, other)
                        except PgflError:
                            continue
                        known.add(primitives.common_mask_key(pairwise, each.terms.digest))
        return known

    def _checked(self, group, known):
        """The sum is opened for real: what the site can work out is what the clients noised."""
        total = np.zeros(group[0].terms.dimension, dtype=np.uint64)
        for each in group:
            total += each.masked
            for key, sign in each.masks.items():
                if key in known:
                    total -= (primitives.mask(key, each.terms.dimension).view(np.int64) * sign).view(np.uint64)
        assert np.array_equal(total.view(np.int64), np.sum([each.noised for each in group], axis=0))
        return group


class Repeated(Exception):
    """A mask hides two vectors of one sign: their difference is open."""


def _together(count, uses):
    """Sets of vectors in which all unknown masks cancel."""
    linked, shut = defaultdict(set), set()
    for used in uses.values():
        places = [place for place, _ in used]
        if len(places) == 1:
            shut.add(places[0])
        else:
            linked[places[0]].add(places[1])
            linked[places[1]].add(places[0])
    groups, seen = [], set()
    for start in range(count):
        if start in seen:
            continue
        group, waiting = set(), [start]
        while waiting:
            place = waiting.pop()
            if place not in group:
                group.add(place)
                waiting += linked[place]
        seen |= group
        if not group & shut:
            groups.append(sorted(group))
    return groups
