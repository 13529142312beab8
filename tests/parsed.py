"""Syntax trees of source files, parsed once for all tests that read them."""

import ast
from functools import cache


@cache
def parsed(path):
    """The syntax tree of a file; whoever reads it leaves it as it is."""
    return ast.parse(path.read_text("utf-8"))
