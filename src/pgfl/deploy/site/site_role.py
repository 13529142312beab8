"""A site's server role with what the network adds: who is admitted, and which model closes each client's dual."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from pgfl.array_types import AnyArray, Floats
from pgfl.core.metrics import disagreement
from pgfl.core.roles import Accepted, Answer, Publication, RoundRequest, Server
from pgfl.deploy.site.site_rounds import Members

Arrays = dict[str, AnyArray]


@dataclass
class SiteRole:
    """`site_rounds.SiteRole` on top of `roles.Server`.

    `clients` maps the admitted to their clusters, `accepted` to the last round in which they were accepted. The models
    of those rounds are kept until nobody needs them.
    """

    server: Server
    clients: Mapping[str, str]
    most_clients: Mapping[str, int] = field(default_factory=dict)  # pgfl-exact: max over sites of |C_{s,(q)}|
    accepted: dict[str, int] = field(default_factory=dict)
    _kept: dict[tuple[int, str], Floats] = field(default_factory=dict)
    disagreement: float = 0.0  # between this site's and its neighbours' publications of the last round
    _contributing: tuple[str, ...] = ()
    _sent: Publication | None = None

    def __post_init__(self) -> None:
        self._share_out()

    def adopt(self, members: Members) -> None:
        """The members of the next rounds; called between rounds only."""
        self.clients = dict(members.clients)
        self.server.neighbours = tuple(sorted(members.neighbours))
        self._share_out()

    def _share_out(self) -> None:
        here = list(self.clients.values())
        self.server.shares = {q: here.count(q) / most for q, most in self.most_clients.items()}

    def request(self, client: str, round: int) -> RoundRequest:
        """|C_s| is the number of admitted clients now, the same for everyone who is asked in this round."""
        cluster, last = self.clients[client], self.accepted.get(client)
        closing = self._kept.get((last, cluster)) if last is not None else None
        accepted = None if last is None or closing is None else Accepted(last, closing)
        return RoundRequest(round, len(self.clients), self.server.model(cluster), accepted)

    def aggregate(self, round: int, answers: Mapping[str, Answer], retired: Collection[str] = ()) -> Publication:
        """The server's aggregation, with clients in the order of their names; the `retired` never answer again."""
        self._contributing = tuple(sorted(client for client in answers if client in self.clients))
        contributors = [(cluster, client not in retired) for client, cluster in self.clients.items()]
        answered = [(self.clients[name], answers[name]) for name in self._contributing]
        self._sent = self.server.aggregate(round, answered, contributors)
        return self._sent

    def publication(self) -> Publication:
        """The models as they are now, as a publication of the last round."""
        models = {cluster: state["model"] for cluster, state in self.server.state()["clusters"].items()}
        return Publication(self.server.round, len(self.server.neighbours), models)

    def combine(self, round: int, publications: Mapping[str, Publication]) -> None:
        """The server's combination; from now on those who answered are accepted."""
        self.server.combine(round, publications)
        self._measure(publications)
        for client in self._contributing:
            self.accepted[client] = round
            model = self.server.model(self.clients[client])
            assert model is not None  # the client's own answer is in it
            self._kept[round, self.clients[client]] = model
        needed = {(last, self.clients[client]) for client, last in self.accepted.items() if client in self.clients}
        self._kept = {key: model for key, model in self._kept.items() if key in needed}

    def _measure(self, publications: Mapping[str, Publication]) -> None:
        known = [pub for pub in (self._sent, *publications.values()) if pub is not None]
        clusters = sorted({cluster for pub in known for cluster in pub.models})
        pairs = [(clusters.index(cluster), model) for pub in known for cluster, model in pub.models.items()]
        models = np.array([model for _, model in pairs]).reshape(len(pairs), self.server.dimension)
        self.disagreement = disagreement(models, np.array([row for row, _ in pairs], dtype=np.int64))

    def snapshot(self) -> Arrays:
        """Arrays for the store."""
        state = self.server.state()
        held = state["clusters"]
        names = sorted({name for state in held.values() for name in state})
        kept = sorted(self._kept)
        arrays: Arrays = {
            f"state.{name}": np.array([held[cluster][name] for cluster in sorted(held)]) for name in names
        }
        arrays["kept"] = np.array([self._kept[key] for key in kept])
        arrays["disagreement"] = np.array(self.disagreement)
        about = {
            "round": self.server.round,
            "clusters": sorted(held),
            "rested": sorted(state["rested"]),
            "kept": kept,
            "accepted": self.accepted,
        }
        arrays["about"] = np.array(json.dumps(about))
        return arrays

    def restore(self, arrays: Mapping[str, AnyArray]) -> None:
        """Go on from a snapshot."""
        about = json.loads(str(arrays["about"]))
        names = [name.removeprefix("state.") for name in arrays if name.startswith("state.")]
        states = {
            cluster: {name: arrays[f"state.{name}"][row] for name in names}
            for row, cluster in enumerate(about["clusters"])
        }
        self.server.restore({"round": about["round"], "clusters": states, "rested": about.get("rested", ())})
        self.disagreement = float(arrays["disagreement"])
        self.accepted = {client: int(round) for client, round in about["accepted"].items()}
        self._kept = {(key[0], key[1]): arrays["kept"][row] for row, key in enumerate(about["kept"])}
