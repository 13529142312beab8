"""Setting a client up from an invitation: what its owner is shown, and what is written once the owner has agreed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pgfl.errors import DataError, NetworkError, PrivacyError
from pgfl.files import write_text
from pgfl.maps import stated
from pgfl.network.agreement import Training, task_of
from pgfl.network.client.accounts import PINNED, Offer, accepted
from pgfl.network.client.client import CODE
from pgfl.network.client.samples import columns_apart, row_encoding
from pgfl.network.client.settings import ClientSettings, load_client
from pgfl.network.invitation import Invitation
from pgfl.network.protocol.identity import CLIENT_KEY, create_client, read_client_key
from pgfl.network.rotation import write_private
from pgfl.network.settings import CLIENT, applied, parse_settings
from pgfl.objectives import Bounds
from pgfl.privacy.usable import noise_in_words, sound_zeta, unusable

SETTINGS = "client.toml"
_ZETA = 0.99


@dataclass(frozen=True)
class Proposal:
    """What an invitation and the owner's own choices come to; nothing is written, computed or charged yet."""

    invitation: Invitation
    training: Training
    settings: ClientSettings
    text: str  # of client.toml
    columns: Sequence[str]

    @property
    def lines(self) -> list[str]:
        """What the owner agrees to, line by line."""
        asked, privacy, limits = self.invitation, self.settings.privacy, self.settings.limits
        policy = "privacy is off: models leave without noise"
        if privacy.enabled:
            budget = privacy.request().policy().budget
            spent = f"epsilon {privacy.epsilon:g}" if privacy.epsilon is not None else f"phi0 {privacy.phi0:g}"
            policy = (
                f"{spent} at delta {privacy.delta:g} for all {privacy.max_releases} releases; rows are clipped to norm "
                f"{privacy.x_norm:g}; trust {privacy.trust}; {noise_in_words(budget, self.training.rounds)}"
            )
        features, weight = self.settings.features(self.columns), self.settings.weight
        return [
            f"site         {asked.site} at {asked.address}",
            f"fingerprint  {asked.shown.fingerprint}; compare it with its operator's, by phone for example",
            f"training     {self.training.describe(asked.cluster)} ({self.training.digest[:16]})",
            f"your table   {self.settings.data}: target {self.settings.target}, features {', '.join(features)}"
            f"{' and an intercept' if self.settings.intercept else ''}"
            f"{f'; a row counts as much as {weight} says' if weight else ''}",
            f"your policy  {policy}",
            f"your limits  {', '.join(limits.objectives)} by {', '.join(limits.algorithms)}, at most {limits.rounds} "
            f"rounds, dimension {limits.dimension}; any other training must be accepted anew",
        ]


def is_set_up(home: Path, invitation: Invitation) -> bool:
    """Whether a folder is that of the invited client; refuse the folder of another one."""
    if not (home / SETTINGS).exists():
        return False
    settings = load_client(home / SETTINGS)
    if (settings.name, settings.site.fingerprint) != (invitation.name, invitation.shown.fingerprint):
        raise NetworkError(
            f"{home / SETTINGS} is that of {settings.name}, for another site or name than the invitation's; choose "
            "another folder with --home."
        )
    return True


def propose(invitation: Invitation, home: Path, table: Path, changes: Sequence[str] = ()) -> Proposal:
    """Put the invitation and the owner's choices (key=value for client.toml) together, and check all that is known."""
    training, cluster = invitation.agreed, invitation.cluster
    if cluster not in training.clusters:
        raise NetworkError(f"The invitation is for cluster {cluster!r}, which its training does not have.")
    objective, path = training.objective.of(cluster), (home / SETTINGS).resolve()
    template = CLIENT.format(name=invitation.name, address=invitation.address, fingerprint=invitation.shown.fingerprint)
    own: dict[str, object] = {
        "data": str(table.resolve()), "task": task_of(objective.kind), "limits.objectives": [objective.kind],
        "limits.algorithms": [training.algorithm.kind], "limits.rounds": training.rounds,
        "limits.dimension": training.dimension, "privacy.max_releases": training.rounds,
        "privacy.zeta": max(_ZETA, sound_zeta(training.rounds)),
    }  # fmt: skip
    if training.largest_weight is not None:
        own["limits.weight_cap"] = max(training.largest_weight, 1.0)
    if training.map is not None:
        own["limits.map"] = list(stated(training.map))
    text = applied(applied(template, own), changes)
    settings = parse_settings(text, ClientSettings, path)
    columns = columns_apart(str(table))
    features = settings.features(columns)
    for column, option in ((settings.target, "--target"), (settings.weight, "--weight")):
        if column is not None and column not in columns:
            raise DataError(f"{table} has no column {column!r}; name it with {option}.")
    width = row_encoding(settings.model_copy(update={"intercept": False}), features).dimension
    if training.dimension == width + 1 and not settings.intercept:
        text = applied(text, {"intercept": True})
        settings, width = parse_settings(text, ClientSettings, path), width + 1
    if training.dimension != width:
        raise DataError(
            f"The site trains models of dimension {training.dimension}, but {table} has {len(features)} features; "
            "check the columns, or ask the site's operator."
        )
    _check(settings, training, cluster)
    return Proposal(invitation, training, settings, text, columns)


def _check(settings: ClientSettings, training: Training, cluster: str) -> None:
    """Refuse now what would be refused later: a training beyond the limits, noise that is of no use, no bounds."""
    if refused := settings.limits.refused(training, cluster):
        raise NetworkError(f"{refused} Ask the site's operator, or widen your limits with --set limits.KEY=VALUE.")
    privacy = settings.privacy
    if not privacy.enabled:
        return
    if why := unusable(privacy.request().policy().budget, training.rounds):
        raise PrivacyError(why)
    bounds = Bounds(privacy.x_norm, privacy.y_bound, privacy.w_norm)
    kind = training.objective.of(cluster).kind
    if training.build_objective(cluster, privacy.w_norm).gradient_bound(bounds) is None:
        raise PrivacyError(
            f"{kind} is private only within more bounds; state them, as in --set privacy.y_bound=1 "
            "--set privacy.w_norm=5."
        )


def set_up(proposal: Proposal, home: Path) -> Path:
    """Write the client's folder, now that its owner has agreed; return its client.toml."""
    home.mkdir(parents=True, exist_ok=True)
    if not (home / CLIENT_KEY).exists():
        create_client(home, proposal.invitation.name)
    read_client_key(home / CLIENT_KEY)  # one that cannot be read is found now
    offer = Offer(proposal.training, proposal.invitation.cluster)
    if (pinned := accepted(home)) is not None and pinned.changes(offer):
        raise NetworkError(f"{home / PINNED} is another training, accepted before; choose another folder with --home.")
    write_private(home / CODE, proposal.invitation.code.encode())
    write_text(home / PINNED, offer.text)
    write_private(home / SETTINGS, proposal.text.encode())  # last: a folder with it is set up
    return home / SETTINGS
