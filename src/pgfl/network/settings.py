"""`site.toml` and `client.toml`: how they are read and written, and the templates that `init` leaves."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

import tomli_w
from pydantic import AfterValidator, ValidationError

from pgfl.config.files import apply_override, one_line, sentence, tuples
from pgfl.config.section import Section
from pgfl.errors import ConfigError
from pgfl.network.protocol.proxies import Proxies

AnySection = TypeVar("AnySection", bound=Section)


def _is_proxy(url: str) -> str:
    try:
        Proxies.stated(url, None, {})
    except ConfigError as error:
        raise ValueError(str(error)) from None
    return url


ProxyUrl: TypeAlias = Annotated[str, AfterValidator(_is_proxy)] | None
"""`proxy`: the HTTP proxy that calls go through, "" for none; that of the environment (https_proxy) if not given."""
NoProxy: TypeAlias = tuple[str, ...] | None
"""`no_proxy`: hosts, domains and networks that are called directly; those of the environment if not given."""


def load_settings(path: Path, section: type[AnySection]) -> AnySection:
    """The settings in a TOML file."""
    try:
        return parse_settings(path.read_text("utf-8"), section, path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {one_line(error)}.") from error


def parse_settings(text: str, section: type[AnySection], path: Path) -> AnySection:
    """The settings in a TOML text, which is or will be in a file."""
    try:
        table = tomllib.loads(text)
    except ValueError as error:
        raise ConfigError(f"{path} is not valid TOML: {one_line(error)}.") from error
    try:
        return section.model_validate(tuples(table))
    except ValidationError as error:
        raise ConfigError(f"{path}: {sentence(error, list(_keys(section)))}") from None


def toml_of(settings: Mapping[str, Any]) -> str:
    """Settings as TOML; keys without a value are left out, since TOML has no null."""
    return tomli_w.dumps(_without_none(settings))


def applied(text: str, changes: Sequence[str] | Mapping[str, object]) -> str:
    """A template with other values (by key, or key=value as for `pgfl run --set`); its comments stay.

    >>> print(applied("a = 1  # one\\n\\n[b]\\nc = 2\\n", ["a=3", "b.d=[4]"]))
    a = 3  # one
    <BLANKLINE>
    [b]
    c = 2
    d = [4]
    <BLANKLINE>
    """
    stated = dict(changes) if isinstance(changes, Mapping) else dict(map(_stated, changes))
    for place, value in stated.items():
        section, _, key = place.rpartition(".")
        text = _with_value(text, section, key, value)
    return text


def _stated(change: str) -> tuple[str, Any]:
    """The key and the value of key=value."""
    value: Any = {}
    apply_override(value, change)
    place = change.partition("=")[0].strip()
    for part in place.split("."):
        value = value[part]
    return place, value


def _with_value(text: str, section: str, key: str, value: Any) -> str:
    lines = text.splitlines()
    headers = [number for number, line in enumerate(lines) if line.startswith("[")]
    begins = next((number for number in headers if lines[number].split("#")[0].strip() == f"[{section}]"), None)
    if section and begins is None:
        return f"{text.rstrip()}\n\n[{section}]\n{key} = {_literal(value)}\n"
    first = 0 if begins is None else begins + 1
    last = next((number for number in headers if number >= first), len(lines))
    written = re.compile(rf"(?:# ?)?{re.escape(key)} = .*?(\s+# .*)?")
    for number in range(first, last):
        if found := written.fullmatch(lines[number]):
            lines[number] = f"{key} = {_literal(value)}{found[1] or ''}"
            return "\n".join(lines) + "\n"
    while last > first and not lines[last - 1].strip():
        last -= 1
    return "\n".join([*lines[:last], f"{key} = {_literal(value)}", *lines[last:]]) + "\n"


def _literal(value: Any) -> str:
    """A value on one line of TOML."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_literal(item)}" for key, item in value.items() if item is not None) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_literal, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _without_none(table: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _without_none(value) if isinstance(value, Mapping) else value
        for key, value in table.items()
        if value is not None
    }


def _keys(section: type[Section], prefix: str = "") -> Iterator[str]:
    for name, field in section.model_fields.items():
        yield prefix + name
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            yield from _keys(field.annotation, f"{prefix}{name}.")


SITE = """\
name = "{name}"
# proxy = "http://proxy.example.org:3128"  # for calls to neighbours; https_proxy of the environment unless given

[listen]
host = "0.0.0.0"          # the address to listen on
port = 9094               # for clients and neighbouring sites
# per_address = 256       # connections from one address; raise it for many clients behind one router
# balancers = ["10.1.0.7"]  # load balancers that say who calls (PROXY protocol 2); from elsewhere it is not believed
# metrics = "127.0.0.1:9095"  # /metrics for Prometheus and /health; off unless given, anyone who reaches it can read it

[timing]
answers = 30.0            # seconds until a round closes without those who are late
patience = 3.0            # or so many times as long as answers usually take, once a quorum has answered
exchange = 15.0           # seconds that neighbours are waited for
start = 60.0              # seconds that the first round waits for everyone
staleness = 1             # rounds that a neighbour's models may be old
linger = 3600.0           # seconds after the last round, for those who were away when it ended
pace = 1.0                # least seconds from one round to the next

[quorum]                  # who must be there for a round to open; with these nobody spends budget alone
clients = 0.5             # share of the admitted clients
neighbours = 1            # neighbours that are reached and at the same round
apart = 0                 # rounds in a row that may be trained with fewer neighbours

[bounds]
spread = 10.0             # an answer, or a neighbour's model, so many times as far away as usual is refused or clipped
# x_norm = 1.0            # or state what honest clients can send: the largest x_norm (and y_bound, w_norm for ridge)
# noise = 0.5             # the largest standard deviation of a client's noise, per coordinate
# neighbours = 1.0        # how far a neighbour's model may be from this site's own

[log]                     # on standard error unless a file is given
level = "info"            # "debug" | "info" | "warning" | "error"
format = "text"           # or "json", one object per line
# file = "site.log"       # in this folder
megabytes = 10.0          # then a file is rotated
keep = 5                  # rotated files

[training]                # the same at every site: neighbours compare its hash
rounds = 100
dimension = 10            # features, and 1 more with an intercept
clusters = ["adults", "children"]
mixing = "metropolis"

# weight_cap = 5.0        # clients may weigh their rows, up to this; noise grows with it
# class_weight = {{ 1 = 9.0 }}  # how much rows of a label count

[training.objective]
kind = "huber"            # "ridge" | "huber" | "logistic" | "hinge"
lam = 0.01
kappa = 1.0

[training.algorithm]
kind = "pgfl"
rho = 5.0
tau = 0.2
participants = "all"      # or how many clients of a site take part in a round

[training.privacy]
trust = "local"           # or "site": sites add the noise for clients that trust them; or "masked": clients share it
contributors = 2          # the fewest clients of a cluster whose sum is published ("site" and "masked" need gradients)
"""

CLIENT = """\
name = "{name}"
data = "data.csv"         # csv or parquet, one row per sample
target = "y"              # all other columns are features
# weight = "w"            # a column: how much a row counts, up to the training's weight_cap
intercept = false
task = "regression"       # or "classification", with labels 0 and 1

# proxy = "http://proxy.example.org:3128"  # for calls to the site; https_proxy of the environment unless given
share_budget = true       # the site may know how many releases your policy allows; it never depends on data

[site]
address = "{address}"  # both from the site's operator; compare the fingerprint by telephone
fingerprint = "{fingerprint}"

[privacy]                 # yours alone: no site can change it
enabled = true
epsilon = 4.0             # for all releases together
delta = 1e-5
max_releases = 100
zeta = 0.99               # the noise variance is multiplied by this from release to release
x_norm = 1.0              # rows are clipped to this norm
trust = "local"           # or "site": your own site adds the noise; or "masked": clients share it (needs [roster])
# y_bound = 1.0           # ridge needs these two as well
# w_norm = 5.0

[log]                     # on standard error unless a file is given
level = "info"            # "debug" | "info" | "warning" | "error"
format = "text"           # or "json", one object per line
# file = "client.log"     # in this folder
megabytes = 10.0          # then a file is rotated
keep = 5                  # rotated files

[limits]                  # which trainings you take part in; a site that asks for another one is refused
objectives = ["huber"]    # "ridge" | "huber" | "logistic" | "hinge"
algorithms = ["pgfl", "pgfl-exact", "pgfl-onestep", "fedavg"]
rho = [0.01, 1000.0]      # [least, most]
lam = [0.0, 100.0]
kappa = [0.001, 1000.0]
step_size = [1e-6, 10.0]  # FedAvg
local_steps = 100         # FedAvg, at most
rounds = 1_000_000        # at most
dimension = 1_000_000     # at most
weight_cap = 1.0          # the most that one of your records may count; your noise grows with it
# map = "hats"            # what rows go through before they are clipped; columns are then numbers from -1 to 1
solver_steps = 10_000     # at most, where the fast solver is not enough
"""


def write_once(path: Path, text: str) -> bool:
    """Write a template unless the file exists."""
    if path.exists():
        return False
    path.write_text(text)
    return True
