"""`client.toml`, validated: the owner's data, privacy policy and limits, which no site can change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, InstanceOf, model_validator

from pgfl.algorithms.accuracy import MOST_STEPS
from pgfl.algorithms.algorithms import ALGORITHMS
from pgfl.config import PrivacySettings
from pgfl.config.schema import AlgorithmKind, ObjectiveKind
from pgfl.config.section import Count, NotNegative, Positive, Section, maps_at
from pgfl.maps import RowMap
from pgfl.network.agreement import Name, Task, Training
from pgfl.network.logs import LogSettings
from pgfl.network.protocol.proxies import Proxies
from pgfl.network.settings import NoProxy, ProxyUrl, load_settings
from pgfl.objectives import OBJECTIVES


class SiteAddress(Section):
    """The site of a client: where it is, and the fingerprint of its certificate, as its operator states them."""

    address: Annotated[str, Field(pattern=r"^.+:\d{1,5}$")]  # host:port
    fingerprint: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

    @model_validator(mode="before")
    @classmethod
    def _not_old(cls, table: Any) -> Any:
        if isinstance(table, Mapping) and ("superlink" in table or "certificate" in table):
            raise ValueError(
                "`site.superlink` and `site.certificate` are keys of an older pgfl; write `address` (host:port) and "
                "`fingerprint` (of its certificate) in their place, as the site's operator states them."
            )
        return table


class RosterFile(Section):
    """Who may take part in masked sums with a client: a file of names and keys, and who must have signed it, if any."""

    file: str
    steward: str | None = None  # a public key that is not the site's


def _ascending(ends: tuple[float, float]) -> tuple[float, float]:
    if ends[0] > ends[1]:
        raise ValueError(f"A range of `limits` must be [least, most], but {list(ends)} descends.")
    return ends


Range = Annotated[tuple[NotNegative, NotNegative], AfterValidator(_ascending)]


OwnMap = Annotated[tuple[InstanceOf[RowMap], ...] | None, maps_at("limits.map")]


def _kinds(maps: tuple[RowMap, ...] | None) -> str:
    return " and ".join(map(str, maps)) if maps else "no map"


class TrainingLimits(Section):
    """Which trainings the owner takes part in: the site proposes one, and what is outside of these is refused."""

    objectives: tuple[ObjectiveKind, ...] = OBJECTIVES.built_in
    algorithms: tuple[AlgorithmKind, ...] = ALGORITHMS.built_in
    rho: Range = (0.01, 1000.0)
    lam: Range = (0.0, 100.0)
    kappa: Range = (0.001, 1000.0)
    step_size: Range = (1e-6, 10.0)
    local_steps: Count = 100
    rounds: Count = 1_000_000
    dimension: Count = 1_000_000
    solver_steps: Count = MOST_STEPS
    weight_cap: Positive = 1.0  # the most that one of the owner's records may count, which its noise has as a factor
    map: OwnMap = None  # the only one that the owner's rows go through; none if not given
    tolerance: Positive | None = None  # of a solution; a millionth of the sensitivity if not given

    def refused(self, training: Training, cluster: str) -> str | None:
        """The first key of a training that is outside, in one sentence; None if it is all within."""
        objective, algorithm = training.objective.of(cluster), training.algorithm
        for key, value, allowed in (
            ("objectives", objective.kind, self.objectives),
            ("algorithms", algorithm.kind, self.algorithms),
        ):
            if value not in allowed:
                return f"The site trains with {value}, but `limits.{key}` allows {', '.join(allowed)}."
        if training.map != self.map:
            proposed, own = (_kinds(maps) for maps in (training.map, self.map))
            return f"The site trains on rows that are mapped by {proposed}, but `limits.map` allows {own}."
        if (weight := training.largest_weight or 1.0) > self.weight_cap:
            return (
                f"The site trains with weights of records up to {weight:g}, but `limits.weight_cap` allows up to "
                f"{self.weight_cap:g}."
            )
        ranges = {"lam": objective.lam}
        ranges |= {key: getattr(algorithm, key) for key in ("step_size", "rho") if algorithm.uses(key)}
        ranges |= {key: value for key, value in objective.own_keys.items() if key in type(self).model_fields}
        for key, number in ranges.items():
            least, most = getattr(self, key)
            if not least <= number <= most:
                return f"The site trains with {key} = {number:g}, but `limits.{key}` allows {least:g} to {most:g}."
        counts = {"rounds": training.rounds, "dimension": training.dimension}
        counts |= {"local_steps": algorithm.local_steps} if algorithm.uses("local_steps") else {}
        for key, count in counts.items():
            if count > getattr(self, key):
                return f"The site trains with {key} = {count}, but `limits.{key}` allows at most {getattr(self, key)}."
        return None


class ClientSettings(Section):
    """`client.toml`. Privacy, task and limits are the owner's alone; nothing that a site sends changes them."""

    name: Name
    home: str = "."
    data: str
    target: str = "y"
    weight: str | None = None  # a column: how much a row counts, up to the training's cap
    intercept: bool = False
    task: Task = "regression"  # classification: labels 0 and 1; checked when the data is loaded
    site: SiteAddress
    privacy: PrivacySettings
    limits: TrainingLimits = Field(default_factory=TrainingLimits)
    roster: RosterFile | None = None  # needed where privacy.trust = "masked"
    log: LogSettings = Field(default_factory=LogSettings)
    proxy: ProxyUrl = None
    no_proxy: NoProxy = None
    share_budget: bool = True  # whether the site is told how many releases the policy allows, and their cost
    ledger: str = "ledger.db"
    training: str | None = None  # hash of the training configuration, where the owner insists on one
    record_noise: str | None = None  # demonstrations with made-up data only: whoever reads this file undoes the noise

    def features(self, columns: Iterable[str]) -> list[str]:
        """The columns of the owner's table that are features."""
        return [name for name in columns if name not in (self.target, self.weight)]

    def proxies(self) -> Proxies:
        """How the site is called."""
        return Proxies.stated(self.proxy, self.no_proxy)

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if not self.privacy.enabled:
            return self
        if self.privacy.guarantee != "required":
            raise ValueError(
                '`privacy.guarantee` must be "required" on a device; noise without a guarantee protects nobody.'
            )
        if self.privacy.x_norm is None:
            raise ValueError(
                "`privacy.x_norm` is missing; it bounds the norm of every row, and rows are clipped to it."
            )
        if not all(one.public for one in self.limits.map or ()):
            raise ValueError(
                "`limits.map` names an encoder that may have been trained on your records; state public = true in it "
                "if it was not."
            )
        if self.task == "classification" and self.privacy.y_bound is not None and self.privacy.y_bound < 1.0:
            raise ValueError(
                "`privacy.y_bound` is below 1, so clipping would change the labels 0 and 1 of a classification; raise "
                "it to 1, or leave it out."
            )
        if self.privacy.update_norm is not None:
            raise ValueError(
                "`privacy.update_norm` is for objectives that are not convex; the network trains convex ones."
            )
        if self.privacy.weight_cap is not None:
            raise ValueError(
                "`privacy.weight_cap` is the training's to state; the largest one that you accept is "
                "`limits.weight_cap`."
            )
        if self.privacy.max_releases is None:
            raise ValueError("`privacy.max_releases` is missing; a device needs a budget that ends.")
        if self.privacy.trust == "masked" and self.roster is None:
            raise ValueError(
                '`roster.file` is missing; with trust = "masked" it names the clients that may take part, so that no '
                "site can invent them."
            )
        return self


def load_client(path: Path) -> ClientSettings:
    """A client's settings; its paths are taken from the file's folder."""
    settings = load_settings(path, ClientSettings)
    base = path.resolve().parent
    changes: dict[str, Any] = {"home": str(base / settings.home), "data": str(base / settings.data)}
    changes["ledger"] = str(base / settings.ledger)
    if settings.roster is not None:
        changes["roster"] = settings.roster.model_copy(update={"file": str(base / settings.roster.file)})
    if settings.limits.map is not None:
        located = tuple(one.located(base) for one in settings.limits.map)
        changes["limits"] = settings.limits.model_copy(update={"map": located})
    if settings.record_noise is not None:
        changes["record_noise"] = str(base / settings.record_noise)
    return settings.model_copy(update=changes)
