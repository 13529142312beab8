"""No public function or method takes or returns a bare `Any`: arrays have names of their own in `pgfl.arrays`."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import pgfl
from tests.parsed import parsed

SOURCE = Path(pgfl.__file__).parent
NAMES_OF_ARRAYS = SOURCE / "arrays.py"


def is_public(name: str) -> bool:
    return not name.startswith("_") or (name.startswith("__") and name.endswith("__"))


def public_functions(body: list[ast.stmt], prefix: str = ""):
    """(name, definition) of the functions of a module and the methods of its classes that others may call."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and is_public(node.name):
            yield f"{prefix}{node.name}", node
        elif isinstance(node, ast.ClassDef) and is_public(node.name):
            yield from public_functions(node.body, f"{prefix}{node.name}.")


def annotations(function: ast.FunctionDef | ast.AsyncFunctionDef):
    """(what it annotates, annotation) of a signature; `*args: Any` only passes arguments on."""
    given = function.args
    yield from (
        (argument.arg, argument.annotation) for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs)
    )
    yield "return", function.returns


def bare(annotation: ast.expr | None, aliases: set[str]) -> bool:
    """Whether an annotation is `Any`, also as `Any | None`, or a local name for it."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return bare(ast.parse(annotation.value, mode="eval").body, aliases)
    if isinstance(annotation, ast.BinOp):
        return bare(annotation.left, aliases) or bare(annotation.right, aliases)
    if isinstance(annotation, ast.Attribute):
        return annotation.attr == "Any"
    return isinstance(annotation, ast.Name) and annotation.id in aliases


def local_aliases(tree: ast.Module) -> set[str]:
    """`Any` and the module's own names for it, such as `Array = Any`."""
    assigned = [(node.targets[0], node.value) for node in tree.body if isinstance(node, ast.Assign)]
    assigned += [(node.target, node.value) for node in tree.body if isinstance(node, ast.AnnAssign)]
    names = {
        t.id for t, value in assigned if isinstance(t, ast.Name) and isinstance(value, ast.Name) and value.id == "Any"
    }
    return {"Any"} | names


def offenders() -> list[str]:
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        tree = parsed(path)
        aliases = {"Any"} if path == NAMES_OF_ARRAYS else local_aliases(tree)
        for name, function in public_functions(tree.body):
            places = [place for place, annotation in annotations(function) if bare(annotation, aliases)]
            if places:
                found.append(f"{path.relative_to(SOURCE)}:{function.lineno} {name} ({', '.join(places)})")
    return found


@pytest.mark.proof
def test_no_public_signature_has_a_bare_any():
    assert offenders() == []
