"""The experiment as validated TOML."""

from pgfl.config.building import warnings
from pgfl.config.files import load, parse, presets, to_toml
from pgfl.config.schema import (
    AlgorithmSettings,
    ClusterObjective,
    Config,
    Decay,
    GraphSettings,
    MnistData,
    ObjectiveSettings,
    PrivacySettings,
    SyntheticData,
    TableData,
)

__all__ = [
    "AlgorithmSettings",
    "ClusterObjective",
    "Config",
    "Decay",
    "GraphSettings",
    "MnistData",
    "ObjectiveSettings",
    "PrivacySettings",
    "SyntheticData",
    "TableData",
    "load",
    "parse",
    "presets",
    "to_toml",
    "warnings",
]
