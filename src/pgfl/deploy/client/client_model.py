"""A client's models as a model file that `pgfl predict` reads: its own, and that of its cluster at its site."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pgfl import __version__
from pgfl.core.encoded_columns import NumberColumn, TargetColumn
from pgfl.core.row_encoding import PlaceColumns, RowEncoding
from pgfl.data.frames import TableFile
from pgfl.deploy.agreed_training import TASK_OF
from pgfl.deploy.client.acceptance import accepted
from pgfl.deploy.client.client_rounds import STATE, sent_clean, unpack_received, unpack_state
from pgfl.deploy.client.client_settings import ClientSettings
from pgfl.errors import NetworkError
from pgfl.privacy.ledger import Ledger
from pgfl.results.model import Model


def model_of_client(settings: ClientSettings) -> Model:
    """The model that the client released last, and the one of its cluster that it was sent for it.

    Both are public: what is released carries its noise, so the file may be shared like the release itself. A client
    that entrusts its contributions to its site releases no model of its own, so the file has its cluster's only.
    """
    offer = accepted(Path(settings.home))
    with Ledger.read(Path(settings.ledger)) as ledger:
        packed, summary = ledger.state(STATE), ledger.summary()
    if offer is None or packed is None:
        raise NetworkError(f"Client {settings.name} has answered no round yet, so it has no model.")
    training, state = unpack_state(packed)
    sent_round, released = state["sent"]
    received, clean = unpack_received(packed), sent_clean(packed)
    if clean and received is None:
        raise NetworkError(f"Client {settings.name} was sent no model of its cluster yet; wait for its second round.")
    kind = offer.training.objective.of(offer.cluster).kind
    privacy = settings.privacy
    return Model(
        cluster_ids=(offer.cluster,),
        objectives=(kind,),
        tasks=(TASK_OF[kind],),
        clusters=np.array([released if received is None else received]),
        client_ids=() if clean else (settings.name,),
        client_cluster=np.zeros(0 if clean else 1, dtype=np.int64),
        clients=np.array([released])[: 0 if clean else 1],
        encoding=_encoding(settings),
        intercept=settings.intercept,
        x_norm=privacy.x_norm if privacy.enabled else None,
        provenance={
            "name": f"client {settings.name}",
            "version": __version__,
            "rounds": sent_round,
            "training": training,
            "private": privacy.enabled,
            "privacy": _spent(summary) if privacy.enabled else None,
        },
    )


def _encoding(settings: ClientSettings) -> RowEncoding:
    """All columns but the target are features, as they are."""
    columns = tuple(NumberColumn(name) for name in TableFile(settings.data).columns if name != settings.target)
    nowhere = PlaceColumns(None, None, None)
    return RowEncoding(columns, TargetColumn(settings.target), settings.intercept, nowhere)


def _spent(summary: dict[str, Any]) -> dict[str, Any]:
    return {key: summary[key] for key in ("releases", "epsilon", "delta", "trust")}
