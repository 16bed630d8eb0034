# SPDX-License-Identifier: BSD-3-Clause
"""Sphinx, for `make docs`."""

project = "distlite"
copyright = "the distlite authors"
extensions = ["myst_parser"]
html_theme = "alabaster"
myst_heading_anchors = 3
exclude_patterns = []
