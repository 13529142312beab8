"""Optional libraries: refused in one sentence where they are missing."""

from importlib.util import find_spec

from pgfl.errors import MissingExtra


def require(what: str, extra: str, *modules: str) -> None:
    """Raise `MissingExtra` unless all these modules can be imported; none is imported."""
    if any(find_spec(module) is None for module in modules):
        raise MissingExtra(f"{what}; install with pip install 'pgfl[{extra}]'.")
