"""What a config allows but probably does not mean; what needs the data to be known is told by training."""

from __future__ import annotations

from pgfl.config.schema import Config, idle_keys


def warnings(config: Config) -> list[str]:
    """Keys that were given but do nothing, one sentence each."""
    return [
        f'`{section}.{key}` has no effect with kind = "{getattr(config, section).kind}".'
        for section, key in idle_keys(config)
        if key in getattr(config, section).model_fields_set
    ]
