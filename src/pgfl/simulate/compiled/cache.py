"""How kernels are compiled and where their machine code is kept: with the user, under a name made from their sources.

Numba would keep it beside the package, which a new install removes and a read-only one forbids, and would look at a
change of a kernel's own file only, not of the files that the kernel calls.

The machine code of a kernel depends on its sources, Numba and the processor alone, so that its bits do, too. A kernel
contains all that it calls and never refers to another one. Kernels that Numba keeps have weak copies of what they call,
each optimised within its kernel, and a process may use any of them. With sums that may be reordered, bits were seen to
depend on whether a kernel had just been compiled or was loaded.
"""

from __future__ import annotations

import ctypes
import hashlib
import pickle
import platform
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast
from uuid import uuid4

import numba
from llvmlite import binding as llvm
from numba import config, njit
from numba.core import caching, compiler
from numba.core.codegen import JITCodeLibrary
from numba.core.runtime import rtsys
from numba.core.serialize import dumps

from pgfl.errors import KernelError
from pgfl.files import user_cache

# mypy: disable-error-code="misc"


Kernel = TypeVar("Kernel", bound=Callable[..., object])
ENVIRONMENT = "_ZN08NumbaEnv"  # how the names of pointers begin that Numba sets for every function
SOURCES = ("simulate/compiled/*.py", "objectives/*.py")

# Sums may be reordered (to fill vector registers, always in the same way), but NaN and infinity keep their meaning.
MATHEMATICS = {"reassoc", "contract", "nsz"}


def compiled(function: Kernel) -> Kernel:
    """Return a kernel: compiled when it is first called with arguments of a type, and loaded from then on.

    It may call parts, never another kernel.
    """
    return _compiled(function, MATHEMATICS)


def rounded(function: Kernel) -> Kernel:
    """As `compiled`, but nothing is reordered and every operation rounds: the bits are NumPy's."""
    return _compiled(function, set())


def inlined(function: Kernel) -> Kernel:
    """Return a part of kernels, which is inlined wherever it is called. Python cannot call it."""
    return _part(function, MATHEMATICS, forceinline=True)


def part(function: Kernel) -> Kernel:
    """Return a part of kernels, of which each has a copy; LLVM decides whether to inline it. Python cannot call it."""
    return _part(function, MATHEMATICS, forceinline=False)


def rounded_part(function: Kernel) -> Kernel:
    """As `part`, with the arithmetic of `rounded`."""
    return _part(function, set(), forceinline=False)


def _compiled(function: Kernel, mathematics: set[str]) -> Kernel:
    # Every flag that a function does not have is taken from the first that calls it: parts and kernels have them all.
    options = {"nogil": True, "error_model": "numpy", "fastmath": mathematics, "forceinline": False}
    dispatcher = njit(pipeline_class=_KernelCompiler, no_cfunc_wrapper=True, **options)(function)
    if (Path(folder()) / "tag").exists():
        dispatcher._cache = _KernelCache(function)
    return cast(Kernel, dispatcher)


def _part(function: Kernel, mathematics: set[str], forceinline: bool) -> Kernel:
    options = {"nogil": True, "error_model": "numpy", "fastmath": mathematics, "forceinline": forceinline}
    wrappers = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return cast(Kernel, njit(pipeline_class=_PartCompiler, **options, **wrappers)(function))


class _KernelLibrary(JITCodeLibrary):
    """What a kernel calls is its own: no other machine code can take its place when it is loaded."""

    def _optimize_final_module(self) -> None:
        for function in self._final_module.functions:
            if function.linkage == llvm.Linkage.linkonce_odr:
                function.linkage = llvm.Linkage.internal
        super()._optimize_final_module()


class _PartLibrary(JITCodeLibrary):
    """Parts are optimised and become machine code within kernels alone, which saves most of the time."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalized = True  # as whatever asks for the module that kernels link wants it
        names = [one.name for one in self._get_module_for_linking().global_variables]
        environments = (f'@"{name}" = common global i64 0' for name in names if name.startswith(ENVIRONMENT))
        self._final_module = llvm.parse_assembly("\n".join(environments))
        super()._finalize_final_module()

    def get_pointer_to_function(self, name: str) -> int:
        """Return a function that raises TypeError: Python cannot call a part."""
        self._ensure_finalized()
        return ctypes.cast(ctypes.pythonapi.PyObject_Call, ctypes.c_void_p).value or 0


class _PartCompiler(compiler.Compiler):
    library_class: type[JITCodeLibrary] = _PartLibrary

    def compile_extra(self, function: Callable[..., Any]) -> Any:
        self.state.library = self.library_class(self.state.targetctx.codegen(), function.__qualname__)
        self.state.library.enable_object_caching()
        return super().compile_extra(function)


class _KernelCompiler(_PartCompiler):
    library_class = _KernelLibrary

    def compile_extra(self, function: Callable[..., Any]) -> Any:
        try:
            return super().compile_extra(function)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".splitlines()[0].rstrip(".")
            raise KernelError(
                f"The kernel {function.__name__} cannot be compiled ({reason}); choose the engine numpy."
            ) from error


@cache
def digest() -> str:
    """Return a digest of all that a kernel is made from."""
    package = Path(__file__).parents[2]
    found = sorted(path for pattern in SOURCES for path in package.glob(pattern))
    made_by = f"{numba.__version__} {platform.python_implementation()} {platform.python_version()}".encode()
    return hashlib.sha256(b"".join([made_by, *(path.read_bytes() for path in found)])).hexdigest()


@cache
def folder() -> str:
    """Return the folder of this version's machine code; if it cannot be written, kernels are compiled every time."""
    kept = config.CACHE_DIR or user_cache() / "kernels"
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


class _Files:
    """One file for each kernel, signature and processor, which is replaced as a whole.

    Numba numbers its files in an index: two processes that compile at once may give one number to two signatures.
    """

    def __init__(self, base: str) -> None:
        self._base = base

    def save(self, key: object, data: object) -> None:
        """Keep a kernel; where that fails, as on a full disk, the next process compiles it again."""
        content = dumps(data)
        new = Path(folder()) / f"new-{uuid4().hex}"
        try:
            new.write_bytes(hashlib.sha256(content).digest() + content)
            new.replace(self._path(key))
        except OSError:
            new.unlink(missing_ok=True)

    def load(self, key: object) -> Any:
        """None if there is none, or a damaged one, which will be compiled again and replaced."""
        try:
            file = self._path(key).read_bytes()
        except OSError:
            return None
        intact = hashlib.sha256(file[32:]).digest() == file[:32]
        return pickle.loads(file[32:]) if intact else None

    def _path(self, key: object) -> Path:
        return Path(folder()) / f"{self._base}-{hashlib.sha256(repr(key).encode()).hexdigest()[:32]}"


class _KernelCache(caching.Cache):
    _impl_class = _CompiledResults

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file = _Files(f"{function.__module__}.{function.__qualname__}")

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """As Numba's, which first imports all that it can compile; machine code needs its memory allocator alone.

        Half of the start went there. What is not in the cache is compiled, and everything is imported then.
        """
        rtsys.initialize(target_context)
        try:
            return self._load_overload(sig, target_context)
        except Exception:  # whatever was kept, it can be compiled again
            return None
