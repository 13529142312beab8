"""Find a piece of syntax in a named definition, and put another in its place.

A place is the qualified name of a function, class or constant, such as `SecureNoise.release`. It is looked up in the
whole package, so it survives a move to another file; where several modules define the name, the end of the module's
name goes before it: `noise:SecureNoise.release`. Syntax is compared as Python parses it, so formatting, comments and
the surrounding code do not matter.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

Span = tuple[int, int, int, int]  # line and column of the first byte, and of the one after the last, as in ast

NAME = re.compile(r"\w+")
PERHAPS_DEFINED = re.compile(r"^ *(?:(?:async )?def|class) +(\w+)|^ *(\w[\w, ]*?) *[:=]", flags=re.MULTILINE)


class DoesNotFit(Exception):
    """An edit has no place in the source; the message says why."""


@dataclass(frozen=True)
class Module:
    """One file of a package."""

    path: Path
    name: str

    @cached_property
    def text(self) -> str:
        return self.path.read_text("utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def perhaps_defined(self) -> set[str]:
        """Return all names that may be defined here, and some that are not; parsing every module takes seconds."""
        return {name for found in PERHAPS_DEFINED.findall(self.text) for name in NAME.findall(" ".join(found))}

    def definitions(self, qualified: str) -> list[ast.AST]:
        """Return all that is called so: several, if a property has a setter."""
        names = qualified.split(".")
        if not self.perhaps_defined.issuperset(names):
            return []
        found: list[ast.AST] = [self.tree]
        for name in names:
            found = [node for scope in found for node in _own_statements(scope) if name in _defined_names(node)]
        return found


@dataclass(frozen=True)
class Package:
    """The source of a package, in which names are looked up."""

    modules: tuple[Module, ...]

    @classmethod
    def at(cls, folder: Path) -> Package:
        paths = sorted(folder.rglob("*.py"))
        return cls(tuple(Module(path, ".".join(path.relative_to(folder).with_suffix("").parts)) for path in paths))

    def find(self, where: str) -> tuple[Module, list[ast.AST]]:
        """Return the only module that defines `where`, and the definitions."""
        suffix, _, qualified = where.rpartition(":")
        candidates = [module for module in self.modules if not suffix or f".{module.name}".endswith(f".{suffix}")]
        found = [(module, nodes) for module in candidates if (nodes := module.definitions(qualified))]
        if len(found) != 1:
            known = " and ".join(module.name for module, _ in found) or "no module"
            raise DoesNotFit(f"{where} must have one definition, and is defined in {known}")
        return found[0]


def edited(text: str, scopes: list[ast.AST], old: str, new: str, at: int | None = None) -> str:
    """Return `text` with `new` in place of `old`, which occurs once in `scopes`; or of its `at`-th occurrence, from 1.

    Both are expressions, or both are statements; no statement at all removes. In `old` an ellipsis is any expression,
    any arguments or any block. In `new` an ellipsis on a line of its own is what stood there, so that
    `"charge()\\n..."` inserts a statement before it.
    """
    old, new = textwrap.dedent(old).strip(), textwrap.dedent(new).strip()
    try:
        pattern, replacement = ast.parse(old).body, ast.parse(new).body
    except SyntaxError as error:
        raise DoesNotFit(f"not Python: {error}") from error
    if _is_expression(pattern) and _is_expression(replacement):
        spans, new = _expressions_like(pattern[0], scopes), f"({new})"
    else:
        spans, new = _statements_like(pattern, scopes), new or "pass"
    if len(spans) < (at or 1) or (at is None and len(spans) > 1):
        raise DoesNotFit(f"found {len(spans)} times: {old}")
    return _spliced(text, spans[(at or 1) - 1], new)


def matches(found: object, pattern: object) -> bool:
    """Return whether syntax is like a pattern; that one is read and the other assigned makes no difference."""
    if _is_ellipsis(pattern):
        return isinstance(found, ast.expr)
    if isinstance(pattern, ast.expr_context):
        return isinstance(found, ast.expr_context)
    if type(found) is not type(pattern):
        return False
    if isinstance(pattern, ast.AST):
        return all(matches(getattr(found, name, None), getattr(pattern, name, None)) for name in pattern._fields)
    if isinstance(found, list) and isinstance(pattern, list):
        anything = len(pattern) == 1 and _is_ellipsis(pattern[0])
        return anything or (len(found) == len(pattern) and all(map(matches, found, pattern)))
    return found == pattern


def _is_ellipsis(node: object) -> bool:
    node = node.value if isinstance(node, ast.Expr) else node
    return isinstance(node, ast.Constant) and node.value is ...


def _own_statements(scope: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements of a scope, not those of the definitions in it."""
    for block in _blocks(scope):
        for statement in block:
            yield statement
            if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield from _own_statements(statement)


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield the blocks that belong to a node: those of a `try` are its body, its handlers' and two others."""
    for _, value in ast.iter_fields(node):
        if isinstance(value, list) and value:
            if isinstance(value[0], ast.stmt):
                yield value
            elif isinstance(value[0], ast.ExceptHandler | ast.match_case):
                yield from (part.body for part in value)


def _defined_names(node: ast.stmt) -> set[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Assign(targets=targets):
            return {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
    return set()


def _is_expression(statements: list[ast.stmt]) -> bool:
    return len(statements) == 1 and isinstance(statements[0], ast.Expr)


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all below it in the order of the source, but not what is inside an f-string.

    Before Python 3.12 that has wrong positions.
    """
    yield node
    if not isinstance(node, ast.JoinedStr):
        for child in ast.iter_child_nodes(node):
            yield from _inside(child)


def _expressions_like(pattern: ast.stmt, scopes: list[ast.AST]) -> list[Span]:
    assert isinstance(pattern, ast.Expr)
    found = [node for scope in scopes for node in _inside(scope) if matches(node, pattern.value)]
    return sorted(_span(node, node) for node in found)


def _statements_like(pattern: list[ast.stmt], scopes: list[ast.AST]) -> list[Span]:
    """Find statements in a row; a definition may be the only one that is searched."""
    size = len(pattern)
    blocks = [[node] for node in scopes if isinstance(node, ast.stmt)]
    blocks += [block for scope in scopes for node in _inside(scope) for block in _blocks(node)]
    runs = [block[start : start + size] for block in blocks for start in range(len(block) - size + 1)]
    return sorted({_span(run[0], run[-1]) for run in runs if size and matches(run, pattern)})


def _span(first: ast.AST, last: ast.AST) -> Span:
    assert isinstance(first, ast.expr | ast.stmt)
    assert isinstance(last, ast.expr | ast.stmt)
    starts = [first, *getattr(first, "decorator_list", [])]
    line, column = min((node.lineno, node.col_offset - (node is not first)) for node in starts)  # "@" is no syntax
    return line, column, last.end_lineno or 0, last.end_col_offset or 0


def _spliced(text: str, span: Span, new: str) -> str:
    """Put `new` where `span` is, with the indentation of what stood there."""
    line, column, end_line, end_column = span
    lines = text.encode().splitlines(keepends=True)  # columns are counted in bytes
    start = sum(map(len, lines[: line - 1])) + column
    end = sum(map(len, lines[: end_line - 1])) + end_column
    before, found, after = (
        part.decode() for part in (text.encode()[:start], text.encode()[start:end], text.encode()[end:])
    )
    return before + f"\n{' ' * column}".join(found if row == "..." else row for row in new.split("\n")) + after
