"""The documentation site: `make docs` builds it, and every warning is an error."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from myst_nb.core import render

import pgfl

project = "pgfl"
author = "the pgfl authors"
release = pgfl.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_copybutton", "excerpts", "generated_reference", "typeset"]
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = "pgfl"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {
    "footer_icons": [
        {"name": "The paper", "url": "https://arxiv.org/abs/2306.06399", "html": "arXiv 2306.06399", "class": ""},
    ],
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_show_sourcelink = False
html_show_search_summary = False  # it would fetch pages, which browsers refuse for files; see excerpts.py

smartquotes = False  # messages and options are found as they are printed
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_in_temp = True
nb_execution_timeout = 300
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_preserve_defaults = True

# What notebooks run in: the commands of this environment, plain text, and one thread each, so that builds do not
# compete with each other for cores.
os.environ |= {
    "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
    "COLUMNS": "82",
    "TERM": "dumb",
    "NO_COLOR": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}

OUTSIDE = {
    "(../benchmarks/RESULTS.md": "(benchmarks.md",
    "(../../benchmarks/RESULTS.md": "(../benchmarks.md",
    "(../CONTRIBUTING.md": "(contributing.md",
    "(../CHANGELOG.md": "(changelog.md",
}
INCLUDED = {"(CONTRIBUTING.md": "(contributing.md", "(CHANGELOG.md": "(changelog.md"}


def joined_streams(outputs):
    """What a cell prints, as one text: MyST-NB alone begins a new line wherever a chunk of the output ends."""
    streams, kept = {}, []
    for output in outputs:
        if output["output_type"] != "stream":
            kept.append(output)
        elif output["name"] in streams:
            streams[output["name"]]["text"] += output["text"]
        else:
            streams[output["name"]] = output
            kept.append(output)
    return kept


def setup(app):
    """Join what cells print, and let links to files outside of this folder lead to their pages here."""
    tidied = render.coalesce_streams
    render.coalesce_streams = lambda outputs: tidied(joined_streams(outputs))

    def redirect(app, name, source):
        for link, page in OUTSIDE.items():
            source[0] = source[0].replace(link, page)

    def redirect_included(app, path, parent, source):
        for link, page in INCLUDED.items():
            source[0] = source[0].replace(link, page)

    app.connect("source-read", redirect)
    app.connect("include-read", redirect_included)
