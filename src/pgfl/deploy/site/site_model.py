"""The models of a site as a model file that `pgfl predict` reads, during and after training."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np

from pgfl import __version__
from pgfl.core.encoded_columns import NumberColumn, TargetColumn
from pgfl.core.roles import EVERYONE
from pgfl.core.row_encoding import PlaceColumns, RowEncoding
from pgfl.deploy.agreed_training import TASK_OF
from pgfl.deploy.site.site_role import models_in
from pgfl.deploy.site.site_settings import SiteSettings
from pgfl.deploy.site.site_status import entrusted_account
from pgfl.deploy.site.site_store import STORE, SiteStore
from pgfl.errors import NetworkError
from pgfl.results.model import Model

MOST_COLUMNS = 10_000


def model_of_site(settings: SiteSettings) -> Model:
    """The site's models of all clusters that it knows, as of its last completed round.

    A site does not know the columns of its clients' tables: features are called x0, x1, …, in the order of a client's
    columns, and an intercept is the last of them.
    """
    with closing(SiteStore(Path(settings.home) / STORE)) as store:
        saved, clients = store.load_state(), store.clients()
    accounts = {name: entrusted_account(Path(settings.home), name) for name in clients}
    held = {} if saved is None else models_in(saved[1])
    training = settings.training
    clusters = [cluster for cluster in training.clusters if cluster in held or EVERYONE in held]
    if saved is None or not clusters:
        raise NetworkError(f"Site {settings.name} has no model yet; wait for its first round.")
    kinds = [training.objective.of(cluster).kind for cluster in clusters]
    rows = np.array([held.get(cluster, held.get(EVERYONE, {}))["model"] for cluster in clusters])
    return Model(
        cluster_ids=tuple(clusters),
        objectives=tuple(kinds),
        tasks=tuple(TASK_OF[kind] for kind in kinds),
        clusters=rows,
        server_ids=(settings.name,),
        pair_server=np.zeros(len(clusters), dtype=np.int64),
        pair_cluster=np.arange(len(clusters)),
        servers=rows,
        encoding=_numbered(training.dimension),
        provenance={
            "name": f"site {settings.name}",
            "version": __version__,
            "rounds": saved[0],
            "training": training.digest,
            "privacy": {
                "trust": training.privacy.trust,
                "releases": {name: client.releases for name, client in clients.items()},
                "epsilon": {name: account["epsilon"] for name, account in accounts.items()},
            },
        },
    )


def _numbered(dimension: int) -> RowEncoding | None:
    """Features by their numbers; none where there are too many to be columns of a table."""
    if dimension > MOST_COLUMNS:
        return None
    columns = tuple(NumberColumn(f"x{number}") for number in range(dimension))
    return RowEncoding(columns, TargetColumn("y"), False, PlaceColumns(None, None, None))
