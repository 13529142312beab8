"""The implementations of a seam by name: those of the package, and those that other packages register.

Another package names its implementations as entry points of the group `pgfl.<seam>`, for example in its pyproject.toml:

    [project.entry-points."pgfl.objectives"]
    pinball = "my_package.pinball:Pinball"

The parameters of an implementation, which is a dataclass, are keys of its section in a config.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import Field, field, fields, is_dataclass
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar, cast

from pgfl.errors import ConfigError
from pgfl.suggestions import nearest, quoted

T = TypeVar("T")


class Registry(Generic[T]):
    """Names and what they stand for; a text "module:attribute" is imported when it is first used.

    >>> colours = Registry[int]("colours", "colour", {"red": 1, "green": 2})
    >>> colours["gren"]
    Traceback (most recent call last):
    pgfl.errors.ConfigError: Unknown colour 'gren' (did you mean green?); choose one of red, green.
    """

    def __init__(self, seam: str, noun: str, built_in: Mapping[str, T | str] | None = None) -> None:
        """Begin with what the package has; `noun` is what messages call one of them."""
        self.seam, self.noun = seam, noun
        self._known: dict[str, T | str] = dict(built_in or {})
        self.built_in = tuple(self._known)

    @property
    def group(self) -> str:
        """The group of entry points that other packages use."""
        return f"pgfl.{self.seam}"

    def register(self, name: str, value: T | str) -> None:
        """Add an implementation, or the text "module:attribute" that leads to it; a name is taken only once."""
        if name in self._known and self._known[name] is not value:
            raise ConfigError(f"The {self.noun} {quoted(name)} is registered already; choose another name.")
        self._known[name] = value

    def names(self) -> tuple[str, ...]:
        """All names: the package's own, then those registered, then those of installed packages."""
        return (*self._known, *(name for name in self._entries if name not in self._known))

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.names())

    def __contains__(self, name: object) -> bool:
        """Whether there is such a name; installed packages are only looked at if the package itself has none."""
        return isinstance(name, str) and (name in self._known or name in self._entries)

    def __getitem__(self, name: str) -> T:
        """The implementation of a name; raises `ConfigError` if there is none, or its package fails."""
        if name not in self:
            raise ConfigError(
                f"Unknown {self.noun} {quoted(name)}{nearest(name, self)}; choose one of {', '.join(self)}."
            )
        if name not in self._known:
            self._known[name] = _loaded(self._entries[name], self.noun)
        elif isinstance(found := self._known[name], str):
            module, _, attribute = found.partition(":")
            self._known[name] = cast("T", getattr(import_module(module), attribute))
        return cast("T", self._known[name])

    get = __getitem__

    @cached_property
    def _entries(self) -> dict[str, EntryPoint]:
        return {entry.name: entry for entry in entry_points(group=self.group)}


def _loaded(entry: EntryPoint, noun: str) -> T:  # type: ignore[type-var]
    """What an entry point leads to; whatever its package raises becomes one sentence."""
    try:
        return cast("T", entry.load())
    except Exception as error:  # another package's code may fail in any way
        owner = entry.dist.name if entry.dist else entry.value
        said = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".")
        raise ConfigError(
            f"The {noun} {quoted(entry.name)} of the package {quoted(owner)} cannot be loaded ({said}); "
            "repair that package or remove it."
        ) from error


def setting(default: T, *, config: bool = True, **limits: float) -> T:
    """A parameter of an objective or a rule, with the limits of its config key (`gt`, `ge`, `lt`, `le`).

    With `config=False` the parameter is no key of its own section: something else sets it.
    """
    stated: Any = field(default=default, metadata={"config": config, "limits": limits})
    return cast("T", stated)


def config_keys(kind: type) -> dict[str, Field[Any]]:
    """The parameters of a dataclass that are keys of its config section; none for another class."""
    found = fields(kind) if is_dataclass(kind) else ()
    return {one.name: one for one in found if one.init and one.metadata.get("config", True)}


def compiled_form(thing: object) -> str | None:
    """The name under which compiled engines know a loss or a rule; None where they do not.

    Only what a class declares itself counts: a subclass computes something else, so it inherits none.
    """
    return vars(type(thing)).get("compiled_form")


def is_pure(thing: object) -> bool:
    """Whether the methods of a rule are pure functions of arrays, which JAX may trace; a subclass inherits nothing."""
    return bool(vars(type(thing)).get("pure", False))
