"""A digest of all that determines an experiment's result."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from pgfl.config.schema import PATH_KEYS, Config, idle_keys
from pgfl.errors import ConfigError

UNDECIDING_KEYS = ("name", "engine", "threads", "checkpoint_every")


def fingerprint(config: Config, *, of_records: bool = True) -> str:
    """The digest of a config and of the contents, not the paths, of its files.

    Without `of_records` only what is public of the data files counts, so that the digest confirms no guess at a record.
    """
    settings = config.model_dump(mode="json", exclude=set(UNDECIDING_KEYS))
    for section, key in idle_keys(config):
        del settings[section][key]
    if not config.privacy.enabled:
        del settings["privacy"]
    if settings.pop("continues") is not None:
        settings["continues"] = _content_digest(Path(str(config.continues)) / "state.npz")
    else:
        del settings["new_clients"], settings["moved_records"]  # statements about what is continued
    for section, key in PATH_KEYS:
        if isinstance(path := settings[section].get(key), str):
            public_only = section == "data" and not of_records
            settings[section][key] = (
                config.data.public_digest(key, path) if public_only else _content_digest(Path(path))
            )
    return hashlib.blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=16).hexdigest()


def _content_digest(path: Path) -> str:
    """A digest of a file's bytes or a folder's files; a path that does not exist stands for itself."""
    digest = hashlib.blake2b(digest_size=16)
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    try:
        for file in (file for file in files if file.is_file()):
            digest.update(f"{file.relative_to(path)}\0".encode())
            with open(file, "rb") as stream:
                digest.update(hashlib.file_digest(stream, "blake2b").digest())
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
    return digest.hexdigest() if path.exists() else str(path)
