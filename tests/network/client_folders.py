"""A client's folder as its owner would have it: key, table and settings; and its site's, in `site`."""

from __future__ import annotations

from pgfl.network.protocol import identity
from pgfl.network.settings import toml_of

PRIVACY = {"enabled": True, "epsilon": 4.0, "max_releases": 20, "x_norm": 1.0}


def client_folder(folder, labels=(0.5, -1.0), privacy=PRIVACY, **settings):
    """The path of a client.toml for two features and the given labels."""
    identity.create_client(folder, "ann")
    site = identity.create_site(folder / "site", "north", [])
    rows = [f"{label!r},{0.3 + i!r},{-0.2 * i!r}" for i, label in enumerate(labels)]
    (folder / "data.csv").write_text("\n".join(["y,x1,x2", *rows]) + "\n")
    table = {
        "name": "ann",
        "data": "data.csv",
        **settings,
        "site": {"address": "127.0.0.1:1", "fingerprint": site.fingerprint},
        "privacy": privacy,
    }
    (folder / "client.toml").write_text(toml_of(table))
    return folder / "client.toml"
