"""The clusters that were found: who belongs to which, how sure that is, and what it means in a sentence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pgfl.arrays import AnyArray, Floats, Ints
from pgfl.drawing.pages import counted
from pgfl.metrics import adjusted_rand_index
from pgfl.privacy.accounting import exact_epsilon
from pgfl.privacy.card import PrivacyCard

SURE = 0.9  # probability from which a client's cluster is not called uncertain

Columns = dict[str, AnyArray]


def clusters_table(
    clients: Sequence[str], given: Sequence[str], labels: Ints, posterior: Floats, cluster_ids: Sequence[str]
) -> Columns:
    """One row per client: the cluster that the data gave it, the one found, and the probability of every one found."""
    return {
        "client": np.array(clients, dtype=np.str_),
        "given": np.array(given, dtype=np.str_),
        "cluster": np.array(cluster_ids, dtype=np.str_)[labels],
        "probability": posterior[np.arange(len(labels)), labels],
        **{f"p_{name}": posterior[:, q] for q, name in enumerate(cluster_ids)},
    }


def sentence(table: Columns, card: PrivacyCard | None = None) -> str:
    """What was found, and with privacy what it cost and what an answer of one model means.

    >>> posterior = np.array([[1.0, 0.0], [0.4, 0.6]])
    >>> sentence(clusters_table(["ann", "bob"], ["all", "all"], np.array([0, 1]), posterior, ["a", "b"]))
    '2 clusters found; membership is uncertain for 1 client.'
    """
    count = len(np.unique(table["cluster"]))
    cost = _cost(table, card)
    if count == 1 and card is not None:
        if not cost:
            return "One model: with so few records nothing could be seen at this ε, so nothing was spent on looking."
        return f"One model: no difference was visible at this ε, which does not show that there is none; looking{cost}."
    if count == 1:
        return "One model: no difference between clients was visible."
    uncertain = int(np.count_nonzero(np.asarray(table["probability"], dtype=float) < SURE))
    doubt = f"; membership is uncertain for {counted(uncertain, 'client')}" if uncertain else ""
    found = f"; finding them{cost}" if cost else ""
    return f"{counted(count, 'cluster')} found{found}{doubt}.{_agreement(table)}"


def _cost(table: Columns, card: PrivacyCard | None) -> str:
    """What finding cost of the budget, in ε; nothing without privacy, or where nothing was spent."""
    spent = float(np.max(table["rho"])) if "rho" in table else 0.0
    if card is None or card.budget is None or spent <= 0.0:
        return ""
    return f" cost ε = {float(exact_epsilon(spent, card.delta)):.2g} of {card.budget:.4g}"


def _agreement(table: Columns) -> str:
    """How the clusters that were found compare with those of the data, where it has several."""
    if len(np.unique(table["given"])) < 2:
        return ""
    index = adjusted_rand_index(table["given"], table["cluster"])
    same = "They are those of the data" if index == 1.0 else "They differ from those of the data"
    return f" {same} (adjusted Rand index {index:.2f})."
