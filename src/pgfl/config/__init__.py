"""The experiment as validated TOML."""

from pgfl.config.building import warnings
from pgfl.config.files import load_config, parse, presets, to_toml
from pgfl.config.schema import (
    AlgorithmSettings,
    Config,
    Decay,
    GraphSettings,
    ObjectiveSettings,
    PrivacySettings,
)

__all__ = [
    "AlgorithmSettings",
    "Config",
    "Decay",
    "GraphSettings",
    "ObjectiveSettings",
    "PrivacySettings",
    "load_config",
    "parse",
    "presets",
    "to_toml",
    "warnings",
]
