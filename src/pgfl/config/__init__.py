"""The experiment as validated TOML."""

from pgfl.config.advice import warnings
from pgfl.config.reading import load, parse, presets
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
from pgfl.config.writing import to_toml

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
