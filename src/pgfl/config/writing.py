"""A resolved config as TOML."""

from __future__ import annotations

import tomli_w

from pgfl.config.schema import Config, idle_keys


def to_toml(config: Config) -> str:
    """The resolved config: every key that has a value, so that a later default cannot change what was run.

    >>> from pgfl.config import parse
    >>> print(to_toml(parse({"rounds": 9})).splitlines()[1])
    rounds = 9
    """
    settings = config.model_dump(exclude_none=True)
    for section, key in idle_keys(config):
        settings[section].pop(key, None)
    for section, key in (("objective", "clusters"), ("data", "columns"), ("data", "ignore")):
        if not settings[section].get(key, True):
            del settings[section][key]
    if not settings["new_clients"]:
        del settings["new_clients"]
    return tomli_w.dumps(settings)
