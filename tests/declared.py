"""Which library each module of the package imports, and which extra must therefore be installed."""

import ast
import sys
from pathlib import Path

import pgfl

SOURCE = Path(pgfl.__file__).parent
EXTRA_OF = {
    "pgfl.lab.audit.deployed": "network",
    "pgfl.lab.audit.masked_clients": "network",
    "pgfl.lab.audit.trusted_site": "network",
    "pgfl.demo": "network",
    "pgfl.flower.apps": "flower",
    "pgfl.flower": "network",
    "pgfl.network": "network",
    "pgfl.masking": "network",
    "pgfl.maps.encoder": "encoders",
    "pgfl.maps.inlining": "onnx",
    "pgfl.results.export_onnx": "onnx",
    "pgfl.results.export_sklearn": "sklearn",
    "pgfl.simulate.jax_engine": "jax",
    "pgfl.simulate.mpi": "mpi",
    "pgfl.simulate.compiled": "fast",
    "pgfl.sklearn": "sklearn",
    "pgfl.studio": "studio",
}
"""The start of a module's name → the extra whose libraries it may import."""

EXTRA_OF_FUNCTIONS = {"pgfl.arrays": "jax", "pgfl.privacy.accounting": "accounting"}
"""Modules that import the library of an extra, in functions that only its users call."""

DISTRIBUTION_OF = {"Crypto": "pycryptodome", "sklearn": "scikit-learn", "tomli_w": "tomli-w"}
"""The name to import → the name to install, where they differ."""

NEVER_REQUIRED = {"IPython", "pandas"}
"""Imported only in a process that has imported it already (a notebook's), or for users who ask for it by name."""


def extra_of(module):
    """The extra that a module belongs to, or None for the core."""
    return next((extra for start, extra in EXTRA_OF.items() if module.startswith(start)), None)


def modules():
    """Every module of the package, by its dotted name."""
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imports(tree):
    """Every import of another library: name, whether loading the module does it, whether only type checkers do."""
    waiting = [(tree, True, False)]
    while waiting:
        node, when_loaded, for_types = waiting.pop()
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module]
        for name in {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {"pgfl", "__future__"}:
            yield name, when_loaded, for_types
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Try):
            when_loaded = False
        typing_only = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.expr):  # no expression holds an import
                waiting.append((child, when_loaded, for_types or typing_only))
