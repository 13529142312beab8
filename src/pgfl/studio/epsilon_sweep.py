"""The same training at other privacy levels: the error against ε."""

from __future__ import annotations

from pgfl.config import Config
from pgfl.errors import ConfigError

FACTORS = (0.1, 0.25, 0.5, 2.0, 4.0, 10.0)
OFF = "Switch privacy on to see what an ε costs."
NO_GUARANTEE = (
    "Ridge regression has an unbounded gradient, so the noise of this figure guarantees no ε. "
    "Its guaranteed twin among the presets has one."
)


def why_not(config: Config) -> str | None:
    """Why there is no curve, if there is none."""
    if not config.privacy.enabled:
        return OFF
    return NO_GUARANTEE if config.privacy.guarantee == "none" else None


def levels(config: Config) -> list[Config]:
    """The same config with less and more noise, measured at the end only."""
    if why_not(config):
        return []
    privacy = config.privacy
    key = next((key for key in ("epsilon", "phi0", "phi1") if getattr(privacy, key) is not None), None)
    if key is None:
        raise ConfigError("The privacy of this config has neither a target nor a schedule.")
    others = [privacy.model_copy(update={key: getattr(privacy, key) * factor}) for factor in FACTORS]
    return [config.model_copy(update={"privacy": other, "record_every": config.rounds}) for other in others]
