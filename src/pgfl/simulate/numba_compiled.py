"""How kernels are compiled and where their machine code is kept: with the user, under a name made from their sources.

Numba would keep it beside the package, which a new install removes and a read-only one forbids, and would look at a
change of a kernel's own file only, not of the files that the kernel calls.
"""

# mypy: disable-error-code="misc"
from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import config, njit
from numba.core import caching
from numba.core.runtime import rtsys
from numba.misc.appdirs import AppDirs

Kernel = TypeVar("Kernel", bound=Callable[..., object])
SOURCES = ("simulate/numba_*.py", "objectives/*.py")

# Sums may be reordered (to fill vector registers, always in the same way), but NaN and infinity keep their meaning.
MATHEMATICS = {"reassoc", "contract", "nsz"}


def inlined(function: Kernel) -> Kernel:
    """A part of kernels, which is compiled into each of them."""
    return cast(Kernel, njit(nogil=True, error_model="numpy", fastmath=MATHEMATICS, forceinline=True)(function))


def compiled(function: Kernel) -> Kernel:
    """The function, compiled when it is first called with arguments of a type, and loaded from then on."""
    return _compiled(function, MATHEMATICS)


def rounded(function: Kernel) -> Kernel:
    """As `compiled`, but nothing is reordered and every operation rounds: the bits are NumPy's."""
    return _compiled(function, set())


def _compiled(function: Kernel, mathematics: set[str]) -> Kernel:
    dispatcher = njit(nogil=True, error_model="numpy", fastmath=mathematics)(function)
    if (Path(folder()) / "tag").exists():
        dispatcher._cache = _KernelCache(function)
    return cast(Kernel, dispatcher)


@cache
def digest() -> str:
    """A digest of all that a kernel is made from."""
    package = Path(__file__).parents[1]
    found = sorted(path for pattern in SOURCES for path in package.glob(pattern))
    return hashlib.sha256(b"".join(path.read_bytes() for path in found)).hexdigest()


@cache
def folder() -> str:
    """Where this version's machine code is kept; without a folder that can be written, it is compiled every time."""
    kept = config.CACHE_DIR or os.path.join(AppDirs(appname="pgfl", appauthor=False).user_cache_dir, "kernels")
    own = Path(kept) / digest()[:16]
    try:
        own.mkdir(parents=True, exist_ok=True)
        (own / "tag").touch()
    except OSError:
        pass
    return str(own)


class _Locator(caching._CacheLocator):
    def __init__(self, function: Callable[..., Any]) -> None:
        self._name = function.__qualname__

    def get_cache_path(self) -> str:
        return folder()

    def get_source_stamp(self) -> str:
        return digest()

    def get_disambiguator(self) -> str:
        return "kernel"

    @classmethod
    def from_function(cls, function: Callable[..., Any], source: str) -> _Locator:
        return cls(function)


class _CompiledResults(caching.CompileResultCacheImpl):
    _locator_classes = (_Locator,)


class _KernelCache(caching.Cache):
    _impl_class = _CompiledResults

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """As Numba's, which first imports all that it can compile; machine code needs its memory allocator alone.

        Half of the start went there. What is not in the cache is compiled, and everything is imported then.
        """
        rtsys.initialize(target_context)
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)
