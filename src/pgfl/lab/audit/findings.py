"""The whole audit: every objective as shipped, every planted bug, numbers and verdicts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np

from pgfl.errors import require_extra
from pgfl.lab.audit import pairs, subjects
from pgfl.lab.audit.cases import (
    Case,
    cases,
    deployed_cases,
    deployed_masked,
    deployed_site,
    huber,
    linearised_huber,
    linearised_ridge,
    logistic,
    masked,
    pair_cases,
    scattered,
    site,
)
from pgfl.lab.audit.pairs import AT_A_SITE, IN_MASKED_CLIENTS, UNDER_MASKS
from pgfl.lab.audit.planted_bugs import IN_THE_FIELD, PLANTED
from pgfl.lab.audit.statistics import mu_lower, scores
from pgfl.lab.audit.subjects import Mechanism, Played

Path = Literal["simulator", "compiled", "device", "safe-noise", "ledger", "deployed"]
Progress = Callable[[int, int, str], None]

FALSE_ALARM = 1e-3  # the probability that a correct mechanism seems to leak anywhere in one audit
REQUIRED = 0.9  # the share of the claim that the bound must reach where the sensitivity is attained


def _deployed(*given: Any) -> Played:
    """A real client; it is imported here because most audits do without the network's packages."""
    from pgfl.lab.audit import deployed

    return deployed.play(*given)


def _deployed_pair(case: Case, *given: Any) -> Played:
    """A real site that its clients trust, or real clients under masks, imported here for the same reason."""
    from pgfl.lab.audit import masked_clients, trusted_site

    play = masked_clients.play if case.privacy.trust == "masked" else trusted_site.play
    return play(case, *given)


PLAY: dict[Path, Callable[..., Played]] = {
    "simulator": subjects.in_simulator,
    "compiled": subjects.in_compiled_simulator,
    "device": subjects.on_devices,
    "safe-noise": subjects.with_safe_noise,
    "ledger": subjects.with_ledgers,
    "deployed": _deployed,
}


PLAY_PAIRS: dict[Path, Callable[..., Played]] = {
    "simulator": pairs.in_simulator,
    "compiled": pairs.in_compiled_simulator,
    "safe-noise": pairs.with_safe_noise,
    "deployed": _deployed_pair,
}


@dataclass(frozen=True)
class Scale:
    """The number of trials per world for each path; with too few, coming near the claim is not required."""

    name: str
    trials: Mapping[Path, int]
    bugs: int


QUICK = Scale(
    "quick",
    {"simulator": 10_000, "compiled": 10_000, "device": 1_000, "safe-noise": 1_000, "deployed": 80},
    bugs=800,
)
FULL = Scale(
    "full",
    {"simulator": 100_000, "compiled": 100_000, "device": 12_000, "safe-noise": 12_000, "ledger": 600, "deployed": 800},
    bugs=4_000,
)
ENOUGH_FOR_SHARES = 800  # trials per world that show that half of the noise of a deployed masked sum is missing
BLATANT = "aggregate before noise"  # what fewer show as well
ENOUGH = 8_000  # trials per world with which a tight mechanism almost surely reaches 90 %


@dataclass(frozen=True)
class Finding:
    """One mechanism under attack. `mu_lower` is exceeded by the true μ but for a probability of `alpha`."""

    subject: str
    path: Path
    bug: str | None
    claimed_mu: float
    mu_lower: float
    alpha: float
    by: str  # the score that gave the bound
    trials: int  # in each world
    false_alarms: int
    misses: int
    required: float | None

    @property
    def ratio(self) -> float:
        """How much of the claim was measured."""
        return self.mu_lower / self.claimed_mu

    @property
    def leaks(self) -> bool:
        """Whether more than the claim was measured."""
        return self.mu_lower > self.claimed_mu

    @property
    def as_it_should_be(self) -> bool:
        """A planted bug is found; what is shipped keeps its claim and, where required, comes near it."""
        if self.bug is not None:
            return self.leaks
        return not self.leaks and (self.required is None or self.ratio >= self.required)

    @property
    def verdict(self) -> str:
        """One word or two."""
        if self.leaks:
            return "flagged" if self.bug else "leaks"
        if self.bug:
            return "missed"
        return "holds" if self.as_it_should_be else "no power"

    def describe(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {
            "confidence": 1.0 - self.alpha,
            "ratio": self.ratio,
            "verdict": self.verdict,
            "as_it_should_be": self.as_it_should_be,
        }


@dataclass(frozen=True)
class Report:
    """All findings of one audit."""

    scale: str
    seed: int
    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        """Whether everything is as it should be."""
        return all(finding.as_it_should_be for finding in self.findings)

    def describe(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "scale": self.scale,
            "seed": self.seed,
            "passed": self.passed,
            "false_alarm_probability": FALSE_ALARM,
            "required_ratio": REQUIRED,
            "objectives": [finding.describe() for finding in self.findings if finding.bug is None],
            "planted_bugs": [finding.describe() for finding in self.findings if finding.bug is not None],
        }


def audit(scale: Scale = QUICK, *, seed: int = 0, progress: Progress | None = None) -> Report:
    """Attack everything. A correct mechanism is reported to leak with probability at most `FALSE_ALARM`."""
    require_extra("The audit also attacks the network, which needs cryptography", "network", "cryptography")
    jobs = _jobs(scale)
    alpha = FALSE_ALARM / sum(bug is None for _, _, bug in jobs)
    findings = []
    for number, (case, path, bug) in enumerate(jobs):
        if progress:
            progress(number, len(jobs), f"{case.name}, {path}" + (f": {bug}" if bug else ""))
        trials = scale.trials[path] if bug is None or path == "deployed" else scale.bugs
        findings.append(attack(case, path, trials, alpha, bug=bug, seed=seed + number))
    if progress:
        progress(len(jobs), len(jobs), "done")
    return Report(scale.name, seed, tuple(findings))


def attack(case: Case, path: Path, trials: int, alpha: float, *, bug: str | None = None, seed: int = 0) -> Finding:
    """One mechanism, as shipped or with a planted bug, in both worlds."""
    mechanism = Mechanism.shipped(case)
    if bug is not None:
        mechanism = (PLANTED | IN_THE_FIELD | AT_A_SITE | UNDER_MASKS | IN_MASKED_CLIENTS)[bug](mechanism)
    worlds, of_pairs = np.repeat([0, 1], trials), case.privacy.trusted.aggregates
    server, rho = (PLAY_PAIRS if of_pairs else PLAY)[path](case, mechanism, worlds, seed)
    simulated = of_pairs or path in ("simulator", "compiled")
    server_clients = case.contributors if simulated else subjects.SERVER_CLIENTS
    found = scores(server, subjects.clean_models(case, mechanism, server_clients))
    bounds = []
    for name, score in found.items():
        says_one = score > 0.0
        false_alarms, misses = int(says_one[:trials].sum()), int((~says_one[trials:]).sum())
        bounds.append((mu_lower(false_alarms, misses, trials, alpha / len(found)), name, false_alarms, misses))
    best = max(bounds, key=lambda bound: (bound[0], -bound[2] - bound[3]))
    return Finding(
        subject=case.name,
        path=path,
        bug=bug,
        claimed_mu=math.sqrt(2.0 * rho),
        mu_lower=best[0],
        alpha=alpha,
        by=best[1],
        trials=trials,
        false_alarms=best[2],
        misses=best[3],
        required=REQUIRED if _tight(case, path) and trials >= ENOUGH else None,
    )


def _tight(case: Case, path: Path) -> bool:
    """Whether an attack can come near the claim: masked, only where colluders can subtract their shares."""
    return case.attained and (case.privacy.trust != "masked" or path in ("safe-noise", "deployed"))


def _pair_jobs() -> list[tuple[Case, Path, str | None]]:
    kernels: tuple[Path, ...] = ("compiled",) if find_spec("numba") else ()
    return [(case, path, None) for case in pair_cases() for path in ("simulator", *kernels, "safe-noise")]


def planted_in(bug: str) -> Case:
    """The mechanism that a bug is planted in: ridge has a projection to forget; for the others Huber will do."""
    return linearised_ridge() if bug == "model unprojected" else huber()


def _jobs(scale: Scale) -> list[tuple[Case, Path, str | None]]:
    everywhere: tuple[Path, ...] = ("simulator", "device")
    jobs: list[tuple[Case, Path, str | None]] = [(case, path, None) for case in cases() for path in everywhere]
    kernels = (huber(), logistic(), linearised_huber())
    jobs += [(case, "compiled", None) for case in kernels] if find_spec("numba") else []
    jobs += [(huber(), "safe-noise", None), (linearised_huber(), "safe-noise", None), (huber(), "ledger", None)]
    jobs += _pair_jobs()
    networked = find_spec("cryptography") is not None and find_spec("Crypto") is not None
    jobs += (
        [(case, "deployed", None) for case in (*deployed_cases(), deployed_site(), deployed_masked())]
        if networked
        else []
    )
    jobs = [job for job in jobs if job[1] in scale.trials]
    jobs += [(planted_in(bug), path, bug) for bug in PLANTED for path in everywhere]
    jobs += [(site(), "simulator", bug) for bug in AT_A_SITE] + [(masked(), "safe-noise", bug) for bug in UNDER_MASKS]
    if networked and "deployed" in scale.trials:
        jobs += [(scattered(), "deployed", bug) for bug in IN_THE_FIELD]
        jobs += [(deployed_site(), "deployed", "last coordinate clean")]
        subtle = scale.trials["deployed"] >= ENOUGH_FOR_SHARES
        jobs += [(deployed_masked(), "deployed", bug) for bug in IN_MASKED_CLIENTS if subtle or bug == BLATANT]
    return jobs
