"""Warnings about a config that is valid but probably not meant; those that need the data are given by training."""

from __future__ import annotations

from pgfl.config.schema import Config, idle_keys
from pgfl.privacy import rules


def warnings(config: Config) -> list[str]:
    """That privacy is off although it is written, and keys that were given but do nothing: one sentence each."""
    off = rules.off_although_written(dict(config.privacy))
    return ([off] if off else []) + [
        f'`{section}.{key}` has no effect with kind = "{getattr(config, section).kind}".'
        for section, key in idle_keys(config)
        if key in getattr(config, section).model_fields_set
    ]
