# SPDX-License-Identifier: BSD-3-Clause
"""Sphinx, for `make docs`.

The reference comes from docstrings, so the package has to be importable: it is taken
from this tree, built in place.
"""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "python"))

project = "distlite"
copyright = "the distlite authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = "distlite"
myst_heading_anchors = 3
exclude_patterns = []

# `name` in a docstring is a link where it names something of the reference, else code.
default_role = "py:obj"
# Every other reference has to resolve, except those to what is not documented here:
# the standard library, NumPy, and the aliases of the annotations.
nitpicky = True
nitpick_ignore_regex = [
    ("py:obj", r"(?s).*"),
    ("py:(class|exc|data)", r"(?!distlite\.(?!(groups\.)?process_group_gloo)).*"),
]

autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
napoleon_numpy_docstring = False
napoleon_use_rtype = False


def name_members_as_users_do(app, what, name, obj, options, signature, returns):
    """ReduceOp.SUM, where Python shows the class that the member comes from."""
    return signature and signature.replace("RedOpType.", "ReduceOp."), returns


# What GitHub shows: the picture of the reader's theme.
PICTURE = re.compile(
    r'<picture>\n.*?<img alt="(.*?)"\s*src="(.*?)-light\.svg">\n</picture>', re.DOTALL
)
IMAGE = """```{{image}} {path}-{theme}.svg
:alt: {alt}
:class: only-{theme}
```
"""


def show_pictures_of_both_themes(app, docname, source):
    """Sphinx does not copy files that HTML names, and furo has a switch of its own."""

    def directives(found):
        alt = " ".join(found[1].split())
        themes = ("light", "dark")
        return "\n".join(
            IMAGE.format(path=found[2], theme=theme, alt=alt) for theme in themes
        )

    source[0] = PICTURE.sub(directives, source[0])


def setup(app):
    app.connect("autodoc-process-signature", name_members_as_users_do)
    app.connect("source-read", show_pictures_of_both_themes)
