"""What `train` is given, checked before anything is computed: one sentence for each usual mistake."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from pgfl.core.algorithms import Algorithm
from pgfl.core.federation import Federation
from pgfl.did_you_mean import kind_of
from pgfl.errors import PrivacyError, UsageError
from pgfl.objectives import Objective
from pgfl.privacy.request import Privacy
from pgfl.results.result import Result
from pgfl.simulate.checkpoint import Checkpoints

ORDER = "train(federation, algorithm, objective)"
PLACES: dict[type, str] = {Federation: "first", Algorithm: "second", Objective: "third"}


def check_federation(federation: object) -> None:
    """Raise unless it is a federation, or a function that makes one for a run."""
    if isinstance(federation, Federation):
        return
    if isinstance(federation, type) or not callable(federation):
        raise UsageError(
            f"The first argument of {ORDER} is a federation, or a function that makes one; got {kind_of(federation)}"
            f"{_advice(federation, Federation)}."
        )
    try:
        inspect.signature(federation).bind(0)
    except TypeError:
        raise UsageError(
            "A function that makes federations takes the number of the run; write `lambda run: …` or `def make(run)`."
        ) from None
    except ValueError:  # a callable without a signature
        return


def made_federation(federation_of: Callable[[int], object], run: int) -> Federation:
    """The federation that a function makes for a run."""
    made = federation_of(run)
    if not isinstance(made, Federation):
        raise UsageError(f"The function that makes federations returned {kind_of(made)}; return a Federation.")
    return made


def check_algorithm(algorithm: object) -> None:
    """Raise unless it is an algorithm or left out."""
    if algorithm is None or isinstance(algorithm, Algorithm):
        return
    raise UsageError(
        f"The second argument of {ORDER} is an algorithm such as PGFL(rho=5.0); got {kind_of(algorithm)}"
        f"{_advice(algorithm, Algorithm)}."
    )


def check_objective(objective: object) -> None:
    """Raise unless it is an objective, a mapping from clusters to objectives, or left out."""
    parts = list(objective.values()) if isinstance(objective, Mapping) else [objective]
    wrong = [part for part in parts if not isinstance(part, Objective)]
    if objective is None or (parts and not wrong):
        return
    got = kind_of(wrong[0]) if wrong else "a mapping without clusters"
    raise UsageError(
        f"The third argument of {ORDER} is an objective such as Ridge(lam=0.01), or a mapping from clusters to "
        f"objectives; got {got}{_advice(wrong[0], Objective) if wrong else ''}."
    )


def check_privacy(privacy: object) -> None:
    """Raise unless it is a `Privacy` or left out."""
    if privacy is None or isinstance(privacy, Privacy):
        return
    epsilon = privacy if isinstance(privacy, int | float) and not isinstance(privacy, bool) else 4.0
    example = f"Privacy(epsilon={epsilon}, max_releases=50)"
    raise UsageError(f"privacy takes a Privacy; got {kind_of(privacy)}: write privacy={example}.")


def check_start(start: object, new_clients: object = (), moved_records: object = None) -> None:
    """Raise unless it is an earlier result or left out; and for statements about it that are none."""
    if isinstance(new_clients, str) or not isinstance(new_clients, Collection):
        raise UsageError(f"new_clients takes a list of names; got {kind_of(new_clients)}.")
    if moved_records is not None and not isinstance(moved_records, bool):
        raise UsageError(f"moved_records takes True, False or None; got {kind_of(moved_records)}.")
    if start is None and (new_clients or moved_records is not None):
        raise UsageError("new_clients and moved_records are about an earlier result; give it as start.")
    if start is None or isinstance(start, Result):
        return
    advice = f": write start=Result.load({str(start)!r})" if isinstance(start, str | Path) else ""
    raise UsageError(f"start takes the Result of an earlier training; got {kind_of(start)}{advice}.")


def check_spent_once(federation: Federation, privacy: Privacy | None, runs: int) -> None:
    """Raise if several runs would release models of the same records, with noise that is meant for real use."""
    if privacy is not None and runs > 1 and not federation.generated and privacy.noise_for(federation) == "secure":
        raise PrivacyError(
            f"runs = {runs} releases models of the same records {runs} times, and each time spends the budget; train "
            'once, or with noise="seeded" for a simulation that is not shared.'
        )


def check_helpers(checkpoints: object, progress: object) -> None:
    """Raise for checkpoints and a progress report that cannot be used."""
    if checkpoints is not None and not isinstance(checkpoints, Checkpoints):
        raise UsageError(
            f"checkpoints takes a Checkpoints; got {kind_of(checkpoints)}: write "
            "checkpoints=Checkpoints(folder, fingerprint, every=10), from pgfl.simulate.checkpoint."
        )
    if progress is not None and progress is not False and not callable(progress):
        raise UsageError(
            "progress takes a function of the rounds done, the rounds in all and the news, or False for no bar in "
            f"notebooks; got {kind_of(progress)}."
        )


def _advice(value: object, wanted: type) -> str:
    """What to do with a value that is not what was wanted: put it elsewhere, or make an object of its class."""
    if place := next((place for kind, place in PLACES.items() if isinstance(value, kind)), None):
        return f", which comes {place}"
    if wanted is Federation:
        return "; make one with Federation.from_clients, read_federation or synthetic_regression"
    return f"; write {value.__name__}()" if isinstance(value, type) and issubclass(value, wanted) else ""
