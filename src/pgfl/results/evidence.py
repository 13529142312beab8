"""What is known about the models of a run besides how they moved, and what that makes of the verdict.

Held-out rows, or the models that made generated data, say whether the models are any good. No verdict contradicts them.
A verdict that uses them discloses no more than the figures that are printed with it: neither is protected by privacy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pgfl.arrays import AnyFloats
from pgfl.metrics import MEASURES
from pgfl.results.measures import Figure, Measured
from pgfl.results.verdict import GOOD, SKILL, Verdict, joined

ACCURACY_SLACK = 0.01  # labels may miss the majority by this much where probabilities are better than trivial
LATE = 0.75  # of the rounds, after which the error to a known truth is compared with the last one
STILL_FALLS, AT_REST = 0.9, 0.98  # the last error relative to that one
MOST_NAMED = 3
NAMES = {"r2": "R²", "log_loss": "log loss", "auc": "AUC", "nmsd": "NMSD", "mae": "mean absolute error", "rmse": "RMSE"}
LOUDER = "Raise privacy.epsilon, let more clients take part or have more records, or use fewer features."
CHECK = "Check the columns and the clusters: what the models learned does not hold for new rows."
ALONE = "No held-out rows: this says how the models moved, not how well they predict."


@dataclass(frozen=True)
class Evidence:
    """What held-out rows or a known truth say: `skill` is the share of the trivial error that the models remove.

    It is negative where the models are worse than trivial. `named` holds the figures behind it, `bad_clusters` those
    of clusters whose models are worse than trivial, `still_falls` whether the error to a known truth does: None if
    there is none, or it cannot be told.
    """

    skill: float
    named: str
    bad_clusters: tuple[str, ...] = ()
    still_falls: bool | None = None

    @classmethod
    def of(cls, measures: Sequence[Measured], rounds: AnyFloats, nmsd: AnyFloats | None) -> Evidence | None:
        """Return the evidence on a run, None without any; `nmsd` is the error to the truth in the recorded rounds."""
        falls = None if nmsd is None else _still_falls(rounds, nmsd)
        found = _of_figures({each.name: each.whole for each in measures})
        if found is not None:
            skill, named = found
            clusters = dict.fromkeys(name for each in measures for name in each.clusters)
            bad = [name for name in clusters if len(clusters) > 1 and _is_bad(measures, name)]
            return cls(skill, f"{named} on held-out rows", tuple(bad), falls)
        if nmsd is None or not len(nmsd) or math.isnan(nmsd[-1]):
            return None
        return cls(1.0 - float(nmsd[-1]), f"{_shown('nmsd', float(nmsd[-1]))}, 0 dB for models of zero", (), falls)


def weigh(verdict: Verdict | None, evidence: Evidence | None, private: bool) -> Verdict | None:
    """Return the verdict that agrees with the evidence; without any, the verdict says what it cannot know."""
    if verdict is None or verdict.kind == "diverging":
        return verdict
    if evidence is None:
        return replace(verdict, further=(*verdict.further, *_likely_useless(verdict), ALONE))
    figures = {**verdict.figures, "skill": evidence.skill, "bad_clusters": float(len(evidence.bad_clusters))}
    findings = verdict.findings or (verdict,)
    if evidence.skill < 0.0:
        return _not_useful(findings, evidence, figures, private)
    useful = evidence.skill >= SKILL
    if useful:
        findings = tuple(one for one in findings if one.kind != "noise drowns the signal") or (_useful(evidence),)
    if evidence.still_falls is False:
        findings = tuple(_at_rest(evidence) if one.kind == "not yet" else one for one in findings)
    elif evidence.still_falls:
        findings = tuple(_falling(evidence) if one.kind == "converged" else one for one in findings)
    if private and useful:
        # more rounds would need more noise in each: a useful model is not blamed for the rounds that it did without
        findings = tuple(_useful(evidence) if one.kind == "not yet" else one for one in findings)
    kept = joined(findings)
    sentence = verdict.sentence if kept.kind == verdict.kind and kept.sentence in verdict.sentence else kept.sentence
    return replace(
        kept, sentence=sentence, figures=figures, further=(*kept.further, *_doubts(evidence)), measured=evidence.named
    )


def _likely_useless(verdict: Verdict) -> tuple[str, ...]:
    """Return how often models with as much noise are useless, where that was measured."""
    chance = verdict.figures.get("chance_useless")
    if chance is None:
        return ()
    often = f"about {100 * chance:.0f} %" if chance >= 0.01 else "fewer than 1 %"
    return (f"Of trainings with as much noise {often} were worse than a trivial prediction.",)


def _of_figures(figures: Mapping[str, Figure]) -> tuple[float, str] | None:
    """Return the least share of the trivial error that the deciding measures see removed, and how to say it."""
    known = {name: figure for name, figure in figures.items() if math.isfinite(figure.baseline) and name in MEASURES}
    if not known:
        return None
    names = [name for name in ("r2", "log_loss") if name in known] or list(known)[:1]
    skill = min(_skill(name, known[name]) for name in names)
    if "log_loss" in names and "accuracy" in known:
        gained = _gain("accuracy", known["accuracy"])
        names = ["accuracy", *names]
        skill = min(skill, gained) if gained < -ACCURACY_SLACK else skill
    return skill, " and ".join(f"{_shown(name, known[name].value)} ({_value(name, known[name])})" for name in names)


def _skill(name: str, figure: Figure) -> float:
    """Return the share of the trivial error that is removed; any gain where the baseline has no error to remove."""
    error = {"r2": 1.0, "log_loss": figure.baseline, "accuracy": 1.0 - figure.baseline, "auc": 0.5}.get(
        name, abs(figure.baseline)
    )
    gained = _gain(name, figure)
    return gained / error if error > 0.0 else gained


def _gain(name: str, figure: Figure) -> float:
    """Return by how much a measure is better than trivial; not a number is as bad as can be."""
    gained = figure.baseline - figure.value if MEASURES[name].lower_is_better else figure.value - figure.baseline
    return -math.inf if math.isnan(gained) else gained


def _is_bad(measures: Sequence[Measured], cluster: str) -> bool:
    found = _of_figures({each.name: each.clusters[cluster] for each in measures if cluster in each.clusters})
    return found is not None and found[0] < 0.0


def _still_falls(rounds: AnyFloats, nmsd: AnyFloats) -> bool | None:
    """Return whether the error to the truth falls at the end, None if that cannot be told."""
    late = [error for round, error in zip(rounds, nmsd, strict=True) if LATE * rounds[-1] <= round < rounds[-1]]
    if not late or not (math.isfinite(late[0]) and math.isfinite(nmsd[-1])) or late[0] <= 0.0:
        return None
    ratio = float(nmsd[-1] / late[0])
    return True if ratio < STILL_FALLS else False if ratio > AT_REST else None


def _not_useful(
    findings: Sequence[Verdict], evidence: Evidence, figures: Mapping[str, float], private: bool
) -> Verdict:
    """Return that models are worse than trivial, with what else was found.

    Where noise drowns the signal, longer steps or more rounds would only add to it: they are not asked for.
    """
    drowned = any(one.kind == "noise drowns the signal" for one in findings)
    others = tuple(one for one in findings if one.kind not in GOOD and not (drowned and one.kind == "not yet"))
    sentence = f"The models are not useful: they are worse than a trivial prediction, with {evidence.named}."
    advice = others[0].advice if others else LOUDER if private else CHECK
    further = tuple(one.sentence for one in others)
    return Verdict("not useful", sentence, advice, figures, further, evidence.named, tuple(findings))


def _useful(evidence: Evidence) -> Verdict:
    return Verdict("useful", f"The models are useful, with {evidence.named}.")


def _at_rest(evidence: Evidence) -> Verdict:
    return Verdict("converged", f"The models have converged: their error no longer falls, with {evidence.named}.")


def _falling(evidence: Evidence) -> Verdict:
    return Verdict("not yet", f"The models have not converged: their error still falls, with {evidence.named}.")


def _doubts(evidence: Evidence) -> tuple[str, ...]:
    """Return sentences on what the whole hides."""
    found = []
    if evidence.skill < SKILL:
        found.append(f"They are hardly better than a trivial prediction, with {evidence.named}.")
    if bad := evidence.bad_clusters:
        more = f" and {len(bad) - MOST_NAMED} more" if len(bad) > MOST_NAMED else ""
        found.append(f"Not useful for {', '.join(bad[:MOST_NAMED])}{more}: worse there than a trivial prediction.")
    return tuple(found)


def _shown(name: str, value: float) -> str:
    return f"{NAMES.get(name, name)} {_number(name, value)}"


def _value(name: str, figure: Figure) -> str:
    return f"trivial {_number(name, figure.baseline)}"


def _number(name: str, value: float) -> str:
    if name == "nmsd":
        return f"{10 * math.log10(value):.1f} dB" if value > 0 else "−∞ dB"
    return f"{100 * value:.1f} %" if name == "accuracy" else f"{round(value, 3) + 0.0:.3f}"
