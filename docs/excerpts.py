"""What the search page shows of a page beside its title: texts that come with the site.

Sphinx alone would fetch every page that is found, which browsers refuse for files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from docutils import nodes

FILE = "excerpts.js"


def setup(app: Any) -> dict[str, bool]:
    """Write the texts after the build, and load them on the search page alone."""
    app.connect("html-page-context", _load)
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _load(app: Any, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    if page == "search":
        app.add_js_file(FILE)
        app.add_js_file("search-excerpts.js")


def _write(app: Any, exception: Exception | None) -> None:
    if exception is None and app.builder.name == "html":
        pages = {name: _text(app.env.get_doctree(name)) for name in sorted(app.env.found_docs)}
        text = f"const EXCERPTS = {json.dumps(pages, ensure_ascii=False)};\n"
        Path(app.outdir, "_static", FILE).write_text(text, "utf-8")


def _text(page: nodes.document) -> str:
    """Return what is read on a page: without markup that is passed through."""
    for raw in list(page.findall(nodes.raw)):
        raw.parent.remove(raw)
    return " ".join(page.astext().split())
