"""What a site's rounds need of others: of the server role, and of masked sums."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from pgfl.core.roles import Answer, Publication, RoundRequest
from pgfl.deploy.site.round_effects import Effect, Snapshot
from pgfl.deploy.site.round_terms import Members


class SiteRole(Protocol):
    """What the rounds need of a server; the models never leave it except inside requests and publications."""

    def request(self, client: str, round: int) -> RoundRequest:
        """What this client is asked in this round; the same for a repeated question."""
        ...

    def judge(self, client: str, answer: Answer) -> str | None:
        """Why an answer to the open question is refused, in words."""
        ...

    def aggregate(self, round: int, answers: Mapping[str, Answer], retired: Collection[str]) -> Publication:
        """Close the collection; returns what is sent to the neighbours. `retired` clients declined for good."""
        ...

    @property
    def used(self) -> Collection[str]:
        """The clients whose contributions are in the last aggregates."""
        ...

    def combine(self, round: int, publications: Mapping[str, Publication]) -> None:
        """Close the round with what the neighbours published."""
        ...

    def adopt(self, members: Members) -> None:
        """Use these members from the next round on; called between rounds only."""
        ...

    def roll_back(self, past: Snapshot | None, rollbacks: Sequence[int]) -> None:
        """Take earlier models back; called between rounds only."""
        ...

    def snapshot(self) -> Snapshot:
        """All that a later start needs to go on from here."""
        ...


class Masking(Protocol):
    """What the rounds need of masked sums; see `masked_pairs`."""

    @property
    def busy(self) -> bool:
        """Whether a sum of the round is under way."""
        ...

    @property
    def contributors(self) -> tuple[str, ...]:
        """The clients in the sums of the round."""
        ...

    def prepare(self, able: Collection[str], now: float) -> Sequence[Effect]:
        """Begin to prepare rounds for these clients, where it is needed."""
        ...

    def proceed(self, able: Collection[str], now: float) -> Sequence[Effect]:
        """Go on with preparations."""
        ...

    def preparing(self, able: Collection[str]) -> float | None:
        """Until when a round waits for a preparation."""
        ...

    def stuck(self, able: Collection[str]) -> bool:
        """Whether all of these clients take part in masked sums, and none of their pairs can make one now."""
        ...

    def open(self, asked: Mapping[str, RoundRequest]) -> dict[str, bytes]:
        """The frames for those who are asked for masked answers."""
        ...

    def forget(self) -> None:
        """The round is over, or there is none."""
        ...

    def left(self, client: str, unprepared: bool = False) -> None:
        """A client declines the round."""
        ...

    def advance(self, connected: Collection[str], over: bool) -> Sequence[Effect]:
        """End the stages that wait for nobody who is here, or all of them if the time is over."""
        ...
