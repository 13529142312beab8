"""Arguments that people know from scikit-learn's own models, and what to use instead."""

from __future__ import annotations

_ROWS_COUNT_EQUALLY = (
    "the rows of a client count equally, and so do clients; repeat or leave out rows, or give rows that should count "
    "apart a `client` of their own"
)

INSTEAD: dict[str, str] = {
    "alpha": "use lam: with D rows it is Ridge's alpha / D, in units of the scaled columns",
    "C": "use lam: with D rows it is 1 / (2·C·D), in units of the scaled columns",
    "penalty": "the penalty is λ‖w‖², and lam is its λ",
    "l1_ratio": "the penalty is λ‖w‖², and lam is its λ",
    "max_iter": "use rounds",
    "tol": "use rounds; a fit that has not converged gives a ConvergenceWarning",
    "solver": "use algorithm and objective",
    "multi_class": "more than two classes are learnt by softmax",
    "class_weight": _ROWS_COUNT_EQUALLY,
    "sample_weight": _ROWS_COUNT_EQUALLY,
    "n_jobs": "use engine",
}
INSTEAD_IN_FIT: dict[str, str] = {
    "sample_weight": _ROWS_COUNT_EQUALLY,
    "clients": "name it client, one name per row",
    "servers": "name it server, one name per row",
    "clusters": "name it cluster, one name per row",
    "groups": "name it client, one name per row",
}
