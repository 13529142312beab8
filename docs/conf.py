"""The documentation site: `make docs` builds it, and every warning is an error."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pgfl

project = "pgfl"
author = "the pgfl authors"
release = pgfl.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "generated_reference"]
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = "pgfl"
html_static_path: list[str] = []

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_preserve_defaults = True

OUTSIDE = {"(../benchmarks/RESULTS.md": "(benchmarks.md", "(../CONTRIBUTING.md": "(contributing.md"}
INCLUDED = {"(CONTRIBUTING.md": "(contributing.md", "(CHANGELOG.md": "(changelog.md"}


def setup(app):
    """Let links to files outside of this folder, which work in the repository, lead to their pages here."""

    def redirect(app, name, source):
        for link, page in OUTSIDE.items():
            source[0] = source[0].replace(link, page)

    def redirect_included(app, path, parent, source):
        for link, page in INCLUDED.items():
            source[0] = source[0].replace(link, page)

    app.connect("source-read", redirect)
    app.connect("include-read", redirect_included)
